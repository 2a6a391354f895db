"""The event history of whole incidents: independent of order and repetition, and equal to what the simulator saw."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from functools import cache
from itertools import chain, combinations, product, repeat
from threading import Semaphore, Thread, get_ident
from typing import Any

import pytest
from gpu_recovery.aws.notification_requests import event_entry
from gpu_recovery.core.commands import PublishEvent
from gpu_recovery.core.event_history.incidents import events_in, incident_of
from gpu_recovery.core.event_history.recorded_event import event_of
from gpu_recovery.core.event_history.roll_up import FLEET, Figures, Standing, roll_up
from gpu_recovery.core.event_history.streams import EVENT, INCIDENTS, OPEN_INCIDENTS, HistoryItem
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import RUNS, JobStatus
from gpu_recovery.event_recorder.recorder import record
from gpu_recovery.event_recorder.roller import is_due, mark_late, roll_up_days, roll_up_if_due
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store.event_history import MemoryEventHistory
from simulator.world import World
from tests.core.event_history.recorded import COURSE as INCIDENT_COURSE
from tests.core.event_history.recorded import instance_moved
from tests.core.event_schemas import of_type
from tests.simulator.incidents import INCIDENTS as COURSES
from tests.simulator.incidents import ending, gpu_fault, troubled
from tests.tiers import examples, sampled

Sent = tuple[str, dict[str, Any]]
HOLDING = ("SUBMITTING", "SUBMITTED", "RUNNING", "LOST", "SUSPENDING", "STOPPING", "DIAGNOSING")
"""Statuses in which a job has instances."""
FAST = ("adaptive_gpu_fault_with_spare", "adaptive_application_error", "adaptive_user_stop")

WITHOUT_INCIDENT = (
    "adaptive_spot_interruption",
    "adaptive_user_stop",
    "adaptive_success",
    "classic_exit_0",
    "classic_user_stop",
    "adoption_refused",
)
"""Courses in which no job fails."""


def as_sent(event: PublishEvent, cause: str) -> Sent:
    """The event as a rule on the bus delivers it."""
    entry = event_entry(event, cause, "gpu-recovery")
    return entry["DetailType"], json.loads(entry["Detail"])


def recorded(events: list[Sent]) -> MemoryEventHistory:
    """The event history after the recorder took the events in this order."""
    history = MemoryEventHistory()
    for detail_type, detail in events:
        record(history, detail_type, detail, "2026-11-21T09:00:00Z")
    return history


@dataclass
class Account:
    """What the simulator itself saw: seconds in each status by job and by instance, recoveries, ends of jobs."""

    gpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    instance_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    recoveries: list[float] = field(default_factory=list)
    stopped: dict[str, datetime] = field(default_factory=dict)
    begin: datetime | None = None
    ended: Counter[str] = field(default_factory=Counter)

    def pass_time(self, world: World, since: datetime, statuses: Mapping[str, Any]) -> None:
        """Add the time since `since`, in which every record had its status of `statuses`."""
        seconds = (world.timeline.now - since).total_seconds()
        for status, gpus in statuses.values():
            into = self.instance_s if isinstance(status, InstanceStatus) else self.gpu_s
            into[status.value] += seconds * gpus

    def compare(self, world: World, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Notice when a gang stops and when it runs again."""
        for name, (status, _) in after.items():
            was = before.get(name, (status, 0))[0]
            if was is status or isinstance(status, InstanceStatus):
                continue
            if was in RUNS and status in (JobStatus.STOPPING, JobStatus.DIAGNOSING, JobStatus.RECOVERING):
                self.stopped[name] = world.timeline.now
            if status is JobStatus.RUNNING and name in self.stopped:
                self.recoveries.append((world.timeline.now - self.stopped.pop(name)).total_seconds())

    def hours(self, *statuses: Any) -> float:
        """GPU-hours of jobs in any of these statuses."""
        return sum(self.gpu_s[status] for status in {str(status) for status in statuses}) / 3_600


def _statuses(world: World) -> dict[str, Any]:
    jobs = {job.job_id: (job.status, job.spec.nnodes * job.spec.gpus_per_node) for job in world.jobs()}
    return jobs | {one.instance_id: (one.status, 1) for one in world.instances()}


@cache
def course(name: str) -> tuple[tuple[Sent, ...], Account, datetime]:
    """The events of an incident, what the simulator saw, and the time of its end."""
    account, step = Account(), World.step

    def watched(world: World, limit: datetime) -> bool:
        before, since = _statuses(world), world.timeline.now
        account.begin = account.begin or since
        happened = step(world, limit)
        account.pass_time(world, since, before)
        account.compare(world, before, _statuses(world))
        return happened

    World.step = watched  # type: ignore[method-assign]
    try:
        world, _ = COURSES[name]()
    finally:
        World.step = step  # type: ignore[method-assign]
    account.ended.update(job.status.value for job in world.jobs())
    sent = map(as_sent, world.actions.published, world.actions.causes)
    return tuple(sent), account, world.timeline.now


def of_day(history: MemoryEventHistory, until: datetime) -> Figures:
    """The figures of the first day until a time, at which the last event happened."""
    texts = history.read("events#2026-11-21", 100_000)
    events = [event_of(item.attributes[EVENT]) for item in texts]
    begin, end = datetime.combine(until.date(), time(), UTC), until + timedelta(microseconds=1)
    return roll_up(Standing(), events, begin, end)[0][FLEET]


@pytest.mark.parametrize("name", sampled(COURSES, fast=3, default=8))
def test_every_event_of_every_incident_follows_its_schema(name: str) -> None:
    """With the facts that the event history is made of."""
    for detail_type, detail in course(name)[0]:
        of_type(detail_type).validate(detail)
        assert detail["data"]["at"]


@pytest.mark.parametrize("name", FAST)
@examples(0.2)
@given(seed=st.integers(0, 2**32), times=st.integers(1, 3))
def test_order_and_repetition_change_nothing(name: str, seed: int, times: int) -> None:
    """Incidents, threads, timelines and days are made of the streams, and these are the same to the letter."""
    events, _, until = course(name)
    shuffled = list(events) * times
    random.Random(seed).shuffle(shuffled)
    again = recorded(shuffled)
    expected = recorded(list(events))
    for stream in {*expected.streams, *again.streams}:
        assert again.read(stream, 10_000) == expected.read(stream, 10_000), stream
    assert of_day(again, until) == of_day(expected, until)


@pytest.mark.parametrize("name", sampled(COURSES, fast=4, default=12))
def test_the_figures_are_those_that_the_simulator_saw(name: str) -> None:
    """Within one percent: the simulator looks between its steps, and a decision takes a moment."""
    events, account, until = course(name)
    figures = of_day(recorded(list(events)), until)
    assert figures.held == pytest.approx(account.hours(*HOLDING), rel=0.01)
    assert figures.running == pytest.approx(account.hours(*RUNS), rel=0.01)
    assert figures.present * 3_600 == pytest.approx(sum(account.instance_s.values()), rel=0.01)
    assert figures.available * 3_600 == pytest.approx(account.instance_s["AVAILABLE"], rel=0.01)
    assert figures.recoveries == pytest.approx(sorted(account.recoveries), rel=0.01)
    ends = {"SUCCEEDED": figures.succeeded, "FAILED": figures.failed, "CANCELED": figures.canceled}
    assert {name: count for name, count in ends.items() if count} == account.ended


@pytest.mark.parametrize("name", sampled(COURSES, fast=4, default=12))
def test_every_incident_ends_with_its_job(name: str) -> None:
    """None stays open once the job has ended, and each says how it ended."""
    history = recorded(list(course(name)[0]))
    found = [incident_of(events_in(item.attributes)) for item in history.read(INCIDENTS, 100)]
    ended = [incident for incident in found if incident is not None and incident.job_id]
    assert bool(ended) is (name not in WITHOUT_INCIDENT)
    assert all(incident.outcome is not None for incident in ended)
    opened = {item.position.partition("#")[2] for item in history.read(OPEN_INCIDENTS, 100)}
    assert not opened & {incident.incident_id for incident in ended}


def test_the_lost_gpu_hours_are_those_of_the_recovery() -> None:
    """16 GPUs from the stop of the gang until it ran again."""
    events, account, until = course("adaptive_gpu_fault")
    history = recorded(list(events))
    (item,) = history.read(INCIDENTS, 100)
    incident = incident_of(events_in(item.attributes))
    assert incident is not None
    assert incident.gpu_hours_lost(until) == pytest.approx(16 * account.recoveries[0] / 3_600, rel=0.01)
    assert of_day(history, until).lost == pytest.approx(16 * account.recoveries[0] / 3_600, rel=0.01)


# -- recorders at the same time ----------------------------------------------------------------------------------------


class Interleaved(MemoryEventHistory):
    """An event history whose recorders wait for their turn before each call."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[int, Semaphore] = {}
        self._paused = Semaphore(0)

    def record_at_once(self, events: Sequence[Sent], turns: Iterator[int]) -> None:
        """Let a recorder for each event run, of which the next of `turns` makes a call."""
        threads = [Thread(target=self._record, args=(event,)) for event in events]
        for thread in threads:
            thread.start()
            self._paused.acquire()
        while running := [thread for thread in threads if thread.is_alive()]:
            thread = running[next(turns) % len(running)]
            self._turns[thread.ident or 0].release()
            self._paused.acquire()
            if thread.ident not in self._turns:
                thread.join()

    def _record(self, event: Sent) -> None:
        self._turns[get_ident()] = Semaphore(0)
        self._wait()
        try:
            record(self, *event, "2026-11-23T10:14:05Z")
        finally:
            del self._turns[get_ident()]
            self._paused.release()

    def _wait(self) -> None:
        self._paused.release()
        self._turns[get_ident()].acquire()

    def merge(self, item: HistoryItem) -> Mapping[str, str] | None:
        """Write an item of an incident when it is the recorder's turn."""
        if item.stream in (INCIDENTS, OPEN_INCIDENTS):
            self._wait()
        return super().merge(item)

    def remove(self, stream: str, position: str, expected: Mapping[str, str] | None = None) -> None:
        """Delete an item when it is the recorder's turn."""
        self._wait()
        super().remove(stream, position, expected)

    def load_now(self, stream: str, position: str) -> Mapping[str, str]:
        """Read an item when it is the recorder's turn."""
        self._wait()
        return super().load_now(stream, position)


def _instance_course() -> list[Sent]:
    """An incident of an instance that works again, although it is impaired, and is repaired after all."""
    moves = ("CHECKING", "REBOOTING", "AVAILABLE", "CHECKING", "AVAILABLE")
    about = {"incident_id": "i-1/4", "opened_at": "2026-11-23T10:00:00Z", "job_id": None}
    return [
        instance_moved(5 + number, before, after, 60 * number, **about)
        for number, (before, after) in enumerate(zip(("QUARANTINED", *moves), moves, strict=False))
    ]


OF_JOB, OF_INSTANCE = [INCIDENT_COURSE[number] for number in (0, 2, 10, 11)], _instance_course()


@pytest.mark.parametrize("events", [OF_JOB, OF_INSTANCE], ids=["job", "instance"])
def test_two_recorders_at_once_agree_on_what_is_open(events: list[Sent]) -> None:
    """Whatever events they have, and in whatever order they take turns."""
    for first, second in combinations(range(len(events)), 2):
        for turns in product((0, 1), repeat=6):
            history = Interleaved()
            for event in events[:first]:
                history.record_at_once([event], repeat(0))
            history.record_at_once([events[first], events[second]], chain(turns, repeat(0)))
            (item,) = history.read(INCIDENTS, 9)
            incident = incident_of(events_in(item.attributes))
            opened = [item.position] if incident is not None and incident.is_open else []
            assert [one.position for one in history.read(OPEN_INCIDENTS, 9)] == opened, (first, second, turns)


# -- the recorder fails ------------------------------------------------------------------------------------------------


def _with_recorder(
    fails: Callable[[datetime], bool], **given: Any
) -> tuple[World, str, MemoryEventHistory, list[Sent]]:
    """A GPU fault with a recorder behind the bus. What it cannot record goes to the queue of failed events."""
    history, failed = MemoryEventHistory(), list[Sent]()
    worlds: list[World] = []
    begin = World.submit

    def submit(world: World, *sizes: Any, **more: Any) -> str:
        def deliver(event: PublishEvent, cause: str) -> None:
            sent = as_sent(event, cause)
            if fails(world.timeline.now):
                failed.append(sent)
            else:
                record(history, *sent, "2026-11-21T09:00:00Z")

        if not worlds:
            worlds.append(world)
            for event, cause in zip(world.actions.published, world.actions.causes, strict=True):
                deliver(event, cause)
            world.actions.on_event = deliver
        return begin(world, *sizes, **more)

    World.submit = submit  # type: ignore[method-assign]
    try:
        world, job_id = gpu_fault(**given)
    finally:
        World.submit = begin  # type: ignore[method-assign]
    return world, job_id, history, failed


@pytest.mark.parametrize("seed", [None, 3])
def test_a_dead_recorder_changes_no_healing_and_the_redrive_fills_the_gap(seed: int | None) -> None:
    """Dead for an hour from the first minute on, with and without further trouble."""

    def trouble() -> Iterator[dict[str, Any]]:
        while True:
            injector = None if seed is None else troubled(seed)
            yield {} if injector is None else {"delivery": injector.deliver, "nemesis": injector}

    given = trouble()
    healthy, job_id, expected, none = _with_recorder(lambda now: False, **next(given))
    begin = healthy.job(job_id).queued_at
    ill, same_id, history, failed = _with_recorder(lambda now: now < begin + timedelta(hours=1), **next(given))
    assert not none and failed
    assert ending(ill, same_id) == ending(healthy, job_id)
    assert history.streams != expected.streams
    for sent in reversed(failed):
        record(history, *sent, "2026-11-21T09:00:00Z")
    for stream in {*expected.streams, *history.streams}:
        assert history.read(stream, 10_000) == expected.read(stream, 10_000), stream


# -- days --------------------------------------------------------------------------------------------------------------


def test_days_are_rolled_up_again_for_events_that_arrive_late() -> None:
    """Whenever the schedule runs, and however late the recorder takes the events, the days are the same."""
    events, _, until = course("adaptive_gpu_fault_with_spare")
    shift = timedelta(hours=14, minutes=50)  # the incident crosses midnight
    moved = [(kind, _shifted(detail, shift)) for kind, detail in events]
    end = until + shift
    in_time, late = MemoryEventHistory(), MemoryEventHistory()
    for detail_type, detail in moved:
        sent_at = datetime.fromisoformat(detail["data"]["at"])
        for history in (in_time, late):
            if history is in_time or sent_at.minute % 2:
                mark_late(history, record(history, detail_type, detail, "2026-11-21T09:00:00Z"), sent_at)
        roll_up_days(in_time, sent_at)
        roll_up_days(late, sent_at)
    for detail_type, detail in moved:
        mark_late(late, record(late, detail_type, detail, "2026-11-21T09:00:00Z"), end)
    assert [day.day for day in roll_up_days(late, end)] == [21, 22]
    roll_up_days(in_time, end)
    for name in ("days", "standings"):
        assert _texts(late, name) == _texts(in_time, name)
    assert len(in_time.read("days", 9)) == 2
    later = end + timedelta(days=3)
    assert [day.day for day in roll_up_days(late, later)] == [22, 23, 24, 25]
    assert [day.day for day in roll_up_days(late, later)] == [25]


@pytest.mark.parametrize("name", FAST)
@examples(0.5)
@given(seed=st.integers(0, 2**32), times=st.integers(1, 3))
def test_order_and_repetition_change_no_day(name: str, seed: int, times: int) -> None:
    """Although recorders roll up the days in between, and run out of time. Half of the events are of the next day."""
    events, drawn = course(name)[0], random.Random(seed)
    shift = datetime(2026, 11, 22, tzinfo=UTC) - datetime.fromisoformat(events[len(events) // 2][1]["data"]["at"])
    moved = [(kind, _shifted(detail, shift)) for kind, detail in events]
    shuffled, expected = moved * times, MemoryEventHistory()
    drawn.shuffle(shuffled)
    history, now, end = MemoryEventHistory(), course(name)[2] + shift, course(name)[2] + shift + timedelta(days=30)
    for sent in shuffled:
        now += timedelta(minutes=drawn.choice((0, 1, 20, 300)))
        mark_late(history, record(history, *sent, "2026-11-21T09:00:00Z"), now)
        roll_up_if_due(history, now, lambda: drawn.choice((5.0, 60.0)))
    for sent in moved:
        mark_late(expected, record(expected, *sent, "2026-11-21T09:00:00Z"), end)
    for each in (history, expected):
        while is_due(each, end):
            roll_up_days(each, end)
    assert len(_texts(expected, "days")) > 30
    for stream in ("days", "standings"):
        assert _texts(history, stream) == _texts(expected, stream)


def test_a_roll_up_that_runs_out_of_time_is_continued_by_the_next() -> None:
    """After each day it looks whether time is left. The next run begins with the day after."""
    events, _, until = course("adaptive_gpu_fault_with_spare")
    moved = [(kind, _shifted(detail, timedelta(hours=14, minutes=50))) for kind, detail in events]
    now = until + timedelta(days=4)
    stopped, whole = MemoryEventHistory(), MemoryEventHistory()
    for history in (stopped, whole):
        for detail_type, detail in moved:
            mark_late(history, record(history, detail_type, detail, "2026-11-21T09:00:00Z"), now)
    days = [day.day for day in roll_up_days(whole, now)]
    assert days == [21, 22, 23, 24, 25]
    seen = []
    while is_due(stopped, now):
        seen += [day.day for day in roll_up_days(stopped, now, iter([True, False]).__next__)]
    assert seen == days
    for name in ("days", "standings"):
        assert _texts(stopped, name) == _texts(whole, name)
    assert [roll_up_days(history, now)[0].day for history in (stopped, whole)] == [25, 25]


def _texts(history: MemoryEventHistory, stream: str) -> list[tuple[str, str]]:
    return [(item.position, item.attributes["text"]) for item in history.read(stream, 100)]


def _shifted(detail: dict[str, Any], by: timedelta) -> dict[str, Any]:
    data = dict(detail["data"])
    for name in ("at", "since", "opened_at"):
        if data.get(name):
            data[name] = (datetime.fromisoformat(data[name]) + by).isoformat()
    return {**detail, "data": data}
