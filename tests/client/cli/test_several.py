"""Several ids, --all, and the questions that only a person is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gpu_recovery.core.job.status import TERMINAL, JobStatus
from gpu_recovery_client.cli import confirmation
from typer.testing import Result

from tests.client.conftest import problem

JOB, OTHER, THIRD = "sft-20261121-090000-1a2b", "rl-20261121-080001-0001", "sft-20261121-090000-3333"
INSTANCES = ("i-0aaa00000000000a1", "i-0bbb00000000000b2")
Run = Callable[..., Result]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is a terminal."""
    monkeypatch.setattr(confirmation, "is_interactive", lambda: True)


def orders(api: Any) -> list[str]:
    """What the API was told to do, by the last two parts of the path."""
    return ["/".join(one.url.path.split("/")[-2:]) for one in api.requests if one.method == "POST"]


def test_several_jobs_are_canceled_in_one_call(run: Run, api: Any) -> None:
    """A line for each; an id that is given twice counts once."""
    result = run("cancel", JOB, OTHER, JOB)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [JOB, OTHER]
    assert orders(api) == [f"{JOB}/cancel", f"{OTHER}/cancel"]


def test_one_id_prints_its_view_and_several_a_list(run: Run, api: Any) -> None:
    """A program that cancels one job reads the job, as in the first release."""
    assert json.loads(run("cancel", JOB, "--json").stdout)["job_id"] == JOB
    both = json.loads(run("cancel", JOB, OTHER, "--json").stdout)
    assert [job["job_id"] for job in both["jobs"]] == [JOB, OTHER]
    assert both["failed"] == []


def test_a_refused_job_does_not_stop_the_others_and_is_1(run: Run, api: Any) -> None:
    """The refusal is on stderr; the rest is done."""
    result = run("suspend", "nope", OTHER, "--json")
    assert result.exit_code == 1
    assert orders(api) == ["nope/suspend", f"{OTHER}/suspend"]
    assert "there is no nope" in result.stderr
    assert [one["id"] for one in json.loads(result.stdout)["failed"]] == ["nope"]


def test_a_server_that_fails_is_not_asked_about_the_others(run: Run, api: Any) -> None:
    """What was done before is printed."""
    answers = [httpx.Response(200, json={"job_id": JOB, "status": "CANCELED"}), problem(500, "broken", "")]
    api.answer = lambda request: answers.pop(0)
    result = run("cancel", JOB, OTHER, THIRD)
    assert (result.exit_code, len(api.requests)) == (1, 2)
    assert result.stdout == f"{JOB}  CANCELED\n"


def test_without_a_response_the_results_before_are_printed(run: Run, api: Any) -> None:
    """The order without a response has failed; the others were not tried, and a program can repeat them."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith(f"{OTHER}/cancel"):
            raise httpx.ReadTimeout("no response")
        return httpx.Response(200, json={"job_id": JOB, "status": "CANCELED"})

    api.answer = answer
    result = run("cancel", JOB, OTHER, THIRD, "--json")
    assert (result.exit_code, orders(api)) == (1, [f"{JOB}/cancel", f"{OTHER}/cancel"])
    shown = json.loads(result.stdout)
    assert [job["job_id"] for job in shown["jobs"]] == [JOB]
    assert [(one["id"], one["status"]) for one in shown["failed"]] == [(OTHER, None)]
    assert shown["not_tried"] == [THIRD]
    assert f"not tried: {THIRD}" in run("cancel", JOB, OTHER, THIRD).stderr


def test_all_jobs_of_the_caller_need_yes_in_a_script(run: Run, api: Any) -> None:
    """Nobody can be asked, so nothing is changed without it."""
    refused = run("cancel", "--all")
    assert (refused.exit_code, orders(api)) == (2, [])
    assert "needs --yes, because the input is not a terminal" in refused.stderr
    assert run("cancel", "--all", "--yes").exit_code == 0
    assert set(orders(api)) == {f"{JOB}/cancel", f"{OTHER}/cancel", "rl-20261121-080002-0002/cancel"}


def test_a_user_changes_the_own_jobs_only_and_an_operator_those_of_one_user(run: Run, api: Any) -> None:
    """The list is asked for that user, of jobs that wait or run."""
    api.me = {"user": "ana", "role": "user"}
    run("cancel", "--all", "--yes")
    lists = [dict(one.url.params) for one in api.requests if one.url.path.endswith("/jobs")]
    statuses = {status for status in JobStatus if status not in TERMINAL}
    assert all((one["user"], set(one["status"].split(","))) == ("ana", statuses) for one in lists)
    api.requests.clear()
    api.me = {"user": "an operator", "role": "operator"}
    run("resume", "--all", "--user", "ben", "--yes")
    asked = [dict(one.url.params) for one in api.requests if one.url.path.endswith("/jobs")]
    assert {(one["user"], one["status"]) for one in asked} == {("ben", "SUSPENDED")}


def test_a_job_that_moves_while_the_list_is_read_is_canceled_too(run: Run, api: Any) -> None:
    """The first read misses a job that is just changing its status; a further read shows it."""
    api.page_size = 200
    every, reads = [*api.jobs], 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal reads
        if request.method == "GET" and request.url.path.endswith("/jobs"):
            reads += 1
        api.jobs, api.answer = every[1:] if reads == 1 else every, None
        response: httpx.Response = api(request)
        api.answer = answer
        return response

    api.answer = answer
    assert run("cancel", "--all", "--yes").exit_code == 0
    assert set(orders(api)) == {f"{job['job_id']}/cancel" for job in every}


def test_a_list_that_shows_another_job_each_time_is_read_three_times(run: Run, api: Any) -> None:
    """Users may submit faster than the list is read; the command ends."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/me"):
            return httpx.Response(200, json=api.me)
        if request.method == "POST":
            return httpx.Response(200, json={"job_id": "any", "status": "STOPPING"})
        seen.append(f"sft-20261121-090000-{len(seen):04}")
        return httpx.Response(200, json={"jobs": [{"job_id": one} for one in seen], "next_cursor": None})

    api.answer = answer
    assert run("cancel", "--all", "--yes").exit_code == 0
    assert orders(api) == [f"sft-20261121-090000-{number:04}/cancel" for number in range(3)]


def test_no_such_job_is_no_error(run: Run, api: Any) -> None:
    """A clean-up that finds nothing has succeeded."""
    api.jobs = []
    result = run("cancel", "--all", "--yes")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "there is no such job\n")


@pytest.mark.parametrize("arguments", [("cancel",), ("cancel", JOB, "--all"), ("resume", JOB, "--user", "ana")])
def test_ids_or_all_is_a_usage_error_otherwise(run: Run, api: Any, arguments: tuple[str, ...]) -> None:
    """Neither of both, and both, is a mistake."""
    assert (run(*arguments).exit_code, api.requests) == (2, [])


DESTRUCTIVE = [
    ("cancel", JOB),
    ("quarantine", *INSTANCES),
    ("fleet", "reset-breaker"),
    ("redrive",),
    ("token", "revoke", INSTANCES[0], "3f9c1b2a7d40"),
    ("quota", "set", "ana/NORMAL/a100=none"),
]


@pytest.mark.parametrize("arguments", DESTRUCTIVE, ids=" ".join)
def test_a_person_is_asked_before_what_cannot_be_undone(
    run: Run, api: Any, person: None, arguments: tuple[str, ...]
) -> None:
    """On stderr; "n" and an empty answer change nothing, and are 1."""
    for answer in ("n\n", "\n"):
        result = run(*arguments, stdin=answer)
        assert (result.exit_code, result.stdout.strip()) == (1, answer.strip())  # the runner echoes the answer
        assert "? [y/N]" in result.stderr
    assert not [one for one in api.requests if one.method != "GET"]
    assert run(*arguments, stdin="y\n").exit_code == 0
    assert run(*arguments, "--yes").exit_code == 0


@pytest.mark.parametrize("arguments", DESTRUCTIVE, ids=" ".join)
def test_a_script_is_not_asked(run: Run, api: Any, arguments: tuple[str, ...]) -> None:
    """What worked before works on: standard input of a script is no terminal."""
    result = run(*arguments, stdin="")
    assert (result.exit_code, "[y/N]" in result.stderr) == (0, False)


def test_one_job_is_suspended_without_a_question_and_several_with_one(run: Run, api: Any, person: None) -> None:
    """It can be resumed; a suspension of many is a mistake more often."""
    assert run("suspend", JOB).exit_code == 0
    assert run("suspend", JOB, OTHER, stdin="n\n").exit_code == 1
    assert orders(api) == [f"{JOB}/suspend"]


def test_a_question_about_many_jobs_counts_them(run: Run, api: Any, person: None) -> None:
    """Five ids, and how many more."""
    api.page_size = 200
    api.jobs = [api.jobs[0] | {"job_id": f"sft-20261121-0900{n:02}-1a2b"} for n in range(12)]
    result = run("cancel", "--all", stdin="n\n")
    assert "1a2b and 7 more jobs? [y/N]" in result.stderr


def test_a_question_is_asked_in_chinese_until_it_is_answered(run: Run, api: Any, person: None) -> None:
    """With the letters and what they mean; an answer in Chinese counts, any other is asked for again."""
    result = run("--language", "zh", "cancel", JOB, stdin="perhaps\n否\n")
    assert result.exit_code == 1 and "[y/N]" not in result.stderr
    assert result.stderr.count("[y 是/N 否]") == 2 and "请回答 y 或 n" in result.stderr
    assert orders(api) == []
    assert run("--language", "zh", "cancel", JOB, stdin="是\n").exit_code == 0
    assert orders(api) == [f"{JOB}/cancel"]


def test_several_instances_are_released(run: Run, api: Any) -> None:
    """One after the other."""
    assert run("release", *INSTANCES).exit_code == 0
    assert orders(api) == [f"{name}/release" for name in INSTANCES]
