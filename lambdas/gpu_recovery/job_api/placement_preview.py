"""What a pass of the scheduler would say now: of everyone in line, or of a job that is not submitted yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpu_recovery.core.cluster_snapshot import snapshot_of
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.snapshot import Placement, RejectionKind, Snapshot
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler.schedule import PRESENT, limits_of, usual_run_times


@dataclass(frozen=True, slots=True)
class PlacementPreview:
    """The answer about one job. `instances` are those it would get; `position` is None if it has no place in line."""

    would_start: bool
    sentence: str
    instances: tuple[str, ...] = ()
    short_of: RejectionKind | None = None
    position: int | None = None
    blockers: tuple[str, ...] = ()
    earliest_at: datetime | None = None
    would_suspend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueView:
    """The cluster and its line at one moment, and what a pass would answer; `failures` say what could not be read."""

    at: datetime
    entries: Mapping[str, Entry]
    snapshot: Snapshot
    placement: Placement
    failures: list[Exception] = field(default_factory=list)

    def of(self, job_id: str) -> PlacementPreview | None:
        """What is to become of one job; None if it is not in line."""
        for chosen in self.placement.assignments:
            if chosen.job_id == job_id:
                sentence = f"would start at once on {listed(chosen.instances)}"
                return PlacementPreview(True, sentence + self._run_time_source(job_id), chosen.instances)
        suspended = tuple(one.job_id for one in self.placement.suspensions if one.for_job == job_id)
        for short in self.placement.rejected:
            if short.job_id == job_id:
                return PlacementPreview(
                    False,
                    short.sentence + self._run_time_source(job_id),
                    (),
                    short.short_of,
                    short.position,
                    short.blockers,
                    short.earliest_at,
                    suspended,
                )
        entry = self.entries.get(job_id)
        return PlacementPreview(False, _why_not_asked(entry)) if entry is not None and entry.waits else None

    def _run_time_source(self, job_id: str) -> str:
        """Where the estimate of its run time comes from, unless it is the limit that its user has named."""
        entry = self.entries.get(job_id)
        if entry is None or entry.max_runtime_s is not None:
            return ""
        lasts_s = next((one.runs_for_s for one in self.snapshot.waiting if one.job_id == job_id), None)
        if lasts_s is None:
            return "; nobody knows how long it runs"
        return f"; taken to run for {lasts_s} s, by the jobs of its kind before it"


def read_queue_view(recovery: Recovery, more: Job | None = None) -> QueueView:
    """The view of now, with a job `more` in line that is not kept."""
    now, policy, store = recovery.clock(), recovery.policy, recovery.store
    failures: list[Exception] = []
    entries = {entry.job_id: entry for entry in store.load_queue(failures)}
    entry = entry_of(more) if more is not None else None
    if entry is not None:
        entries[entry.job_id] = entry
    keys = {each.quota_key for each in entries.values()}
    used = store.quota_used(sorted(key.text for key in keys))
    instances = store.instances_in(PRESENT, failures)
    counts = {key: used[key.text] for key in keys}
    usual = usual_run_times(store, entries.values(), now)
    snapshot = snapshot_of(entries.values(), instances, policy, now, counts, limits_of(recovery), usual)
    return QueueView(now, entries, snapshot, place(snapshot, policy, now), failures)


def _why_not_asked(entry: Entry) -> str:
    """Why a job that waits is not even considered."""
    if entry.held or entry.not_before is None:
        return "is held by a person until it is resumed"
    return f"cools down until {entry.not_before:%H:%M:%S} UTC before it is tried again"
