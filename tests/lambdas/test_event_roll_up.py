"""The roll-up of days as Lambda runs it: killed, short of time, and several recorders at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery.core.event_history import day_codec
from gpu_recovery.core.event_history.day_codec import PROGRESS, DayProgress, day_texts, progress_of, progress_text
from gpu_recovery.event_recorder import roller
from gpu_recovery.event_recorder.roller import CLAIM, DAY_S, EVERY, mark_late, roll_up_days

from infra.functions import FUNCTIONS
from tests.core.event_history.recorded import COURSE, OPENED, at, job_moved, read, recovery
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Context, Functions
from tests.lambdas.test_event_recorder import Event, deliver


class Killed(BaseException):
    """The process ends: no handler of an exception runs."""


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API, and three days that are rolled up: a job runs since the first day, another one for a day."""
    made = Api(functions)
    for version, hours, job_id, status in (
        (1, 1, "sft-1", "RUNNING"),
        (2, 25, "sft-2", "RUNNING"),
        (3, 49, "sft-2", "LOST"),
    ):
        happen(made, hours, of_job(version, job_id, status, hours * 3_600))
    return made


def of_job(version: int, job_id: str, status: str, seconds: float) -> Event:
    """A job becomes another status, outside incidents."""
    kind, detail = job_moved(version, "RUNNING", status, seconds, job_id=job_id, incident_id=None, opened_at=None)
    detail["metadata"]["causation_id"] = f"{job_id}/{version}"
    return kind, detail


FIRST = of_job(1, "sft-1", "RUNNING", 3_600)
LATE = of_job(4, "sft-1", "FAILED", 2 * 3_600)
"""An event of the first day: the first job has failed."""
TODAY, LAST = (of_job(version, "sft-2", "RUNNING", hours * 3_600) for version, hours in ((5, 52), (6, 53)))
"""Events of the third day."""


def happen(api: Api, hours: float, *events: Event) -> None:
    """Deliver the events so many hours after the first."""
    api.functions.now = OPENED + timedelta(hours=hours)
    deliver(api, *events)


def figures(api: Api) -> list[tuple[float, int]]:
    """GPU-hours that jobs held, and jobs that failed, by day."""
    rows = api.get("/summary", days="3").body["rows"]
    return [(row["gpu_h_held"], row["jobs_failed"]) for row in rows]


def figures_from_scratch(api: Api) -> list[tuple[float, int]]:
    """The same if every day is rolled up again."""
    table = api.functions.aws.tables.tables["gpu-recovery-event-history"]
    for key in [key for key in table.items if key.startswith(("days\0", "standings\0"))]:
        table.delete(key)
    history = import_module("gpu_recovery.aws.event_history_wiring").event_history()
    mark_late(history, read(FIRST), api.functions.now)
    roll_up_days(history, api.functions.now)
    return figures(api)


def before_write(api: Api, number: int, act: Callable[[], object]) -> None:
    """Act before the write of the roll-up with this number, from 0."""
    seen: list[str] = []

    def watch(asked: dict[str, Any]) -> None:
        if asked["Key"]["stream"]["S"].startswith(("days", "standings")):
            seen.append("")
            if len(seen) == number + 1:
                act()

    api.functions.aws.dynamodb = dict.fromkeys(("UpdateItem", "DeleteItem"), watch)


def _kill() -> None:
    raise Killed


WRITES = 12
"""Writes of a roll-up of three days: the claim, for each day two texts and the removal of its mark, and two marks."""


@pytest.mark.parametrize("number", range(WRITES))
def test_a_late_event_counts_although_the_roll_up_is_killed(api: Api, number: int) -> None:
    """A timeout or a lack of memory ends the function at any write. The next recorder does the days that are left."""
    happen(api, 49.1, LATE)
    before_write(api, number, _kill)
    with pytest.raises(Killed):
        happen(api, 52, TODAY)
    api.functions.aws.dynamodb = {}
    happen(api, 53, LAST)
    rolled_up = figures(api)
    assert [failed for _, failed in rolled_up] == [1, 0, 0]
    assert rolled_up == figures_from_scratch(api)


@pytest.mark.parametrize("number", range(WRITES + 1))
def test_an_event_that_arrives_during_the_roll_up_counts(api: Api, number: int) -> None:
    """Its mark is not removed with the mark that was there before."""
    later = of_job(6, "sft-3", "FAILED", 3 * 3_600)
    happen(api, 49.1, LATE)
    before_write(api, number, lambda: deliver(api, later))
    happen(api, 52, TODAY)
    api.functions.aws.dynamodb = {}
    if number == WRITES:  # there is no such write
        deliver(api, later)
    happen(api, 53, LAST)
    assert [failed for _, failed in figures(api)] == [2, 0, 0]


def test_an_event_that_arrives_just_after_the_roll_up_counts(api: Api) -> None:
    """Although no event follows that would roll up again."""
    happen(api, 52, TODAY)
    happen(api, 52 + 20 / 3_600, of_job(6, "sft-2", "FAILED", 52 * 3_600 - 5))
    api.functions.now = OPENED + timedelta(hours=54)
    assert [failed for _, failed in figures(api)] == [0, 0, 1]


def test_without_time_left_the_next_recorder_rolls_up(api: Api) -> None:
    """The event itself is recorded."""
    api.functions.left_s = 5
    happen(api, 52, LATE)
    assert len(api.functions.logged("days_rolled_up")) == 3
    assert [failed for _, failed in figures(api)] == [0, 0, 0]
    api.functions.left_s = 60
    happen(api, 53, LAST)
    rolled_up = figures(api)
    assert [failed for _, failed in rolled_up] == [1, 0, 0]
    assert rolled_up == figures_from_scratch(api)


class Budget:
    """A minute for each invocation, of which each page of a day's events takes ten seconds. Then the function ends."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left_s, self.pages = 60.0, 0
        monkeypatch.setattr(Context, "get_remaining_time_in_millis", lambda context: int(self.left_s * 1_000))
        monkeypatch.setattr(roller, "PAGE", 4)
        monkeypatch.setattr(roller, "PIECE_PAGES", 1, raising=False)
        api.functions.aws.dynamodb = {"Query": self.spend}

    def spend(self, asked: dict[str, Any]) -> None:
        """Spend ten seconds on a page of events."""
        if not asked["ExpressionAttributeValues"][":s"]["S"].startswith("events#"):
            return
        self.pages, self.left_s = self.pages + 1, self.left_s - 10
        if self.left_s < 0:
            raise Killed

    def invoked(self, api: Api, hours: float, event: Event) -> int:
        """Deliver an event to a new invocation. Return the pages that the invocation reads."""
        self.left_s, self.pages = 60.0, 0
        with suppress(Killed):
            happen(api, hours, event)
        return self.pages

    def ends(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on a day is one piece, and costs no time."""
        api.functions.aws.dynamodb, self.left_s = {}, 60.0
        monkeypatch.setattr(roller, "PAGE", 1_000)


def busy_day(api: Api) -> list[Event]:
    """The third day has 40 further events, which no invocation had the time to roll up."""
    statuses = ("LOST", "RUNNING", "STOPPING", "RUNNING")
    events = [of_job(10 + n, f"sft-{3 + n % 5}", statuses[n // 5 % 4], 49 * 3_600 + 60 * (n // 2)) for n in range(40)]
    api.functions.left_s = 5
    happen(api, 51, *events)
    return events


def test_a_day_that_takes_longer_than_an_invocation_is_rolled_up_by_several(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each invocation goes on where the last one has stopped, also if the last one was killed."""
    busy_day(api)
    budget, before = Budget(api, monkeypatch), len(api.functions.logged("days_rolled_up"))
    pages = [budget.invoked(api, 52 + n / 1_000, of_job(60 + n, "sft-2", "RUNNING", 52 * 3_600 + n)) for n in range(9)]
    assert len(api.functions.logged("days_rolled_up")) == before + 1
    assert max(pages) <= 5 and sum(bool(read) for read in pages) >= 3
    budget.ends(api, monkeypatch)
    assert not progress_items(api)
    assert figures(api) == figures_from_scratch(api)


@pytest.mark.parametrize("page", range(1, 13))
def test_the_ettr_of_a_day_in_pieces_is_that_of_the_whole_day(
    api: Api, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Also if a piece ends between the failure of a job and its recovery: the lost work was done in earlier pieces."""
    quiet = {"incident_id": None, "opened_at": None}
    start = job_moved(4, "SUBMITTED", "RUNNING", -9 * 3_600, **quiet)
    late = recovery(11, "Succeeded", 610, attempt=2, kept_until=at(-1_800))
    end = job_moved(12, "RUNNING", "SUCCEEDED", 4 * 3_600, attempt=2, **quiet)
    happen(api, 52, start, *COURSE[:-1], late, end)

    def rows() -> Any:
        history = import_module("gpu_recovery.aws.event_history_wiring").event_history()
        mark_late(history, read(start), api.functions.now)
        roll_up_days(history, api.functions.now)
        return api.get("/summary", days="4").body["rows"]

    whole = rows()
    assert 0.9 < whole[0]["ettr"] < 0.98
    monkeypatch.setattr(roller, "PAGE", page)
    monkeypatch.setattr(roller, "PIECE_PAGES", 1)
    assert rows() == whole


@pytest.mark.parametrize("after", [1, 2])
def test_an_event_that_arrives_between_the_pieces_of_a_late_day_counts(
    api: Api, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Its day was marked again, so the day is rolled up once more."""
    busy_day(api)
    happen(api, 80, of_job(60, "sft-2", "RUNNING", 80 * 3_600))  # the fourth day
    budget = Budget(api, monkeypatch)
    for n in range(24):
        if n == after:
            late = of_job(70, "sft-9", "FAILED", 49 * 3_600 + 1)
            budget.invoked(api, 81 + n / 1_000, late)
        budget.invoked(api, 81 + n / 1_000, of_job(71 + n, "sft-2", "RUNNING", 81 * 3_600 + n))
    budget.ends(api, monkeypatch)
    rows = api.get("/summary", days="4").body["rows"]
    assert sum(row["jobs_failed"] for row in rows) == 1


TOO_LATE_FOR_TODAY = of_job(70, "sft-9", "FAILED", 49 * 3_600 + 1)
"""An event of the first piece of the third day. It arrives on this day, after this piece."""


@pytest.mark.parametrize("further", [(), (62.1,), (62.1, 62.2)], ids=["saved today", "again at 0:20", "done by 1:00"])
def test_an_event_that_arrives_between_the_pieces_of_today_counts(
    api: Api, monkeypatch: pytest.MonkeyPatch, further: tuple[float, ...]
) -> None:
    """Its day is not marked, because the day is not over. The day is rolled up anew an hour after its end."""
    busy_day(api)
    budget = Budget(api, monkeypatch)
    budget.invoked(api, 61.6, of_job(60, "sft-2", "RUNNING", 61.6 * 3_600))  # ten minutes before midnight
    assert progress_items(api)
    budget.left_s = 5
    happen(api, 61.7, TOO_LATE_FOR_TODAY)
    for n, hours in enumerate((*further, *(63.3 + n / 1_000 for n in range(12)))):
        budget.invoked(api, hours, of_job(71 + n, "sft-2", "RUNNING", hours * 3_600))
    budget.ends(api, monkeypatch)
    assert not progress_items(api)
    rows = api.get("/summary", days="4").body["rows"]
    assert sum(row["jobs_failed"] for row in rows) == 1


def progress_items(api: Api) -> list[str]:
    """The stored parts of the progress of days."""
    table = api.functions.aws.tables.tables["gpu-recovery-event-history"]
    return [key for key in table.items if key.startswith("days#progress")]


def kill_at_part(api: Api, monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Kill the roll-up before the write of the progress with this number, from 0. Return the texts to be written."""
    texts: list[str] = []
    writes: list[str] = []

    def text_of(progress: DayProgress) -> str:
        texts.append(progress_text(progress))
        return texts[-1]

    def watch(asked: dict[str, Any]) -> None:
        if asked["Key"]["stream"]["S"] == PROGRESS:
            writes.append("")
            if len(writes) == number + 1:
                raise Killed

    monkeypatch.setattr(roller, "progress_text", text_of)
    api.functions.aws.dynamodb = {"UpdateItem": watch}
    return texts


def saved_progress() -> set[str]:
    """The texts of the progress of days that can be read."""
    history = import_module("gpu_recovery.aws.event_history_wiring").event_history()
    return {text for _, text in day_texts(history.read(PROGRESS, 1_000)).values()}


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of a small day has several parts."""
    monkeypatch.setattr(roller, "PAGE", 4)
    monkeypatch.setattr(roller, "PIECE_PAGES", 1)
    monkeypatch.setattr(day_codec, "PART_CHARACTERS_MAX", 500)


@pytest.mark.parametrize("number", range(1, 16))
@pytest.mark.usefixtures("in_parts")
def test_a_kill_between_the_parts_of_the_progress_joins_no_halves(
    api: Api, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The parts of two pieces that one run saves differ in their time."""
    busy_day(api)
    api.functions.left_s = 60
    texts = kill_at_part(api, monkeypatch, number)
    with pytest.raises(Killed):
        happen(api, 52, TODAY)
    assert saved_progress() <= set(texts)


@pytest.mark.usefixtures("in_parts")
def test_a_kill_between_the_parts_of_a_day_begun_anew_joins_no_halves(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first piece ends at the same time as the first piece before, and has one more event."""
    busy_day(api)
    api.functions.left_s = 60
    monkeypatch.setattr(roller, "PAGE", 5)
    monkeypatch.setattr(day_codec, "PART_CHARACTERS_MAX", 700)
    first = kill_at_part(api, monkeypatch, 10**6)
    monkeypatch.setattr(Context, "get_remaining_time_in_millis", lambda context: 1_000 if first else 60_000)
    happen(api, 61.6, of_job(60, "sft-2", "RUNNING", 61.6 * 3_600))
    assert saved_progress() == set(first) and len(progress_items(api)) > 1
    happen(api, 61.7, TOO_LATE_FOR_TODAY)
    monkeypatch.setattr(Context, "get_remaining_time_in_millis", lambda context: 60_000)
    second = kill_at_part(api, monkeypatch, 1)
    with pytest.raises(Killed):
        happen(api, 63.3, of_job(61, "sft-2", "RUNNING", 63.3 * 3_600))
    assert progress_of(second[0]).at == progress_of(first[0]).at and len(second) == 1
    assert {len(text) // 700 for text in (*first, *second)} == {1}, "both have two parts"
    assert saved_progress() == set()


@pytest.mark.parametrize("number", range(1, WRITES))
def test_recorders_at_the_same_time_roll_up_once(api: Api, number: int) -> None:
    """The figures are old for all of them; the claim of the first one keeps the others from writing parts."""
    other = of_job(7, "sft-3", "RUNNING", 52 * 3_600)
    happen(api, 49.1, LATE)
    before = len(api.functions.logged("days_rolled_up"))
    before_write(api, number, lambda: deliver(api, other))
    happen(api, 52, TODAY)
    assert len(api.functions.logged("event_recorded")) == 6
    assert len(api.functions.logged("days_rolled_up")) == before + 1


def test_a_claim_lasts_longer_than_the_function() -> None:
    """Two roll-ups never run at the same time, and the next one waits for less than the interval of the roll-ups."""
    (timeout_s,) = (row.timeout_s for row in FUNCTIONS if row.name == "event_recorder")
    assert timeout_s < CLAIM.total_seconds() < EVERY.total_seconds()
    assert timeout_s > DAY_S
