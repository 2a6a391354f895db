"""Roll-up of a day: GPU-hours, recoveries and incidents, for the fleet and for each user and priority.

`roll_up` is a function of the events of the day and of what stood at its beginning (`Standing`). Nothing is counted up
from one event to the next, so an event that comes late or twice falsifies nothing: the day is rolled up again.

A large day is rolled up in pieces: `begin_day`, `add_events` for each piece, `end_day`. Between two pieces each job and
each instance is as it was after its last event (`PartOfDay`), so the pieces give the same figures as the whole day.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from gpu_recovery.core.event_history.intervals import Interval, intervals_of
from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import LIVE, RUNS, TERMINAL, WAITING, JobStatus
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

RUNS_MAX = 16
"""Runs of a job that have ended, of which it is not known yet how much work is done again."""
REPORTED_WITHIN = timedelta(hours=1)
"""Time from the beginning of a run within which its recovery is reported, if it is one."""
RECOVERIES_MAX = 2_000
"""Recoveries of a day and a group whose length is kept."""
HELD = frozenset(status.value for status in (*LIVE, JobStatus.DIAGNOSING))
"""Statuses in which a job holds its instances."""
_RUN = frozenset(status.value for status in RUNS)
_LINE = frozenset(status.value for status in WAITING)
_ENDED = frozenset(status.value for status in TERMINAL)
_DOWN = frozenset(
    status.value
    for status in (JobStatus.STOPPING, JobStatus.DIAGNOSING, JobStatus.RECOVERING, JobStatus.PENDING_RESOURCES)
)
_ENDS = {JobStatus.SUCCEEDED: "succeeded", JobStatus.FAILED: "failed", JobStatus.CANCELED: "canceled"}


@frozen_dataclass()
class Runs:
    """The runs of a job since it was last known up to when its work was kept.

    ended: begin and end of each run that has ended, at most RUNS_MAX.
    since: beginning of the present run; None if the job does not run.
    """

    ended: tuple[tuple[datetime, datetime], ...] = ()
    since: datetime | None = None

    def is_known(self, has_ended: bool) -> bool:
        """Return whether no work is done again that is not counted yet. `has_ended`: no run of the job will follow."""
        return not self.ended or (has_ended and len(self.ended) == 1)

    def at(self, status: str, since: datetime) -> Runs:
        """Return the runs after the job had a status since a time."""
        if status in _RUN:
            return self if self.since is not None else replace(self, since=since)
        return self if self.since is None else Runs((*self.ended, (self.since, since))[-RUNS_MAX:])

    def lasts(self, at: datetime) -> bool:
        """Return whether the present run lasts for so long at a time that no recovery will be reported for it."""
        return self.since is not None and at - self.since > REPORTED_WITHIN

    def again_s(self, kept_until: datetime, begin: datetime) -> float:
        """Return the seconds of runs that are done again, if the work up to a time was kept.

        Runs that ended before `begin`, the beginning of the day, are left out. On that day the job was not known.
        """
        lost = (until - max(since, kept_until) for since, until in self.ended if until > max(kept_until, begin))
        return sum(each.total_seconds() for each in lost)


@frozen_dataclass()
class JobStanding:
    """A job at a moment.

    has_run:    whether an attempt of the job has begun.
    stopped_at: time at which its gang was stopped or ended for a recovery that is not over; None otherwise.
    runs:       its runs of which it is not known yet how much work is done again.
    """

    status: str
    gpus: int
    user: str
    priority: str
    has_run: bool
    stopped_at: datetime | None
    runs: Runs = Runs()


@frozen_dataclass()
class Standing:
    """The jobs that have not ended, and the status of each instance that is present, at a moment."""

    jobs: Mapping[str, JobStanding] = field(default_factory=dict)
    instances: Mapping[str, str] = field(default_factory=dict)


@frozen_dataclass()
class JobCourse:
    """A job after its last event in the rolled-up part of a day.

    standing: the job, also if it has ended.
    at:       time of that event; the beginning of the day if the job had none.
    held:     GPU-hours of the day in statuses that hold instances.
    line:     in the queue after the first attempt.
    work:     running, less the work that was done again.
    is_known: whether all work that was done again until then is known, except of `standing.runs`.
    """

    standing: JobStanding
    at: datetime
    held: float = 0.0
    line: float = 0.0
    work: float = 0.0
    is_known: bool = True


Recovered = tuple[int, datetime | None]
"""Version of a recovery that succeeded, and time up to which the work was kept, if it is known."""


@frozen_dataclass()
class PartOfDay:
    """A day of which the events up to a time are rolled up.

    begin:      the beginning of the day.
    jobs:       the jobs.
    instances:  status of each instance, and since when; GONE for an instance that has gone.
    recoveries: recoveries of each job after its last change of status.
    incidents:  the incidents that are counted.
    """

    begin: datetime
    jobs: Mapping[str, JobCourse] = field(default_factory=dict)
    instances: Mapping[str, tuple[str, datetime]] = field(default_factory=dict)
    recoveries: Mapping[str, Sequence[Recovered]] = field(default_factory=dict)
    incidents: frozenset[str] = frozenset()


@dataclass(slots=True)
class Figures:
    """Figures of a day or of several, for a group of jobs. Hours are GPU-hours, except those of instances.

    held:       in statuses that hold instances.
    running:    the part of it in which the ranks are assumed to work.
    in_line:    in the queue after the first attempt.
    lost:       from the stop of a gang until every rank ran again, or until the job was given up.
    recoveries: seconds of each recovery that ended with every rank running.
    incidents:  incidents of jobs that began.
    known_held: in statuses that hold instances, of jobs of which all work that was done again is known.
    known_line: in the queue after the first attempt, of these jobs.
    known_work: running, of these jobs, less the work that was done again.
    available:  instance-hours in AVAILABLE; only for the fleet, as `present`, the instance-hours of all instances.
    """

    held: float = 0.0
    running: float = 0.0
    in_line: float = 0.0
    lost: float = 0.0
    recoveries: list[float] = field(default_factory=list)
    incidents: int = 0
    recovered: int = 0
    given_up: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    available: float = 0.0
    present: float = 0.0
    known_held: float = 0.0
    known_line: float = 0.0
    known_work: float = 0.0

    def add(self, other: Figures) -> None:
        """Add the figures of another group or day."""
        for each in fields(Figures):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def running_share(self) -> float | None:
        """Running of held GPU-hours: an upper bound of the effective training time ratio; None without any."""
        return self.running / self.held if self.held else None

    @property
    def ettr(self) -> float | None:
        """Effective training time ratio of the jobs of which all work that was done again is known; None without any.

        Work that was done again counts on the day on which it is known.
        """
        spent = self.known_held + self.known_line
        return max(0.0, self.known_work / spent) if spent else None

    @property
    def ettr_share(self) -> float | None:
        """Share of the held GPU-hours of which `ettr` is known; None without any held."""
        return self.known_held / self.held if self.held else None

    @property
    def fleet_available(self) -> float | None:
        """Share of the present instances' time in which they were AVAILABLE; None if no instance is known."""
        return self.available / self.present if self.present else None

    @property
    def mttf_gpu_h(self) -> float | None:
        """Running GPU-hours for each incident; None without an incident."""
        return self.running / self.incidents if self.incidents else None

    def recovery_s(self, share: float) -> float | None:
        """Return the smallest time that at least `share` of the recoveries did not exceed; None without recoveries."""
        ordered = sorted(self.recoveries)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


FLEET = ("", "")
"""Key of the figures of all jobs and instances."""
GroupKey = tuple[str, str]
"""User and priority."""


def roll_up(
    standing: Standing, events: Iterable[RecordedEvent], since: datetime, until: datetime
) -> tuple[dict[GroupKey, Figures], Standing]:
    """Return the figures between two times, for the fleet and for each user and priority, and what stands at the end.

    Args:
        standing: what stood at `since`.
        events: events, in any order and any number of times. Those outside of both times are left out.
        since: the beginning.
        until: the end.
    """
    figures, part = add_events(begin_day(standing, since), events, since, until)
    rest, after = end_day(part, until)
    return sum_of(figures, rest), after


def begin_day(standing: Standing, begin: datetime) -> PartOfDay:
    """Return a day of which no event is rolled up yet.

    Args:
        standing: what stood at its beginning.
        begin: its beginning.
    """
    jobs = dict[str, JobCourse]()
    for job_id, job in standing.jobs.items():
        # If the present run lasts, the work before it is a matter of the days before, known or not.
        runs = Runs(since=job.runs.since) if job.runs.lasts(begin) else job.runs
        jobs[job_id] = JobCourse(replace(job, runs=runs), begin)
    return PartOfDay(begin, jobs, {name: (status, begin) for name, status in standing.instances.items()})


def add_events(
    part: PartOfDay, events: Iterable[RecordedEvent], since: datetime, until: datetime
) -> tuple[dict[GroupKey, Figures], PartOfDay]:
    """Return the figures of the next piece of a day, up to the last event of each job and instance, and the day so far.

    Args:
        part: the day up to `since`.
        events: events, in any order and any number of times. Those outside of both times are left out.
        since: the beginning of the piece.
        until: the end of the piece.
    """
    within = {event.event_id: event for event in events if since <= event.at < until}
    moves: dict[EventKind, dict[str, list[RecordedEvent]]] = {EventKind.JOB: {}, EventKind.INSTANCE: {}}
    figures: dict[GroupKey, Figures] = {FLEET: Figures()}
    incidents: dict[str, RecordedEvent] = {}
    recoveries = {job_id: list(each) for job_id, each in part.recoveries.items()}
    for event in sorted(within.values(), key=lambda event: (event.version, event.kind)):
        if event.kind in moves:
            moves[event.kind].setdefault(event.record, []).append(event)
        if event.kind in (EventKind.RECOVERY_SUCCEEDED, EventKind.RECOVERY_FAILED):
            for group in _groups(figures, (event.user, event.priority)):
                group.recovered += event.kind is EventKind.RECOVERY_SUCCEEDED
                group.given_up += event.kind is EventKind.RECOVERY_FAILED
        if event.kind is EventKind.RECOVERY_SUCCEEDED:
            recoveries.setdefault(event.record, []).append((event.version, event.kept_until))
        if event.incident_id and event.job_id and not event.is_about_instance and _began(event, part.begin, until):
            incidents.setdefault(event.incident_id, event)
    for incident_id, event in incidents.items():
        for group in _groups(figures, (event.user, event.priority)):
            group.incidents += incident_id not in part.incidents
    jobs = {**part.jobs, **_moved_jobs(part, moves[EventKind.JOB], recoveries, figures)}
    instances = {**part.instances, **_moved_instances(part, moves[EventKind.INSTANCE], figures[FLEET])}
    left = {job_id: tuple(each) for job_id, each in recoveries.items() if each}
    return _shorter(figures), PartOfDay(part.begin, jobs, instances, left, part.incidents | incidents.keys())


def end_day(part: PartOfDay, until: datetime) -> tuple[dict[GroupKey, Figures], Standing]:
    """Return the figures from the last event of each job and instance until the end of a day, and what stands then.

    Args:
        part: the day, of which all events are rolled up.
        until: its end, or the present time.
    """
    figures: dict[GroupKey, Figures] = {FLEET: Figures()}
    jobs = dict[str, JobStanding]()
    for job_id, job in sorted(part.jobs.items()):
        groups = _groups(figures, (job.standing.user, job.standing.priority))
        course = _Course(job, groups, list(part.recoveries.get(job_id, ())), part.begin)
        course.end(until)
        if course.status not in _ENDED:
            jobs[job_id] = course.standing
    instances = dict[str, str]()
    for name, (status, since) in sorted(part.instances.items()):
        for interval in intervals_of([], status, since, until):
            _add_instance(figures[FLEET], interval)
        if status != InstanceStatus.GONE:
            instances[name] = status
    return figures, Standing(jobs, instances)


def sum_of(before: Mapping[GroupKey, Figures], more: Mapping[GroupKey, Figures]) -> dict[GroupKey, Figures]:
    """Return the figures of both pieces of a day."""
    total = {key: replace(group) for key, group in before.items()}
    for key, group in more.items():
        total.setdefault(key, Figures()).add(group)
    return _shorter(total)


def _shorter(figures: dict[GroupKey, Figures]) -> dict[GroupKey, Figures]:
    for group in figures.values():
        group.recoveries = sorted(group.recoveries)[-RECOVERIES_MAX:]
    return figures


def _began(event: RecordedEvent, since: datetime, until: datetime) -> bool:
    """Return whether the incident of the event began between both times."""
    return event.opened_at is not None and since <= event.opened_at < until


def _groups(figures: dict[GroupKey, Figures], key: GroupKey) -> Sequence[Figures]:
    return figures[FLEET], figures.setdefault(key, Figures()) if key != FLEET else Figures()


def _moved_jobs(
    part: PartOfDay,
    moves: Mapping[str, list[RecordedEvent]],
    recoveries: Mapping[str, list[Recovered]],
    figures: dict[GroupKey, Figures],
) -> dict[str, JobCourse]:
    """Add the courses of the jobs that moved to the figures, and return these jobs after their last events.

    The recoveries up to the last event of a job are removed from `recoveries`.
    """
    after = dict[str, JobCourse]()
    for job_id, events in sorted(moves.items()):
        known = part.jobs.get(job_id) or _first(events[0], part.begin)
        groups = _groups(figures, (known.standing.user, known.standing.priority))
        course = _Course(known, groups, recoveries.get(job_id, []), part.begin)
        for event in events:
            for group in _groups(figures, (event.user, event.priority)):
                if event.after in _ENDS:
                    name = _ENDS[JobStatus(event.after)]
                    setattr(group, name, getattr(group, name) + 1)
            course.move(event)
        after[job_id] = course.job
    return after


def _first(event: RecordedEvent, begin: datetime) -> JobCourse:
    """Return a job of which nothing was known before this event."""
    began = event.since is not None and event.since < begin
    status, at = (event.before, begin) if began else ("", event.at)
    return JobCourse(JobStanding(status, event.gpus, event.user, event.priority, event.before in HELD, None), at)


class _Course:
    """The course of one job through its intervals. It adds to the figures of its groups."""

    def __init__(self, job: JobCourse, groups: Sequence[Figures], recoveries: list[Recovered], begin: datetime) -> None:
        known = job.standing
        self.gpus, self.groups = known.gpus, groups
        self.status, self.at = known.status, job.at
        self.has_run, self.stopped_at, self.runs = known.has_run, known.stopped_at, known.runs
        self._known, self._begin, self._is_known = known, begin, job.is_known
        self._recoveries = recoveries
        self._hours = {"held": job.held, "line": job.line, "work": job.work}

    @property
    def standing(self) -> JobStanding:
        """The job as it is now."""
        return replace(
            self._known, status=self.status, has_run=self.has_run, stopped_at=self.stopped_at, runs=self.runs
        )

    @property
    def job(self) -> JobCourse:
        """The job as it is now, with its hours of the day."""
        return JobCourse(self.standing, self.at, **self._hours, is_known=self._is_known)

    def move(self, event: RecordedEvent) -> None:
        """Add the time until an event, and the change of status."""
        until = max(event.at, self.at)
        for interval in intervals_of([event], self.status, self.at, until):
            self._follow(interval, event)
        self.status, self.at = event.after, until

    def end(self, until: datetime) -> None:
        """Add the time until the end of the day.

        And add the job to the figures of the jobs of which all work that was done again is known, if it is known.
        """
        for interval in intervals_of([], self.status, self.at, until):
            self._follow(interval, None)
        self._recovered(None)
        if self._is_known and self.runs.is_known(self.status in _ENDED):
            for group in self.groups:
                group.known_held += self._hours["held"]
                group.known_line += self._hours["line"]
                group.known_work += self._hours["work"]

    def _follow(self, interval: Interval, event: RecordedEvent | None) -> None:
        """Add an interval before an event, or before the end, and the change of status that ended the interval."""
        gpu_hours = interval.hours * self.gpus
        for group in self.groups:
            if interval.status in HELD:
                group.held += gpu_hours
            if interval.status in _RUN:
                group.running += gpu_hours
            elif interval.status and self.stopped_at is not None:
                group.lost += gpu_hours
            if interval.status in _LINE and self.has_run:
                group.in_line += gpu_hours
        self._hours["held"] += gpu_hours * (interval.status in HELD)
        self._hours["line"] += gpu_hours * (interval.status in _LINE and self.has_run)
        self._hours["work"] += gpu_hours * (interval.status in _RUN)
        if self.runs.lasts(interval.since) and self.runs.ended:
            self._is_known, self.runs = False, Runs(since=self.runs.since)  # up to when work was kept stays unknown
        self.runs = self.runs.at(interval.status, interval.since)
        self._recovered(event)
        self.has_run = self.has_run or interval.status in HELD
        if interval.ended_by is not None:
            self._moved(interval.ended_by)

    def _recovered(self, before: RecordedEvent | None) -> None:
        """Take the work off that is done again after the recoveries up to an event, or after all that are left."""
        while self._recoveries and (before is None or self._recoveries[0][0] <= before.version):
            _, kept_until = self._recoveries.pop(0)
            if kept_until is None or not self.runs.ended:
                self._is_known = False
            else:
                self._hours["work"] -= self.runs.again_s(kept_until, self._begin) / 3_600 * self.gpus
            self.runs = Runs(since=self.runs.since)

    def _moved(self, event: RecordedEvent) -> None:
        if event.after == JobStatus.RUNNING and self.stopped_at is not None:
            for group in self.groups:
                group.recoveries.append((event.at - self.stopped_at).total_seconds())
        if event.after in _RUN or event.after in _ENDED or event.after == JobStatus.SUSPENDED:
            self.stopped_at = None
        elif event.after in _DOWN and self.stopped_at is None and (event.before in _RUN or event.incident_id):
            self.stopped_at = event.at
        self.has_run = self.has_run or event.after in HELD


def _moved_instances(
    part: PartOfDay, moves: Mapping[str, list[RecordedEvent]], fleet: Figures
) -> dict[str, tuple[str, datetime]]:
    """Add the courses of the instances that moved to the figures, and return their statuses and since when."""
    after: dict[str, tuple[str, datetime]] = {}
    for name, events in sorted(moves.items()):
        first = events[0]
        if name in part.instances:
            status, at = part.instances[name]
        elif first.since is not None and first.since < part.begin:
            status, at = first.before, part.begin
        else:
            status, at = "", first.since or first.at
        until = max(at, *(event.at for event in events))
        for interval in intervals_of(events, status, at, until):
            _add_instance(fleet, interval)
        after[name] = events[-1].after, until
    return after


def _add_instance(fleet: Figures, interval: Interval) -> None:
    if interval.status not in ("", InstanceStatus.GONE):
        fleet.present += interval.hours
        if interval.status == InstanceStatus.AVAILABLE:
            fleet.available += interval.hours
