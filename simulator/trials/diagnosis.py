"""Runs as the product is delivered: what ended an attempt is looked into, and machines that failed often go last.

Programs write logs and ranks tell; both may be late, missing, or lies.
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
"""Every fourth seed, from the third on."""
STORIES_MAX = 3
INSTANCES_MAX = 6
HABITS = (TRUTH, TRUTH, TRUTH, *LogStory)
"""What programs write: mostly what is so, else always the same, which is a lie more often than not."""
IMPATIENT_S = 900
"""How long a job may stand in line, in a few of these runs."""
SILENT_BEFORE_S = 220.0
"""A silence that is known when the machine's GPU fails, and over when it is back from being replaced."""
STARTING_S = (15.5, 60.0)
"""When the gangs that people start have just begun."""

Draw = random.Random


def with_evidence(draw: Draw, cluster: ClusterOf, jobs: tuple[JobOf, ...]) -> tuple[ClusterOf, tuple[JobOf, ...]]:
    """The same cluster and jobs, and whoever may speak of them. `classic` looks into nothing."""
    looks = cluster.policy.get("preset") != Preset.CLASSIC
    cluster = replace(cluster, diagnose=looks, lemons=looks)
    return cluster, tuple(replace(job, writes=draw.choice(HABITS)) for job in jobs)


def with_short_queue_timeout(draw: Draw, cluster: ClusterOf) -> ClusterOf:
    """Now and then nobody stands in line for long."""
    waits = {"queue_timeout_s": IMPATIENT_S} if draw.random() < 0.15 else {}
    return replace(cluster, policy={**cluster.policy, **waits})


def stories(draw: Draw, until_s: float) -> tuple[TimedFault, ...]:
    """What goes wrong besides, up to `STORIES_MAX` times: some faults that belong together."""
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
    """A rank ends, and is believed what it writes."""
    return [_ends(draw, where)]


def _misleads(draw: Draw, where: Where) -> list[TimedFault]:
    """The log of the rank that ends speaks of anything."""
    broken: TimedFault = instances.GpuBreaks(
        fault=draw.choice(("xid79", "ecc", "hidden")), **_later(draw, where, 1, 60)
    )
    says = draw.choice(tuple(LogStory))
    return [
        training_reports.LogMisleads(says=says, **where),
        broken if draw.random() < 0.5 else _ends(draw, _later(draw, where, 1, 60)),
    ]


def _reports(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank tells of something, and soon ends: perhaps sooner than is heard what it told."""
    late_s = draw.choice((0.0, 0.0, 60.0, 400.0))
    told = training_reports.RankReports(of=draw.choice(("notice", "gpu")), late_s=late_s, **where)
    return [told, _ends(draw, _later(draw, where, 1, 60))]


def _stalls(draw: Draw, where: Where) -> list[TimedFault]:
    return [training_reports.GangStalls(**where)]


def _refused(draw: Draw, where: Where) -> list[TimedFault]:
    """A machine is blamed, and its owners take it back at about the time of its repair."""
    broken = instances.GpuBreaks(fault=draw.choice(("xid79", "ecc")), **where)
    return [broken, operators.ManagedTagRemoved(for_s=draw.choice((300.0, 3_600.0)), **_later(draw, where, 0, 120))]


def _replaced(draw: Draw, where: Where) -> list[TimedFault]:
    """A machine must be replaced, and while that goes on a person takes it out, it hangs, or it never comes back."""
    broken = instances.GpuBreaks(fault="ecc", cured_by="replace", **where)
    then, silent = _later(draw, where, 60, 400), {**where, "at_s": max(30.0, where["at_s"] - SILENT_BEFORE_S)}
    beside: tuple[TimedFault, ...] = (
        operators.QuarantinedByHand(**then),
        instances.RebootsGoWrong(how="silent", **then),
        aws_notifications.EcsHealthReported(**then),
        instances.NodeAgentSilent(for_s=2 * SILENT_BEFORE_S, **silent),
        instances.HostHangs(**then),
    )
    return [broken, draw.choice(beside)]


def _again(draw: Draw, where: Where) -> list[TimedFault]:
    """A person ends a gang of their own, or it fails, and starts it once more."""
    ended = _ends(draw, where) if draw.random() < 0.5 else operators.JobCanceled(job=0, at_s=where["at_s"])
    return [ended, operators.StartedAgain(at_s=_later(draw, where, 30, 1_200)["at_s"])]


def _by_force(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank cannot be stopped, not by a reboot either, and in the end a person wants it gone."""
    ends, late_s = _ends(draw, _later(draw, where, 1, 60)), _later(draw, where, 1, 7_200)["at_s"]
    ignored = instances.RebootsGoWrong(how="ignored", **where)
    wish = operators.JobCanceled(job=draw.randint(0, 2), force=True, at_s=late_s)
    return [instances.RanksAreStuck(**where), ignored, ends, wish]


def _too_soon(draw: Draw, where: Where) -> list[TimedFault]:
    """A rank ends before everybody has heard that its gang runs."""
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
