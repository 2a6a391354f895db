"""One pass of the scheduler: read a snapshot, let the core place jobs, deliver the answers.

Every pass begins a term, and decisions of an earlier term are refused from then on. So two schedulers that run at once
never give out more than one would. A snapshot may be outdated. Therefore each decision is fenced by the version of the
job record, each claim by the epoch of the instance, and quota counters change in the same write as the job.

A tick with no work costs one read: the last pass saved the time at which the clock alone may change its answer. Every
other change wakes the scheduler with the id of the changed record. Every instance of a large gang changes within a
minute. So an instance sends no message while the message of another is on its way, and the pass of that message reads
both. If no job waits, such a message costs three reads and one write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.cluster_snapshot import gpus_kept, is_usable, snapshot_of, waiting_for_a_place
from gpu_recovery.core.identifiers import TICK
from gpu_recovery.core.instance.record import PRESENT
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.queue.growth import may_grow
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.quota import QuotaLimits, parse_limits
from gpu_recovery.core.queue.run_time_estimates import JobKind, UsualRunTime, usual_run_time
from gpu_recovery.core.queue.snapshot import Assignment, Host, Placement, RejectionKind, Snapshot
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.execution.context import HOPS_MAX
from gpu_recovery.partial_failures import run_each
from gpu_recovery.ports.errors import NotificationFailed, TermOver
from gpu_recovery.ports.store import QueueStore
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler import warm_spares
from gpu_recovery.scheduler.idle_checks import stop_checks
from gpu_recovery.scheduler.recent_placements import correct_entries

WAIT_EVENTS_MAX = 200
"""Upper bound of the wait events that one pass delivers. If more are left, the next pass follows at once."""
KINDS_MAX = 100
"""Upper bound of the job kinds for which one pass loads run times: the number of items that one read call returns."""
NEXT_PASS_KEY = "#pass"
"""Name under which a pass sends the message that asks for the next pass."""
PASS_INTERVAL_MAX = timedelta(minutes=5)
"""Longest interval between two whole passes while jobs wait, even if the last pass expected no change before."""
PLACES_LEFT_FOR = timedelta(minutes=5)
"""Time for which passes leave places to jobs on Ray that do not take them. The Ray cluster may not answer."""
INSTANCE_ID = re.compile(r"m?i-[0-9A-Za-z-]{1,64}")
"""Pattern of the instance ids among the names that wake the scheduler."""


def schedule(recovery: Recovery, asked: Sequence[str] = ()) -> int:
    """Place the jobs that fit, as `run_pass` does. Return their number."""
    return run_pass(recovery, asked).placed


def run_pass(recovery: Recovery, asked: Sequence[str] = ()) -> PassResult:
    """Place the jobs that fit.

    Args:
        recovery: the loop. Jobs for which its time is over have the next pass, which follows at once.
        asked: keys of the messages that ask for the pass: `<id of the changed record>/<number>`, `#tick/<event id>`,
            `#pass/<term>` from a pass that left work, `#limits/<revision>` after a change of the quotas, or `/` from a
            message without a key. Empty: a whole pass.

    Returns:
        What the pass did. Failures of single jobs are logged and not raised. What their records order is the
        reconciler's, and the next tick places the others.
    """
    now = recovery.clock()
    by = {key.rpartition("/")[0] for key in asked}
    if any(INSTANCE_ID.fullmatch(name) for name in by):
        by |= set(recovery.store.take_changed_instances())
    if by == {TICK}:
        last = recovery.store.load_last_pass()
        if not _is_due(last, now):
            return PassResult(waiting=last.waiting)
    elif by and all(name == TICK or INSTANCE_ID.fullmatch(name) for name in by) and _no_job_waits(recovery.store, now):
        return PassResult()
    term = recovery.store.begin_term()
    reading = read(recovery, by - {TICK, NEXT_PASS_KEY, ""}, term)
    snapshot = reading.snapshot
    if not snapshot.waiting and not may_grow(snapshot.running, now):
        times = [at for at in (reading.first_cool_down, reading.first_growth) if at is not None]
        recovery.store.save_pass(LastPass(term, now, min(times, default=None)))
        _log(recovery, warm_spares.offer(recovery, reading.asking(by)))
        return PassResult(reading, at=now)
    placement, recalled, failures = _with_room(recovery, reading, place(snapshot, recovery.policy, now))
    placed, stale = _confirmed(recovery, placement, {host.host_id: host for host in snapshot.hosts}, reading.room)
    deliveries = _Deliveries(recovery)
    wait_events = _waiting_events(reading.entries, placement, now)
    try:
        counts = snapshot.limits.counts_jobs
        answers = (*_placement_events(placement, placed, term, now, counts), *wait_events[:WAIT_EVENTS_MAX])
        failures += run_each(deliveries.deliver, deliveries.in_time(answers), fatal=TermOver)
    except TermOver:
        # A later pass has begun, and has read every change of this one; or the pass of the Ray pool has placed a job.
        # Then the time of this pass is missing, so the next tick runs it again.
        return PassResult(is_whole=False)
    times = [at for at in (placement.next_at, reading.first_cool_down) if at is not None]
    incomplete = bool(stale or deliveries.undelivered or failures)
    unfinished = len(wait_events) > WAIT_EVENTS_MAX or deliveries.out_of_time
    if incomplete or unfinished:
        # Decisions were based on outdated records, or events were not delivered: run the next pass at once, and after
        # that with every tick. Wait events that exceed the limit follow at once too, but only while this pass changed a
        # record: the index may lag, and would show the same jobs again.
        times.append(now)
        progress = deliveries.notified_to_wait or deliveries.out_of_time
        at_once = (incomplete and NEXT_PASS_KEY not in by) or (unfinished and progress)
        if at_once and recovery.hops < HOPS_MAX:
            recovery.actions.poke_scheduler(f"{NEXT_PASS_KEY}/{term}", recovery.hops + 1)
    if recovery.hops >= HOPS_MAX:
        times.append(now)  # the commands of this pass have sent no message either: the next tick goes on
    since = None
    if placement.leaves_places:
        since = reading.leaves_places_since or now
        times.append(now)  # a job on Ray may not want the place any more: each tick looks again
    left = len(snapshot.waiting) - deliveries.placed
    recovery.store.save_pass(LastPass(term, now, min(times, default=None), left, since))
    if not (recalled or snapshot.waiting or placement.growths or placement.waiting_growths):
        failures += warm_spares.offer(recovery, reading.asking(by))
    _log(recovery, failures)
    return PassResult(reading, placement, frozenset(deliveries.moved), deliveries.placed, waiting=left, at=now)


def _with_room(
    recovery: Recovery, reading: QueueReading, placement: Placement
) -> tuple[Placement, int, list[Exception]]:
    """Stop the idle checks and recall the warm spares on the instances that the placement needs.

    Returns:
        The placement, the number of jobs whose warm spares are recalled, and the failures.
    """
    failures = stop_checks(recovery, placement)
    recalled, not_recalled = warm_spares.recall(recovery, reading.entries, placement)
    if recalled:
        placement = replace(placement, suspensions=())  # no job is suspended for GPUs that warm spares release
    return placement, recalled, failures + not_recalled


def _log(recovery: Recovery, failures: Iterable[Exception]) -> None:
    for failure in failures:
        recovery.decision_log.placement_failed(failure)


class _Deliveries:
    """Delivers the events of a pass, and counts the jobs that accepted them.

    placed:            jobs that accepted their placement.
    moved:             ids of the jobs that accepted their placement, their suspension or their growth.
    notified_to_wait:  jobs that accepted their wait reason.
    undelivered:       True if a placement was not applied, or a suspension was outdated.
    out_of_time:       True if the time of the function was over before all events were delivered.
    """

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self.placed = 0
        self.moved = set[str]()
        self.notified_to_wait = 0
        self.undelivered = False
        self.out_of_time = False

    def in_time(self, answers: Iterable[tuple[str, events.JobEvent]]) -> Iterator[tuple[str, events.JobEvent]]:
        """Yield the answers while there is time for another."""
        for answer in answers:
            if not self._recovery.has_time():
                self.out_of_time = True
                return
            yield answer

    def deliver(self, addressed: tuple[str, events.JobEvent]) -> None:
        """Deliver one event to a job.

        A notification that fails counts as accepted: its command stays in the record for a retry.
        """
        job_id, event = addressed
        outcome: EventOutcome | None
        try:
            decision = self._recovery.handle(job_id, event)
            outcome = decision.outcome if decision is not None else None
        except NotificationFailed:
            outcome = EventOutcome.APPLIED
        moves = events.JobPlaced | events.SuspendRequested | events.GrowRequested
        if outcome is EventOutcome.APPLIED and isinstance(event, moves):
            self.moved.add(job_id)
        if isinstance(event, events.JobPlaced):
            self.placed += outcome is EventOutcome.APPLIED
            self.undelivered = self.undelivered or outcome is not EventOutcome.APPLIED
        elif isinstance(event, events.SuspendRequested | events.GrowRequested):
            self.undelivered = self.undelivered or outcome is EventOutcome.OUTDATED
        elif isinstance(event, events.ResourcesShort):
            self.notified_to_wait += outcome is EventOutcome.APPLIED


def _is_due(last: LastPass, now: datetime) -> bool:
    """Return whether a tick needs a pass, according to the last pass."""
    if last.at is None or (last.next_at is not None and last.next_at <= now):
        return True
    return last.waiting > 0 and now - last.at >= PASS_INTERVAL_MAX


def _no_job_waits(store: QueueStore, now: datetime) -> bool:
    """Return whether no job can use GPUs that instances release: none was left by the last pass, and none came since.

    A newly queued job sends a message with its own id. Its record is then read, even if the index does not show it yet.
    """
    last = store.load_last_pass()
    if last.waiting or _is_due(last, now):
        return False
    return not any(entry.may_start(now) for entry in store.load_waiting([]))


# -- reading -----------------------------------------------------------------------------------------------------------


@frozen_dataclass()
class QueueReading:
    """A snapshot, and what a pass reads beside it.

    first_cool_down: earliest end of a cool-down among the waiting jobs; None if there is none.
    first_growth:    earliest time from which a running elastic job may grow later; None if there is none.
    unreadable:      why some entries and instances are missing from the snapshot. The reconciler raises these errors
                     each minute. Raised here, they would block every job that can be placed.
    room:            the number of jobs that the pass may place, because it remembers placements; None: any number.
    leaves_places_since: time of the first pass since which each pass has left places to jobs on Ray; None if none did.
    """

    snapshot: Snapshot
    entries: Mapping[str, Entry]
    unreadable: list[Exception]
    first_cool_down: datetime | None
    room: int | None = None
    leaves_places_since: datetime | None = None
    first_growth: datetime | None = None

    def asking(self, names: Collection[str]) -> list[Entry]:
        """Return the jobs among `names`, which may ask for warm spares; none while idle instances are for a growth."""
        if any(entry.grows for entry in self.entries.values()):
            return []
        return [self.entries[name] for name in sorted(names) if name in self.entries]


@frozen_dataclass()
class PassResult:
    """What a call of the scheduler did.

    reading:   what the pass has read; None if no pass was necessary.
    placement: what the pass decided about it.
    moved:     ids of the jobs that accepted their placement, their suspension or their growth.
    placed:    the number of jobs that accepted their placement.
    waiting:   the number of jobs that the last pass has left in the queue.
    is_whole:  False if a later pass has begun, which has read every change of this pass.
    at:        time of the pass, at which its reading and its decisions hold; None if no pass was necessary.
    """

    reading: QueueReading | None = None
    placement: Placement = field(default_factory=lambda: Placement((), (), ()))
    moved: frozenset[str] = frozenset()
    placed: int = 0
    waiting: int = 0
    is_whole: bool = True
    at: datetime | None = None


def read_snapshot(recovery: Recovery) -> Snapshot:
    """Return the queued jobs, the placed jobs and all instances, as a pass would read them now."""
    return read(recovery).snapshot


def read(recovery: Recovery, changed: Collection[str] = (), term: int | None = None) -> QueueReading:
    """Read the queue, the instances and the quotas.

    Args:
        changed: ids of jobs and instances that have changed. Their records are read directly, because an index may lag.
        term: the term of the pass, in which recent placements are counted as well; None outside of a pass.
    """
    now, policy, store = recovery.clock(), recovery.policy, recovery.store
    instance_ids = [name for name in changed if INSTANCE_ID.fullmatch(name)]
    unreadable: list[Exception] = []
    entries = {entry.job_id: entry for entry in store.load_queue(unreadable)}
    changed_jobs: dict[str, Job | None] = {}
    names = sorted(set(changed) - set(instance_ids))
    unreadable += run_each(lambda name: changed_jobs.update({name: store.load_job(name)}), names)
    for job_id, job in changed_jobs.items():
        instance_ids += () if job is None else filter(None, job.instances)  # the job may just have given them back
        entry = entry_of(job) if job is not None else None
        if entry is not None:
            entries[job_id] = entry
        elif job is not None:
            entries.pop(job_id, None)
    later = [entry.not_before for entry in entries.values() if entry.waits and not entry.held and entry.not_before]
    first_cool_down = min((at for at in later if at > now), default=None)
    grows_at = [(entry.quota_key, at) for entry in entries.values() if (at := entry.grows_at(policy)) is not None]
    first_growth = min((at for _, at in grows_at if at > now), default=None)
    keys = {entry.quota_key for entry in entries.values() if entry.may_start(now)}
    keys |= {key for key, at in grows_at if at <= now}
    if not keys:
        empty = Snapshot((), (), ())
        return QueueReading(empty, entries, unreadable, first_cool_down, first_growth=first_growth)
    limits, on_ray, room = limits_of(recovery), dict[str, Entry](), None
    if limits.counts_jobs and recovery.ray is not None:
        on_ray = {entry.job_id: entry for entry in store.load_ray_queue(unreadable)}
    if limits.counts_jobs and term is not None:
        room = correct_entries(store, term, now, entries, on_ray)
    listed = {instance.instance_id: instance for instance in store.instances_in(PRESENT, unreadable)}
    instances = (listed | dict(store.load_instances(instance_ids)) if instance_ids else listed).values()
    used = store.quota_used(sorted(key.text for key in keys))
    counts = {key: used[key.text] for key in keys}
    usual = usual_run_times(store, entries.values(), now)
    fleet = store.load_fleet()
    snapshot = snapshot_of(entries.values(), instances, policy, now, counts, limits, usual, fleet, on_ray.values())
    before, since = waiting_for_a_place(on_ray.values(), policy, now), None
    if before:
        since = store.load_last_pass().leaves_places_since
        before = before if since is None or now - since < PLACES_LEFT_FOR else ()
    snapshot = replace(snapshot, waiting_elsewhere=before)
    return QueueReading(snapshot, entries, unreadable, first_cool_down, room, since, first_growth)


def usual_run_times(store: QueueStore, entries: Collection[Entry], now: datetime) -> Mapping[JobKind, UsualRunTime]:
    """Return the usual run time of each job kind that matters to the pass; unknown kinds are left out.

    All are read in one call: first the kinds of placed jobs, then those of waiting jobs by queue time, at most
    `KINDS_MAX`.
    """
    relevant = sorted(
        (entry for entry in entries if not entry.waits or entry.may_start(now)), key=lambda entry: entry.queued_at
    )
    kinds = [entry.kind for entry in sorted(relevant, key=lambda entry: entry.waits) if entry.kind is not None]
    asked = {kind.text: kind for kind in list(dict.fromkeys(kinds))[:KINDS_MAX]}
    if not asked:
        return {}
    run_times = store.load_run_times(asked)
    return {kind: known for text, kind in asked.items() if (known := usual_run_time(run_times[text])) is not None}


def limits_of(recovery: Recovery) -> QuotaLimits:
    """Return the quota limits in force."""
    return parse_limits(recovery.store.load_limits()[0])


# -- delivering --------------------------------------------------------------------------------------------------------


def _confirmed(
    recovery: Recovery, placement: Placement, hosts: Mapping[str, Host], most: int | None
) -> tuple[tuple[Assignment, ...], bool]:
    """Re-validate assignments against fresh instance records, and keep at most `most`; None: any number.

    Returns:
        (the assignments with instances that are still as the snapshot showed them, whether any assignment was dropped).
    """
    wanted = [instance_id for assignment in placement.assignments for instance_id in assignment.instances]
    fresh = recovery.store.load_instances(wanted) if wanted else {}

    def is_as_shown(assignment: Assignment, instance_id: str, epoch: int) -> bool:
        instance = fresh.get(instance_id)
        if instance is None or not is_usable(instance) or instance.epoch != epoch:
            return False
        free_again = gpus_kept(instance, assignment.job_id, assignment.attempt)
        return instance.gpus_to_give() + free_again >= hosts[instance_id].free

    def holds(assignment: Assignment) -> bool:
        return all(
            is_as_shown(assignment, instance_id, epoch)
            for instance_id, epoch in zip(assignment.instances, assignment.epochs, strict=True)
        )

    placed = tuple(assignment for assignment in placement.assignments if holds(assignment))[:most]
    return placed, len(placed) < len(placement.assignments)


def _placement_events(
    placement: Placement, placed: Sequence[Assignment], term: int, now: datetime, counts: bool
) -> Iterator[tuple[str, events.JobEvent]]:
    """Return the events of jobs that the pass moves: suspensions first, then growths, then placements."""
    for suspension in placement.suspensions:
        yield (
            suspension.job_id,
            events.SuspendRequested(
                at=now,
                attempt=suspension.attempt,
                version=suspension.version,
                by="the scheduler",
                because=suspension.sentence,
                for_job=suspension.for_job,
            ),
        )
    for growth in placement.growths:
        yield (
            growth.job_id,
            events.GrowRequested(at=now, attempt=growth.attempt, version=growth.version, width=growth.width),
        )
    for assignment in placed:
        yield (
            assignment.job_id,
            events.JobPlaced(
                at=now,
                attempt=assignment.attempt,
                version=assignment.version,
                instances=assignment.instances,
                epochs=assignment.epochs,
                port_offset=assignment.port_offset,
                is_probe=assignment.is_probe,
                term=term,
                counts=counts,
            ),
        )


def _waiting_events(
    entries: Mapping[str, Entry], placement: Placement, now: datetime
) -> list[tuple[str, events.JobEvent]]:
    """Return the wait events, in queue order. A job with the same reason in its record needs none."""
    waiting: list[tuple[str, events.JobEvent]] = []
    for rejection in placement.rejected:
        entry = entries[rejection.job_id]
        passed = rejection.passed_since is not None and entry.passed_since is None
        passed = passed or (rejection.narrow_since is not None and entry.narrow_since is None)
        if entry.recovering or (entry.known_short == rejection.short_of and not entry.fresh and not passed):
            continue
        if rejection.short_of in _SHORT_LIVED and not entry.fresh:
            continue
        event = events.ResourcesShort(
            at=now,
            attempt=rejection.attempt,
            version=rejection.version,
            sentence=rejection.sentence,
            short_of=rejection.short_of,
            passed_since=rejection.passed_since,
            narrow_since=rejection.narrow_since,
        )
        waiting.append((rejection.job_id, event))
    return waiting


_SHORT_LIVED = (RejectionKind.ROOM, RejectionKind.CHECK)
"""Wait reasons that pass within seconds. The queue shows them, but records that already wait are not rewritten."""
