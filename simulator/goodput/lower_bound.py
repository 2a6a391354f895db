"""The floor of a recovery: what the table of facts makes unavoidable, and nothing of ours.

It goes the way of the product (notice, stop every rank, check every machine, launch on healthy ones), because that way
is its policy; but it decides in no time, misses nothing, waits for no tick and sends every call as soon as AWS takes
it. So simulated recovery time / floor is what the control plane itself costs. The floor of a policy without checks is
lower; `recovery` with `level` None says by how much.
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
"""The floor goes the way of the product."""


@dataclass(frozen=True, slots=True)
class RecoveryTimes:
    """One recovery, seconds from one of its moments to the next, as in `Episode`."""

    shown: float
    detected: float
    stopped: float
    checked: float
    started: float
    training: float

    @property
    def until_placed(self) -> float:
        """From the fault to the moment at which the gang could begin again."""
        return self.shown + self.detected + self.stopped + self.checked

    @property
    def total(self) -> float:
        """From the fault to the next step, if healthy machines are there."""
        return self.until_placed + self.started + self.training


def recovery(profile: Profile, conditions: Conditions, shows: Shows, level: int | None) -> RecoveryTimes:
    """The least that a recovery takes that waits for no machine and checks at this level (None: not at all)."""
    calls, event_s = TokenBucket(conditions), conditions.event_s
    shown = {Shows.EXIT: conditions.exit_s, Shows.HANG: conditions.hang_s, Shows.GONE: 0.0}[shows]
    stopped = 0.0  # a gang that hung has ended as a whole
    if shows is not Shows.HANG:
        stopped = calls.last(profile.instances - 1, 0.0) + conditions.leave_s + event_s
    checked = stopped
    if level is not None and shows is not Shows.GONE:  # ECS itself says that the host has ended
        asked = calls.last(profile.instances, stopped)
        checked = asked + conditions.start_s + conditions.check_s(level) + event_s
    started = calls.last(profile.instances, checked) + conditions.start_s
    rejoin = conditions.rejoin(profile.instances * profile.gpus)
    return RecoveryTimes(shown, event_s, stopped, checked - stopped, started - checked, rejoin)


def recovery_from(failure: Failure, course: FailureTrace, level: int | None) -> RecoveryTimes:
    """As `recovery`: nobody waits for checks where the log of the rank that ended names its machine."""
    told = failure.is_named_in_log(course.conditions)
    return recovery(course.profile, course.conditions, failure.shows, None if told else level)


def checked_s(conditions: Conditions, level: int) -> float:
    """From the order to check one machine to its verdict."""
    return conditions.start_s + conditions.check_s(level) + conditions.event_s


def repair_s(failure: Failure, conditions: Conditions, level: int) -> float:
    """From the verdict on a machine to its being fit for work, or another one in its place.

    A reboot must be proved by a check that passes. A new machine is taken as its group launches it.
    """
    check = checked_s(conditions, level)
    if failure.verdict is Cure.REPLACE:
        return conditions.replace_s
    if failure.cure is Cure.REPLACE:  # the reboot does not help, its check says so
        return conditions.reboot_s + check + conditions.replace_s
    return conditions.reboot_s + check


def least_s(episode: Episode, course: FailureTrace, level: int | None) -> float:
    """The floor of one episode: what was unavoidable as things really were, whatever the policy chose to wait for.

    A person's time is in it only where nothing but a person ends the failure, a repair only where too few healthy
    machines were there to go on without it; and neither, where the policy did go on without.
    """
    conditions = course.conditions
    if episode.failure is None:
        return recovery(course.profile, conditions, Shows.EXIT, level).total
    failure = course.failures[episode.failure]
    steps = recovery_from(failure, course, level)
    if Cure.PERSON in episode.waited_for and failure.cure is Cure.PERSON:
        return steps.total + failure.human_s
    if not episode.was_short or not episode.waited_for:
        return steps.total
    if failure.shows is Shows.GONE:  # its successor comes from the beginning
        return steps.total + max(0.0, conditions.replace_s - steps.until_placed)
    if level is not None:
        aside_s = checked_s(conditions, level) if failure.is_named_in_log(conditions) else 0.0
        return steps.total + aside_s + repair_s(failure, conditions, level)
    unproved = {Cure.REBOOT: conditions.reboot_s, Cure.REPLACE: conditions.replace_s}
    return steps.total + (unproved.get(failure.cure, 0.0) if failure.cure in episode.waited_for else 0.0)


@dataclass
class LowerBoundRules:
    """The product's policy, without any time or error of its own.

    leave_out_after: a machine whose rank has ended first so often in a row is left out though no check blames it, as
    the product has it; None: what comes back is a person's to find out, who is asked when it does so again.
    trusts_exits: not as the product has it: wherever one rank ended first its machine is taken for named, whatever its
    log says. The machine that is named is left out and looked at beside the job; the others are launched at once.
    """

    level: int
    spares: int
    leave_out_after: int | None = SUSPECT_AFTER
    trusts_exits: bool = False
    _ready: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ready = [0.0] * self.spares

    def respond(self, felt: FailureNoticed, course: FailureTrace, tally: ActionCounts) -> PolicyOutcome:
        """Stop all, check all, take out whom the check blames, launch on what is healthy."""
        failure, conditions = felt.failure, course.conditions
        knows_whom = failure.is_named_in_log(conditions) or (self.trusts_exits and failure.shows is Shows.EXIT)
        steps = recovery(course.profile, conditions, failure.shows, None if knows_whom else self.level)
        detected = shown_at(felt, course) + steps.detected
        stopped = detected + steps.stopped
        checked = stopped + steps.checked
        seen = failure.shows is Shows.GONE or failure.is_seen(conditions, self.level)
        suspected = not seen and (knows_whom or self._suspects(felt))
        tally.messages += 2  # it is being recovered, it has recovered
        cured = seen or (suspected and failure.of_machine) or failure.cure is Cure.RESTART
        asks = not cured and felt.times == REPEATS_MAX + 1
        tally.called += asks
        tally.messages += asks
        ready = self._machines(felt, course, checked, tally, out=seen or suspected, aside=knows_whom)
        placed = max(checked, ready)
        started = placed + steps.started
        waited = {failure.cure if seen or suspected else Cure.REBOOT} if ready > checked else set[Cure]()
        return PolicyOutcome(
            detected,
            stopped,
            checked,
            placed,
            started,
            started + steps.training,
            checked if cured else detected + failure.human_s if asks else NEVER,
            moved_hosts=cured and failure.of_machine,
            waited_for=frozenset(waited),
            was_short=ready > checked,
        )

    def _suspects(self, felt: FailureNoticed) -> bool:
        """Whether the machine is left out because of what it did, whatever its check says."""
        often = self.leave_out_after is not None and felt.times >= self.leave_out_after
        return often and felt.failure.shows is Shows.EXIT and felt.failure.of_machine

    def _machines(
        self, felt: FailureNoticed, course: FailureTrace, checked: float, tally: ActionCounts, *, out: bool, aside: bool
    ) -> float:
        """Send the blamed to their repairs and take the first that are ready in their stead; when the last one is.

        aside: only the machine that is `out` is checked, and that from now on.
        """
        failure, conditions = felt.failure, course.conditions
        check = checked_s(conditions, self.level)
        verdict = checked + (check if aside else 0.0)
        out_until = list[float]()
        if out and failure.shows is Shows.GONE:
            out_until.append(felt.at_s + conditions.replace_s)
        elif out and not failure.of_machine:  # its check finds nothing
            out_until.append(checked + check)
        elif out:
            out_until.append(verdict + repair_s(failure, conditions, self.level))
            if failure.verdict is Cure.REBOOT:
                tally.reboot(verdict, needed=failure.cure is Cure.REBOOT)
        tally.replacements += out and failure.cure is Cure.REPLACE
        for _ in failure.accused if not (felt.is_relapse or aside) else ():
            out_until.append(checked + conditions.reboot_s + check)
            tally.reboot(checked, needed=False)
        taken = [heapq.heappushpop(self._ready, until) for until in out_until]
        return max(taken, default=checked)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The floor as a contender: what no implementation of this policy could do better under these conditions."""

    level: int = 2
    spares: int = 0
    leave_out_after: int | None = SUSPECT_AFTER
    trusts_exits: bool = False

    @property
    def is_slow(self) -> bool:
        """It takes milliseconds."""
        return False

    @property
    def name(self) -> str:
        """What the report calls it."""
        return f"floor, {self.spares} spares" if self.spares else "floor"

    @property
    def about(self) -> str:
        """Its rules in a sentence."""
        return (
            f"a bound, not a product: stop all, check all at level {self.level} unless a log names the machine, repair "
            f"what is blamed, relaunch on healthy machines ({self.spares} spare), deciding in no time"
        )

    def run(self, course: FailureTrace) -> PolicyRun:
        """Go through the course."""
        rules = LowerBoundRules(self.level, self.spares, self.leave_out_after, self.trusts_exits)
        return PolicyModel(course, rules, self.spares).run()
