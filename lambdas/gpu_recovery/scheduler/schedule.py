"""One pass of the scheduler: read one snapshot, let the core place, tell each job what became of it.

Every pass begins a term. What an earlier pass decided is refused from then on, so two schedulers at once never give
more than one could; what either reads may be old, but each decision is fenced by the version of the record, each claim
by the epoch of the instance, and the counts of quotas change in the jobs' own writes.

A tick that finds nothing to do costs one read: the last pass has left word when the clock alone may change its answer,
and whatever else could change it wakes the scheduler by name. An instance that has something to give again costs the
line as well, and no write where nobody waits in it: every instance of a large gang says so, within a minute.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.cluster_snapshot import is_usable, snapshot_of
from gpu_recovery.core.identifiers import TICK
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.quota import QuotaLimits, parse_limits
from gpu_recovery.core.queue.run_time_estimates import JobKind, usual_run_time
from gpu_recovery.core.queue.snapshot import Assignment, Host, Placement, RejectionKind, Snapshot
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.errors import TermOver
from gpu_recovery.ports.store import QueueStore
from gpu_recovery.recovery import NotificationFailed, Recovery

UNFINISHED = "not every job could be given or told its place"
WAIT_EVENTS_MAX = 200
"""How many jobs of one pass are told that they wait: another pass follows at once and tells the next ones."""
KINDS_MAX = 100
"""Of so many kinds of jobs at most a pass asks how long they run: as many as one call reads."""
NEXT_PASS_KEY = "#pass"
"""What a pass calls the message by which it asks for the next one."""
PASS_INTERVAL_MAX = timedelta(minutes=5)
"""While anybody waits a pass looks at everything this often, whatever the last one expected."""
INSTANCE_ID = re.compile(r"m?i-[0-9A-Za-z-]{1,64}")
PRESENT = tuple(status for status in InstanceStatus if status is not InstanceStatus.GONE)


def schedule(recovery: Recovery, asked: Sequence[str] = ()) -> int:
    """Place what fits; how many jobs were given a place.

    asked: the keys of the messages that ask for the pass (`<id of who has changed>/<number>`, or `tick/...`).
    """
    now = recovery.clock()
    by = {key.rpartition("/")[0] for key in asked}
    if by == {TICK}:
        if not _is_due(recovery.store.load_last_pass(), now):
            return 0
    elif by and all(name == TICK or INSTANCE_ID.fullmatch(name) for name in by) and _nobody_waits(recovery.store, now):
        return 0
    term = recovery.store.begin_term()
    reading = read(recovery, by - {TICK, NEXT_PASS_KEY, ""})
    snapshot = reading.snapshot
    if not snapshot.waiting:
        recovery.store.save_pass(LastPass(term, now, reading.first_cool_down))
        return 0
    placement = place(snapshot, recovery.policy, now)
    placed, stale = _confirmed(recovery, placement, {host.host_id: host for host in snapshot.hosts})
    told, unsaid = _Deliveries(recovery), _waiting_events(reading.entries, placement, now)
    try:
        answers = (*_placement_events(placement, placed, term, now), *unsaid[:WAIT_EVENTS_MAX])
        failures = run_each(told.deliver, answers, fatal=TermOver)
    except TermOver:
        return 0  # another pass has begun, and has read whatever this one has changed
    times = [at for at in (placement.next_at, reading.first_cool_down) if at is not None]
    amiss, unfinished = bool(stale or told.undelivered or failures), len(unsaid) > WAIT_EVENTS_MAX
    if amiss or unfinished:
        # It was decided on what is not so any more, or could not be told: at once again, and then with every tick. Who
        # is only told late is told at once, as long as that makes any difference: an index may lag behind.
        times.append(now)
        if (amiss and NEXT_PASS_KEY not in by) or (unfinished and told.notified_to_wait):
            recovery.actions.poke_scheduler(f"{NEXT_PASS_KEY}/{term}")
    left = len(snapshot.waiting) - told.placed
    recovery.store.save_pass(LastPass(term, now, min(times, default=None), left))
    raise_all(UNFINISHED, failures)
    return told.placed


class _Deliveries:
    """What became of what a pass has told: how many jobs have their place, and whether anybody was told in vain."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self.placed = 0
        self.notified_to_wait = 0
        self.undelivered = False

    def deliver(self, told: tuple[str, events.JobEvent]) -> None:
        """Tell one job. Words to the outside that could not be sent are kept in its record and tried again there."""
        job_id, event = told
        outcome: EventOutcome | None
        try:
            decision = self._recovery.handle(job_id, event)
            outcome = decision.outcome if decision is not None else None
        except NotificationFailed:
            outcome = EventOutcome.APPLIED
        if isinstance(event, events.JobPlaced):
            self.placed += outcome is EventOutcome.APPLIED
            self.undelivered = self.undelivered or outcome is not EventOutcome.APPLIED
        elif isinstance(event, events.SuspendRequested):
            self.undelivered = self.undelivered or outcome is EventOutcome.OUTDATED
        elif isinstance(event, events.ResourcesShort):
            self.notified_to_wait += outcome is EventOutcome.APPLIED


def _is_due(last: LastPass, now: datetime) -> bool:
    """Whether a tick has anything to look at, as far as the last pass knew."""
    if last.at is None or (last.next_at is not None and last.next_at <= now):
        return True
    return last.waiting > 0 and now - last.at >= PASS_INTERVAL_MAX


def _nobody_waits(store: QueueStore, now: datetime) -> bool:
    """Whether instances have nobody to be given to: neither did the last pass leave anybody, nor has anybody come.

    Who comes into line says so by name, and is read then whatever the index shows yet.
    """
    last = store.load_last_pass()
    return not (last.waiting or _is_due(last, now)) and not any(entry.may_start(now) for entry in store.load_queue([]))


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueueReading:
    """A snapshot with what does not belong into it.

    first_cool_down: when the first job that may not start yet may.
    unreadable:      why some entries and instances are not in it. The reconciler raises that each minute; raised here,
                     it would keep everybody who can be placed waiting behind it.
    """

    snapshot: Snapshot
    entries: Mapping[str, Entry]
    unreadable: list[Exception]
    first_cool_down: datetime | None


def read_snapshot(recovery: Recovery) -> Snapshot:
    """Everyone in line, everyone who has a place, and every instance, as a pass would read them now."""
    return read(recovery).snapshot


def read(recovery: Recovery, changed: Collection[str] = ()) -> QueueReading:
    """As read_snapshot. Of what has `changed` the records themselves are read: no index may show that yet."""
    now, policy, store = recovery.clock(), recovery.policy, recovery.store
    machines = [name for name in changed if INSTANCE_ID.fullmatch(name)]
    unreadable: list[Exception] = []
    entries = {entry.job_id: entry for entry in store.load_queue(unreadable)}
    for job_id in sorted(set(changed) - set(machines)):
        job = store.load_job(job_id)
        machines += () if job is None else filter(None, job.instances)  # it may just have given them back
        entry = entry_of(job) if job is not None else None
        if entry is not None:
            entries[job_id] = entry
        elif job is not None:
            entries.pop(job_id, None)
    later = [entry.not_before for entry in entries.values() if entry.waits and not entry.held and entry.not_before]
    first_cool_down = min((at for at in later if at > now), default=None)
    keys = {entry.quota_key for entry in entries.values() if entry.may_start(now)}
    if not keys:
        return QueueReading(Snapshot((), (), ()), entries, unreadable, first_cool_down)
    listed = {one.instance_id: one for one in store.instances_in(PRESENT, unreadable)}
    instances = (listed | dict(store.load_instances(machines)) if machines else listed).values()
    used = store.quota_used(sorted(key.text for key in keys))
    counts = {key: used[key.text] for key in keys}
    usual = usual_run_times(store, entries.values(), now)
    snapshot = snapshot_of(entries.values(), instances, policy, now, counts, limits_of(recovery), usual)
    return QueueReading(snapshot, entries, unreadable, first_cool_down)


def usual_run_times(store: QueueStore, entries: Collection[Entry], now: datetime) -> Mapping[JobKind, int]:
    """How long jobs run of the kinds that those who have a place and the first in line are of, in one call."""
    matter = sorted((one for one in entries if not one.waits or one.may_start(now)), key=lambda one: one.queued_at)
    kinds = [one.kind for one in sorted(matter, key=lambda one: one.waits) if one.kind is not None]
    asked = {kind.text: kind for kind in list(dict.fromkeys(kinds))[:KINDS_MAX]}
    if not asked:
        return {}
    found = store.load_run_times(asked)
    return {kind: took for text, kind in asked.items() if (took := usual_run_time(found[text])) is not None}


def limits_of(recovery: Recovery) -> QuotaLimits:
    """The limits that hold."""
    return parse_limits(recovery.store.load_limits()[0])


# -- telling -----------------------------------------------------------------------------------------------------------


def _confirmed(
    recovery: Recovery, placement: Placement, hosts: Mapping[str, Host]
) -> tuple[tuple[Assignment, ...], bool]:
    """Those assignments whose instances, freshly read, are as they were shown; and whether there are others."""
    wanted = [instance_id for chosen in placement.assignments for instance_id in chosen.instances]
    now = recovery.store.load_instances(wanted) if wanted else {}

    def is_as_shown(instance_id: str, epoch: int) -> bool:
        one = now.get(instance_id)
        if one is None or not is_usable(one) or one.epoch != epoch:
            return False
        return one.gpus_to_give() >= hosts[instance_id].free

    def holds(chosen: Assignment) -> bool:
        return all(map(is_as_shown, chosen.instances, chosen.epochs))

    placed = tuple(chosen for chosen in placement.assignments if holds(chosen))
    return placed, len(placed) < len(placement.assignments)


def _placement_events(
    placement: Placement, placed: Sequence[Assignment], term: int, now: datetime
) -> Iterator[tuple[str, events.JobEvent]]:
    """What jobs must hear that the pass moves: first who has to make room, then who starts."""
    for made in placement.suspensions:
        yield (
            made.job_id,
            events.SuspendRequested(
                at=now,
                attempt=made.attempt,
                version=made.version,
                by="the scheduler",
                because=made.sentence,
                for_job=made.for_job,
            ),
        )
    for chosen in placed:
        yield (
            chosen.job_id,
            events.JobPlaced(
                at=now,
                attempt=chosen.attempt,
                version=chosen.version,
                instances=chosen.instances,
                epochs=chosen.epochs,
                port_offset=chosen.port_offset,
                term=term,
            ),
        )


def _waiting_events(
    entries: Mapping[str, Entry], placement: Placement, now: datetime
) -> list[tuple[str, events.JobEvent]]:
    """Who waits for something that its record does not say yet, in the order of the line."""
    news: list[tuple[str, events.JobEvent]] = []
    for short in placement.rejected:
        entry = entries[short.job_id]
        if entry.recovering or (entry.known_short == short.short_of and not entry.fresh):
            continue
        if short.short_of in _SEEN_BY_ITSELF and not entry.fresh:
            continue
        event = events.ResourcesShort(
            at=now, attempt=short.attempt, version=short.version, sentence=short.sentence, short_of=short.short_of
        )
        news.append((short.job_id, event))
    return news


_SEEN_BY_ITSELF = (RejectionKind.ROOM,)
"""What passes within seconds: told of in the line, but not entered into every record."""
