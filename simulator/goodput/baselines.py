"""Baseline policies as small models: operators alone, and a script that reboots the instance of the first exit.

Where a rule of a baseline is unclear, the model takes the reading that favours the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.gang_rules import SparePool, with_spares
from simulator.goodput.policy import REPEATS_MAX, PolicyRun
from simulator.goodput.policy_model import (
    NEVER,
    ActionCounts,
    FailureNoticed,
    PolicyModel,
    PolicyOutcome,
    PolicyRules,
    shown_at,
)
from simulator.goodput.recovery_times import RecoveryTimes, recovery


def _recovery_times(noticed: FailureNoticed, trace: FailureTrace) -> RecoveryTimes:
    return recovery(trace.profile, trace.conditions, noticed.failure.shows, None)


@dataclass
class HumanRules:
    """Operators alone: an alarm calls an operator, who stops the job, finds the cause, repairs and restarts.

    The operator always finds the right cause. A spare takes the place of a faulty instance if a spare is ready. Else
    the job waits for the repair.
    """

    spares: int = 0
    _pool: SparePool = field(init=False)

    def __post_init__(self) -> None:
        self._pool = SparePool(self.spares)

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Call an operator for the failure, and continue on a spare or after the repair."""
        failure, conditions, times = noticed.failure, trace.conditions, _recovery_times(noticed, trace)
        detected = shown_at(noticed, trace) + times.detected
        stopped = detected + times.stopped
        diagnosed = stopped + failure.human_s
        repairs = {Cure.REBOOT: conditions.reboot_s, Cure.REPLACE: conditions.replace_s}
        returns = [failure.back_at(diagnosed + repairs[failure.cure])] if failure.cure in repairs else []
        if failure.shows is Shows.GONE:  # the Auto Scaling group replaces the host meanwhile
            returns = [failure.back_at(noticed.at_s + conditions.replace_s)]
        elif failure.cure is Cure.REBOOT:
            counts.reboot(diagnosed, needed=True)
        ready = max(diagnosed, self._pool.exchange(returns))
        counts.replacements += failure.cure is Cure.REPLACE
        counts.messages += 1
        counts.called += 1
        started = ready + times.started
        return PolicyOutcome(
            detected,
            stopped,
            diagnosed,
            ready,
            started,
            started + times.training,
            diagnosed,
            moved_hosts=failure.cure is Cure.REPLACE or (bool(self.spares) and failure.is_instance_fault),
            waited_for=frozenset({Cure.PERSON, failure.cure} if ready > diagnosed else {Cure.PERSON}),
            was_short=ready > diagnosed,
        )


@dataclass
class RebootRules:
    """A script that knows the gang and makes no diagnosis.

    The script stops all ranks, reboots the instance of the rank that ended first, and starts all ranks again in the
    same places. When all ranks end together, the script cannot find the faulty instance, and only restarts the ranks. A
    failure that has returned often enough needs an operator.

    With spares the script starts the gang on a spare and reboots the instance meanwhile. An instance that a reboot does
    not cure is then replaced before it is a spare again, which favours the script.
    """

    spares: int = 0
    _pool: SparePool = field(init=False)

    def __post_init__(self) -> None:
        self._pool = SparePool(self.spares)

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Reboot the instance of the rank that ended first, for any cause."""
        failure, conditions, times = noticed.failure, trace.conditions, _recovery_times(noticed, trace)
        detected = shown_at(noticed, trace) + times.detected
        stopped = detected + times.stopped
        returns, ready, needs_operator = list[float](), stopped, noticed.times > REPEATS_MAX
        suspected = failure.shows is Shows.EXIT and not needs_operator
        if failure.shows is Shows.GONE:
            returns = [failure.back_at(noticed.at_s + conditions.replace_s)]
            counts.replacements += 1
        elif suspected:
            is_replaced = bool(self.spares) and failure.cure is Cure.REPLACE
            returns = [stopped + conditions.reboot_s]
            if is_replaced:
                returns = [failure.back_at(returns[0] + conditions.replace_s)]
            counts.replacements += is_replaced
            counts.reboot(stopped, needed=failure.cure is Cure.REBOOT)
        elif needs_operator:
            ready = stopped + failure.human_s
            returns = [failure.back_at(ready + conditions.replace_s)] if failure.is_instance_fault else []
            counts.called += 1
            counts.replacements += failure.is_instance_fault
        short = self._pool.exchange(returns) - ready
        ready = max(ready, ready + short)
        counts.messages += 1
        moved = suspected and bool(self.spares) and failure.is_instance_fault
        cured = (
            needs_operator
            or moved
            or failure.shows is Shows.GONE
            or failure.cure is Cure.RESTART
            or (suspected and failure.cure is Cure.REBOOT)
        )
        waited = {Cure.PERSON} if needs_operator else set[Cure]()
        if short > 0:
            waited.add(Cure.REBOOT if suspected else Cure.REPLACE)
        started = ready + times.started
        return PolicyOutcome(
            detected,
            stopped,
            stopped,
            ready,
            started,
            started + times.training,
            stopped if cured else NEVER,
            moved_hosts=moved or (cured and failure.cure is Cure.REPLACE),
            waited_for=frozenset(waited),
            was_short=short > 0,
        )


@dataclass(frozen=True, slots=True)
class ConstantRules:
    """Every recovery takes the same time, as the published formula assumes."""

    seconds: float

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Continue the training after `seconds`, for any failure."""
        training = noticed.at_s + self.seconds
        return PolicyOutcome(noticed.at_s, training, training, training, training, training, training)


@dataclass(frozen=True, slots=True)
class BaselinePolicy:
    """A baseline policy that is a small model."""

    title: str
    rules_text: str
    rules: type[HumanRules] | type[RebootRules]
    spares: int = 0

    @property
    def name(self) -> str:
        """Name of the policy in the report."""
        return with_spares(self.title, self.spares)

    @property
    def about(self) -> str:
        """Rules of the policy in one sentence."""
        return f"a model: {self.rules_text} ({self.spares} spare)"

    @property
    def level(self) -> int | None:
        """None: a baseline checks no instance before a relaunch."""
        return None

    @property
    def is_slow(self) -> bool:
        """False: a run takes milliseconds."""
        return False

    @property
    def memory_checkpoints(self) -> bool:
        """False: the checkpoints are those of the conditions."""
        return False

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Go through the failure trace."""
        rules: PolicyRules = self.rules(self.spares)
        return PolicyModel(trace, rules, self.spares).run()


def human_only(spares: int = 0) -> BaselinePolicy:
    """Operators alone."""
    return BaselinePolicy("human only", "a person is called for every failure and is always right", HumanRules, spares)


def reboot_only(spares: int = 0) -> BaselinePolicy:
    """A script that reboots."""
    rules = "a script stops the gang, reboots the machine whose rank ended first, starts all again"
    return BaselinePolicy("reboot only", rules, RebootRules, spares)


BASELINES = (human_only, reboot_only)
"""The baseline policies, in the order of the report."""
