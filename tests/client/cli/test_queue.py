"""`gpu-recovery queue` and `gpu-recovery quota`: the line in its order, and limits that nobody undoes unseen."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, parse_limits
from gpu_recovery_client.render import queue
from typer.testing import Result

HERE = Path(__file__).parents[1]
NOW = datetime(2026, 11, 21, 9, 3, 0, tzinfo=UTC)
Run = Callable[..., Result]
STATES = {"running": "running", "queued": "waiting"}


def test_queue_prints_the_golden_text(run: Run) -> None:
    """Places, sentences, earliest starts, who runs, used/total, promises; a pipe gets whole lines."""
    assert run("queue").stdout == (HERE / "queue.txt").read_text()


def test_the_line_is_shown_in_the_order_of_the_api(run: Run, api: Any) -> None:
    """Who starts at once and who is not in line has no place, and stands where the API puts it."""
    line = api.queue["queue"]["waiting"]
    starts = line[0] | {"job_id": "x-0", "position": None, "sentence": "would start with the next pass"}
    held = line[0] | {"job_id": "x-9", "position": None, "status": "SUSPENDED", "sentence": "held by a person"}
    api.queue["queue"]["waiting"] = [starts, *line, held]
    shown = [line.split()[:2] for line in run("queue").stdout.split("\n\n")[0].splitlines()[1:]]
    assert shown == [
        ["-", "x-0"],
        ["1", "sft-20261121-085000-00a1"],
        ["2", "ppo-20261121-085500-00b2"],
        ["-", "x-9"],
    ]


@pytest.mark.parametrize("chosen", [(), ("--user", "ana"), ("--json",)])
def test_a_queue_with_records_that_cannot_be_read_is_1(run: Run, api: Any, chosen: tuple[str, ...]) -> None:
    """They may be before everybody else in the line."""
    api.queue["queue"]["unreadable"] = ["job x: no schema"]
    result = run("queue", *chosen)
    assert result.exit_code == 1 and "sft-20261121-085000-00a1" in run("queue").stdout
    assert result.stderr == "gpu-recovery: not shown, because the record cannot be read: job x: no schema\n"


def test_a_priority_that_fell_back_is_shown_with_what_was_asked(run: Run) -> None:
    """Else its place would look like a mistake."""
    (line,) = [line for line in run("queue").stdout.splitlines() if "ppo-20261121-085500-00b2" in line]
    assert " NORMAL " in line and "asked for ABOVE_NORMAL; 1 job is before it" in line


def test_a_job_that_gave_way_is_told_from_one_that_never_ran(run: Run, api: Any) -> None:
    """Both wait, and only one of them has work to lose."""
    api.queue["queue"]["waiting"][0] |= {"status": "SUSPENDED"}
    assert "SUSPENDED; needs 8 instances, 3 are free" in run("queue").stdout


@pytest.mark.parametrize(
    ("chosen", "waiting", "running"),
    [
        (("--user", "ana"), ["ppo-20261121-085500-00b2"], ["rl-20261121-080001-0001"]),
        (("--user", "ben", "--group", "a100"), ["sft-20261121-085000-00a1"], []),
    ],
)
def test_queue_shows_one_user_or_group(
    run: Run, chosen: tuple[str, ...], waiting: list[str], running: list[str]
) -> None:
    """The places stay those of the whole line."""
    view = json.loads(run("queue", "--json", *chosen).stdout)
    assert [one["job_id"] for one in view["waiting"]] == waiting
    assert [one["job_id"] for one in view["running"]] == running
    assert {one["user"] for one in view["quotas"]} <= {chosen[1]}
    sizes = {state: [one["nodes"] * one["gpus"] for one in view[part]] for state, part in STATES.items()}
    for state, gpus in sizes.items():
        assert sum(row[state]["jobs"] for row in view["totals"]) == len(gpus)
        assert sum(row[state]["gpus"] for row in view["totals"]) == sum(gpus)


def test_the_totals_of_a_user_are_those_of_the_whole_in_the_form_of_the_api(run: Run, api: Any) -> None:
    """The CLI adds up what it shows: without a choice that is what the API says. A job on both lists only waits."""
    view = api.queue["queue"]
    said = {row["priority"]: row for row in view["totals"]}
    assert {row["priority"]: row for row in queue.totals_of(view) if row["priority"] in said} == said
    twice = {**view, "running": [*view["running"], {**view["waiting"][0], "status": "RECOVERING"}]}
    assert queue.totals_of(twice) == queue.totals_of(view)


def test_an_empty_queue_says_so(run: Run, api: Any) -> None:
    """An empty answer would look like a failure."""
    api.queue["queue"] = {"waiting": [], "running": [], "quotas": [], "reservations": []}
    assert run("queue").stdout == "no job waits\n"


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_no_id_and_no_word_is_lost_on_a_narrow_terminal(api: Any, width: int) -> None:
    """Sentences are folded, ids never."""
    text = queue.queue(api.queue["queue"], NOW, width)
    for one in (*api.queue["queue"]["waiting"], *api.queue["queue"]["running"]):
        assert one["job_id"] in text
    for one in api.queue["queue"]["waiting"]:
        assert all(word in text for word in one["sentence"].split())


# -- quotas ------------------------------------------------------------------------------------------------------------


def put(api: Any) -> dict[str, Any]:
    """The limits that were put, as the core reads them; there was one read before."""
    got, sent = api.requests
    assert (got.method, sent.method, sent.headers["if-match"]) == ("GET", "PUT", "7")
    document: dict[str, Any] = json.loads(sent.content)["limits"]
    parse_limits(document)
    return document


def test_quota_show_prints_every_limit(run: Run) -> None:
    """One line for each entry, then the numbers of jobs and the revision, then what is used of it."""
    lines = run("quota", "show").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["USER", "PRIORITY", "GROUP", "INSTANCES"],
        ["*", "LOW", "*", "10"],
        ["ana", "NORMAL", "a100", "4"],
    ]
    assert lines[3:6] == ["jobs that may run at once: 50  of each user: no limit", "revision 7", ""]
    assert [line.split() for line in lines[6:]] == [
        ["QUOTA", "OF", "PRIORITY", "GROUP", "USED/TOTAL"],
        ["ana", "LOW", "a100", "5/8"],
        ["ben", "LOW", "-", "1/no", "limit"],
    ]


def test_quota_set_changes_what_is_named_and_keeps_the_rest(run: Run, api: Any) -> None:
    """A number, a new entry, one taken away, and a user whose name has slashes in it."""
    entries = ("ana/NORMAL/a100=6", "*/LOW/*=none", "org/team/ben/HIGH/=2", "zoe/LOW/b=none")
    assert run("quota", "set", *entries).exit_code == 0
    document = put(api)
    assert document == {
        "instances": {"ana/NORMAL/a100": 6, "org/team/ben/HIGH/": 2},
        "max_running_jobs": 50,
        "max_running_jobs_per_user": None,
    }
    assert parse_limits(document).of(QuotaKey("org/team/ben", Priority.HIGH, "")) == 2


def test_quota_set_takes_the_numbers_of_jobs(run: Run, api: Any) -> None:
    """Set, or taken away."""
    assert run("quota", "set", "--max-running-jobs", "none", "--max-running-jobs-per-user", "3").exit_code == 0
    document = put(api)
    assert (document["max_running_jobs"], document["max_running_jobs_per_user"]) == (None, 3)
    assert document["instances"] == {"*/LOW/*": 10, "ana/NORMAL/a100": 4}


def test_quota_set_puts_a_whole_document_in_place(run: Run, api: Any, tmp_path: Path) -> None:
    """What it does not name is gone; an entry beside it is added."""
    (tmp_path / "limits.yaml").write_text("instances: {ben/HIGH/a100: 2}\n")
    assert run("quota", "set", "--file", str(tmp_path / "limits.yaml"), "ana/LOW/=1").exit_code == 0
    assert put(api) == {"instances": {"ben/HIGH/a100": 2, "ana/LOW/": 1}}


def test_a_document_of_limits_without_entries_is_a_usage_error(run: Run, api: Any, tmp_path: Path) -> None:
    """Before anything is put."""
    (tmp_path / "limits.json").write_text('{"instances": [1]}')
    result = run("quota", "set", "--file", str(tmp_path / "limits.json"))
    assert (result.exit_code, [one.method for one in api.requests]) == (2, ["GET"])


def test_limits_that_somebody_else_changed_meanwhile_are_not_overwritten(run: Run, api: Any) -> None:
    """The order is refused and says what to do."""
    api.queue["quotas"] = Moving(api.queue["quotas"])
    result = run("quota", "set", "ana/NORMAL/a100=6")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("gpu-recovery: Changed meanwhile (412)")
    assert "The limits were changed in the meantime" in result.stderr


class Moving(dict[str, Any]):
    """Limits whose revision somebody else raises whenever it has been looked at."""

    def __getitem__(self, key: str) -> Any:
        if key == "revision":
            super().__setitem__(key, super().__getitem__(key) + 1)
        return super().__getitem__(key)
