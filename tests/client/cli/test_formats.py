"""The formats of the output: -o json|yaml|wide|name, widths, colours; and the filters and orders of the lists."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.status import JobStatus
from gpu_recovery_client.cli import colours, output
from gpu_recovery_client.render import fleet, instances, jobs, queue, timeline, tokens
from rich.console import Console
from typer.testing import Result

from tests.client.cli.test_app import VERBS
from tests.client.conftest import token_view

HERE = Path(__file__).parents[1]
JOB = "sft-20261121-090000-1a2b"
NOW = datetime(2026, 11, 21, 9, 3, 0, tzinfo=UTC)
Run = Callable[..., Result]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_prints_the_same_document_as_yaml(run: Run, verb: tuple[str, ...]) -> None:
    """-o json is --json, and -o yaml has the same value."""
    name, *rest = verb
    plain = json.loads(run(*name.split(), "--json", *rest).stdout)
    assert json.loads(run(*name.split(), "-o", "json", *rest).stdout) == plain
    assert yaml.safe_load(run(*name.split(), "-o", "yaml", *rest).stdout) == plain


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("list", "--all"), [JOB, "rl-20261121-080001-0001", "rl-20261121-080002-0002"]),
        (("status", JOB), [JOB]),
        (("explain", JOB), [JOB]),
        (("instances",), ["i-0aaa00000000000a1", "i-0bbb00000000000b2"]),
        (("cancel", JOB, "rl-20261121-080001-0001"), [JOB, "rl-20261121-080001-0001"]),
    ],
)
def test_names_are_ids_for_the_next_command(run: Run, arguments: tuple[str, ...], names: list[str]) -> None:
    """One a line, and nothing else."""
    assert run(*arguments, "-o", "name").stdout.split() == names


def test_names_of_an_empty_list_are_nothing(run: Run, api: Any) -> None:
    """No error, and no line."""
    api.jobs = []
    result = run("list", "-o", "name")
    assert (result.exit_code, result.stdout) == (0, "")


def test_an_answer_without_records_has_no_names(run: Run) -> None:
    """2, with the reason."""
    result = run("fleet", "-o", "name")
    assert result.exit_code == 2
    assert "name is for verbs that print jobs, instances or tokens" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("token", "issue", "--user", "ana"),
        ("redrive",),
        ("fleet", "pause", "--because", "x"),
        ("fleet", "unpause"),
        ("fleet", "reset-breaker"),
        ("quota", "set", "ana/NORMAL/a100=4"),
        ("console",),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_names_are_refused_before_a_verb_without_records_runs(run: Run, api: Any, arguments: tuple[str, ...]) -> None:
    """Neither a secret is lost, nor is an order carried out that is then reported as a usage error."""
    result = run(*arguments, "-o", "name")
    assert (result.exit_code, result.stdout, api.requests) == (2, "", [])
    assert "name is for verbs that print jobs, instances or tokens" in result.stderr


def test_names_of_a_group_are_refused_too(run: Run, api: Any) -> None:
    """`fleet -o name pause` is `fleet pause -o name`."""
    assert run("fleet", "-o", "name", "pause", "--because", "x").exit_code == 2
    assert api.requests == []


def test_two_formats_at_once_are_a_usage_error(run: Run, api: Any) -> None:
    """--json and -o yaml contradict each other."""
    assert (run("list", "--json", "-o", "yaml").exit_code, api.requests) == (2, [])
    assert run("list", "--json", "-o", "json").exit_code == 0


def test_the_format_of_a_group_is_that_of_its_verb(run: Run, api: Any) -> None:
    """`fleet -o yaml pause` prints YAML; the next call prints text again."""
    assert yaml.safe_load(run("fleet", "-o", "yaml", "pause", "--because", "x").stdout) == api.fleet
    assert run("fleet", "unpause").stdout.startswith("under repair")


def test_wide_has_more_columns_and_the_cursor(run: Run) -> None:
    """For a wide terminal, or a file."""
    plain, wide = run("list").stdout, run("list", "-o", "wide").stdout
    assert {"GROUP", "WORKLOAD", "SUBMITTED"} <= set(wide.splitlines()[0].split()) - set(plain.splitlines()[0].split())
    assert "next page: --cursor 2" in wide and "--cursor" not in plain
    assert {"SINCE", "LEMON"} <= set(run("instances", "-o", "wide").stdout.splitlines()[0].split())


def test_a_document_has_every_field_and_a_table_asks_for_its_own(run: Run, api: Any) -> None:
    """A program must not lose fields to the speed of a table."""
    run("list", "--json")
    run("list", "--filter", "origin=API")
    assert all("fields" not in one.url.params for one in api.requests)


# -- filters and orders ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (("--sort", "oldest"), {"order": "oldest"}),
        (("--sort", "status", "--status", "running"), {"order": "status", "status": "RUNNING"}),
        (("--state", "ended"), {"order": "newest", "state": "ended"}),
        (("--status", "failed", "--status", "RUNNING"), {"order": "newest", "status": "FAILED,RUNNING"}),
        (("--prefix", "sft-"), {"order": "newest", "q": "sft-"}),
    ],
)
def test_orders_and_states_are_those_of_the_api(
    run: Run, api: Any, arguments: tuple[str, ...], sent: dict[str, str]
) -> None:
    """Statuses may be written small."""
    assert run("list", *arguments).exit_code == 0
    assert {
        name: value for name, value in api.requests[0].url.params.items() if name not in ("limit", "fields")
    } == sent


@pytest.mark.parametrize(
    "arguments",
    [
        ("--status", "FOO"),
        ("--status", "RUNNING", "--state", "ended"),
        ("--sort", "status", "--state", "ended"),
        ("--filter", "workload"),
    ],
)
def test_what_the_api_would_refuse_is_a_usage_error(run: Run, api: Any, arguments: tuple[str, ...]) -> None:
    """Before any request."""
    assert (run("list", *arguments).exit_code, api.requests) == (2, [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("job_id=rl-*", 2),
        ("job_id!=rl-*", 1),
        ("status=RUNNING", 2),
        ("reason~REBOOT", 3),
        ("nnodes=2", 3),
        ("no_such_field=", 3),
        ("no_such_field=x", 0),
    ],
)
def test_a_filter_compares_a_field_of_the_answer(run: Run, text: str, found: int) -> None:
    """A star stands for any text, a tilde for a part in any case; pages are read until enough are found."""
    assert len(run("list", "--filter", text, "-o", "name").stdout.split()) == found


def test_a_filter_stops_when_it_has_enough(run: Run, api: Any) -> None:
    """The limit counts matching jobs, and the cursor follows the last of them: no job is skipped or repeated."""
    for number in range(9):
        api.jobs.append(api.jobs[0] | {"job_id": f"sft-20261121-0900{number:02}-1a2b", "user": f"u{number % 3}"})
    api.page_size = 8
    found: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = json.loads(run("list", "--filter", "user=u1", "--limit", "1", "--cursor", cursor, "--json").stdout)
        assert len(page["jobs"]) == 1
        found += [job["job_id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
    assert found == [f"sft-20261121-0900{number:02}-1a2b" for number in (1, 4, 7)]


def test_a_filter_ends_if_the_api_repeats_a_page(run: Run, api: Any) -> None:
    """A cursor that comes back is an error, not a loop."""
    page = {"jobs": [], "next_cursor": "1", "unreadable": []}
    api.answer = lambda request: httpx.Response(200, json=page)
    result = run("list", "--filter", "user=u1")
    assert (result.exit_code, len(api.requests)) == (1, 2)
    assert "the API repeats a page" in result.stderr


def test_instances_are_filtered_and_sorted(run: Run, api: Any) -> None:
    """Status, job and order are the API's, any other field is compared here."""
    query = ("--status", "available,rebooting", "--job", JOB, "--sort", "since")
    assert run("instances", *query, "--filter", "status=REBOOTING", "-o", "name").stdout == "i-0aaa00000000000a1\n"
    sent = api.requests[0].url.params
    assert (sent["status"], sent["job"], sent["order"]) == ("AVAILABLE,REBOOTING", JOB, "since")
    assert run("instances", "i-0aaa00000000000a1", "--sort", "id").exit_code == 2


# -- width and colour --------------------------------------------------------------------------------------------------


def long_views() -> dict[str, str]:
    """Every table with long but usual values, in 80 columns."""
    incident = json.loads((HERE / "incident.json").read_text())
    name = "distributed-pretraining"
    job = incident["job"] | {
        "job_id": f"{name}-20261121-090000-1a2b",
        "status": "PENDING_RESOURCES",
        "user": "maria.fernandez",
        "priority": "EXTREME_HIGH",
        "group": "p5-48xlarge",
        "reason": "needs 8 instances with 8 GPUs each in the group p5-48xlarge, and 3 of them are free",
    }
    machine = incident["instances"][0] | {"status": "QUARANTINED", "agent_connected": False}
    view = json.loads((HERE / "queue.json").read_text())["queue"]
    for entry in (*view["waiting"], *view["running"]):
        entry |= {"job_id": job["job_id"], "user": job["user"], "priority": "EXTREME_HIGH", "group": job["group"]}
    letters = json.loads((HERE / "dead_letters.json").read_text())
    for one in letters["queues"]:
        for letter in one["shown"]:
            letter |= {
                "message_id": "0e9a1f7c-6d0b-4a0f-9f55-c1d5cf5b0a3e",
                "source": "aws.ecs",
                "account": "123456789012",
            }
    shown = {"user": "maria", "tokens": [token_view(role="operator", issued_by="an operator")]}
    story = {"job": incident["job"], "instances": incident["instances"], "left_out": []}
    return {
        "list": jobs.job_list({"jobs": [job], "next_cursor": "x" * 245}, NOW, 80),
        "status": jobs.job_details(job, NOW, 80),
        "instances": instances.instance_list([machine], NOW, 80),
        "instance": instances.instance_details(machine, NOW, 80),
        "queue": queue.queue(view, NOW, 80),
        "explain": timeline.explanation(story, NOW, 80),
        "fleet": fleet.fleet(json.loads((HERE / "fleet.json").read_text()), NOW, 80),
        "dead letters": fleet.dead_letters(letters, 80),
        "tokens": tokens.tokens(shown, NOW, 80),
    }


def test_every_table_fits_into_80_columns() -> None:
    """Less important columns are left out, then rows are folded; no word is cut."""
    too_wide = {
        name: [line for line in text.splitlines() if len(line) > 80 and not line.startswith(JOB)]
        for name, text in long_views().items()
    }
    assert not {name: lines for name, lines in too_wide.items() if lines}


def test_a_narrow_list_keeps_id_status_and_reason() -> None:
    """With the heading of the reason, although it is on a line of its own."""
    text = long_views()["list"]
    header = text.splitlines()[0].split() + text.splitlines()[1].split()
    assert [header[0], header[1], header[-1]] == ["JOB", "STATUS", "REASON"]


def test_colours_are_for_statuses_alone() -> None:
    """Brackets and other words stay as they are; every status has a colour."""
    text = colours.coloured("job  FAILED  [red]x[/red] UNFAILED")
    assert text.plain == "job  FAILED  [red]x[/red] UNFAILED"
    assert [(span.start, span.end) for span in text.spans] == [(5, 11)]
    styled = {word for words in colours.STYLES.values() for word in words}
    assert {*JobStatus, *InstanceStatus} <= styled


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_is_coloured_unless_no_color_is_set(
    run: Run, monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    """What is printed is otherwise the same text."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    output.print_view({}, lambda: "a  FAILED\n", False)
    assert screen.getvalue() == ("a  \x1b[31mFAILED\x1b[0m\n" if coloured else "a  FAILED\n")
    assert Console().is_terminal
