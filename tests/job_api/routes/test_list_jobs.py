"""Jobs read one by one and page by page, and ids that no job has."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, A, failure, job, later, spec
from tests.lambdas.api_gateway import Api, encoded, forged, refused, signed

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_a_job_is_read_with_its_failure(api: Api) -> None:
    """And times as ISO texts."""
    api.functions.store.create_job(job(status=JobStatus.FAILED, failure=failure(1), deadline_at=later(0.5)), "")
    body = api.get(f"/jobs/{JOB}").body
    assert body["failure"] == {
        "rank": 1,
        "instance_id": A,
        "at": "2026-11-21T09:00:00.000Z",
        "kind": "FAILED",
        "exit_code": 1,
        "sentence": "exited with code 1",
    }
    assert body["deadline_at"] == "2026-11-21T09:00:00.500Z"


def test_what_is_not_there_is_404(api: Api) -> None:
    """A problem document that names it."""
    assert JOB in refused(api.get(f"/jobs/{JOB}"), 404)
    assert JOB in refused(api.post(f"/jobs/{JOB}/cancel"), 404)
    assert A in refused(api.get(f"/instances/{A}"), 404)
    assert A in refused(api.post(f"/instances/{A}/release"), 404)


def test_jobs_are_listed_page_by_page(api: Api) -> None:
    """Each once, without history, until the cursor ends."""
    for n in range(5):
        api.functions.store.create_job(job(f"job-{n}", queued_at=later(n)), "")
    seen, cursor = [], {}
    while True:
        body = api.get("/jobs", limit="2", **cursor).body
        seen += [one["job_id"] for one in body["jobs"]]
        assert all("history" not in one for one in body["jobs"])
        if body["next_cursor"] is None:
            break
        cursor = {"cursor": body["next_cursor"]}
    assert seen == [f"job-{n}" for n in range(5)]


@pytest.mark.parametrize("query", [{"user": "ana"}, {"group": "h100"}, {"since": "2026-11-21T09:00:01Z"}], ids=str)
def test_a_page_that_a_filter_made_shorter_is_not_filled_beyond_its_limit(api: Api, query: dict[str, str]) -> None:
    """The filter drops the first job, so that the first page is filled from two pages of the store."""
    for n in range(6):
        asked = spec(user="ana", group="h100") if n else spec(user="bob", group="a100")
        api.functions.store.create_job(job(f"job-{n}", queued_at=later(n), spec=asked), "")
    pages, cursor = [], {}
    while not pages or cursor:
        body = api.get("/jobs", limit="2", **query, **cursor).body
        pages.append([one["job_id"] for one in body["jobs"]])
        cursor = {"cursor": body["next_cursor"]} if body["next_cursor"] is not None else {}
    assert max(map(len, pages)) <= 2
    assert list(chain(*pages)) == [f"job-{n}" for n in range(1, 6)]


def test_jobs_are_filtered_by_status(api: Api) -> None:
    """Only those in it."""
    api.functions.store.create_job(job("job-q"), "")
    api.functions.store.create_job(job("job-f", status=JobStatus.FAILED), "")
    assert [one["job_id"] for one in api.get("/jobs", status="FAILED").body["jobs"]] == ["job-f"]


def test_a_job_is_not_listed_in_a_status_that_it_has_left(api: Api) -> None:
    """Another function changes the job between the query of the index and the read of the record."""
    for n in range(2):
        api.functions.store.create_job(job(f"job-{n}", queued_at=later(n)), "")

    def start(asked: dict[str, Any]) -> None:
        found = api.functions.job("job-0")
        if found.status is JobStatus.QUEUED:
            api.functions.store.save_job(replace(found, status=JobStatus.RUNNING))

    api.functions.aws.dynamodb["BatchGetItem"] = start
    assert [one["job_id"] for one in api.get("/jobs", status="QUEUED").body["jobs"]] == ["job-1"]
    assert [one["job_id"] for one in api.get("/jobs", status="RUNNING").body["jobs"]] == ["job-0"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "BUSY"),
        ("status", "queud"),
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "-1"),
        ("limit", "many"),
        ("limit", ""),
        ("limit", "9" * 5000),
        ("cursor", "rubbish"),
        ("cursor", "bm8="),
        ("cursor", forged("QUEUED", "0001-01-01T00:00:00+14:00", JOB)),
        ("cursor", forged("QUEUED", "2026-11-21T09:00:00Z", "x" * 2_049)),
        ("cursor", encoded("[" * 20_000)),
        ("cursor", signed(encoded("[" * 20_000))),
        ("cursor", signed("rubbish")),
        ("cursor", forged("QUEUED", "2026-11-21T09:00:00Z", "\ud800")),
    ],
)
def test_a_listing_that_is_asked_for_wrongly_is_refused(api: Api, field: str, value: str) -> None:
    """400, with the parameter."""
    refused(api.get("/jobs", **{field: value}), 400, field)


def test_a_cursor_of_another_listing_is_refused(api: Api) -> None:
    """It would begin at a place that this listing does not have."""
    cursor = forged("FAILED", "2026-11-21T09:00:00Z", JOB)
    refused(api.get("/jobs", status="QUEUED", cursor=cursor), 400, "cursor")
    assert api.get("/jobs", status="FAILED", cursor=cursor).body["jobs"] == []


def test_a_job_id_with_a_slash_is_read_and_canceled(api: Api) -> None:
    """People name the jobs that are adopted. A slash travels as %2F, which API Gateway decodes."""
    api.functions.store.create_job(job("team/run-17"), "")
    for what in ("", "/explain", "/timeline"):
        assert api.get(f"/jobs/team%2Frun-17{what}").body["job_id"] == "team/run-17"
    assert api.post("/jobs/team%2Frun-17/cancel").body["status"] == "CANCELED"


def test_a_wrong_path_below_a_job_is_no_missing_job(api: Api) -> None:
    """The path could also be the id of an adopted job, so the answer names both."""
    api.functions.store.create_job(job(JOB), "")
    for path in (f"/jobs/{JOB}/nonsense", f"/jobs/{JOB}/logs/9"):
        answer = api.get(path)
        assert f"/api/v2{path}" in refused(answer, 404)
        assert answer.body["code"] == "no_such_path"
    answer = api.get("/jobs/team%2Frun-18/explain")
    assert (answer.status, answer.body["code"], answer.body["job_id"]) == (404, "no_such_job", "team/run-18")


@pytest.mark.parametrize("name", ["x" * 256, "%ff", "%ED%A0%80", "é", "%00" * 200, "x" * 5_000])
def test_an_id_that_nothing_can_have_is_not_found(api: Api, name: str) -> None:
    """Without a word to a table that could not take it."""
    for method, path in (("GET", f"/api/v2/jobs/{name}"), ("POST", f"/api/v2/instances/{name}/release")):
        refused(api.call(method, path), 404)
        assert len(api.functions.aws.calls) <= 1  # the token is read once
