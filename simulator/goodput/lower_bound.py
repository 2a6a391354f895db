"""Lower bound of a recovery: the time that the table of assumptions makes unavoidable for any implementation.

The lower bound follows the policy of the product: detect, stop every rank, check every instance, launch on healthy
instances. But it decides in no time, overlooks nothing, waits for no reconcile cycle, and sends every call as soon as
AWS accepts the call. So the ratio of the simulated recovery time to the lower bound is the cost of the control plane
itself. A policy without checks has a smaller lower bound; `recovery` with `level` None gives the difference.

The report calls the lower bound "floor".
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from gpu_recovery.core.policy import PRESETS, Preset

from simulator.goodput.assumptions import Conditions, Cure, Profile, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import REPEATS_MAX, Episode, PolicyRun
from simulator.goodput.policy_model import NEVER, ActionCounts, FailureNoticed, PolicyModel, PolicyOutcome, shown_at
from simulator.goodput.token_bucket import TokenBucket

SUSPECT_AFTER = PRESETS[Preset.ADAPTIVE].suspect_after
"""First ends that make an instance a repeat offender, as in the product's adaptive preset."""


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


def recovery(profile: Profile, conditions: Conditions, shows: Shows, level: int | None) -> RecoveryTimes:
    """Shortest recovery that waits for no instance.

    Args:
        profile: the gang.
        conditions: delays, and the limits of ECS calls.
        shows: how the fault becomes visible.
        level: level of the checks; None for a recovery without checks.
    """
    calls, event_s = TokenBucket(conditions), conditions.event_s
    shown = {Shows.EXIT: conditions.exit_s, Shows.HANG: conditions.hang_s, Shows.GONE: 0.0}[shows]
    stopped = 0.0  # all ranks of a gang that hung have ended
    if shows is not Shows.HANG:
        stopped = calls.last(profile.instances - 1, 0.0) + conditions.leave_s + event_s
    checked = stopped
    if level is not None and shows is not Shows.GONE:  # ECS reports the end of the host
        requested = calls.last(profile.instances, stopped)
        checked = requested + conditions.start_s + conditions.check_s(level) + event_s
    started = calls.last(profile.instances, checked) + conditions.start_s
    rejoin = conditions.rejoin(profile.instances * profile.gpus)
    return RecoveryTimes(shown, event_s, stopped, checked - stopped, started - checked, rejoin)


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


def least_s(episode: Episode, trace: FailureTrace, level: int | None) -> float:
    """Lower bound of one episode in seconds: the time that was unavoidable in the state of the simulated world.

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


@dataclass
class LowerBoundRules:
    """The product's policy, without delays or errors of its own.

    leave_out_after: first ends of an instance after which the instance is left out although no check finds it faulty,
                     as in the product; None: after `REPEATS_MAX` returns of the failure an operator finds the cause
    trusts_exits:    whether the first end of a rank names its instance, also without a log line; not in the product

    An instance that is named is left out and checked in the background. The other instances are launched at once.
    """

    level: int
    spares: int
    leave_out_after: int | None = SUSPECT_AFTER
    trusts_exits: bool = False
    _ready: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ready = [0.0] * self.spares

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Stop all ranks, check all instances, take out the suspected instances, launch on healthy instances."""
        failure, conditions = noticed.failure, trace.conditions
        is_named = failure.is_named_in_log(conditions) or (self.trusts_exits and failure.shows is Shows.EXIT)
        times = recovery(trace.profile, conditions, failure.shows, None if is_named else self.level)
        detected = shown_at(noticed, trace) + times.detected
        stopped = detected + times.stopped
        checked = stopped + times.checked
        seen = failure.shows is Shows.GONE or failure.is_seen(conditions, self.level)
        suspected = not seen and (is_named or self._suspects(noticed))
        counts.messages += 2  # the recovery began, the recovery is over
        cured = seen or (suspected and failure.is_instance_fault) or failure.cure is Cure.RESTART
        needs_operator = not cured and noticed.times == REPEATS_MAX + 1
        counts.called += needs_operator
        counts.messages += needs_operator
        ready = self._instances_ready_at(
            noticed, trace, checked, counts, is_left_out=seen or suspected, in_background=is_named
        )
        placed = max(checked, ready)
        started = placed + times.started
        waited = {failure.cure if seen or suspected else Cure.REBOOT} if ready > checked else set[Cure]()
        return PolicyOutcome(
            detected,
            stopped,
            checked,
            placed,
            started,
            started + times.training,
            checked if cured else detected + failure.human_s if needs_operator else NEVER,
            moved_hosts=cured and failure.is_instance_fault,
            waited_for=frozenset(waited),
            was_short=ready > checked,
        )

    def _suspects(self, noticed: FailureNoticed) -> bool:
        """Whether the instance is left out as a repeat offender, with any verdict of its check."""
        is_repeat_offender = self.leave_out_after is not None and noticed.times >= self.leave_out_after
        return is_repeat_offender and noticed.failure.shows is Shows.EXIT and noticed.failure.is_instance_fault

    def _instances_ready_at(
        self,
        noticed: FailureNoticed,
        trace: FailureTrace,
        checked: float,
        counts: ActionCounts,
        *,
        is_left_out: bool,
        in_background: bool,
    ) -> float:
        """Send the suspected instances to repair, take the first ready spares, and return when the last is ready.

        Args:
            noticed: the failure, its time, and how often it has stopped the training.
            trace: the failure trace, which holds the durations of repairs and checks.
            checked: time at which the check of the whole gang ends, or would end, in seconds since the run began.
            counts: the counts of actions, which reboots and replacements increase.
            is_left_out: whether the faulty instance is left out.
            in_background: whether only the instance that is left out is checked, from `checked` on.
        """
        failure, conditions = noticed.failure, trace.conditions
        check = checked_s(conditions, self.level)
        verdict = checked + (check if in_background else 0.0)
        return_times = list[float]()
        if is_left_out and failure.shows is Shows.GONE:
            return_times.append(noticed.at_s + conditions.replace_s)
        elif is_left_out and not failure.is_instance_fault:  # the check of the instance finds nothing
            return_times.append(checked + check)
        elif is_left_out:
            return_times.append(verdict + repair_s(failure, conditions, self.level))
            if failure.verdict is Cure.REBOOT:
                counts.reboot(verdict, needed=failure.cure is Cure.REBOOT)
        counts.replacements += is_left_out and failure.cure is Cure.REPLACE
        for _ in failure.accused if not (noticed.is_relapse or in_background) else ():
            return_times.append(checked + conditions.reboot_s + check)
            counts.reboot(checked, needed=False)
        taken = [heapq.heappushpop(self._ready, until) for until in return_times]
        return max(taken, default=checked)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The lower bound as a policy of the report: no implementation of the product's policy recovers faster."""

    level: int = 2
    spares: int = 0
    leave_out_after: int | None = SUSPECT_AFTER
    trusts_exits: bool = False

    @property
    def is_slow(self) -> bool:
        """False: a run takes milliseconds."""
        return False

    @property
    def name(self) -> str:
        """Name of the lower bound in the report."""
        return f"floor, {self.spares} spares" if self.spares else "floor"

    @property
    def about(self) -> str:
        """Rules of the lower bound in one sentence."""
        return (
            f"a bound, not a product: stop all, check all at level {self.level} unless a log names the machine, repair "
            f"what is blamed, relaunch on healthy machines ({self.spares} spare), deciding in no time"
        )

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Go through the failure trace."""
        rules = LowerBoundRules(self.level, self.spares, self.leave_out_after, self.trusts_exits)
        return PolicyModel(trace, rules, self.spares).run()
