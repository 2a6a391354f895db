"""The stored events since a time, by the API: complete, in order, page by page over months."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module

import pytest
from gpu_recovery.event_recorder.recorder import record

from tests.core.event_history.recorded import JOB, OPENED, job_moved
from tests.lambdas.api_gateway import Api, refused

DAY_S = 86_400.0


def _stored(api: Api, *after_s: float) -> None:
    """An event at each of these times after OPENED, and the clock at 30 days after OPENED."""
    history = import_module("gpu_recovery.aws.event_history_wiring").event_history()
    for version, seconds in enumerate(after_s, 1):
        event = job_moved(version, "RUNNING", "STOPPING", seconds, replay={"version": 1, "event": "RankFailed"})
        record(history, *event, "2026-11-23T10:14:05Z")
    api.functions.now = OPENED + timedelta(days=30)


def _pages(api: Api, since: str, limit: int = 200) -> list[list[dict[str, object]]]:
    pages = list[list[dict[str, object]]]()
    query = {"since": since, "limit": str(limit)}
    while True:
        answer = api.get("/events/records", **query)
        assert answer.status == 200
        pages.append(answer.body["records"])
        if answer.body["next_cursor"] is None:
            return pages
        query["cursor"] = answer.body["next_cursor"]


def test_every_event_since_the_time_is_listed_once_in_order(api: Api) -> None:
    """Also after weeks without an event, when a page is empty and others follow."""
    _stored(api, 0.0, 5.0, 2 * DAY_S, 20 * DAY_S, 29.9 * DAY_S)
    for limit in (1, 2, 200):
        pages = _pages(api, OPENED.isoformat(), limit)
        assert all(len(page) <= limit for page in pages)
        found = [record for page in pages for record in page]
        assert [record["decision"] for record in found] == [f"{JOB}/{version}" for version in range(1, 6)]
    assert found[0]["data"]["replay"] == {"version": 1, "event": "RankFailed"}  # type: ignore[index]


def test_events_before_the_time_are_left_out(api: Api) -> None:
    """To the second, on the day of the time, too."""
    _stored(api, 0.0, 5.0, 2 * DAY_S)
    [found] = [page for page in _pages(api, (OPENED + timedelta(seconds=5)).isoformat()) if page]
    assert [record["decision"] for record in found] == [f"{JOB}/2", f"{JOB}/3"]


@pytest.mark.parametrize("since", ["0403-04-20T12:38:00-10:07", "0001-01-01T00:00:00Z", "2020-01-01T00:00:00Z"])
def test_a_time_before_the_history_lists_it_from_its_beginning(api: Api, since: str) -> None:
    """In as many pages as the 90 days of the history need, not those of the years before."""
    _stored(api, 0.0, 2 * DAY_S)
    pages = _pages(api, since)
    assert [record["decision"] for page in pages for record in page] == [f"{JOB}/1", f"{JOB}/2"]
    assert len(pages) <= 90 / 7 + 1


@pytest.mark.parametrize("since", ["9998-12-31T23:59:59Z", "2100-01-01T00:00:00Z"])
def test_a_time_in_the_future_lists_nothing(api: Api, since: str) -> None:
    """The list has one page, which is empty."""
    _stored(api, 0.0)
    assert _pages(api, since) == [[]]


def test_a_request_without_the_time_is_refused(api: Api) -> None:
    """There is no default: the history of 90 days is long."""
    assert refused(api.get("/events/records"), 400, "since") == "must be given"
    assert refused(api.get("/events/records", since="yesterday"), 400, "since")
    other = api.get("/events").body["next_cursor"]
    assert api.get("/events/records", since="2026-11-21T09:00:00Z", cursor=other).status == 400
