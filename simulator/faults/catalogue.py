"""The catalogue of faults: each kind of fault by its name in scenario files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.faults.aws_notifications import (
    EcsHealthReported,
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
    DeregisteredByHand,
    DrainedByHand,
    JobCanceled,
    JobResumed,
    JobSuspended,
    ManagedTagRemoved,
    QuarantinedByHand,
    RankStoppedByHand,
    RebootedByHand,
    Released,
    RepairsPaused,
    StartedAgain,
)
from simulator.faults.schedule import FunctionSleeps, TimedFault
from simulator.faults.training_reports import GangStalls, LogMisleads, RankReports
from simulator.faults.transient import CALL_FAULTS, EVENT_FAULTS

TIMED_FAULTS: Mapping[str, type[TimedFault]] = {
    fault.kind: fault
    for fault in (
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
        DeregisteredByHand,
        DrainedByHand,
        RankStoppedByHand,
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
        QuarantinedByHand,
        EcsHealthReported,
        RebalanceRecommended,
        RepairsPaused,
        StartedAgain,
        ManagedTagRemoved,
        LogMisleads,
        RankReports,
        GangStalls,
    )
}
KINDS: Mapping[str, type[Any]] = {**TIMED_FAULTS, **EVENT_FAULTS, **CALL_FAULTS}
