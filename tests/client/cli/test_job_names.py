"""The name of a job in place of its id: which job it means, and where it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import Result

JOB = "sft-20261121-090000-1a2b"
OPTIONS = ("--workload", "sft", "--nnodes", "2", "--gpus-per-node", "8", "--task-definition", "gpu-training")
Run = Callable[..., Result]


def named(api: Any, *jobs: tuple[str, str]) -> list[str]:
    """Jobs with the name `night`, the newest first, by user and status; their ids."""
    api.jobs = [
        api.jobs[0] | {"job_id": f"sft-20261121-0900{number:02}-1a2b", "name": "night", "user": user, "status": status}
        for number, (user, status) in enumerate(jobs)
    ]
    return [job["job_id"] for job in api.jobs]


@pytest.mark.parametrize(
    ("jobs", "meant"),
    [
        ([("ana", "RUNNING")], 0),
        ([("ana", "FAILED"), ("ana", "RUNNING"), ("ana", "SUCCEEDED")], 1),
        ([("ben", "RUNNING"), ("ana", "QUEUED")], 1),
        ([("ana", "FAILED"), ("ben", "RUNNING")], 1),
        ([("ben", "FAILED"), ("ana", "SUCCEEDED"), ("ana", "FAILED")], 1),
        ([("ben", "FAILED")], 0),
    ],
)
def test_a_name_means_the_job_that_has_not_ended_else_the_newest(
    run: Run, api: Any, jobs: list[tuple[str, str]], meant: int
) -> None:
    """The caller's own jobs come before those of others."""
    api.me = {"user": "ana", "role": "user"}
    ids = named(api, *jobs)
    assert json.loads(run("status", "night", "--json").stdout)["job_id"] == ids[meant]


@pytest.mark.parametrize("verb", ["status", "logs", "explain"])
def test_an_ambiguous_name_is_refused_with_the_ids(run: Run, api: Any, verb: str) -> None:
    """Nothing is changed, and the error says what to give."""
    ids = named(api, ("ana", "RUNNING"), ("ben", "QUEUED"), ("ben", "FAILED"))
    result = run(verb, "night")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"several jobs with the name night have not ended; give an id: {ids[0]}, {ids[1]}\n" in result.stderr
    assert not [one for one in api.requests if one.method == "POST"]


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume"])
@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (
            [("ana", "RUNNING"), ("ana", "QUEUED")],
            "several jobs with the name night have not ended; give an id: {0}, {1}",
        ),
        ([("ben", "RUNNING")], "only other users have jobs with the name night; give an id: {0}"),
    ],
)
def test_an_order_by_name_changes_no_job_that_the_caller_may_not_have_meant(
    run: Run, api: Any, verb: str, jobs: list[tuple[str, str]], message: str
) -> None:
    """An operator may change every job, so the name of a stranger's job needs its id."""
    api.me = {"user": "ana", "role": "operator"}
    ids = named(api, *jobs)
    result = run(verb, "night")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message.format(*ids) in result.stderr
    assert not [one for one in api.requests if one.method == "POST"]


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume"])
def test_an_order_goes_to_the_own_ended_job_rather_than_to_the_running_job_of_another(
    run: Run, api: Any, verb: str
) -> None:
    """The API then refuses it; the other job is untouched."""
    api.me = {"user": "ana", "role": "operator"}
    own, _ = named(api, ("ana", "SUCCEEDED"), ("ben", "RUNNING"))
    run(verb, "night")
    assert {one.url.path for one in api.requests if one.method == "POST"} <= {f"/prod/api/v2/jobs/{own}/{verb}"}


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume"])
def test_an_order_goes_to_the_job_of_the_name(run: Run, api: Any, verb: str) -> None:
    """By its id, which the answer shows."""
    api.me = {"user": "ana", "role": "user"}
    (job,) = named(api, ("ana", "RUNNING"))
    assert run(verb, "night").stdout.startswith(job)
    assert [one.url.path for one in api.requests if one.method == "POST"] == [f"/prod/api/v2/jobs/{job}/{verb}"]


def test_a_question_names_the_id(run: Run, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the answer is about one job."""
    api.me = {"user": "ana", "role": "user"}
    monkeypatch.setattr("gpu_recovery_client.cli.confirmation.is_interactive", lambda: True)
    (job,) = named(api, ("ana", "RUNNING"))
    assert f"Cancel {job}? [y/N]" in run("cancel", "night", stdin="n\n").stderr


def test_an_id_is_never_looked_up_as_a_name(run: Run, api: Any) -> None:
    """An id of the usual form costs no request; any other id wins over a name, as of an adopted job."""
    run("status", JOB)
    assert len(api.requests) == 1
    api.jobs[0] |= {"job_id": "night"}
    api.jobs[1] |= {"name": "night"}
    assert json.loads(run("status", "night", "--json").stdout)["job_id"] == "night"


def test_a_text_that_is_neither_is_refused_by_the_api(run: Run, api: Any) -> None:
    """With the error of an unknown id. A text that no job can have as its name is not looked up."""
    assert "there is no nope" in run("status", "nope").stderr
    api.requests.clear()
    assert run("status", "a b").exit_code == 1
    assert len(api.requests) == 1


def test_an_older_api_that_ignores_names_never_offers_another_job(run: Run, api: Any) -> None:
    """It answers with every job."""
    jobs = [{"job_id": JOB, "status": "RUNNING"}]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/jobs"):
            return httpx.Response(200, json={"jobs": jobs, "next_cursor": None})
        if request.url.path.endswith("/me"):
            return httpx.Response(200, json=api.me)
        return httpx.Response(404, json={"title": "No such job", "detail": "there is no night"})

    api.answer = answer
    assert "there is no night" in run("cancel", "night").stderr
    assert [one.url.path for one in api.requests if one.method == "POST"] == ["/prod/api/v2/jobs/night/cancel"]


def test_submit_sends_the_name(run: Run, api: Any) -> None:
    """As the field of the document."""
    assert run("submit", "--name", "night", *OPTIONS).exit_code == 0
    assert json.loads(api.requests[-1].content)["name"] == "night"


def test_the_name_is_shown_by_list_and_status(run: Run, api: Any) -> None:
    """A list without names has no such column; a filter by name is the API's."""
    assert "NAME" not in run("list").stdout
    named(api, ("ana", "RUNNING"))
    header, row = run("list", "--name", "night").stdout.splitlines()[:2]
    assert header.split()[:2] == ["JOB", "NAME"] and row.split()[1] == "night"
    assert api.requests[-1].url.params["name"] == "night"
    assert run("status", "night").stdout.splitlines()[1].split() == ["name", "night"]


def test_a_job_of_a_list_of_instances_may_be_named(run: Run, api: Any) -> None:
    """The API filters by the id."""
    (job,) = named(api, ("ana", "RUNNING"))
    run("instances", "--job", "night")
    assert api.requests[-1].url.params["job"] == job
