"""Times of one recovery, from the conditions: stops, checks and starts of a whole gang, and repairs of one instance.

They are the times of a policy that decides in no time, overlooks nothing and sends every call as soon as AWS accepts
it. Rule models (`gang_rules`) are made of them. The times of the product's own way show what its control plane adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from simulator.goodput.assumptions import Conditions, Cure, Profile, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import Episode
from simulator.goodput.token_bucket import TokenBucket

TASKS_PER_CALL = 10
"""Largest `count` of one call of RunTask (Amazon ECS API Reference)."""


class Launch(StrEnum):
    """How a policy ends and starts the ranks of a gang.

    TASKS:     one call of ECS to stop a rank, and one to start it
    BATCHES:   one call of ECS starts ten ranks, and node agents stop them
    PODS:      Kubernetes deletes and creates the pods
    PROCESSES: the containers stay, and an agent in each starts the process again; only a new instance needs a container
    """

    TASKS = "tasks"
    BATCHES = "batches"
    PODS = "pods"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class RecoveryTimes:
    """Seconds of one recovery from each moment to the next. The moments are those of `Episode`."""

    shown: float
    detected: float
    stopped: float
    checked: float
    started: float
    training: float

    @property
    def until_placed(self) -> float:
        """Seconds from the fault to the moment at which the gang could start again."""
        return self.shown + self.detected + self.stopped + self.checked

    @property
    def total(self) -> float:
        """Seconds from the fault to the next step, if enough healthy instances are available."""
        return self.until_placed + self.started + self.training


class GangCalls:
    """Stops, checks and starts of a gang, which share the calls of ECS. Times are seconds since the first of them."""

    def __init__(self, profile: Profile, conditions: Conditions, launch: Launch = Launch.TASKS) -> None:
        self.instances, self.conditions, self.launch = profile.instances, conditions, launch
        self._calls = TokenBucket(conditions)

    def stopped(self, ranks: int) -> float:
        """Time at which the last of `ranks` ranks has ended, and the policy knows it."""
        conditions = self.conditions
        if not ranks or self.launch is Launch.PROCESSES:
            return 0.0
        asked = {Launch.TASKS: self._calls.last(ranks, 0.0), Launch.PODS: ranks / conditions.pods_per_s}
        return asked.get(self.launch, 0.0) + conditions.leave_s + conditions.event_s

    def checked(self, begins: float, level: int) -> float:
        """Time at which the checks of all instances have ended that are requested from `begins` on."""
        return self._calls.last(self.instances, begins) + checked_s(self.conditions, level)

    def started(self, begins: float, *, new_container: bool) -> float:
        """Time at which all processes of the gang run.

        Args:
            begins: time of the first start.
            new_container: whether an instance without a container of the job is among them.
        """
        conditions = self.conditions
        if self.launch is Launch.PROCESSES:
            return begins + (max(conditions.respawn_s, conditions.start_s) if new_container else conditions.respawn_s)
        if self.launch is Launch.PODS:
            return begins + self.instances / conditions.pods_per_s + conditions.start_s
        calls = self.instances if self.launch is Launch.TASKS else ceil(self.instances / TASKS_PER_CALL)
        return self._calls.last(calls, begins) + conditions.start_s


def recovery(profile: Profile, conditions: Conditions, shows: Shows, level: int | None) -> RecoveryTimes:
    """Shortest recovery on the product's own way that waits for no instance.

    Args:
        profile: the gang.
        conditions: delays, and the limits of ECS calls.
        shows: how the fault becomes visible.
        level: level of the checks; None for a recovery without checks.
    """
    calls = GangCalls(profile, conditions)
    shown = {Shows.EXIT: conditions.exit_s, Shows.HANG: conditions.hang_s, Shows.GONE: 0.0}[shows]
    stopped = calls.stopped(0 if shows is Shows.HANG else profile.instances - 1)  # a gang that hung has ended
    checked = stopped
    if level is not None and shows is not Shows.GONE:  # ECS reports the end of the host
        checked = calls.checked(stopped, level)
    started = calls.started(checked, new_container=True)
    rejoin = conditions.rejoin(profile.instances * profile.gpus)
    return RecoveryTimes(shown, conditions.event_s, stopped, checked - stopped, started - checked, rejoin)


def recovery_from(failure: Failure, trace: FailureTrace, level: int | None) -> RecoveryTimes:
    """Shortest recovery from this failure, without checks where the log of the first rank names the faulty instance."""
    is_named = failure.is_named_in_log(trace.conditions)
    return recovery(trace.profile, trace.conditions, failure.shows, None if is_named else level)


def checked_s(conditions: Conditions, level: int) -> float:
    """Seconds from the start of a check of one instance to its verdict."""
    return conditions.start_s + conditions.check_s(level) + conditions.event_s


def repair_s(failure: Failure, conditions: Conditions, level: int) -> float:
    """Seconds from the verdict on an instance until the instance, or its replacement, is fit for work.

    A check must pass after a reboot. A new instance is used as soon as its Auto Scaling group has launched it.
    """
    check = checked_s(conditions, level)
    if failure.verdict is Cure.REPLACE:
        return conditions.replace_s
    if failure.cure is Cure.REPLACE:  # the check after the reboot fails
        return conditions.reboot_s + check + conditions.replace_s
    return conditions.reboot_s + check


def own_way_s(episode: Episode, trace: FailureTrace, level: int | None) -> float:
    """Seconds of one episode on the product's own way: stop all, check all, repair what is needed, launch all.

    A policy that goes another way can be faster. So this is no bound; `lower_bound` has one.

    Waits that the policy chose are not included. An operator's time is included only where nothing but an operator ends
    the failure. A repair is included only where too few healthy instances existed to continue without it. Neither is
    included where the policy did continue without.
    """
    conditions = trace.conditions
    if episode.failure is None:
        return recovery(trace.profile, conditions, Shows.EXIT, level).total
    failure = trace.failures[episode.failure]
    times = recovery_from(failure, trace, level)
    if Cure.PERSON in episode.waited_for and failure.cure is Cure.PERSON:
        return times.total + failure.human_s
    if not episode.was_short or not episode.waited_for:
        return times.total
    if failure.shows is Shows.GONE:  # the replacement is launched at the time of the fault
        return times.total + max(0.0, conditions.replace_s - times.until_placed)
    if level is not None:
        background_s = checked_s(conditions, level) if failure.is_named_in_log(conditions) else 0.0
        return times.total + background_s + repair_s(failure, conditions, level)
    unproved = {Cure.REBOOT: conditions.reboot_s, Cure.REPLACE: conditions.replace_s}
    return times.total + (unproved.get(failure.cure, 0.0) if failure.cure in episode.waited_for else 0.0)
