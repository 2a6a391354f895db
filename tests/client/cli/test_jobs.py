"""The verbs about jobs that exist: what they ask of the API, and what they show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

JOB = "sft-20261121-090000-1a2b"
Run = Callable[..., Result]


def test_list_passes_its_filter_on(run: Run, api: Any) -> None:
    """Status, limit and cursor reach the API, which sends the newest jobs first and only the fields of the table."""
    run("list", "--status", "RUNNING", "--limit", "1", "--cursor", "1")
    assert dict(api.requests[0].url.params) == {
        "status": "RUNNING",
        "limit": "1",
        "cursor": "1",
        "order": "newest",
        "fields": "list",
    }


def test_list_asks_for_one_user_and_group_on_every_page(run: Run, api: Any) -> None:
    """All pages are of the same list."""
    assert run("list", "--all", "--user", "ana", "--group", "a100").exit_code == 0
    assert len(api.requests) == 2
    for request in api.requests:
        assert {name: request.url.params[name] for name in ("user", "group")} == {"user": "ana", "group": "a100"}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("2h", "2026-11-21T07:03:00.000Z"),
        ("90m", "2026-11-21T07:33:00.000Z"),
        ("1d", "2026-11-20T09:03:00.000Z"),
        ("2026-11-20", "2026-11-20T00:00:00.000Z"),
        ("2026-11-20T06:30", "2026-11-20T06:30:00.000Z"),
        ("2026-11-20T06:30+08:00", "2026-11-19T22:30:00.000Z"),
    ],
)
def test_since_is_how_long_ago_or_a_time_in_utc(run: Run, api: Any, text: str, sent: str) -> None:
    """The API hears a time with its zone, whatever the laptop's zone is."""
    assert run("list", "--since", text).exit_code == 0
    assert api.requests[0].url.params["since"] == sent


@pytest.mark.parametrize("order", ["suspend", "resume", "cancel"])
def test_an_order_about_a_job_shows_where_the_job_stands_then(run: Run, api: Any, order: str) -> None:
    """Its id, its status and the reason, in one line."""
    assert run(order, JOB).stdout == f"{JOB}  RECOVERING  reboot i-0aaa00000000000a1; relaunching\n"
    assert [(one.method, one.url.path) for one in api.requests] == [("POST", f"/prod/api/v2/jobs/{JOB}/{order}")]


def test_suspend_sends_its_reason(run: Run, api: Any) -> None:
    """It is what the job's user finds."""
    run("suspend", JOB, "--because", "a demo")
    assert json.loads(api.requests[0].content) == {"because": "a demo"}


def test_status_shows_priority_group_and_attempts(run: Run, api: Any) -> None:
    """What an attempt was, how long it lasted, and whether it counted."""
    tried = {
        "attempt_id": f"{JOB}--a01",
        "status": "FAILED",
        "started_at": "2026-11-21T08:00:00.000Z",
        "ended_at": "2026-11-21T09:00:30.000Z",
        "exit_code": 75,
        "failure_kind": "SUSPENDED",
        "message": "made room",
        "counted": False,
    }
    latest = {"attempt": 2, "status": "RUNNING", "started_at": "2026-11-21T09:01:00.000Z"}
    api.jobs[0] |= {
        "priority": "HIGH",
        "asked_priority": "HIGH",
        "group": "a100",
        "attempts": [{"attempt": 1, **tried}, latest],
    }
    block, table = run("status", JOB).stdout.split("\n\n")
    facts = dict(line.split("  ", 1) for line in block.splitlines())
    assert (facts["priority"].strip(), facts["group"].strip()) == ("HIGH", "a100")
    first, second = table.splitlines()[1:]
    assert first.split(maxsplit=6) == [
        "1",
        "FAILED",
        "2026-11-21",
        "08:00:00Z",
        "1h00m",
        "75",
        "SUSPENDED: made room: not counted",
    ]
    assert second.split() == ["2", "RUNNING", "2026-11-21", "09:01:00Z", "-", "-"]


def test_explain_says_why_a_job_in_line_does_not_start(run: Run, api: Any) -> None:
    """What is short, its place, whom it waits for, the earliest start, and then every decision."""
    api.jobs[0] |= {"status": "PENDING_RESOURCES", "repairing": []}
    story = json.loads(run("explain", JOB, "--json").stdout)
    assert story["pending"] == api.queue["pending"]
    _, why, decisions = run("explain", JOB).stdout.split("\n\n")
    facts = {line[:14].strip(): line[14:].strip() for line in why.splitlines()}
    assert facts == {
        "because": "needs 8 instances, 3 are free",
        "short of": "gpus",
        "position": "2",
        "waits for": "sft-20261121-085000-00a1",
        "earliest start": "2026-11-21 09:33:00Z (in 30m00s)",
    }
    assert len(decisions.splitlines()) > len(api.jobs[0]["history"])


@pytest.mark.parametrize("status", ["STOPPING", "SUCCEEDED"])
def test_explain_does_not_ask_why_a_job_waits_that_does_not(run: Run, api: Any, status: str) -> None:
    """The scheduler's answer costs a reading of the whole queue."""
    api.jobs[0] |= {"status": status}
    assert json.loads(run("explain", JOB, "--json").stdout)["pending"] is None
    assert not [one for one in api.requests if one.url.path.endswith("/explain")]
