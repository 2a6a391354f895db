"""The summary of the last days, by the API."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.core.event_history.recorded import COURSE, OPENED, at, job_moved, recovery
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.test_event_recorder import Event, deliver


def happen(api: Api, *events: Event) -> None:
    """Let the events happen, and be recorded two seconds later."""
    for event in events:
        api.functions.now = datetime.fromisoformat(event[1]["data"]["at"]) + timedelta(seconds=2)
        deliver(api, event)


def other(version: int, before: str, after: str, seconds: float) -> Event:
    """Another job, of another user, becomes another status."""
    about = {"user": "li", "priority": "LOW", "gpus": 8, "job_id": "sft-2", "incident_id": None, "opened_at": None}
    kind, detail = job_moved(version, before, after, seconds, **about)
    detail["metadata"]["causation_id"] = f"sft-2/{version}"
    return kind, detail


def test_the_figures_of_the_last_days(api: Api) -> None:
    """By day, by user and by priority, and all together; what is not known is null."""
    assert api.get("/summary").body["as_of"] is None
    happen(api, other(4, "SUBMITTED", "RUNNING", 0), *COURSE, other(5, "RUNNING", "LOST", 86_400))
    by_day = api.get("/summary", days="2").body
    assert [row["name"] for row in by_day["rows"]] == ["2026-11-23", "2026-11-24"]
    assert by_day["rows"][0]["recoveries"] == 1 and by_day["rows"][0]["recovery_s_p50"] == 550
    assert by_day["rows"][1]["recovery_s_p50"] is None
    assert by_day["total"]["incidents"] == 1
    by_user = api.get("/summary", days="2", by="user").body
    assert {row["name"] for row in by_user["rows"]} == {"ana", "li"}
    running = sum(row["gpu_h_running"] for row in by_user["rows"])
    assert running == pytest.approx(by_day["total"]["gpu_h_running"], abs=0.01)
    assert {row["name"] for row in api.get("/summary", by="priority").body["rows"]} == {"HIGH", "LOW"}
    assert [row["name"] for row in api.get("/summary", days="1").body["rows"]] == ["2026-11-24"]


def test_the_ettr_is_that_of_the_jobs_whose_repeated_work_is_known(api: Api) -> None:
    """Null if that is known of no job; the share of the held GPU-hours says of how many it is known."""
    happen(api, *COURSE)
    (ana,) = api.get("/summary", days="1", by="user").body["rows"]
    assert (ana["name"], ana["ettr"], ana["ettr_share"]) == ("ana", None, 0.0)
    happen(api, other(4, "SUBMITTED", "RUNNING", 0), other(5, "RUNNING", "SUCCEEDED", 3_600))
    total = api.get("/summary", days="1").body["total"]
    assert total["ettr"] == 1.0 and 0 < total["ettr_share"] < 1


def test_the_event_of_a_recovery_says_what_is_done_again(api: Api) -> None:
    """An hour before the incident is missing in the ETTR, and no other figure."""
    happen(api, other(4, "SUBMITTED", "RUNNING", -7_200))
    before = api.get("/summary", days="1").body["total"]
    happen(api, job_moved(4, "SUBMITTED", "RUNNING", -7_200), *COURSE[:-1])
    happen(api, recovery(11, "Succeeded", 610, attempt=2, kept_until=at(-3_600)))
    happen(api, other(5, "RUNNING", "SUCCEEDED", 3_600))
    total = api.get("/summary", days="1", by="user").body["rows"][0]
    assert before["ettr"] == 1.0 and total["name"] == "ana" and total["ettr_share"] == 1.0
    spent = total["gpu_h_held"] + total["gpu_h_in_line"]
    assert total["ettr"] == pytest.approx((total["gpu_h_running"] - 16) / spent, abs=1e-4)


def test_while_nothing_happens_a_job_runs_on(api: Api) -> None:
    """No event says so, and none is needed: the reader goes on from the last roll-up, also over midnight."""
    happen(api, other(4, "SUBMITTED", "RUNNING", 0))
    api.functions.now = OPENED + timedelta(hours=30)
    by_day = api.get("/summary", days="2").body
    assert by_day["total"]["gpu_h_running"] == pytest.approx(8 * 30, abs=0.01)
    first_day = 8 * (14 * 3_600 - 14 * 60 - 3) / 3_600
    assert by_day["rows"][0]["gpu_h_running"] == pytest.approx(first_day, abs=0.01)
    assert by_day["as_of"] == "2026-11-24T16:14:03.000Z"


def test_figures_that_cannot_be_rolled_up_lose_no_event(api: Api) -> None:
    """The event is recorded; the next one tries again."""
    stored = api.functions.aws.tables.tables["gpu-recovery-event-history"]
    happen(api, other(4, "SUBMITTED", "RUNNING", 0))
    (key,) = [key for key in stored.items if key.startswith("days\0")]
    broken = {**stored.items[key], "until": {"S": "yesterday"}}
    stored.put(broken)
    happen(api, other(5, "RUNNING", "LOST", 3_600))
    assert api.functions.logged("roll_up_failed")
    assert len(api.get("/events").body["events"]) == 2


def test_a_malformed_query_is_a_problem_document(api: Api) -> None:
    """It names the parameter."""
    refused(api.get("/summary", days="91"), 400, "days")
    refused(api.get("/summary", by="month"), 400, "by")
