"""Rules of a policy that restarts a whole gang, as one model with abilities. Contenders differ by their abilities.

The model decides in no time and makes no error of its own. Where a rule of a real system is unclear, the model takes
the reading that favours the system:

- every system hears of the faulty instance that a rank's log names, at once, and of the one that its node monitor sees;
- a system waits for its node monitor only if the monitor will see the fault;
- an instance that is left out is fit for work again after its repair, with any fault.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from gpu_recovery.core.policy import PRESETS, Preset

from simulator.goodput.assumptions import Conditions, Cure, Shows
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import REPEATS_MAX, PolicyRun
from simulator.goodput.policy_model import NEVER, ActionCounts, FailureNoticed, PolicyModel, PolicyOutcome, shown_at
from simulator.goodput.recovery_times import GangCalls, Launch, checked_s, repair_s

SUSPECT_AFTER = PRESETS[Preset.ADAPTIVE].suspect_after
"""First ends that make an instance a repeat offender, as in the product's adaptive preset."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a policy can do.

    launch:          how ranks are ended and started
    at_first_exit:   whether the first end of a rank ends the gang; else all ranks wait until their collectives time out
    hang_after:      condition with the seconds after which a hang is noticed, at most `hang_s`
    monitor_after:   condition with the seconds from a fault to the word of a node monitor, which sees as much as a
                     check of level 1; empty: no monitor
    has_evidence:    whether the kernel log and the driver are read on each instance when ranks end (`evidence_s`)
    level:           level of a check of all instances before a relaunch if no instance is known; None: no such check
    checks_returns:  whether only a failure that returned is followed by such a check
    trusts_exits:    whether the first end of a rank names its instance, also without a log line
    leave_out_after: first ends of an instance after which it is left out, whatever else is known; None: never
    reboots:         whether an instance is rebooted and checked before it is replaced; else it is replaced at once
    repair_after:    condition with the seconds from a fault to the begin of a replacement; empty: at once
    is_warm:         whether processes stand by, so that only the share `warm_share` of the set-up is left
    """

    launch: Launch = Launch.TASKS
    at_first_exit: bool = True
    hang_after: str = "hang_s"
    monitor_after: str = ""
    has_evidence: bool = False
    level: int | None = None
    checks_returns: bool = False
    trusts_exits: bool = False
    leave_out_after: int | None = None
    reboots: bool = False
    repair_after: str = ""
    is_warm: bool = False

    def seconds(self, condition: str, conditions: Conditions) -> float:
        """Seconds of the condition with this name; 0 for an empty name."""
        return float(getattr(conditions, condition)) if condition else 0.0


class SparePool:
    """Spare instances of a model, each with the time from which it can be used."""

    def __init__(self, spares: int) -> None:
        self._ready = [0.0] * spares

    def exchange(self, returns: list[float]) -> float:
        """Take a spare for each instance that is left out, and return when the last of them is ready.

        Args:
            returns: for each instance that is left out, the time at which it is fit for work again.
        """
        taken = [heapq.heappushpop(self._ready, until) for until in returns]
        return max(taken, default=0.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a policy knows when it starts the gang again.

    checked_at:    end of the checks, or the end of the last rank
    placed_at:     time from which the gang can start, if no instance has to be waited for
    is_left_out:   whether the faulty instance is left out
    in_background: whether only that instance is checked, and only from `placed_at` on
    """

    checked_at: float
    placed_at: float
    is_left_out: bool
    in_background: bool


@dataclass
class GangRules:
    """The rules of a policy with these abilities and this number of spare instances."""

    abilities: Abilities
    spares: int = 0
    _pool: SparePool = field(init=False)

    def __post_init__(self) -> None:
        self._pool = SparePool(self.spares)

    def respond(self, noticed: FailureNoticed, trace: FailureTrace, counts: ActionCounts) -> PolicyOutcome:
        """End all ranks, find the faulty instance as far as the abilities go, and start the gang without it."""
        failure, conditions, abilities = noticed.failure, trace.conditions, self.abilities
        calls = GangCalls(trace.profile, conditions, abilities.launch)
        detected, stopped = self._stopped(noticed, trace, calls)
        found = self._find(noticed, trace, calls, detected, stopped)
        counts.messages += 2  # the recovery began, the recovery is over
        cured = failure.cure is Cure.RESTART or (found.is_left_out and failure.is_instance_fault)
        needs_operator = not cured and noticed.times == REPEATS_MAX + 1
        counts.called += needs_operator
        counts.messages += needs_operator
        ready = self._pool.exchange(self._returns(noticed, trace, found, counts))
        placed = max(found.placed_at, ready)
        new_container = found.is_left_out and not abilities.is_warm
        started = detected + calls.started(placed - detected, new_container=new_container)
        rejoin_s = conditions.rejoin(trace.profile.instances * trace.profile.gpus)
        waited = {failure.cure if found.is_left_out else Cure.REBOOT} if ready > found.placed_at else set[Cure]()
        return PolicyOutcome(
            detected,
            stopped,
            found.checked_at,
            placed,
            started,
            started + rejoin_s * (conditions.warm_share if abilities.is_warm else 1.0),
            found.placed_at if cured else detected + failure.human_s if needs_operator else NEVER,
            moved_hosts=cured and failure.is_instance_fault,
            waited_for=frozenset(waited),
            was_short=ready > found.placed_at,
        )

    def _stopped(self, noticed: FailureNoticed, trace: FailureTrace, calls: GangCalls) -> tuple[float, float]:
        """Time of the detection, and time at which the last rank has ended."""
        failure, conditions, abilities = noticed.failure, trace.conditions, self.abilities
        times_out = noticed.at_s + conditions.hang_s + conditions.event_s
        if not abilities.at_first_exit:  # nobody ends the other ranks
            is_seen = failure.is_seen(conditions, 1) and failure.shows is not Shows.GONE and abilities.monitor_after
            seen_at = noticed.at_s + abilities.seconds(abilities.monitor_after, conditions)
            return min(seen_at, times_out) if is_seen else times_out, times_out
        if failure.shows is not Shows.HANG:
            detected = shown_at(noticed, trace) + conditions.event_s
            return detected, detected + calls.stopped(trace.profile.instances - 1)
        detected = noticed.at_s + abilities.seconds(abilities.hang_after, conditions) + conditions.event_s
        if detected >= times_out:  # all ranks have ended by themselves
            return times_out, times_out
        return detected, detected + calls.stopped(trace.profile.instances)

    def _find(
        self, noticed: FailureNoticed, trace: FailureTrace, calls: GangCalls, detected: float, stopped: float
    ) -> Finding:
        """Find the faulty instance: by its log, its evidence, the node monitor, a check of all, or its repetition."""
        failure, abilities = noticed.failure, self.abilities
        if failure.shows is Shows.GONE:
            return Finding(stopped, stopped, is_left_out=True, in_background=True)
        known_at = self._known_at(noticed, trace, detected)
        if known_at is not None:
            return Finding(stopped, max(stopped, known_at), is_left_out=True, in_background=True)
        if abilities.level is None or (abilities.checks_returns and not noticed.is_relapse):
            return Finding(stopped, stopped, is_left_out=self._suspects(noticed), in_background=True)
        checked = detected + calls.checked(stopped - detected, abilities.level)
        is_seen = failure.is_seen(trace.conditions, abilities.level)
        return Finding(checked, checked, is_left_out=is_seen or self._suspects(noticed), in_background=False)

    def _known_at(self, noticed: FailureNoticed, trace: FailureTrace, detected: float) -> float | None:
        """Time from which the faulty instance is known without a check of all instances; None if it is not."""
        failure, conditions, abilities = noticed.failure, trace.conditions, self.abilities
        is_seen, times = failure.is_seen(conditions, 1), list[float]()
        if failure.is_named_in_log(conditions) or (abilities.trusts_exits and failure.shows is Shows.EXIT):
            times.append(detected)
        if is_seen and abilities.has_evidence:
            times.append(detected + conditions.evidence_s)
        if is_seen and abilities.monitor_after:
            times.append(noticed.at_s + abilities.seconds(abilities.monitor_after, conditions))
        return min(times, default=None)

    def _suspects(self, noticed: FailureNoticed) -> bool:
        """Whether the instance is left out as a repeat offender."""
        limit, failure = self.abilities.leave_out_after, noticed.failure
        is_repeat_offender = limit is not None and noticed.times >= limit
        return is_repeat_offender and failure.shows is Shows.EXIT and failure.is_instance_fault

    def _returns(
        self, noticed: FailureNoticed, trace: FailureTrace, found: Finding, counts: ActionCounts
    ) -> list[float]:
        """Repair the instances that are left out, and return when each of them is fit for work again."""
        failure, conditions, abilities = noticed.failure, trace.conditions, self.abilities
        level = abilities.level or 1
        check_s, returns = checked_s(conditions, level), list[float]()
        if found.is_left_out and failure.shows is Shows.GONE:
            returns.append(failure.back_at(noticed.at_s + conditions.replace_s))
            counts.replacements += 1
        elif found.is_left_out and not failure.is_instance_fault:  # the check of the instance finds nothing
            returns.append(found.placed_at + check_s)
        elif found.is_left_out and abilities.reboots:
            verdict = found.placed_at + (check_s if found.in_background else 0.0)
            returns.append(failure.back_at(verdict + repair_s(failure, conditions, level)))
            if failure.verdict is Cure.REBOOT:
                counts.reboot(verdict, needed=failure.cure is Cure.REBOOT)
            counts.replacements += failure.cure is Cure.REPLACE
        elif found.is_left_out:
            begins = noticed.at_s + abilities.seconds(abilities.repair_after, conditions)
            returns.append(failure.back_at(begins + conditions.replace_s))
            counts.replacements += 1
        for _ in failure.accused if not (noticed.is_relapse or found.in_background) else ():
            returns.append(found.placed_at + conditions.reboot_s + check_s)
            counts.reboot(found.placed_at, needed=False)
        return returns


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """A policy of the report that restarts a whole gang: a rule model with abilities."""

    title: str
    rules: str
    abilities: Abilities
    spares: int = 0
    memory_checkpoints: bool = False

    @property
    def is_slow(self) -> bool:
        """False: a run takes milliseconds."""
        return False

    @property
    def level(self) -> int | None:
        """Level of the checks of all instances before a relaunch; None for a policy without checks."""
        return self.abilities.level

    @property
    def name(self) -> str:
        """Name of the policy in the report."""
        return with_spares(self.title, self.spares)

    @property
    def about(self) -> str:
        """Rules of the policy in one sentence."""
        return f"a model: {self.rules} ({self.spares} spare)"

    def run(self, trace: FailureTrace) -> PolicyRun:
        """Go through the failure trace."""
        return PolicyModel(trace, GangRules(self.abilities, self.spares), self.spares).run()


def with_spares(title: str, spares: int) -> str:
    """Return the name of a policy with this number of spares in the report."""
    return f"{title}, {spares} spares" if spares else title
