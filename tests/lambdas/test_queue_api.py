"""The queue through the HTTP API: dry runs, explanations, the line, quotas."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.machine import HistoryEntry
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, parse_limits
from gpu_recovery.core.queue.snapshot import Snapshot

from tests.aws.records import JOB, NOW, OTHER_JOB, A, instance, job, later
from tests.lambdas.conftest import Functions
from tests.lambdas.placing import PlainQueue, host, install, running, waiting
from tests.lambdas.test_job_api import ASKED, Api, refused, user_token

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


@pytest.fixture
def queue(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> PlainQueue:
    """The queue that the API sees."""
    return install(monkeypatch)


# -- dry run -----------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_where_a_job_would_start(api: Api, queue: PlainQueue) -> None:
    """And keeps nothing: no write, no message."""
    queue.snapshot = Snapshot((), (), (host("h-1"), host("h-2")))
    answer = api.post("/jobs", ASKED, dry_run="1")
    assert answer.status == 200
    assert answer.body == {
        "would_start": True, "instances": ["h-1", "h-2"], "short_of": None, "position": None, "blockers": [],
        "sentence": "would start at once on h-1, h-2", "earliest_at": None, "would_suspend": [],
    }  # fmt: skip
    operations = api.functions.aws.operations()
    assert not {"PutItem", "UpdateItem", "TransactWriteItems", "SendMessage"} & set(operations)


def test_a_dry_run_says_why_a_job_would_wait_and_whom_it_would_suspend(api: Api, queue: PlainQueue) -> None:
    """What it is short of, its place in line, whom it waits for and until when, in a sentence and in fields."""
    queue.snapshot = Snapshot((), (running("low-1"), running("high-1", priority=Priority.HIGH)), (host("h-1"),))
    body = api.post("/jobs", ASKED, dry_run="1").body
    assert (body["would_start"], body["short_of"], body["position"]) == (False, "gpus", 1)
    assert (body["blockers"], body["would_suspend"]) == (["low-1", "high-1"], ["low-1"])
    assert body["sentence"] == "needs 2 instance(s), 1 are free" and body["earliest_at"] == "2026-11-21T09:10:00.000Z"


def test_a_dry_run_knows_who_is_before_it(api: Api, queue: PlainQueue) -> None:
    """It joins the line as the last of its priority."""
    ahead = waiting("first", nodes=3, queued_at=later(-10))
    queue.snapshot = Snapshot((ahead,), (), (host("h-1"), host("h-2")))
    body = api.post("/jobs", ASKED, dry_run="1").body
    assert (body["short_of"], body["position"]) == ("turn", 2)
    assert api.post("/jobs", ASKED | {"priority": "HIGH"}, dry_run="1").body["would_start"] is True


@pytest.mark.parametrize(("change", "status"), [({"nnodes": 0}, 422), ({"nnodes": 3}, 422), ({"user": 7}, 422)])
def test_a_dry_run_refuses_what_submitting_refuses(api: Api, queue: PlainQueue, change: Any, status: int) -> None:
    """So that its yes can be trusted; the queue is not even read."""
    api.functions.store.save_instance(instance(A))
    assert api.post("/jobs", ASKED | change, dry_run="1").status == status
    assert queue.read == 0


def test_a_dry_run_is_1_or_0(api: Api, queue: PlainQueue) -> None:
    """Whoever writes `true` must not get a job."""
    refused(api.post("/jobs", ASKED, dry_run="true"), 400, "dry_run")
    assert "TransactWriteItems" not in api.functions.aws.operations()


# -- explain -----------------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_explained_by_the_next_pass(api: Api, queue: PlainQueue) -> None:
    """What it waits for now, and every decision so far, the oldest first."""
    history = (
        HistoryEntry(NOW, "", JobStatus.QUEUED, "JobSubmitted", 0, "submitted by ana"),
        HistoryEntry(later(5), JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, "ResourcesShort", 0, "short"),
    )
    api.functions.store.create_job(job(status=JobStatus.PENDING_RESOURCES, reason="short", history=history), "")
    queue.snapshot = Snapshot((waiting(JOB),), (), (host("h-1"),))
    body = api.get(f"/jobs/{JOB}/explain").body
    assert (body["job_id"], body["status"], body["reason"]) == (JOB, "PENDING_RESOURCES", "short")
    assert (body["pending"]["short_of"], body["pending"]["position"]) == ("gpus", 1)
    assert [entry["reason"] for entry in body["decisions"]] == ["submitted by ana", "short"]


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.DIAGNOSING])
def test_a_job_that_is_not_in_line_waits_for_nothing_of_the_queue(
    api: Api, queue: PlainQueue, status: JobStatus
) -> None:
    """The queue is not read for it."""
    api.functions.store.create_job(job(status=status), "")
    assert api.get(f"/jobs/{JOB}/explain").body["pending"] is None and queue.read == 0


def test_a_job_that_the_queue_passes_over_says_why_itself(api: Api, queue: PlainQueue) -> None:
    """One that cools down, or is held by a person, is in no snapshot; its own reason is the sentence."""
    api.functions.store.create_job(job(status=JobStatus.SUSPENDED, held=True, reason="suspended by ana"), "")
    pending = api.get(f"/jobs/{JOB}/explain").body["pending"]
    assert (pending["would_start"], pending["sentence"], pending["position"]) == (False, "suspended by ana", None)


def test_an_explanation_of_nothing_is_404(api: Api, queue: PlainQueue) -> None:
    """As everywhere."""
    assert JOB in refused(api.get(f"/jobs/{JOB}/explain"), 404)


# -- the line ----------------------------------------------------------------------------------------------------------


def test_the_queue_shows_the_line_what_runs_and_what_is_used(api: Api, queue: PlainQueue) -> None:
    """Each job in its order with what it is short of; quotas as used and limit; the reservation of the head."""
    api.functions.store.create_job(job(status=JobStatus.PENDING_RESOURCES), "")
    api.functions.store.create_job(job(OTHER_JOB, queued_at=later(1)), "")
    used = {QuotaKey("bob", Priority.LOW, ""): 1, QuotaKey("eve", Priority.LOW, ""): 0}
    limits = parse_limits({"instances": {"ana/NORMAL/": 4, "*/*/*": 9}})
    line = (waiting(OTHER_JOB, queued_at=later(1)), waiting(JOB, asked=Priority.ABOVE_NORMAL))
    queue.snapshot = Snapshot(line, (running("low-1"),), (host("h-1"),), used, limits)
    body = api.get("/queue").body
    assert [(one["job_id"], one["position"], one["short_of"], one["status"]) for one in body["waiting"]] == [
        (JOB, 1, "gpus", "PENDING_RESOURCES"), (OTHER_JOB, 2, "turn", "QUEUED"),
    ]  # fmt: skip
    assert (body["waiting"][0]["priority"], body["waiting"][0]["asked_priority"]) == ("NORMAL", "ABOVE_NORMAL")
    (runs,) = body["running"]
    assert runs == {
        "job_id": "low-1", "user": "bob", "priority": "LOW", "group": "", "nodes": 1, "gpus": 8,
        "since": "2026-11-21T09:00:00.000Z", "ends_at": "2026-11-21T09:10:00.000Z", "can_suspend": True,
    }  # fmt: skip
    assert body["quotas"] == [
        {"user": "ana", "priority": "NORMAL", "group": "", "used": 0, "limit": 4},
        {"user": "bob", "priority": "LOW", "group": "", "used": 1, "limit": 9},
    ]
    assert body["reservations"] == [{"job_id": JOB, "group": "", "hosts": ["h-0"], "at": "2026-11-21T09:10:00.000Z"}]


def test_a_job_about_to_start_has_no_place_in_the_line(api: Api, queue: PlainQueue) -> None:
    """It is shown first, with the instances in its sentence."""
    api.functions.store.create_job(job(), "")
    queue.snapshot = Snapshot((waiting(JOB),), (), (host("h-1"), host("h-2")))
    (one,) = api.get("/queue").body["waiting"]
    assert (one["position"], one["short_of"]) == (None, None) and "h-1" in one["sentence"]


def test_an_empty_queue_is_shown_as_one(api: Api, queue: PlainQueue) -> None:
    """To viewers, too."""
    empty = {"waiting": [], "running": [], "quotas": [], "reservations": [], "unreadable": []}
    assert api.get("/queue").body == empty
    assert api.call("GET", "/api/v2/queue", token=user_token(api, "ana", "viewer")).body == empty


# -- limits ------------------------------------------------------------------------------------------------------------

LIMITS = {"instances": {"ana/HIGH/h100": 4, "*/*/*": 16}, "max_running_jobs": 20, "max_running_jobs_per_user": None}


def put(api: Api, revision: str | None, limits: Any = LIMITS, **more: Any) -> Any:
    """PUT /quotas."""
    headers = {} if revision is None else {"if-match": revision}
    return api.call("PUT", "/api/v2/quotas", {"limits": limits, **more}, headers=headers)


def test_limits_are_written_by_revision(api: Api) -> None:
    """Whoever names the one that was read; it is in the body and in the ETag, quoted or bare."""
    assert api.get("/quotas").body == {"limits": {**LIMITS, "instances": {}, "max_running_jobs": None}, "revision": 0}
    first = put(api, "0")
    assert (first.status, first.body["revision"], first.headers["etag"]) == (200, 1, '"1"')
    assert put(api, '"1"', {"instances": {"*/*/*": 2}}).body["revision"] == 2
    assert api.get("/quotas").body["limits"]["instances"] == {"*/*/*": 2}


def test_limits_that_others_changed_are_not_written_over(api: Api) -> None:
    """412; without a revision 428: two operators never lose each other's change."""
    put(api, "0")
    refused(put(api, "0"), 412, "If-Match")
    refused(put(api, None), 428, "If-Match")
    refused(put(api, "latest"), 400, "If-Match")
    assert api.get("/quotas").body["revision"] == 1


@pytest.mark.parametrize(
    ("limits", "field"),
    [({"instances": {"ana/URGENT/": 1}}, "instances.ana/URGENT/"), ({"instances": {"ana": 1}}, "instances.ana"),
     ({"instances": {"ana/*/*": -1}}, "instances.ana/*/*"), ({"max_running_jobs": 0}, "max_running_jobs"),
     ({"gpus": 4}, "gpus"), ([], "limits"), ({"instances": []}, "instances")],
)  # fmt: skip
def test_limits_that_cannot_be_are_named(api: Api, limits: Any, field: str) -> None:
    """422 with the entry; nothing is stored."""
    refused(put(api, "0", limits), 422, field)
    assert api.get("/quotas").body["revision"] == 0


@pytest.mark.parametrize("body", [{}, {"limits": {}, "who": "me"}])
def test_limits_are_sent_in_their_own_field(api: Api, body: Any) -> None:
    """So that what is read can be sent back."""
    refused(api.call("PUT", "/api/v2/quotas", body, headers={"if-match": "0"}), 422, "body")


def test_what_is_read_can_be_sent_back(api: Api) -> None:
    """Revision and all."""
    put(api, "0")
    found = api.get("/quotas").body
    assert api.call("PUT", "/api/v2/quotas", found, headers={"if-match": "1"}).body["limits"] == found["limits"]
