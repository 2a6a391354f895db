"""Baseline policies as small models: operators alone, replacement of instances, reboot of instances.

Where a rule of a baseline is unclear, the model takes the reading that favours the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.lower_bound import RecoveryTimes, recovery
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


def _recovery_times(noticed: FailureNoticed, trace: FailureTrace) -> RecoveryTimes:
    return recovery(trace.profile, trace.conditions, noticed.failure.shows, None)


class HumanRules:
    """Operators alone: an alarm calls an operator, who stops the job, finds the cause, repairs and restarts.

    The operator always finds the right cause. The job waits for the repair of the instance, because there is no spare.
    """

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Call an operator for the failure and wait for the repair."""
        failure, conditions, times = noticed.failure, trace.conditions, _recovery_times(noticed, trace)
        detected = shown_at(noticed, trace) + times.detected
        stopped = detected + times.stopped
        diagnosed = stopped + failure.human_s
        repairs = {Cure.REBOOT: conditions.reboot_s, Cure.REPLACE: conditions.replace_s}
        ready = diagnosed + repairs.get(failure.cure, 0.0)
        if failure.shows is Shows.GONE:  # the Auto Scaling group replaces the host meanwhile
            ready = max(diagnosed, noticed.at_s + conditions.replace_s)
        elif failure.cure is Cure.REBOOT:
            counts.reboot(diagnosed, needed=True)
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
            moved_hosts=failure.cure is Cure.REPLACE,
            waited_for=frozenset({Cure.PERSON, failure.cure}),
            was_short=failure.is_instance_fault,
        )


class ReplaceRules:
    """A node monitor that replaces the instances it finds faulty, as ECS Managed Instances and EKS node repair do.

    The monitor watches instances and knows no jobs. The other ranks end when their collectives time out. The service of
    each rank starts the rank again as soon as it ends, and the gang is complete when the last instance is ready.

    A failure that the monitor does not see is followed by a restart on the same instance. When it has returned often
    enough, an operator replaces the instance.

    Both services replace at most 20 % of the instances at once. A single gang that waits for each replacement never
    reaches this limit.
    """

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Replace the instance if the monitor sees the fault, and wait for the rest of the gang to end."""
        failure, conditions, times = noticed.failure, trace.conditions, _recovery_times(noticed, trace)
        seen = failure.shows is Shows.GONE or failure.is_seen(conditions, 1)
        ended = noticed.at_s + conditions.hang_s + times.detected
        detected = noticed.at_s + conditions.watch_s if seen and failure.shows is not Shows.GONE else ended
        ready, needs_operator = ended, not seen and (noticed.times > REPEATS_MAX or failure.cure is Cure.PERSON)
        if seen:
            ready = max(ended, noticed.at_s + conditions.replace_s)
            counts.replacements += 1
        elif needs_operator:
            ready = ended + failure.human_s + (conditions.replace_s if failure.is_instance_fault else 0.0)
            counts.called += 1
            counts.messages += 1
            counts.replacements += failure.is_instance_fault
        cured = seen or needs_operator or failure.cure is Cure.RESTART
        waited = {Cure.PERSON} if needs_operator else set[Cure]()
        if cured and failure.is_instance_fault and ready > ended:
            waited.add(Cure.REPLACE)
        started = ready + times.started
        return PolicyOutcome(
            min(detected, ended),
            ended,
            ended,
            ready,
            started,
            started + times.training,
            ended if cured else NEVER,
            moved_hosts=cured and failure.is_instance_fault,
            waited_for=frozenset(waited),
            was_short=failure.is_instance_fault,
        )


class RebootRules:
    """A script that knows the gang and makes no diagnosis.

    The script stops all ranks, reboots the instance of the rank that ended first, and starts all ranks again in the
    same places. When all ranks end together, the script cannot find the faulty instance, and only restarts the ranks. A
    failure that has returned often enough needs an operator.
    """

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """Reboot the instance of the rank that ended first, for any cause."""
        failure, conditions, times = noticed.failure, trace.conditions, _recovery_times(noticed, trace)
        detected = shown_at(noticed, trace) + times.detected
        stopped = detected + times.stopped
        ready, needs_operator = stopped, noticed.times > REPEATS_MAX
        blamed = failure.shows is Shows.EXIT and not needs_operator
        if failure.shows is Shows.GONE:
            ready = max(stopped, noticed.at_s + conditions.replace_s)
            counts.replacements += 1
        elif blamed:
            ready = stopped + conditions.reboot_s
            counts.reboot(stopped, needed=failure.cure is Cure.REBOOT)
        elif needs_operator:
            ready = stopped + failure.human_s + (conditions.replace_s if failure.is_instance_fault else 0.0)
            counts.called += 1
            counts.replacements += failure.is_instance_fault
        counts.messages += 1
        cured = (
            needs_operator
            or failure.shows is Shows.GONE
            or failure.cure is Cure.RESTART
            or (blamed and failure.cure is Cure.REBOOT)
        )
        waited = {Cure.PERSON} if needs_operator else set[Cure]()
        if blamed:
            waited.add(Cure.REBOOT)
        if cured and failure.cure is Cure.REPLACE and ready > stopped:
            waited.add(Cure.REPLACE)
        started = ready + times.started
        return PolicyOutcome(
            detected,
            stopped,
            stopped,
            ready,
            started,
            started + times.training,
            stopped if cured else NEVER,
            moved_hosts=cured and failure.cure is Cure.REPLACE,
            waited_for=frozenset(waited),
            was_short=failure.is_instance_fault,
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

    name: str
    about: str
    rules: type[HumanRules] | type[ReplaceRules] | type[RebootRules]

    @property
    def level(self) -> int | None:
        """None: a baseline checks no instance before a relaunch."""
        return None

    @property
    def is_slow(self) -> bool:
        """False: a run takes milliseconds."""
        return False

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Go through the failure trace."""
        rules: PolicyRules = self.rules()
        return PolicyModel(trace, rules).run()


HUMAN_ONLY = BaselinePolicy(
    "human only", "a model: a person is called for every failure, is always right, and waits for the repair", HumanRules
)
REPLACE_ONLY = BaselinePolicy(
    "replace only",
    "a model of node repair as on ECS Managed Instances and EKS: replaces what a monitor sees (20 % "
    "at once at most, which one gang never reaches), and leaves the gang to its time-outs",
    ReplaceRules,
)
REBOOT_ONLY = BaselinePolicy(
    "reboot only",
    "a model of a script: stops the gang, reboots the machine whose rank ended first, starts all again",
    RebootRules,
)
BASELINES = (HUMAN_ONLY, REPLACE_ONLY, REBOOT_ONLY)
"""The baseline policies, in the order of the report."""
