"""Courses: what the records say about a job, and about the jobs that its user submitted again after it failed.

A course is a training on one gang. Its interruptions begin when the gang stops, and end when all ranks run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core import replay_facts
from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.event_history.streams import position_of
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import TERMINAL, JobStatus

from simulator.replay.records import RecordsInvalid

RUNS = (JobStatus.RUNNING.value, JobStatus.LOST.value)
"""Statuses of a job whose gang trains."""
BY_USER = (JobStatus.CANCELED.value, JobStatus.SUSPENDING.value, JobStatus.SUSPENDED.value, JobStatus.SUCCEEDED.value)
"""Statuses into which no failure leads a job."""
BY_CHECKS = ("InstancesChecked", "JobDeadlineReached")
"""Events with which a job receives the outcomes of checks."""
SUBMITTED_AGAIN = timedelta(days=1)
"""Time after the failure of a job within which a job of the same size and user continues its training."""
LEADS = timedelta(seconds=120)
"""Time before the stop of a gang from which the events of its instances belong to the interruption. A check that
has not ended at the stop belongs to it, however long it takes."""


@dataclass
class Interruption:
    """An interruption of the training.

    number:  position in the course, from 0.
    attempt: attempt that was interrupted.
    gang:    instances by rank; "" for an unknown instance.
    ran_s:   seconds for which the attempt had run; None if its begin is not recorded.
    events:  events of the job from the stop to the next run of all ranks.
    about:   events of the instances meanwhile and afterwards, until the next interruption, by instance.
    ended_at: time at which all ranks ran again; None if the records end before.
    """

    number: int
    job_id: str
    attempt: int
    gang: tuple[str, ...]
    ran_s: float | None
    events: list[RecordedEvent] = field(default_factory=list)
    about: dict[str, list[RecordedEvent]] = field(default_factory=dict)
    ended_at: datetime | None = None

    @property
    def at(self) -> datetime:
        """Time at which the gang was stopped, or had ended."""
        return self.events[0].at

    @property
    def name(self) -> str:
        """The interruption in a report: the attempt, as users know it."""
        return f"{self.job_id}--a{self.attempt:02d}"

    @property
    def has_facts(self) -> bool:
        """Whether every decision was recorded with its replay facts."""
        return all(event.replay is not None for event in (*self.events, *(e for es in self.about.values() for e in es)))

    def fact(self, name: str) -> Any:
        """Return the first value of a replay fact of the job; None if no decision has it."""
        return next((event.replay[name] for event in self.events if event.replay and name in event.replay), None)


@dataclass
class Course:
    """A training on one gang, by its job or by several jobs in succession.

    jobs:     ids of its jobs.
    nnodes, gpus: instances of the gang, and GPUs of each.
    is_elastic: whether its job has a range of widths; `nnodes` is then the width of its first event.
    began_at: start of the first run of all ranks in the records.
    ends_at:  end of the last job, or of the records.
    first:    instances of the first run by rank; "" for an unknown one.
    policies: the policies of its launches, without repetition; empty if none is recorded.
    placed:   every instance that was placed, in order.
    waits:    seconds by phase, as they were recorded: lists of durations.
    """

    jobs: list[str]
    user: str
    nnodes: int
    gpus: int
    is_elastic: bool = False
    began_at: datetime | None = None
    ends_at: datetime | None = None
    is_over: bool = False
    failed_at: datetime | None = None
    first: tuple[str, ...] = ()
    gang: tuple[str, ...] = ()
    placed: dict[str, None] = field(default_factory=dict)
    policies: list[Mapping[str, Any]] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    waits: dict[str, list[float]] = field(default_factory=dict)
    was_seen_from_start: bool = True
    reports_progress: bool = False
    has_agents: bool = False
    _open: Interruption | None = None
    _trouble: dict[str, Interruption] = field(default_factory=dict)
    """The interruption in which the present check or repair of an instance began, by instance."""
    _runs_since: datetime | None = None

    @property
    def name(self) -> str:
        """Name in a report: its first job."""
        return self.jobs[0]

    @property
    def profile_s(self) -> float:
        """Seconds from the first run to the end."""
        if self.began_at is None or self.ends_at is None:
            return 0.0
        return (self.ends_at - self.began_at).total_seconds()

    def waited(self, phase: str, seconds: float) -> None:
        """Note the duration of a phase."""
        self.waits.setdefault(phase, []).append(seconds)


def courses_of(events: Sequence[RecordedEvent], until: datetime) -> list[Course]:
    """Return the courses of the records, in the order of their begin. Jobs that never ran are left out.

    Args:
        events: events in the order of time.
        until: time of the collection.

    Raises:
        RecordsInvalid: the replay facts of an event are of a later version.
    """
    builder = _Builder()
    for event in sorted(events, key=_order):
        _check_version(event)
        builder.take(event)
    for course in builder.courses:
        if course.ends_at is None or not course.is_over:
            course.ends_at = until
        _find_adopted(course)
    return [course for course in builder.courses if course.began_at is not None]


def _find_adopted(course: Course) -> None:
    """Find the instances of ranks whose placement is not recorded, as those of tasks that a user started.

    The first failure tells its rank. The other instances that were checked after it have the other ranks, in the order
    of their names.
    """
    if not course.interruptions or all(course.first):
        return
    first = course.interruptions[0]
    known = {event.failure.rank: event.failure.instance_id for event in first.events if event.failure is not None}
    gang = [name or known.get(rank, "") for rank, name in enumerate(course.first)]
    others = iter(sorted(set(first.about) - set(gang)))
    course.first = tuple(name or next(others, "") for name in gang)
    for interruption in course.interruptions:
        interruption.gang = tuple(name or found for name, found in zip(interruption.gang, course.first, strict=True))


def registered(events: Iterable[RecordedEvent]) -> list[tuple[datetime, str]]:
    """Return when instances registered for the first time, in the order of time."""
    return [(event.at, event.instance_id) for event in events if event.kind is EventKind.INSTANCE and not event.before]


def _order(event: RecordedEvent) -> tuple[datetime, str, int, str]:
    return event.at, event.record, event.version, position_of(event)


def _check_version(event: RecordedEvent) -> None:
    version = (event.replay or {}).get("version", replay_facts.VERSION)
    if version != replay_facts.VERSION:
        raise RecordsInvalid(f"event {event.event_id}: version {version!r} of the replay facts is unknown")


class _Builder:
    """Builds the courses from the events in the order of time."""

    def __init__(self) -> None:
        self.courses: list[Course] = []
        self._of_job: dict[str, Course] = {}
        self._of_instance: dict[str, Course] = {}
        self._early: dict[str, list[RecordedEvent]] = {}
        """Latest events of instances that belong to no open interruption: they may belong to the next one."""

    def take(self, event: RecordedEvent) -> None:
        """Add one event."""
        if event.kind is EventKind.INSTANCE:
            self._instance(event)
        elif event.kind is EventKind.JOB:
            course = self._course(event)
            if course is not None:
                self._job(course, event)
        elif event.kind is EventKind.RECOVERY_SUCCEEDED and event.job_id in self._of_job:
            course = self._of_job[event.job_id]
            course.reports_progress |= event.kept_until is not None

    def _course(self, event: RecordedEvent) -> Course | None:
        course = self._of_job.get(event.job_id)
        if course is None:
            if not event.instances:
                return None  # an event of a release that did not record the size of a job
            gpus = event.gpus // event.instances
            is_elastic = bool((event.replay or {}).get("elastic"))
            course = next(self._continued(event, gpus, is_elastic=is_elastic), None)
            if course is None:
                course = Course([event.job_id], event.user, event.instances, gpus, is_elastic)
                course.was_seen_from_start = not event.before
                course.gang = ("",) * event.instances
                self.courses.append(course)
            else:
                course.jobs.append(event.job_id)
                course.is_over, course.failed_at = False, None
            self._of_job[event.job_id] = course
        return course

    def _continued(self, event: RecordedEvent, gpus: int, *, is_elastic: bool) -> Iterator[Course]:
        """Yield the course that a new job continues: one of the same user and size that failed shortly before."""
        new = (event.user, event.instances, gpus, is_elastic)
        for course in self.courses:
            same = (course.user, course.nnodes, course.gpus, course.is_elastic) == new
            if same and not event.before and course.failed_at and event.at - course.failed_at <= SUBMITTED_AGAIN:
                yield course

    def _job(self, course: Course, event: RecordedEvent) -> None:
        facts = event.replay or {}
        if "placed" in facts:
            self._place(course, facts)
        if event.before in (JobStatus.SUBMITTED, JobStatus.STOPPING) and event.since is not None:
            course.waited(event.before, (event.at - event.since).total_seconds())
        course.has_agents |= facts.get("event") in ("PassiveEvidenceCollected", "AllRanksHeld", "ProgressStopped")
        course.reports_progress |= facts.get("event") == "ProgressStopped"
        interruption = course._open
        if interruption is None and event.before in RUNS and event.after not in (*RUNS, *BY_USER):
            interruption = self._interrupted(course, event)
        if interruption is not None:
            interruption.events.append(event)
            if event.after in BY_USER:
                course._open = None
        if event.after in RUNS and event.before not in RUNS:
            self._running(course, event)
        if event.after in TERMINAL:
            course.ends_at, course.is_over = event.at, True
            course.failed_at = event.at if event.after == JobStatus.FAILED else None

    def _place(self, course: Course, facts: Mapping[str, Any]) -> None:
        gang = list(course.gang)
        for rank, name in facts["placed"].items():
            if rank.isdecimal() and int(rank) < len(gang):
                gang[int(rank)] = name
                course.placed[name] = None
                self._of_instance[name] = course
        course.gang = tuple(gang)
        if facts.get("policy") not in (None, *course.policies):
            course.policies.append(facts["policy"])

    def _interrupted(self, course: Course, event: RecordedEvent) -> Interruption:
        since = course._runs_since
        ran_s = None if since is None else (event.at - since).total_seconds()
        if course.began_at is None:  # the records begin while the job runs
            course.began_at, course.first = event.since or event.at, course.gang
            ran_s = (event.at - course.began_at).total_seconds()
        found = Interruption(len(course.interruptions), event.job_id, event.attempt, course.gang, ran_s)
        for name in course.gang:
            early = self._early.pop(name, [])
            closed = [number for number, each in enumerate(early, 1) if each.after == InstanceStatus.AVAILABLE]
            for number, each in enumerate(early, 1):
                leads = event.at - each.at <= LEADS or number > max(closed, default=0)
                if leads or course.interruptions:
                    into = course._trouble[name] = found if leads else course.interruptions[-1]
                    into.about.setdefault(name, []).append(each)
        course.interruptions.append(found)
        course._open = found
        return found

    def _running(self, course: Course, event: RecordedEvent) -> None:
        course._runs_since = event.at
        if course._open is not None:
            course._open.ended_at, course._open = event.at, None
        if course.began_at is None:
            course.began_at, course.first = event.at, course.gang

    def _instance(self, event: RecordedEvent) -> None:
        course = self._of_job.get(event.job_id) or self._of_instance.get(event.instance_id)
        if course is None:
            return
        facts = event.replay or {}
        course.has_agents |= facts.get("event") == "HealthReported" and event.after == InstanceStatus.CHECKING
        if event.since is not None and event.before:
            course.waited(event.before, (event.at - event.since).total_seconds())
        name = event.instance_id
        if event.before == InstanceStatus.AVAILABLE:
            course._trouble.pop(name, None)
            if course._open is None and name in course.gang:
                self._early.setdefault(name, []).append(event)  # it may announce the next interruption
                return
        elif name in self._early:
            self._early[name].append(event)
            return
        # The end of a check or of a repair belongs to the interruption in which it began.
        if course.interruptions:
            into = course._trouble.setdefault(name, course.interruptions[-1])
            into.about.setdefault(name, []).append(event)
