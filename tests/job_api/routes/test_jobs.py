"""Reading jobs through the HTTP API: filters and cursors, attempts, logs; and what people order about them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import LIVE, PLACED, JobStatus, StopPurpose
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.routes.job_lists import PAGES_READ_MAX

from tests.aws.ecs_events import rank_event
from tests.aws.issuer_keys import CURSOR_KEY
from tests.aws.records import JOB, NOW, A, job, later, launched, plan, spec
from tests.lambdas.api_gateway import TOKEN, Api, encoded, refused, user_token
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
LOGS = f"/jobs/{JOB}/logs"


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def ids(body: Any) -> list[str]:
    """The ids of the jobs of a page."""
    return [one["job_id"] for one in body["jobs"]]


# -- listings ----------------------------------------------------------------------------------------------------------


def test_jobs_are_filtered_by_user_group_and_time(api: Api) -> None:
    """Each alone, and all together."""
    for number, (user, group) in enumerate([("ana", ""), ("bob", ""), ("ana", "h100"), ("bob", "h100")]):
        api.functions.store.create_job(
            job(f"job-{number}", spec=spec(user=user, group=group), queued_at=later(number)), ""
        )
    assert ids(api.get("/jobs", user="ana").body) == ["job-0", "job-2"]
    assert ids(api.get("/jobs", group="").body) == ["job-0", "job-1"]
    assert ids(api.get("/jobs", since="2026-11-21T09:00:02Z").body) == ["job-2", "job-3"]
    assert ids(api.get("/jobs", user="bob", group="h100", since="2026-11-21T10:00:01+01:00").body) == ["job-3"]
    assert ids(api.get("/jobs", user="eve").body) == []


def test_a_page_is_filled_with_what_was_asked_for(api: Api) -> None:
    """Others between them cost the reader nothing, and no job is missed or seen twice."""
    for number in range(30):
        user = "ana" if number % 5 == 0 else "bob"
        api.functions.store.create_job(job(f"job-{number:02}", spec=spec(user=user), queued_at=later(number)), "")
    seen: list[str] = []
    query = {"user": "ana", "limit": "2"}
    while True:
        page = api.get("/jobs", **query).body
        seen += ids(page)
        assert len(page["jobs"]) <= 2
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == [f"job-{number:02}" for number in range(0, 30, 5)]


def test_a_rare_job_in_a_long_list_does_not_keep_a_request_for_ever(api: Api) -> None:
    """After so many pages it hands out where to go on, empty-handed."""
    for number in range(PAGES_READ_MAX + 2):
        api.functions.store.create_job(job(f"job-{number:02}", queued_at=later(number)), "")
    page = api.get("/jobs", user="eve", limit="1").body
    assert page["jobs"] == [] and page["next_cursor"] is not None
    assert api.functions.aws.operations()["Query"] <= 3 * PAGES_READ_MAX + 20


@pytest.mark.parametrize("since", ["", "yesterday", "2026-13-01T00:00:00Z", "9" * 40, "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_is_refused(api: Api, since: str) -> None:
    """400, with the parameter."""
    refused(api.get("/jobs", since=since), 400, "since")


def test_a_cursor_leads_only_where_a_list_has_led(api: Api) -> None:
    """It is signed: one that was made or changed by hand is refused, and so is one of another list."""
    for number in range(3):
        api.functions.store.create_job(job(f"job-{number}", queued_at=later(number)), "")
    cursor = api.get("/jobs", limit="1").body["next_cursor"]
    assert ids(api.get("/jobs", limit="1", cursor=cursor).body) == ["job-1"]
    place = verified_position(CURSOR_KEY, "jobs", cursor)
    for bad in (
        encoded(place),
        signed_cursor(b"another key", "jobs", place),
        signed_cursor(CURSOR_KEY, "logs", place),
        cursor[4:],
        f"{cursor}AAAA",
        "",
    ):
        refused(api.get("/jobs", cursor=bad), 400, "cursor")


def test_a_viewer_learns_nothing_about_the_operator_token_from_a_cursor(api: Api) -> None:
    """No cursor depends on that token: its bytes are the same under another one. So no guess can be tested with it."""
    for number in range(3):
        api.functions.store.create_job(job(f"job-{number}", queued_at=later(number)), "")
    viewer, operator = user_token(api, "ana", "viewer"), TOKEN

    def cursors() -> dict[str, str]:
        """The cursor of every kind of list, as the viewer receives it."""
        paths = ("/jobs", "/queue")
        return {path: api.call("GET", f"/api/v2{path}", token=viewer, limit="1").body["next_cursor"] for path in paths}

    before = cursors()
    api.functions.aws.answers["GetSecretValue"] = lambda asked: {
        "SecretString": "hunter2" if asked["SecretId"] == "operator-token" else f"secret of {asked['SecretId']}"
    }
    import_module("gpu_recovery.aws.secret_values")._token.cache_clear()
    assert api.call("GET", "/api/v2/jobs", token="Bearer hunter2").status == 200
    refused(api.call("GET", "/api/v2/jobs", token=f"Bearer {operator}"), 401)
    assert cursors() == before and all(before.values())
    assert ids(api.call("GET", "/api/v2/jobs", token=viewer, limit="1", cursor=before["/jobs"]).body) == ["job-1"]


# -- attempts ----------------------------------------------------------------------------------------------------------


def entry(after: JobStatus, attempt: int, at: float, before: str = "") -> HistoryEntry:
    """One decision."""
    return HistoryEntry(later(at), before, after, "E", attempt, "because")


TWICE = (
    entry(JobStatus.QUEUED, 0, 0),
    entry(JobStatus.SUBMITTING, 1, 1, JobStatus.QUEUED),
    entry(JobStatus.RUNNING, 1, 5, JobStatus.SUBMITTED),
    entry(JobStatus.STOPPING, 1, 50, JobStatus.RUNNING),
    entry(JobStatus.DIAGNOSING, 1, 60, JobStatus.STOPPING),
    entry(JobStatus.RECOVERING, 1, 90, JobStatus.DIAGNOSING),
    entry(JobStatus.SUBMITTING, 2, 100, JobStatus.RECOVERING),
    entry(JobStatus.RUNNING, 2, 110, JobStatus.SUBMITTED),
)


def with_attempts(api: Api, **changes: Any) -> None:
    """A job whose first attempt crashed and whose second runs."""
    store = api.functions.store
    fields = {"status": JobStatus.RUNNING, "attempt": 2, "attempts_counted": 1, "history": TWICE} | changes
    store.create_job(job(instances=plan().instances, **fields), "")
    crash = Ending(EndingKind.CRASHED, 134, "was ended by signal 6 (exit code 134)")
    for number in (1, 2):
        store.begin_attempt(plan(attempt=number))
    store.add_stopped(JOB, 1, 1, RankFailure(1, A, later(49), crash))


def test_a_job_shows_its_attempts(api: Api) -> None:
    """When each began and ended, how, where, and whether it counts."""
    with_attempts(api)
    first, second = api.get(f"/jobs/{JOB}").body["attempts"]
    assert first == {
        "attempt": 1,
        "attempt_id": f"{JOB}--a01",
        "status": "FAILED",
        "started_at": "2026-11-21T09:00:05.000Z",
        "ended_at": "2026-11-21T09:01:00.000Z",
        "exit_code": 134,
        "failure_kind": "RUNTIME_ERROR",
        "message": "was ended by signal 6 (exit code 134)",
        "counted": True,
        "instances": list(plan().instances),
    }
    assert (second["status"], second["ended_at"], second["exit_code"], second["counted"]) == (
        "RUNNING",
        None,
        None,
        None,
    )


def test_the_last_attempt_of_a_job_that_succeeded_has_the_exit_code_0(api: Api) -> None:
    """Every rank exited so."""
    ended = (*TWICE, entry(JobStatus.SUCCEEDED, 2, 200, JobStatus.RUNNING))
    with_attempts(api, status=JobStatus.SUCCEEDED, history=ended)
    second = api.get(f"/jobs/{JOB}").body["attempts"][1]
    assert (second["status"], second["exit_code"], second["failure_kind"]) == ("SUCCEEDED", 0, None)
    assert second["ended_at"] == "2026-11-21T09:03:20.000Z"


def test_an_attempt_that_was_stopped_has_not_failed(api: Api) -> None:
    """A person's cancellation is nobody's error."""
    with_attempts(api, attempt=1, status=JobStatus.CANCELED, history=TWICE[:3])
    api.functions.store.jobs.update(f"{JOB}#a01", "REMOVE failure", "attribute_exists(job_id_rank)", {}, {})
    (only,) = api.get(f"/jobs/{JOB}").body["attempts"]
    assert (only["status"], only["failure_kind"], only["message"]) == ("STOPPED", None, None)


def test_whether_an_attempt_counted_is_not_guessed(api: Api) -> None:
    """The record counts them by cause, not one by one: where both kinds were, None says so."""
    with_attempts(api, attempt=3, attempts_counted=1, attempts_uncounted={"INTERRUPTED": 1})
    counted = [one["counted"] for one in api.get(f"/jobs/{JOB}").body["attempts"]]
    assert counted == [None, None, None]


def test_a_job_without_attempts_has_none_and_reads_none(api: Api) -> None:
    """One read."""
    api.functions.store.create_job(job(), "")
    assert api.get(f"/jobs/{JOB}").body["attempts"] == []
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 1}


def test_attempts_are_read_together(api: Api) -> None:
    """Two calls whatever their number, and the latest twenty of many."""
    with_attempts(api, attempt=35)
    numbers = [one["attempt"] for one in api.get(f"/jobs/{JOB}").body["attempts"]]
    assert numbers == list(range(16, 36))
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 1, "BatchGetItem": 1}


def test_an_attempt_on_ray_is_named_by_its_submission(api: Api) -> None:
    """It has no instances of ours."""
    ray = spec(backend=Backend.RAY, entrypoint="python x.py")
    api.functions.store.create_job(job(spec=ray, status=JobStatus.RUNNING, attempt=1), "")
    (only,) = api.get(f"/jobs/{JOB}").body["attempts"]
    assert only["submission_id"] == f"{JOB}--a01" and "instances" not in only


# -- logs --------------------------------------------------------------------------------------------------------------

OPTIONS = {"awslogs-group": "/ecs/gpu-training", "awslogs-stream-prefix": "train", "awslogs-region": "us-east-1"}


def logging(api: Api, driver: str = "awslogs", **options: str) -> None:
    """How the container of the task definition logs."""
    container = {"name": "main", "logConfiguration": {"logDriver": driver, "options": OPTIONS | options}}
    definition = {"networkMode": "host", "containerDefinitions": [{"name": "side"}, container]}
    api.functions.aws.answers["DescribeTaskDefinition"] = lambda asked: {"taskDefinition": definition}


def with_log(api: Api, *lines: str, token: str = "f/1", **changes: Any) -> None:
    """A job in its second attempt whose rank 1 wrote `lines`."""
    logging(api)
    store = api.functions.store
    fields = {"status": JobStatus.RUNNING, "attempt": 2} | changes
    store.create_job(job(instances=plan().instances, **fields), "")
    for number in (1, 2):
        store.begin_attempt(plan(attempt=number))
        store.record_tasks(replace(plan(attempt=number), task_ids=(f"task-{number}-0", f"task-{number}-1")), (0, 1))
    at = int(NOW.timestamp() * 1000)
    events = [{"timestamp": at + number, "message": line, "ingestionTime": at} for number, line in enumerate(lines)]
    api.functions.aws.answers["GetLogEvents"] = lambda asked: {
        "events": events,
        "nextForwardToken": token,
        "nextBackwardToken": "b/1",
    }


def test_the_newest_lines_of_a_rank_are_read(api: Api) -> None:
    """From the stream that the awslogs driver named after prefix, container and task; rank 0 of the latest attempt."""
    with_log(api, "step 1", "step 2")
    body = api.get(LOGS, tail="2").body
    assert (body["job_id"], body["attempt"], body["rank"]) == (JOB, 2, 0)
    assert body["lines"] == [
        {"at": "2026-11-21T09:00:00.000Z", "text": "step 1"},
        {"at": "2026-11-21T09:00:00.001Z", "text": "step 2"},
    ]
    (asked,) = api.functions.aws.asked("GetLogEvents")
    assert asked == {
        "logGroupName": "/ecs/gpu-training",
        "logStreamName": "train/main/task-2-0",
        "limit": 2,
        "startFromHead": False,
    }
    api.get(LOGS, rank="1", attempt="1")
    assert api.functions.aws.asked("GetLogEvents")[0]["logStreamName"] == "train/main/task-1-1"


def test_a_log_goes_on_from_its_cursor(api: Api) -> None:
    """As long as the rank may write more; the place is CloudWatch's own, and signed for this rank."""
    with_log(api, "step 1")
    cursor = api.get(LOGS).body["next_cursor"]
    assert api.get(LOGS, cursor=cursor).body["next_cursor"] is not None
    (asked,) = api.functions.aws.asked("GetLogEvents")
    assert (asked["nextToken"], asked["startFromHead"]) == ("f/1", True)
    refused(api.get(LOGS, cursor=cursor, rank="1"), 400, "cursor")


def test_a_log_that_has_ended_ends(api: Api) -> None:
    """CloudWatch gives the same place again at the end; whoever follows an attempt that is over need not go on."""
    with_log(api, "bye", status=JobStatus.SUCCEEDED)
    cursor = api.get(LOGS).body["next_cursor"]
    assert cursor is not None
    assert api.get(LOGS, cursor=cursor).body["next_cursor"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"driver": "json-file"}, "awslogs"),
        ({"awslogs-stream-prefix": ""}, "prefix"),
        ({"awslogs-region": "eu-west-1"}, "eu-west-1"),
    ],
)
def test_a_log_that_is_kept_elsewhere_is_told(api: Api, change: dict[str, str], said: str) -> None:
    """404 with a sentence."""
    with_log(api, "x")
    logging(api, **change)
    assert said in refused(api.get(LOGS), 404)
    assert api.functions.aws.asked("GetLogEvents") == []


@pytest.mark.parametrize(
    ("code", "said"),
    [("ResourceNotFoundException", "nothing is kept"), ("AccessDeniedException", "training_log_groups")],
)
def test_a_log_that_cannot_be_read_says_what_to_do(api: Api, code: str, said: str) -> None:
    """404 with a sentence; any other error of CloudWatch is an error of the request."""
    with_log(api)

    def deny(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": code}}, "GetLogEvents")

    api.functions.aws.answers["GetLogEvents"] = deny
    assert said in refused(api.get(LOGS), 404)
    code = "ServiceUnavailableException"
    refused(api.get(LOGS), 500)


def test_a_rank_or_attempt_that_never_was_has_no_log(api: Api) -> None:
    """Nor has a job that has not run, or runs on Ray."""
    with_log(api, "x")
    assert "rank 2" in refused(api.get(LOGS, rank="2"), 404)
    assert "2 attempt" in refused(api.get(LOGS, attempt="3"), 404)
    api.functions.store.create_job(job("job-q"), "")
    assert "0 attempt" in refused(api.get("/jobs/job-q/logs"), 404)
    api.functions.store.create_job(job("job-r", spec=spec(backend=Backend.RAY), attempt=1), "")
    assert "Ray" in refused(api.get("/jobs/job-r/logs"), 404)


@pytest.mark.parametrize("query", [{"rank": "-1"}, {"rank": "x"}, {"attempt": "0"}, {"tail": "0"}, {"tail": "10001"}])
def test_a_log_that_is_asked_for_wrongly_is_refused(api: Api, query: dict[str, str]) -> None:
    """400, with the parameter."""
    with_log(api, "x")
    refused(api.get(LOGS, **query), 400, next(iter(query)))


# -- orders ------------------------------------------------------------------------------------------------------------


def runs(api: Api) -> None:
    """A job whose two ranks run."""
    store = api.functions.store
    fields = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True, "instances": plan().instances}
    store.create_job(job(running_at=NOW, **fields), "")
    store.begin_attempt(launched())
    api.functions.aws.tasks[attempt_id(JOB, 1)] = list(launched().task_ids)


def test_a_job_is_suspended_and_resumed(api: Api) -> None:
    """202 each time, with who wanted it and why; 200 where it is so already."""
    api.functions.store.create_job(job(), "")
    token = user_token(api, "ana")
    first = api.post(f"/jobs/{JOB}/suspend", {"because": "night"}, token=token)
    assert (first.status, first.body["status"], first.body["held"]) == (202, "SUSPENDED", True)
    assert "ana" in first.body["reason"] and "night" in first.body["reason"]
    assert api.post(f"/jobs/{JOB}/suspend").status == 200
    second = api.post(f"/jobs/{JOB}/resume", token=token)
    assert (second.status, second.body["held"]) == (202, False)
    assert api.post(f"/jobs/{JOB}/resume").status == 200


def test_a_running_job_is_on_its_way_out_first(api: Api) -> None:
    """Rank 0 gets the time that the specification gives it."""
    runs(api)
    answer = api.post(f"/jobs/{JOB}/suspend")
    assert (answer.status, answer.body["status"], answer.body["held"]) == (202, "SUSPENDING", True)


@pytest.mark.parametrize("verb", ["suspend", "resume", "cancel"])
@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED])
def test_what_has_ended_takes_no_order(api: Api, verb: str, status: JobStatus) -> None:
    """409, and the job stays as it is."""
    api.functions.store.create_job(job(status=status), "")
    before = api.functions.job()
    answer = api.post(f"/jobs/{JOB}/{verb}")
    assert status.value in refused(answer, 409)
    assert answer.body["job_id"] == JOB and api.functions.job() == before


def in_status(api: Api, status: JobStatus) -> None:
    """The job in this status, both of its ranks alive where a status has any."""
    gang = launched()
    lives = {"attempt": 1, "launched": True, "instances": gang.instances, "quota_nodes": 2}
    more = lives if status in (*PLACED, JobStatus.SUSPENDED) else {}
    if status is JobStatus.STOPPING:
        more = {**more, "stop_purpose": StopPurpose.DIAGNOSE}
    api.functions.store.create_job(job(status=status, **more), "")
    if status in LIVE:
        api.functions.store.begin_attempt(gang)
        api.functions.aws.tasks[attempt_id(JOB, 1)] = list(launched().task_ids)


@pytest.mark.parametrize("status", list(JobStatus))
def test_a_job_is_canceled_in_every_status(api: Api, status: JobStatus) -> None:
    """What lives is stopped first, and is CANCELED when ECS says that its ranks have ended; the rest is at once."""
    in_status(api, status)
    answer = api.post(f"/jobs/{JOB}/cancel")
    if status in (JobStatus.SUCCEEDED, JobStatus.FAILED):
        assert status.value in refused(answer, 409)
        return
    assert answer.status == (200 if status is JobStatus.CANCELED else 202)
    assert answer.body["status"] == ("STOPPING" if status in LIVE else "CANCELED")
    if status in LIVE:
        api.functions.wake()
        stopped = {asked["task"] for asked in api.functions.aws.asked("StopTask")}
        assert len(stopped) == (2 if status is not JobStatus.STOPPING else 0)  # those of that one are stopped already
        for rank in range(2):
            ended = rank_event(JOB, 1, rank, "STOPPED", exit_code=143, stop_code="UserInitiated")
            api.functions.call("ecs_task_handler", ended)
    after = api.functions.job()
    assert (after.status, after.quota_nodes) == (JobStatus.CANCELED, 0)
    assert api.post(f"/jobs/{JOB}/cancel").status == 200


def test_a_cancellation_is_accepted_once(api: Api) -> None:
    """202, then 200: it is canceled already."""
    runs(api)
    assert api.post(f"/jobs/{JOB}/cancel").status == 202
    assert api.post(f"/jobs/{JOB}/cancel").status == 200


@pytest.mark.parametrize("verb", ["suspend", "resume", "cancel"])
def test_an_order_about_nothing_is_404(api: Api, verb: str) -> None:
    """With the id."""
    assert refused(api.post(f"/jobs/{JOB}/{verb}"), 404)


def test_times_are_utc_to_the_millisecond(api: Api) -> None:
    """RFC 3339 with a Z, everywhere."""
    api.functions.store.create_job(job(), "")
    text = api.get(f"/jobs/{JOB}").body["queued_at"]
    assert text == "2026-11-21T09:00:00.000Z" and datetime.fromisoformat(text).astimezone(UTC) == NOW
