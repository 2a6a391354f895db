"""Runs with the settings as delivered: attempts are diagnosed, and instances that failed often are placed last.

Programs write logs and ranks send reports. Both may be late, missing or false.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpu_recovery.core.policy import Preset

from simulator.cloud.log_output import TRUTH, LogStory
from simulator.faults import aws_notifications, instances, operators, training_reports
from simulator.faults.schedule import TimedFault
from simulator.trials.scenario import ClusterOf, JobOf

EVERY, AT = 4, 2
"""The seeds of these runs: every fourth, from the third on."""
STORIES_MAX = 3
INSTANCES_MAX = 6
HABITS = (TRUTH, TRUTH, TRUTH, *LogStory)
"""What the programs of a job write: mostly the true cause, else always the same story, which is usually false."""
IMPATIENT_S = 900
"""Seconds that a job may wait in the queue, in a few of these runs."""
SILENT_BEFORE_S = 220.0
"""Seconds by which the node agent stops reporting before a GPU fails.

The missing heartbeat is then detected when the GPU fails, and is over when the instance has been replaced."""
STARTING_S = (15.5, 60.0)
"""Virtual seconds, from and to, in which gangs that operators start have just begun."""

Draw = random.Random


def with_evidence(draw: Draw, cluster: ClusterOf, jobs: tuple[JobOf, ...]) -> tuple[ClusterOf, tuple[JobOf, ...]]:
    """Return the cluster with diagnosis and lemon order, and jobs that write logs. `classic` diagnoses nothing."""
    diagnoses = cluster.policy.get("preset") != Preset.CLASSIC
    cluster = replace(cluster, diagnose=diagnoses, lemons=diagnoses)
    return cluster, tuple(replace(job, writes=draw.choice(HABITS)) for job in jobs)


def with_short_queue_timeout(draw: Draw, cluster: ClusterOf) -> ClusterOf:
    """Return the cluster, in a few runs with a short queue timeout."""
    waits = {"queue_timeout_s": IMPATIENT_S} if draw.random() < 0.15 else {}
    return replace(cluster, policy={**cluster.policy, **waits})


def stories(draw: Draw, until_s: float) -> tuple[TimedFault, ...]:
    """Draw up to `STORIES_MAX` further groups of related faults."""
    faults: list[TimedFault] = []
    for _ in range(draw.randint(0, STORIES_MAX)):
        where = {"at_s": round(draw.uniform(30, until_s), 1), "machines": (draw.randrange(INSTANCES_MAX),)}
        make = draw.choices([make for make, _ in STORIES], [weight for _, weight in STORIES])[0]
        faults += make(draw, where)
    return tuple(faults)


Where = dict[str, Any]


def _later(draw: Draw, where: Where, least_s: float, most_s: float) -> Where:
    return {**where, "at_s": round(where["at_s"] + draw.uniform(least_s, most_s), 1)}


def _ends(draw: Draw, where: Where) -> TimedFault:
    return instances.RankExits(code=draw.choice((1, 1, 134, 137, 139, None)), **where)


def _fails(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank ends, and its log shows what the habit of its job says."""
    return [_ends(draw, where)]


def _misleads(draw: Draw, where: Where) -> list[TimedFault]:
    """The log of the next rank that ends shows a random story. A GPU failure or an exit follows."""
    broken: TimedFault = instances.GpuBreaks(
        fault=draw.choice(("xid79", "ecc", "hidden")), **_later(draw, where, 1, 60)
    )
    says = draw.choice(tuple(LogStory))
    return [
        training_reports.LogMisleads(says=says, **where),
        broken if draw.random() < 0.5 else _ends(draw, _later(draw, where, 1, 60)),
    ]


def _reports(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank sends a report and ends soon, perhaps before the report is received."""
    late_s = draw.choice((0.0, 0.0, 60.0, 400.0))
    report = training_reports.RankReports(of=draw.choice(("notice", "gpu")), late_s=late_s, **where)
    return [report, _ends(draw, _later(draw, where, 1, 60))]


def _stalls(draw: Draw, where: Where) -> list[TimedFault]:
    return [training_reports.GangStalls(**where)]


def _refused(draw: Draw, where: Where) -> list[TimedFault]:
    """An instance is found faulty, and its owners remove its managed tag at about the time of its repair."""
    broken = instances.GpuBreaks(fault=draw.choice(("xid79", "ecc")), **where)
    return [broken, operators.ManagedTagRemoved(for_s=draw.choice((300.0, 3_600.0)), **_later(draw, where, 0, 120))]


def _replaced(draw: Draw, where: Where) -> list[TimedFault]:
    """An instance must be replaced. Meanwhile it is quarantined, hangs, is reported impaired or does not come back."""
    broken = instances.GpuBreaks(fault="ecc", cured_by="replace", **where)
    then, earlier = _later(draw, where, 60, 400), {**where, "at_s": max(30.0, where["at_s"] - SILENT_BEFORE_S)}
    beside: tuple[TimedFault, ...] = (
        operators.QuarantinedByHand(**then),
        instances.RebootsGoWrong(how="silent", **then),
        aws_notifications.EcsHealthReported(**then),
        instances.NodeAgentSilent(for_s=2 * SILENT_BEFORE_S, **earlier),
        instances.HostHangs(**then),
    )
    return [broken, draw.choice(beside)]


def _again(draw: Draw, where: Where) -> list[TimedFault]:
    """A gang that an operator started fails or is cancelled, and the operator starts it once more."""
    ended = _ends(draw, where) if draw.random() < 0.5 else operators.JobCanceled(job=0, at_s=where["at_s"])
    return [ended, operators.StartedAgain(at_s=_later(draw, where, 30, 1_200)["at_s"])]


def _by_force(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank cannot be stopped, even by a reboot, and an operator finally cancels the job by force."""
    ends, late_s = _ends(draw, _later(draw, where, 1, 60)), _later(draw, where, 1, 7_200)["at_s"]
    ignored = instances.RebootsGoWrong(how="ignored", **where)
    cancellation = operators.JobCanceled(job=draw.randint(0, 2), force=True, at_s=late_s)
    return [instances.RanksAreStuck(**where), ignored, ends, cancellation]


def _too_soon(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank ends before all functions have received that its gang runs."""
    return [_ends(draw, {**where, "at_s": round(draw.uniform(*STARTING_S), 1)})]


STORIES: tuple[tuple[Callable[[Draw, Where], list[TimedFault]], int], ...] = (
    (_fails, 4),
    (_misleads, 5),
    (_reports, 4),
    (_stalls, 3),
    (_refused, 2),
    (_replaced, 2),
    (_again, 2),
    (_by_force, 2),
    (_too_soon, 1),
)
