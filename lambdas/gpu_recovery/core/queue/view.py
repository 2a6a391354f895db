"""Queue view: the queue at one moment, with the placement that a pass decides, and what it says about each job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from functools import cached_property

from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import Assignment, Placement, Rejection, RejectionKind, Snapshot


@frozen_dataclass()
class PlacementPreview:
    """What a pass of the scheduler would decide about one job.

    would_start:   whether the job would start at once.
    sentence:      the decision in words, for users.
    instances:     instances that the job would get, in rank order; empty if it would not start.
    short_of:      what the job lacks; None if it would start or is not considered.
    position:      position in the queue; None if the job has none.
    blockers:      ids of the jobs that this job waits for.
    earliest_at:   estimated earliest start; None if there is no estimate.
    would_suspend: ids of the jobs that would be suspended for this job.
    """

    would_start: bool
    sentence: str
    instances: tuple[str, ...] = ()
    short_of: RejectionKind | None = None
    position: int | None = None
    blockers: tuple[str, ...] = ()
    earliest_at: datetime | None = None
    would_suspend: tuple[str, ...] = ()


@frozen_dataclass()  # without slots, for its cached properties
class QueueView:
    """The cluster and the queue at one moment, with the placement that a pass would decide.

    at:        time of the view.
    entries:   queue entries by job id: waiting and running jobs on ECS.
    on_ray:    queue entries by job id of waiting and running jobs on Ray, which this placement does not place.
    snapshot:  input of the placement.
    placement: result of the placement.
    failures:  errors of the records that could not be read.
    """

    at: datetime
    entries: Mapping[str, Entry]
    snapshot: Snapshot
    placement: Placement
    failures: list[Exception] = field(default_factory=list)
    on_ray: Mapping[str, Entry] = field(default_factory=dict)

    def of(self, job_id: str) -> PlacementPreview | None:
        """Return the preview of a job; None if the job does not wait in the queue."""
        if (assignment := self._assignments.get(job_id)) is not None:
            sentence = f"would start at once on {listed(assignment.instances)}"
            return PlacementPreview(True, sentence + self._run_time_source(job_id), assignment.instances)
        if (rejection := self.rejections.get(job_id)) is not None:
            suspensions = self.placement.suspensions
            return PlacementPreview(
                False,
                rejection.sentence + self._run_time_source(job_id),
                (),
                rejection.short_of,
                rejection.position,
                rejection.blockers,
                rejection.earliest_at,
                tuple(suspension.job_id for suspension in suspensions if suspension.for_job == job_id),
            )
        entry = self.entries.get(job_id)
        if entry is None or not entry.waits:
            return None
        lacks = entry.lacks and not entry.held
        return PlacementPreview(
            False, _why_not_considered(entry, self.at), short_of=RejectionKind.PERMISSION if lacks else None
        )

    def starts(self, job_id: str) -> bool:
        """Return whether the job would start at once."""
        return job_id in self._assignments

    @cached_property
    def rejections(self) -> Mapping[str, Rejection]:
        """The jobs that would not start, by id."""
        return {rejection.job_id: rejection for rejection in self.placement.rejected}

    @cached_property
    def _assignments(self) -> Mapping[str, Assignment]:
        return {assignment.job_id: assignment for assignment in self.placement.assignments}

    @cached_property
    def _run_times_s(self) -> Mapping[str, int | None]:
        return {waiting.job_id: waiting.runs_for_s for waiting in self.snapshot.waiting}

    def _run_time_source(self, job_id: str) -> str:
        """Return the source of the job's estimated run time, as a suffix of its sentence.

        The suffix is "" if the limit of the run time that the user set is the estimate.
        """
        entry, run_time_s = self.entries.get(job_id), self._run_times_s.get(job_id)
        if entry is None or (entry.max_runtime_s is not None and run_time_s in (None, entry.max_runtime_s)):
            return ""
        if run_time_s is None:
            return "; its run time is unknown"
        return f"; estimated run time {run_time_s} s, from earlier jobs of its kind"


def _why_not_considered(entry: Entry, at: datetime) -> str:
    """Return why the scheduler does not consider a waiting job."""
    if entry.may_start(at):
        return "waits for the next pass of the scheduler"
    if entry.held or entry.not_before is None:
        return "is suspended by a user until it is resumed"
    if entry.lacks:
        return (
            f"gpu-recovery lacks the permission {entry.lacks}; its launch is tried again at "
            f"{entry.not_before:%H:%M:%S} UTC"
        )
    return f"is tried again at {entry.not_before:%H:%M:%S} UTC"
