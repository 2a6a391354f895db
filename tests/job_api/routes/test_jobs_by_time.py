"""The list of jobs in the order of their submission: what the console and people look at."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from gpu_recovery.aws.jobs_by_time import ENTRIES_AT_ONCE
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.status import LISTED_STATUSES
from gpu_recovery.job_api.routes.job_lists import STATES
from gpu_recovery.wire.jobs import ROW_FIELDS

from tests.aws.records import JOB, job, later, spec
from tests.lambdas.api_gateway import Api, refused, signed
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def ids(api: Api, **query: str) -> list[list[str]]:
    """The ids of every page of a listing."""
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while not pages or cursor:
        body = api.get("/jobs", **query, **cursor).body
        pages.append([one["job_id"] for one in body["jobs"]])
        cursor = {"cursor": body["next_cursor"]} if body["next_cursor"] is not None else {}
    return pages


def with_jobs(api: Api, *statuses: JobStatus) -> None:
    """A job of each status, each queued a second after the one before."""
    for n, status in enumerate(statuses):
        api.functions.store.create_job(job(f"job-{n}", status=status, queued_at=later(n)), "")


def test_the_newest_jobs_come_first_whatever_their_status(api: Api) -> None:
    """An ended job of today is before the running job of yesterday, page by page."""
    with_jobs(api, JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.SUCCEEDED, JobStatus.QUEUED, JobStatus.FAILED)
    assert list(chain(*ids(api, order="newest", limit="2"))) == ["job-4", "job-3", "job-2", "job-1", "job-0"]
    assert list(chain(*ids(api, order="oldest", limit="2"))) == ["job-0", "job-1", "job-2", "job-3", "job-4"]
    assert ids(api, order="newest", status="SUCCEEDED") == [["job-2", "job-1"]]
    assert ids(api) == [["job-0", "job-3", "job-4", "job-1", "job-2"]]  # the first release's order


def test_a_state_stands_for_its_statuses(api: Api) -> None:
    """Each status has one state; several statuses are named with commas."""
    with_jobs(api, *LISTED_STATUSES)
    shown = {state: set(chain(*ids(api, state=state))) for state in STATES}
    assert set.union(*shown.values()) == {f"job-{n}" for n in range(len(LISTED_STATUSES))}
    assert sum(map(len, shown.values())) == len(LISTED_STATUSES)
    assert "job-0" in shown["running"]
    assert {api.get(f"/jobs/{one}").body["status"] for one in shown["ended"]} == {"SUCCEEDED", "FAILED", "CANCELED"}
    (several,) = ids(api, status="QUEUED,RUNNING")
    assert [api.get(f"/jobs/{one}").body["status"] for one in several] == ["QUEUED", "RUNNING"]


def test_jobs_are_found_by_the_beginning_of_their_id(api: Api) -> None:
    """The newest first."""
    for n, name in enumerate(("sft-1", "ppo-1", "sft-2")):
        api.functions.store.create_job(job(name, queued_at=later(n)), "")
    assert ids(api, q="sft-") == [["sft-2", "sft-1"]]


def test_jobs_are_found_by_their_name_in_every_order(api: Api) -> None:
    """A job without a name has none, and a name that no job can have is refused."""
    for n, name in enumerate(("night", "", "night", "nightly")):
        own = spec(name=name)
        api.functions.store.create_job(job(f"job-{n}", status=JobStatus.QUEUED, queued_at=later(n), spec=own), "")
    assert ids(api, name="night", order="newest") == [["job-2", "job-0"]]
    assert ids(api, name="night") == [["job-0", "job-2"]]
    assert [api.get(f"/jobs/job-{n}").body["name"] for n in range(2)] == ["night", None]
    refused(api.get("/jobs", name="a b"), 400, "name")


@pytest.mark.parametrize(
    ("path", "small"), [("/jobs", "queued,Lost"), ("/instances", "available"), ("/instances", "Available,quarantined")]
)
def test_a_status_may_be_written_in_any_case(api: Api, path: str, small: str) -> None:
    """A client that writes it in small letters means the same status."""
    with_jobs(api, JobStatus.QUEUED)
    answer = api.get(path, status=small)
    assert (answer.status, answer.body) == (200, api.get(path, status=small.upper()).body)


def test_a_row_has_what_a_table_shows(api: Api) -> None:
    """With the values of the whole summary."""
    api.functions.store.create_job(job(JOB, status=JobStatus.RUNNING, instances=("i-0aaaaaaaaaaaaaaaa",)), "")
    (whole,), (row,) = (api.get("/jobs", order="newest", **more).body["jobs"] for more in ({}, {"fields": "list"}))
    assert row == {name: whole[name] for name in ROW_FIELDS} and "instances" in whole


def test_a_page_reads_a_bounded_part_of_the_list(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rare user is looked for in one part of the index after the other, and only found records are read."""
    monkeypatch.setattr("gpu_recovery.aws.jobs_by_time.ENTRIES_READ_MAX", 4)
    for n in range(10):
        own = spec(user="ana" if n == 0 else "bob")
        api.functions.store.create_job(job(f"job-{n}", queued_at=later(n), spec=own), "")
    assert ids(api, order="newest", user="ana") == [[], [], ["job-0"]]
    api.functions.aws.calls.clear()
    api.get("/jobs", order="newest", user="ana")
    assert "BatchGetItem" not in api.functions.aws.operations()


def test_the_index_is_read_backwards(api: Api) -> None:
    """The newest page of a status costs one call, whatever came before."""
    with_jobs(api, *[JobStatus.SUCCEEDED] * 5)
    asked: list[Any] = []
    api.functions.aws.dynamodb["Query"] = asked.append
    assert [one["job_id"] for one in api.get("/jobs", order="newest", status="SUCCEEDED", limit="1").body["jobs"]] == [
        "job-4"
    ]
    (query,) = asked
    assert query["ScanIndexForward"] is False and query["Limit"] == ENTRIES_AT_ONCE


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"order": "sideways"}, "order"),
        ({"order": "status", "state": "waiting"}, "order"),
        ({"state": "asleep"}, "state"),
        ({"state": "waiting", "status": "QUEUED"}, "state"),
        ({"status": "QUEUED,BUSY"}, "status"),
        ({"status": ""}, "status"),
        ({"fields": "some"}, "fields"),
        ({"q": "x" * 256}, "q"),
        ({"order": "newest", "cursor": "rubbish"}, "cursor"),
        ({"order": "newest", "cursor": signed("[]")}, "cursor"),
    ],
    ids=str,
)
def test_a_listing_that_is_asked_for_wrongly_is_refused(api: Api, query: dict[str, str], field: str) -> None:
    """400, with the parameter."""
    refused(api.get("/jobs", **query), 400, field)


def test_a_cursor_belongs_to_its_order(api: Api) -> None:
    """The cursor of the newest jobs does not continue the oldest."""
    with_jobs(api, JobStatus.QUEUED, JobStatus.QUEUED)
    cursor = api.get("/jobs", order="newest", limit="1").body["next_cursor"]
    refused(api.get("/jobs", order="oldest", cursor=cursor), 400, "cursor")
    refused(api.get("/jobs", cursor=cursor), 400, "cursor")


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("limit", ["2", "3", "50"])
def test_a_job_that_starts_while_the_list_is_read_is_in_the_list(api: Api, order: str, limit: str) -> None:
    """It leaves SUBMITTED before those entries are read, for RUNNING, whose entries have been read."""
    with_jobs(api, JobStatus.QUEUED, JobStatus.SUBMITTED, JobStatus.FAILED, JobStatus.CANCELED)

    def start(asked: dict[str, Any]) -> None:
        moving = api.functions.job("job-1")
        if asked["ExpressionAttributeValues"][":s"] == {"S": "SUBMITTED"} and moving.status is JobStatus.SUBMITTED:
            api.functions.store.save_job(replace(moving, status=JobStatus.RUNNING))

    api.functions.aws.dynamodb["Query"] = start
    found = list(chain(*ids(api, order=order, limit=limit)))
    assert found == sorted((f"job-{n}" for n in range(4)), reverse=order == "newest")
    assert api.functions.job("job-1").status is JobStatus.RUNNING


def test_a_list_of_ended_jobs_or_of_one_status_is_read_once(api: Api) -> None:
    """No job moves between these statuses, so a second read would find nothing more."""
    with_jobs(api, JobStatus.FAILED, JobStatus.SUCCEEDED)
    assert ids(api, state="ended") == [["job-1", "job-0"]]
    assert api.functions.aws.operations("dynamodb")["Query"] == len(STATES["ended"])
    assert ids(api, status="FAILED", order="newest") == [["job-0"]]
    assert api.functions.aws.operations("dynamodb")["Query"] == 1
