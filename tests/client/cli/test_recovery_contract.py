"""The recovery contract in the command line: what a submission expects, and the bill of a downtime."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.cli.test_submit import OPTIONS, Run

EXPECTED = {
    "days": 30.0,
    "incidents": 1.56,
    "incidents_low": 0.4,
    "incidents_high": 3.3,
    "spares": 0,
    "rate_per_1000_instance_days": 6.5,
    "own_incidents": 0,
    "own_gpu_days": 0.0,
    "own_recoveries": 0,
    "checkpoint_every_s": 600.0,
    "reports_progress": False,
    "is_met": False,
    "down_kept": 0.79,
    "lost_kept": 0.8,
    "down_p50_s": 93.0,
    "down_p95_s": 804.0,
    "lost_p50_s": 357.0,
    "lost_p95_s": 1067.0,
    "alternatives": [
        {
            "changes": ["spare", "restart_in_place"],
            "checkpoint_every_s": 120,
            "sentence": "english",
            "down_p95_s": 99.0,
            "lost_p95_s": 240.0,
        }
    ],
    "sentences": [],
}
"""What a submission with a recovery contract expects."""


def test_what_a_recovery_contract_expects_is_shown_in_the_language_of_the_user(run: Run, api: Any) -> None:
    """In a dry run, and beside the line of the new job."""
    api.jobs[0]["recovery_expectation"] = api.queue["pending"]["recovery_expectation"] = EXPECTED
    bound = ("--max-down-minutes", "5", "--max-lost-minutes", "20", "--checkpoint-every-s", "600")
    submitted = run("submit", *OPTIONS, *bound)
    sent = json.loads(api.requests[-1].content)
    assert (sent["max_down_minutes"], sent["max_lost_minutes"], sent["checkpoint_every_s"]) == (5, 20, 600)
    assert "recovery contract: NOT met in 95 % of the incidents" in submitted.stderr
    dry = " ".join(run("submit", *OPTIONS, "--dry-run").stdout.split())
    assert "incidents 1.6 in 30 days (90 % range 0.4 to 3.3)" in dry
    for name in ("downtime of an incident 1.6 min", "lost time of an incident 6.0 min", "source of the times 0 "):
        assert name in dry
    assert "changes that meet the contract keep one idle spare instance" in dry
    assert "keep one idle spare instance, and restart in place" in dry and "every 2 min" in dry
    chinese = run("--language", "zh", "submit", *OPTIONS, "--dry-run").stdout
    for name in ("每次事故的停机时间", "每次事故的损失时间", "可以满足约定的改变", "时间的来源"):
        assert name in chinese
    assert "不能在 95 % 的事故中满足" in chinese and "保留一台空闲的备用实例" in chinese


def test_a_dry_run_says_what_is_assumed_about_progress_reports_and_how_to_change_it(run: Run, api: Any) -> None:
    """A deployment of an older release does not say it, so nothing is claimed."""
    api.queue["pending"]["recovery_expectation"] = EXPECTED

    def assumed(*options: str) -> str:
        rows = " ".join(run("submit", *OPTIONS, "--max-down-minutes", "5", *options, "--dry-run").stdout.split())
        return rows.partition("assumed ")[2].partition(" failure rate")[0]

    known = "a checkpoint every 10 min, spare instances: 0"
    assert assumed() == f"{known}; no progress reports (if the program reports progress, set reports_progress: true)"
    api.queue["pending"]["recovery_expectation"] = EXPECTED | {"reports_progress": True}
    assert assumed("--reports-progress") == f"{known}; progress reports"
    assert json.loads(api.requests[-1].content)["reports_progress"] is True
    api.queue["pending"]["recovery_expectation"] = {
        name: value for name, value in EXPECTED.items() if name != "reports_progress"
    }
    assert assumed() == known


@pytest.mark.parametrize(
    ("source", "said", "said_in_chinese"),
    [
        (None, "12 incidents in 640 GPU-days of this fleet, and published", "并结合公开的故障率"),
        ("fleet", "12 incidents in 640 GPU-days of this fleet, and published", "并结合公开的故障率"),
        ("blended", "the published rate (RSC-1), and 12 incidents in 640 GPU-days", "次数太少"),
        ("published", "the published rate (RSC-1); this fleet has no figures yet", "本机群还没有数据"),
        ("unread", "the published rate (RSC-1); the figures of this fleet could not be read", "无法读取本机群的数据"),
        ("of_the_moon", "12 incidents in 640 GPU-days of this fleet, and published", "并结合公开的故障率"),
    ],
)
def test_a_dry_run_says_whose_failure_rate_was_used(
    run: Run, api: Any, source: str | None, said: str, said_in_chinese: str
) -> None:
    """A deployment of an older release names no source, and a newer one may have another."""
    found = EXPECTED | {"own_incidents": 12, "own_gpu_days": 640.0} | ({"rate_source": source} if source else {})
    api.queue["pending"]["recovery_expectation"] = found
    asked = ("submit", *OPTIONS, "--max-down-minutes", "5", "--dry-run")
    assert f"6.50 per 1,000 instance-days: {said}" in " ".join(run(*asked).stdout.split())
    assert said_in_chinese in "".join(run("--language", "zh", *asked).stdout.split())


DOWN = {
    "since": "2026-11-21T09:00:00Z",
    "until": "2026-11-21T09:09:10Z",
    "attempt": 1,
    "phase": None,
    "down_s": 550,
    "repeated_s": 90,
    "lost_s": 640,
    "cause": "hardware",
    "recovered": True,
    "kept": False,
    "phases": {"notice": 10, "stop": 12, "check": 138, "repair": 360, "start": 30},
    "sentences": [],
}
"""A downtime that is over."""


def test_names_that_only_a_newer_deployment_knows_are_printed_as_they_are(run: Run, api: Any) -> None:
    """An unknown cause, phase or change, in both languages."""
    down = DOWN | {"cause": "cooling", "phases": {"notice": 10, "thaw": 540}}
    api.jobs[0] |= {"downtime": down, "lost_s": {"cooling": 640}}
    alternative = {**EXPECTED["alternatives"][0], "changes": ["spare", "colder_room"]}
    expected = EXPECTED | {"alternatives": [alternative]}
    api.jobs[0]["recovery_expectation"] = api.queue["pending"]["recovery_expectation"] = expected
    for language in ("en", "zh"):
        for verb in ("status", "explain"):
            text = " ".join(run("--language", language, verb, api.jobs[0]["job_id"]).stdout.split())
            assert "cooling" in text and "thaw 9m" in text, text
        dry = run("--language", language, "submit", *OPTIONS, "--dry-run")
        assert dry.exit_code == 0 and "colder_room" in dry.stdout


def test_the_bill_of_a_downtime_is_in_status_and_explain(run: Run, api: Any) -> None:
    """By phase and cause, and whether the contract was kept."""
    down = DOWN
    api.jobs[0] |= {"downtime": down, "max_down_minutes": 5, "lost_s": {"hardware": 640}}
    for verb in ("status", "explain"):
        text = " ".join(run(verb, api.jobs[0]["job_id"]).stdout.split())
        assert "10s to notice the failure, 12s to stop the ranks" in text and "cause: hardware" in text
        assert "work of 1m30s was done again" in text
        assert "recovery contract: NOT kept" in text
    api.jobs[0]["downtime"] = down | {"until": None, "phase": "wait", "repeated_s": None, "kept": True}
    assert "down now, for " in " ".join(run("explain", api.jobs[0]["job_id"]).stdout.split())
    assert "原因：硬件" in run("--language", "zh", "status", api.jobs[0]["job_id"]).stdout
