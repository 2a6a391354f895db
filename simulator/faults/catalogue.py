"""Every kind of fault by the word that a scenario file has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.faults.aws_notifications import (
    HealthReported,
    MaintenancePlanned,
    RebalanceRecommended,
    SpotInterruption,
    StatusCheckFails,
)
from simulator.faults.instances import (
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
from simulator.faults.operators import (
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
from simulator.faults.schedule import FunctionSleeps, TimedFault
from simulator.faults.training_reports import GangStalls, LogSays, RankTells
from simulator.faults.transient import CALL_FAULTS, EVENT_FAULTS

TIMED_FAULTS: Mapping[str, type[TimedFault]] = {
    one.kind: one
    for one in (
        GpuBreaks,
        RankExits,
        AgentFlaps,
        NodeAgentSilent,
        HostDies,
        HostHangs,
        SpotInterruption,
        StatusCheckFails,
        RebootsGoWrong,
        RebootedByHand,
        CheckHangs,
        CheckSays,
        RanksAreStuck,
        ClockIsWrong,
        MaintenancePlanned,
        FunctionSleeps,
        JobCanceled,
        JobSuspended,
        JobResumed,
        Released,
        TakenOut,
        HealthReported,
        RebalanceRecommended,
        RepairsPaused,
        StartedAgain,
        TakenBack,
        LogSays,
        RankTells,
        GangStalls,
    )
}
KINDS: Mapping[str, type[Any]] = {**TIMED_FAULTS, **EVENT_FAULTS, **CALL_FAULTS}
