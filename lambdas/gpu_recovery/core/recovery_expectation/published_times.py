"""Published failure rates and times, and the model of an incident that follows from them.

Each number is that of `simulator/goodput/assumptions.toml`, which has its source and its range. A test compares both
files. The model is the course of the product: notice, stop, check, wait for an instance, start, first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

RATE_PER_1000_INSTANCE_DAYS, RATE_GPUS = 6.50, 8
"""Failures of 1,000 instances a day, with 8 GPUs each: Revisiting Reliability in Large-Scale ML Research Clusters
(arXiv 2410.21680), section III, RSC-1."""
RATE_SOURCE = "arXiv 2410.21680, RSC-1"
"""Source of that rate, for users."""
EXIT_S, EVENT_S, LEAVE_S = 10.0, 1.0, 10.0
HANG_S, PROGRESS_S = 600.0, 60.0
CALLS_BURST, CALLS_PER_S = 100.0, 40.0
CHECK_S, REBOOT_S, REPLACE_S = 120.0, 360.0, 480.0
START_S, RESPAWN_S, REJOIN_S, REJOIN_PER_GPU_S, EVIDENCE_S = 10.0, 10.0, 60.0, 0.00854, 5.0
PERSIST_S, STEP_S = 30.0, 10.0
REPORTS_S = 20.0
"""Seconds from a process to a decision about its progress: process and agent report every 10 s (docs/hangs.md)."""
REBOOT_SHARE, VERDICT_SHARE, HANG_SHARE, TOLD_SHARE = 0.6, 0.5, 0.135, 0.899
SEEN_BY_REPORTS, SEEN_BY_CHECK = 0.90, 0.93
"""Shares of the visible faults that the reports of the agents and a check of the gang find."""
CHECKPOINT_S = 3_600.0
"""Seconds between two checkpoints of a job that states none: the hour of RSC-1 (arXiv 2410.21680, section V)."""

EITHER, NODE_HANG, NODE_UNSEEN, RESTART_EXIT, RESTART_HANG, GONE, PERSON = 276, 7, 6, 53, 42, 32, 3
"""The 419 interruptions of Llama 3 405B (arXiv 2407.21783, Table 5) by cure and by how they show: faults of an instance
that end a rank or hang, that hang, that no check sees; errors that a restart cures, with an exit and with a hang;
instances that are gone; errors of the program that a person must fix."""


@frozen_dataclass()
class Setup:
    """The job and its surroundings, as far as they decide how long a recovery takes.

    spares:           idle instances that the job can take.
    in_place:         whether the job restarts in its containers (`restart_in_place`), which needs node agents.
    warm_spares:      idle instances with a waiting container of the job.
    reports_progress: whether a hang is noticed by progress reports. Otherwise the collectives time out.
    checkpoint_s:     seconds between two checkpoints.
    persist_s:        seconds until a checkpoint can be read.
    """

    nnodes: int
    gpus_per_node: int
    spares: int = 0
    in_place: bool = False
    warm_spares: int = 0
    reports_progress: bool = False
    checkpoint_s: float = CHECKPOINT_S
    persist_s: float = PERSIST_S

    @property
    def gpus(self) -> int:
        """GPUs of the job."""
        return self.nnodes * self.gpus_per_node


@frozen_dataclass()
class Recovery:
    """A possible downtime: its share of all downtimes, and its phases in seconds. `wait` includes repairs."""

    weight: float
    notice: float = 0.0
    stop: float = 0.0
    check: float = 0.0
    wait: float = 0.0
    start: float = 0.0
    first_step: float = 0.0

    @property
    def down_s(self) -> float:
        """Seconds of the downtime."""
        return self.notice + self.stop + self.check + self.wait + self.start + self.first_step


def published_recoveries(setup: Setup) -> tuple[Recovery, ...]:
    """Return the possible recoveries of a job by the published times. Their weights add up to 1."""
    found = [recovery for recovery in _recoveries(setup) if recovery.weight > 0]
    total = sum(recovery.weight for recovery in found)
    return tuple(replace(recovery, weight=recovery.weight / total) for recovery in found)


def _calls(number: int) -> float:
    """Return the seconds of so many calls of ECS in a row, by its limit."""
    return max(0.0, number - CALLS_BURST) / CALLS_PER_S


def _recoveries(setup: Setup) -> Iterator[Recovery]:
    """Yield the recoveries by kind of failure. An error that a person must fix ends the job, so it is no recovery."""
    exits = EITHER * (1.0 - HANG_SHARE)
    hangs = EITHER * HANG_SHARE + NODE_HANG
    yield from _of_node(setup, exits, named=TOLD_SHARE * SEEN_BY_REPORTS, hangs=False)
    yield from _of_node(setup, hangs, named=0.0, hangs=True)
    for weight, is_hang in ((RESTART_EXIT + NODE_UNSEEN, False), (RESTART_HANG, True)):
        yield _recovery(setup, weight, hangs=is_hang, checked=not setup.in_place, wait=0.0)
    gone_wait = 0.0 if setup.spares else REPLACE_S
    gone = _recovery(setup, GONE, hangs=False, checked=False, wait=gone_wait, left_out=True)
    yield replace(gone, notice=EVENT_S, wait=max(0.0, gone_wait - gone.stop))


def _of_node(setup: Setup, weight: float, *, named: float, hangs: bool) -> Iterator[Recovery]:
    """Yield the recoveries from a fault of an instance: named by a log or a report, found by a check, or not found."""
    if setup.in_place:  # the agents report what they see, and a first failure needs no check of the gang
        named = SEEN_BY_REPORTS
    unnamed = 1.0 - named
    found = 0.0 if setup.in_place else unnamed * SEEN_BY_CHECK
    for share, checked in ((named, False), (found, not setup.in_place)):
        for part, repair_s in _repairs(checked):
            wait = 0.0 if setup.spares else repair_s
            yield _recovery(setup, weight * share * part, hangs=hangs, checked=checked, wait=wait, left_out=True)
    yield _recovery(setup, weight * (unnamed - found), hangs=hangs, checked=not setup.in_place, wait=0.0)
    if setup.in_place:  # a fault without a sign returns, and the second failure has the whole gang checked
        for part, repair_s in _repairs(True):
            wait = 0.0 if setup.spares else repair_s
            yield _recovery(setup, weight * unnamed * part, hangs=hangs, checked=True, wait=wait, left_out=True)


def _repairs(checked: bool) -> Iterator[tuple[float, float]]:
    """Yield the repairs of an instance with their shares and seconds. After no gang check they begin with a check."""
    check = START_S + CHECK_S + EVENT_S
    first = 0.0 if checked else check
    yield REBOOT_SHARE, first + REBOOT_S + check
    yield (1.0 - REBOOT_SHARE) * VERDICT_SHARE, first + REPLACE_S
    yield (1.0 - REBOOT_SHARE) * (1.0 - VERDICT_SHARE), first + REBOOT_S + check + REPLACE_S


def _recovery(
    setup: Setup, weight: float, *, hangs: bool, checked: bool, wait: float, left_out: bool = False
) -> Recovery:
    """Return one kind of recovery.

    Args:
        setup: the job and its surroundings.
        weight: how often it occurs, relative to the others.
        hangs: whether the ranks hang until a timeout.
        checked: whether every instance of the gang is checked.
        wait: seconds of the wait for an instance.
        left_out: whether an instance is left out, so that another instance takes its place.
    """
    hang_s = PROGRESS_S + REPORTS_S if setup.reports_progress else HANG_S
    has_ended = hangs and not setup.reports_progress  # every rank has timed out
    stop = 0.0 if has_ended else LEAVE_S + EVENT_S + (0.0 if setup.in_place else _calls(setup.nnodes - 1))
    check = EVIDENCE_S if setup.in_place else 0.0
    if checked:
        check = _calls(setup.nnodes) + START_S + CHECK_S + EVENT_S
    start = _calls(setup.nnodes) + START_S
    if setup.in_place:
        start = RESPAWN_S if setup.warm_spares or not left_out else max(RESPAWN_S, START_S)
    notice = (hang_s if hangs else EXIT_S) + EVENT_S
    return Recovery(weight, notice, stop, check, wait, start, REJOIN_S + REJOIN_PER_GPU_S * setup.gpus)
