"""The policies that ours is compared with, as small models. Where a rule is unclear it favours them."""

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


def _steps(felt: FailureNoticed, course: FailureTrace) -> RecoveryTimes:
    return recovery(course.profile, course.conditions, felt.failure.shows, None)


class HumanRules:
    """An alarm goes; a person comes, knows at once what is wrong, stops, repairs and starts again.

    They wait for the machine that they repair: there is no spare. What they find they find rightly.
    """

    def respond(self, felt: FailureNoticed, course: FailureTrace, tally: ActionCounts) -> PolicyOutcome:
        """One page, one right answer."""
        failure, conditions, steps = felt.failure, course.conditions, _steps(felt, course)
        detected = shown_at(felt, course) + steps.detected
        stopped = detected + steps.stopped
        known = stopped + failure.human_s
        repairs = {Cure.REBOOT: conditions.reboot_s, Cure.REPLACE: conditions.replace_s}
        ready = known + repairs.get(failure.cure, 0.0)
        if failure.shows is Shows.GONE:  # the Auto Scaling group has replaced it meanwhile
            ready = max(known, felt.at_s + conditions.replace_s)
        elif failure.cure is Cure.REBOOT:
            tally.reboot(known, needed=True)
        tally.replacements += failure.cure is Cure.REPLACE
        tally.messages += 1
        tally.called += 1
        started = ready + steps.started
        return PolicyOutcome(
            detected,
            stopped,
            known,
            ready,
            started,
            started + steps.training,
            known,
            moved_hosts=failure.cure is Cure.REPLACE,
            waited_for=frozenset({Cure.PERSON, failure.cure}),
            was_short=failure.of_machine,
        )


class ReplaceRules:
    """A node monitor that replaces what it sees, as ECS Managed Instances and EKS node repair do.

    It watches machines, not jobs. The ranks that are left end when their collective times out; each is started again
    by its service as it ends, and the gang is whole when the last machine is. What the monitor does not see is
    started again on the same machine; when it has come back often enough, a person takes the machine out.

    Both services replace no more than 20 % of the machines at once. One gang that waits for each never comes near it.
    """

    def respond(self, felt: FailureNoticed, course: FailureTrace, tally: ActionCounts) -> PolicyOutcome:
        """Replace the machine if the monitor sees it, and wait for the rest of the gang to end."""
        failure, conditions, steps = felt.failure, course.conditions, _steps(felt, course)
        seen = failure.shows is Shows.GONE or failure.is_seen(conditions, 1)
        ended = felt.at_s + conditions.hang_s + steps.detected
        detected = felt.at_s + conditions.watch_s if seen and failure.shows is not Shows.GONE else ended
        ready, asked = ended, not seen and (felt.times > REPEATS_MAX or failure.cure is Cure.PERSON)
        if seen:
            ready = max(ended, felt.at_s + conditions.replace_s)
            tally.replacements += 1
        elif asked:
            ready = ended + failure.human_s + (conditions.replace_s if failure.of_machine else 0.0)
            tally.called += 1
            tally.messages += 1
            tally.replacements += failure.of_machine
        cured = seen or asked or failure.cure is Cure.RESTART
        waited = {Cure.PERSON} if asked else set[Cure]()
        if cured and failure.of_machine and ready > ended:
            waited.add(Cure.REPLACE)
        started = ready + steps.started
        return PolicyOutcome(
            min(detected, ended),
            ended,
            ended,
            ready,
            started,
            started + steps.training,
            ended if cured else NEVER,
            moved_hosts=cured and failure.of_machine,
            waited_for=frozenset(waited),
            was_short=failure.of_machine,
        )


class RebootRules:
    """A script that knows the gang and no diagnosis: it stops all, reboots the machine whose rank ended first, and
    starts all again on the same machines. When all ranks end together it cannot tell whose fault it is, and only starts
    again. What has come back often enough is a person's.
    """

    def respond(self, felt: FailureNoticed, course: FailureTrace, tally: ActionCounts) -> PolicyOutcome:
        """Reboot whoever ended first, whatever it was."""
        failure, conditions, steps = felt.failure, course.conditions, _steps(felt, course)
        detected = shown_at(felt, course) + steps.detected
        stopped = detected + steps.stopped
        ready, asked = stopped, felt.times > REPEATS_MAX
        blamed = failure.shows is Shows.EXIT and not asked
        if failure.shows is Shows.GONE:
            ready = max(stopped, felt.at_s + conditions.replace_s)
            tally.replacements += 1
        elif blamed:
            ready = stopped + conditions.reboot_s
            tally.reboot(stopped, needed=failure.cure is Cure.REBOOT)
        elif asked:
            ready = stopped + failure.human_s + (conditions.replace_s if failure.of_machine else 0.0)
            tally.called += 1
            tally.replacements += failure.of_machine
        tally.messages += 1
        cured = (
            asked
            or failure.shows is Shows.GONE
            or failure.cure is Cure.RESTART
            or (blamed and failure.cure is Cure.REBOOT)
        )
        waited = {Cure.PERSON} if asked else set[Cure]()
        if blamed:
            waited.add(Cure.REBOOT)
        if cured and failure.cure is Cure.REPLACE and ready > stopped:
            waited.add(Cure.REPLACE)
        started = ready + steps.started
        return PolicyOutcome(
            detected,
            stopped,
            stopped,
            ready,
            started,
            started + steps.training,
            stopped if cured else NEVER,
            moved_hosts=cured and failure.cure is Cure.REPLACE,
            waited_for=frozenset(waited),
            was_short=failure.of_machine,
        )


@dataclass(frozen=True, slots=True)
class ConstantRules:
    """Every recovery takes the same time: what the published formula assumes."""

    seconds: float

    def respond(self, felt: FailureNoticed, course: FailureTrace, tally: ActionCounts) -> PolicyOutcome:
        """The same for everything."""
        again = felt.at_s + self.seconds
        return PolicyOutcome(felt.at_s, again, again, again, again, again, again)


@dataclass(frozen=True, slots=True)
class BaselinePolicy:
    """A contender that is a small model."""

    name: str
    about: str
    rules: type[HumanRules] | type[ReplaceRules] | type[RebootRules]

    @property
    def level(self) -> int | None:
        """It checks no machine before a relaunch."""
        return None

    @property
    def is_slow(self) -> bool:
        """It takes milliseconds."""
        return False

    def run(self, course: FailureTrace) -> PolicyRun:
        """Go through the course."""
        rules: PolicyRules = self.rules()
        return PolicyModel(course, rules).run()


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
