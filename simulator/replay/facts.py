"""Facts of a course as a failure trace: what failed, when and where, what a check finds, and what cures it.

What happened to an instance later decides about its fault. A reboot cured it if the check after the reboot passed, and
only a replacement if not. A finding of a check or of a node agent is taken as true. Where the records cannot know, for
example how a reboot would have ended that never happened, the trace holds an assumption, which `Assumed` names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from gpu_recovery.core.event_history.recorded_event import RecordedEvent
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from simulator.goodput.assumptions import Conditions, Cure, Profile, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.replay.course import BY_CHECKS, Course, Interruption

RELAPSE_WITHIN = timedelta(days=1)
"""Time after a restart within which the same instance failing first again is the same fault."""
UNCHANGED = re.compile(r"no rank has made progress for (\d+) s")
"""Reason of a stop because of a hang."""
BAD = (CheckOutcome.REBOOT.value, CheckOutcome.REPLACE.value)
"""Outcomes of a check that found a fault."""
TAKEN_OUT = tuple(
    status.value
    for status in (
        InstanceStatus.RESETTING,
        InstanceStatus.REBOOTING,
        InstanceStatus.REPLACING,
        InstanceStatus.QUARANTINED,
    )
)
"""Statuses of an instance that was taken out of use."""
AFTERMATH_S = 3_600.0
"""Seconds for which the replay of a job that is over goes on: repairs of its instances outlast the job."""
SECOND_S = 1.0
"""Seconds between two faults of one incident in the trace."""


@dataclass(frozen=True)
class Assumed:
    """An assumed cure: no reboot was tried, or its result is not recorded. `other` is what it could be as well."""

    failure: int
    cure: Cure
    other: Cure


@dataclass(frozen=True)
class Facts:
    """A course as a failure trace.

    trace:     its failures.
    owner:     number of the interruption that each failure stands for, by failure.
    assumed:   the assumptions about failures.
    doubtful:  failures of instances that a log named and that no check found faulty.
    unplayable: why an interruption cannot be replayed, by its number.
    ids:       instances of the fleet, in the order of their launch: those of the start, then those that came later.
    fleet:     number of instances at the start.
    after_s:   seconds for which the replay goes on after the end of the trace. No figure of time counts them.
    """

    trace: FailureTrace
    owner: tuple[int, ...]
    assumed: tuple[Assumed, ...]
    doubtful: frozenset[int]
    unplayable: dict[int, str]
    ids: tuple[str, ...]
    fleet: int
    after_s: float = 0.0

    def played_trace(self, trace: FailureTrace) -> FailureTrace:
        """Return the trace to play: `trace`, and the time after it."""
        days = trace.profile.days + self.after_s / 86_400
        return replace(trace, profile=replace(trace.profile, days=days))


def with_other_cures(facts: Facts) -> FailureTrace:
    """Return the trace in which every assumed cure is the other one."""
    other = {assumed.failure: assumed.other for assumed in facts.assumed}
    failures = tuple(replace(failure, cure=other.get(failure.number, failure.cure)) for failure in facts.trace.failures)
    return replace(facts.trace, failures=failures)


def facts_of(
    course: Course,
    came: Sequence[tuple[datetime, str]],
    conditions: Conditions,
    spares: int | None = None,
) -> Facts:
    """Return the facts of a course.

    Args:
        course: the course.
        came: instances that registered within the records, with the time.
        conditions: the table's conditions. Durations that the records tell take their place.
        spares: spare instances at the start; None: those that the records show.

    Raises:
        ValueError: the course has no run.
    """
    if course.began_at is None or course.ends_at is None:
        raise ValueError(f"{course.name} has never run")
    measured = measured_conditions(course, conditions)
    later = [name for at, name in came if at > course.began_at]
    here = [name for name in dict.fromkeys([*filter(None, course.first), *course.placed]) if name not in later]
    fleet = max(len(here), course.nnodes) if spares is None else course.nnodes + spares
    ids = (*here[:fleet], *(f"i-{number:017x}" for number in range(1, 1 + max(0, fleet - len(here)))), *later)
    # All ranks ran one delivery before the decision about it.
    set_up_s = measured.rejoin(course.nnodes * course.gpus) - measured.event_s
    began = course.began_at + timedelta(seconds=set_up_s)
    seconds = max(SECOND_S, (course.ends_at - began).total_seconds())
    finder = _Finder(course, measured, began)
    finder.find()
    failures = tuple(finder.failures)
    rate = 1_000 * len(failures) / (course.nnodes * seconds / 86_400)
    about = f"{len(course.interruptions)} recorded interruptions of {', '.join(course.jobs)}"
    profile = Profile(course.name, about, course.nnodes, course.gpus, seconds / 86_400, rate, ())
    trace = FailureTrace(profile, measured, failures, 0)
    return Facts(
        trace,
        tuple(finder.owner),
        tuple(finder.assumed),
        frozenset(finder.doubtful),
        finder.unplayable,
        ids,
        fleet,
        AFTERMATH_S if course.is_over else 0.0,
    )


def measured_conditions(course: Course, conditions: Conditions) -> Conditions:
    """Return the conditions with the durations that the records of the course tell, as medians of whole seconds.

    The set-up of the gang is not recorded. It takes at most as long as the shortest run that a failure ended.
    """
    waits = course.waits

    def middle(phase: str, less: float, default: float) -> float:
        found = waits.get(phase)
        return max(1.0, float(round(median(found) - less))) if found else default

    event_s = conditions.event_s
    start_s = middle(JobStatus.SUBMITTED.value, event_s, conditions.start_s)
    check_s = middle(InstanceStatus.CHECKING.value, event_s + start_s, conditions.check_2_s)
    ran_s = [each.ran_s for each in course.interruptions if each.ran_s is not None]
    shortest_s = min(ran_s, default=conditions.rejoin_s + conditions.exit_s) - conditions.exit_s
    return replace(
        conditions,
        rejoin_s=min(conditions.rejoin_s, max(SECOND_S, shortest_s)),
        start_s=start_s,
        check_1_s=check_s,
        check_2_s=check_s,
        check_3_s=check_s,
        reboot_s=max(20.0, middle(InstanceStatus.REBOOTING.value, event_s, conditions.reboot_s)),
    )


class _Finder:
    """Finds the failures of a course."""

    def __init__(self, course: Course, conditions: Conditions, began: datetime) -> None:
        self.course, self.conditions, self.began = course, conditions, began
        self.failures: list[Failure] = []
        self.owner: list[int] = []
        self.assumed: list[Assumed] = []
        self.doubtful: set[int] = set()
        self.unplayable: dict[int, str] = {}

    def find(self) -> None:
        """Go through the interruptions in the order of time."""
        relapses = self._relapses()
        for interruption in self.course.interruptions:
            why = _why_unplayable(interruption)
            if why:
                self.unplayable[interruption.number] = why
            elif interruption.number not in relapses:
                self._add(interruption, [i for i, first in relapses.items() if first == interruption.number])

    def _relapses(self) -> dict[int, int]:
        """Return the interruptions by a fault that had interrupted before, with the first interruption by it."""
        found: dict[int, int] = {}
        for before, after in pairwise(self.course.interruptions):
            first = found.get(before.number, before.number)
            name = _first_instance(before)
            if not name or name != _first_instance(after) or before.ended_at is None:
                continue
            soon = after.at - before.ended_at <= RELAPSE_WITHIN
            repaired_after = any(event.after in TAKEN_OUT for event in after.about.get(name, ()))
            was_checked = bool(outcomes(before.about.get(name, ())))
            is_new = was_checked and _is_faulty(after, name)  # the check before had found nothing
            if soon and not is_new and not _touched(before, name) and repaired_after:
                found[after.number] = first
        return found

    def _add(self, interruption: Interruption, relapses: list[int]) -> None:
        shows = _shows(interruption, self.course.nnodes)
        at_s = (self._fault_at(interruption, shows) - self.began).total_seconds()
        last = self.course.interruptions[relapses[-1]] if relapses else interruption
        faulty = [name for name in last.about if _is_faulty(last, name)]
        first = _first_instance(interruption)
        if first and first not in faulty and (relapses or _is_named(last, first)):
            faulty.insert(0, first)
        faulty.sort(key=lambda name: name != first)
        if shows is Shows.GONE or not faulty:
            self._append(interruption, last, first, shows, max(0.0, at_s), is_hidden=False, relapses=relapses)
            return
        for place, name in enumerate(faulty):
            hidden = not _is_faulty(last, name)
            self._append(
                interruption, last, name, shows, max(0.0, at_s) + place * SECOND_S, is_hidden=hidden, relapses=relapses
            )

    def _append(
        self,
        interruption: Interruption,
        last: Interruption,
        name: str,
        shows: Shows,
        at_s: float,
        *,
        is_hidden: bool,
        relapses: list[int],
    ) -> None:
        number = len(self.failures)
        cure, verdict, other = _cure(last, name, shows, is_hidden=is_hidden)
        if other is not None:
            self.assumed.append(Assumed(number, cure, other))
        ran = [self.course.interruptions[i].ran_s for i in relapses]
        if _is_named(last, name) and not _is_faulty(last, name) and outcomes(last.about.get(name, ())):
            self.doubtful.add(number)
            ran = [self.course.profile_s]  # the records show that the fault did not come back
        rejoin_s = self.conditions.rejoin(self.course.nnodes * self.course.gpus)
        ran_s = [seconds for seconds in ran if seconds is not None]
        relapse_s = median(ran_s) - rejoin_s - self.conditions.exit_s if ran_s else self.conditions.relapse_s
        self.failures.append(
            Failure(
                number,
                at_s,
                self._place(interruption, name),
                _cause(last),
                cure,
                shows,
                of_lemon=False,
                depth=self._depth(last, name),
                verdict=verdict,
                relapse_s=max(1.0, relapse_s),
                human_s=self._human_s(last),
                accused=(),
                named_draw=0.0 if _is_named(last, name) else 1.0,
                exit_code=_exit_code(interruption),
            )
        )
        self.owner.append(interruption.number)

    def _fault_at(self, interruption: Interruption, shows: Shows) -> datetime:
        """Return when the training stopped: before its end became visible."""
        conditions = self.conditions
        reported = _found_while_running(interruption)
        if reported is not None:
            return reported.at - timedelta(seconds=conditions.evidence_s)
        stalled = UNCHANGED.search(interruption.events[0].reason)
        if stalled is not None:
            return interruption.at - timedelta(seconds=float(stalled[1]) - conditions.step_s / 2)
        failed_at = interruption.fact("failed_at")
        at = interruption.at if failed_at is None else datetime.fromisoformat(failed_at)
        shown_s = {Shows.EXIT: conditions.exit_s, Shows.HANG: conditions.hang_s, Shows.GONE: 0.0}[shows]
        return at - timedelta(seconds=shown_s)

    def _place(self, interruption: Interruption, name: str) -> int:
        if name in interruption.gang:
            return interruption.gang.index(name)
        failure = interruption.events[0].failure
        return failure.rank if failure is not None and 0 <= failure.rank < self.course.nnodes else 0

    def _depth(self, interruption: Interruption, name: str) -> float:
        """Return the depth of the fault: 0 if agents see it, more than they see if only a check found it."""
        if _is_reported(interruption, name) or (not self.course.has_agents and _is_faulty(interruption, name)):
            return 0.0
        if _is_faulty(interruption, name):
            return (self.conditions.seen_1 + self.conditions.seen_2) / 2
        return 1.0

    def _human_s(self, interruption: Interruption) -> float:
        """Return the seconds that a person needed: from the failure of the job to its next submission."""
        ended = [event.at for event in interruption.events if event.after == JobStatus.FAILED]
        again = [event.at for event in interruption.events if not event.before]
        if ended and again:
            return (again[-1] - ended[0]).total_seconds()
        if ended and self.course.is_over:
            return 2 * AFTERMATH_S  # nobody submitted it again
        return self.conditions.human_s


def _why_unplayable(interruption: Interruption) -> str:
    """Return why an interruption cannot be replayed; "" if it can."""
    if not interruption.has_facts:
        return "it was recorded by a release that wrote no replay facts"
    if any(event.after in (JobStatus.CANCELED, JobStatus.SUSPENDED) for event in interruption.events):
        return "a user ended or suspended the job"
    if interruption.ended_at is None and not any(event.after == JobStatus.FAILED for event in interruption.events):
        return "the records end before the interruption"
    return ""


def _first_instance(interruption: Interruption) -> str:
    """Return the instance of the first rank that failed; "" if there is none."""
    failures = [event.failure for event in interruption.events if event.failure is not None]
    return failures[0].instance_id if failures else ""


def _exit_code(interruption: Interruption) -> int:
    """Return the exit code of the first rank that failed; 1 if it is not known."""
    codes = [event.failure.exit_code for event in interruption.events if event.failure is not None]
    return next((code for code in codes if code), 1)


def _shows(interruption: Interruption, nnodes: int) -> Shows:
    """Return how the failure became visible: an instance left, the gang hung, or a rank ended."""
    failure = interruption.events[0].failure
    name = _first_instance(interruption)
    own_ends = interruption.fact("own_ends") or 0
    left = any(
        event.after == InstanceStatus.GONE and event.before == InstanceStatus.AVAILABLE
        for event in interruption.about.get(name, ())
    )
    if left and failure is not None and failure.exit_code is None:
        return Shows.GONE
    trigger = (interruption.events[0].replay or {}).get("event")
    hangs = trigger == "ProgressStopped" or (nnodes > 1 and own_ends > nnodes // 2)
    hangs = hangs or bool(interruption.fact("together"))
    hangs = hangs or _found_while_running(interruption) is not None  # no rank had ended when the check found the fault
    return Shows.HANG if hangs else Shows.EXIT


def outcomes(events: Sequence[RecordedEvent]) -> list[tuple[str, str]]:
    """Return the status before each check that ended, and its outcome."""
    found = [(event.before, (event.replay or {}).get("outcome")) for event in events]
    return [(before, outcome) for before, outcome in found if outcome is not None]


def _is_faulty(interruption: Interruption, name: str) -> bool:
    """Return whether a check found a fault of the instance."""
    events = interruption.about.get(name, ())
    return any(outcome in BAD for _, outcome in outcomes(events))


def _is_reported(interruption: Interruption, name: str) -> bool:
    """Return whether the node agent of the instance reported its fault. Earlier failures on it are no report."""
    shown, doubtful = interruption.fact("faulty") or (), interruption.fact("doubtful") or ()
    return bool(_reports(interruption, name)) or (name in shown and name not in doubtful)


def _reports(interruption: Interruption, name: str) -> list[RecordedEvent]:
    """Return the events with which a health report of the instance was decided about."""
    events = interruption.about.get(name, ())
    return [event for event in events if (event.replay or {}).get("event") == "HealthReported"]


def _found_while_running(interruption: Interruption) -> RecordedEvent | None:
    """Return the first health report of a fault whose check stopped the gang; None if the gang stopped otherwise."""
    if (interruption.events[0].replay or {}).get("event") != "InstanceNeedsRepair":
        return None
    reports = [event for name in interruption.gang for event in _reports(interruption, name)]
    return min((event for event in reports if event.at < interruption.at), key=lambda event: event.at, default=None)


def _touched(interruption: Interruption, name: str) -> bool:
    """Return whether the instance was repaired, or taken out of use."""
    return any(event.after in TAKEN_OUT for event in interruption.about.get(name, ()))


def _is_named(interruption: Interruption, name: str) -> bool:
    """Return whether a sure diagnosis named the instance without a finding of its check."""
    healthy = not _is_faulty(interruption, name)
    findings = [
        event.finding
        for event in interruption.events
        if event.finding is not None and (healthy or (event.replay or {}).get("event") not in BY_CHECKS)
    ]
    return any(finding.decided and name in finding.instances for finding in findings)


def _cause(interruption: Interruption) -> str:
    """Return the cause that the diagnosis named last, in small letters; `unknown` without one."""
    findings = [event.finding.cause for event in interruption.events if event.finding is not None]
    return findings[-1].lower() if findings else "unknown"


def _cure(last: Interruption, name: str, shows: Shows, *, is_hidden: bool) -> tuple[Cure, Cure, Cure | None]:
    """Return what cures the fault, the verdict of the first check, and what else could cure it; None if that is known.

    Args:
        last: the last interruption by the fault.
        name: the instance.
        shows: how the failure became visible.
        is_hidden: whether the instance counts as faulty although no check found that.
    """
    if shows is Shows.GONE:
        return Cure.REPLACE, Cure.REBOOT, None
    events = last.about.get(name, ())
    found = outcomes(events)
    if not _is_faulty(last, name) and not is_hidden:
        has_failed = any(event.after == JobStatus.FAILED for event in last.events)
        return Cure.PERSON if has_failed else Cure.RESTART, Cure.REBOOT, None
    first = next((outcome for _, outcome in found if outcome in BAD), CheckOutcome.REBOOT.value)
    verdict = Cure.REPLACE if first == CheckOutcome.REPLACE.value else Cure.REBOOT
    after_repair = [outcome for before, outcome in found if before == InstanceStatus.VERIFYING]
    rebooted = any(event.after == InstanceStatus.REBOOTING for event in events)
    if rebooted and after_repair:
        return (Cure.REPLACE if after_repair[0] in BAD else Cure.REBOOT), verdict, None
    return verdict, verdict, Cure.REBOOT if verdict is Cure.REPLACE else Cure.REPLACE
