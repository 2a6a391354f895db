"""Every kind of fault by the word that a scenario file has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .machines import (
    AgentFlaps,
    CheckHangs,
    CheckSays,
    ClockIsWrong,
    GpuBreaks,
    HostDies,
    HostHangs,
    NodeAgentSilent,
    RankExits,
    RanksAreStuck,
    RebootsGoWrong,
)
from .notices import HealthReported, MaintenancePlanned, RebalanceRecommended, SpotInterruption, StatusCheckFails
from .passing import CALL_FAULTS, EVENT_FAULTS
from .people import (
    JobCanceled,
    JobResumed,
    JobSuspended,
    RebootedByHand,
    Released,
    RepairsPaused,
    StartedAgain,
    TakenBack,
    TakenOut,
)
from .telling import GangStalls, LogSays, RankTells
from .timed import FunctionSleeps, TimedFault

TIMED_FAULTS: Mapping[str, type[TimedFault]] = {
    one.kind: one
    for one in (
        GpuBreaks, RankExits, AgentFlaps, NodeAgentSilent, HostDies, HostHangs, SpotInterruption, StatusCheckFails,
        RebootsGoWrong, RebootedByHand, CheckHangs, CheckSays, RanksAreStuck, ClockIsWrong, MaintenancePlanned,
        FunctionSleeps, JobCanceled, JobSuspended, JobResumed, Released, TakenOut, HealthReported,
        RebalanceRecommended, RepairsPaused, StartedAgain, TakenBack, LogSays, RankTells, GangStalls,
    )
}  # fmt: skip
KINDS: Mapping[str, type[Any]] = {**TIMED_FAULTS, **EVENT_FAULTS, **CALL_FAULTS}
