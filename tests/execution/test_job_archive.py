"""Records of jobs in S3: what was submitted, and each attempt when it has ended, under a prefix that the API names."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.instance_index import SHARDS
from gpu_recovery.aws.job_archive import attempt_request, submitted_request
from gpu_recovery.core import commands
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.ray.submission import submission_of

from tests.aws.ecs_events import rank_event
from tests.aws.environment import CLUSTER
from tests.aws.records import JOB, instance, job, later, launched, pending, plan, spec
from tests.job_api.routes.test_jobs import logging
from tests.job_api.submissions import ASKED
from tests.job_api.test_submission import YAML, submitted
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
BUCKET = "verdicts-of-checks"
RECORDING = {"preset": "adaptive", "record_attempts": True}


@pytest.fixture
def api(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The API of a deployment that records, with room for a job."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps(RECORDING))
    functions.chill()
    for host in plan().instances:
        functions.store.save_instance(instance(host))
    return Api(functions)


def objects(api: Api) -> dict[str, Any]:
    """What the latest call has put into the archive, by key."""
    put = [one for one in api.functions.aws.asked("PutObject") if not one["Key"].startswith("console/")]
    assert {one["Bucket"] for one in put} <= {BUCKET}
    return {one["Key"]: one["Body"].getvalue().decode() for one in put}


def test_what_was_submitted_is_recorded_as_it_was_written(api: Api) -> None:
    """JSON or YAML, comments and all, for no call of DynamoDB more; and the job says where."""
    job_id = submitted(api, YAML).body["job_id"]
    assert objects(api) == {f"jobs/{job_id}/spec.yaml": YAML}
    calls = api.functions.aws.operations("dynamodb")
    assert sum(calls.values()) - calls["Query"] <= 3 and calls["Query"] == SHARDS  # the fleet is read, see capacity.py
    text = json.dumps(ASKED, indent=3)
    made = api.post("/jobs", raw=text).body
    assert objects(api) == {f"jobs/{made['job_id']}/spec.json": text}
    assert (
        made["records"] == api.get(f"/jobs/{made['job_id']}").body["records"] == f"s3://{BUCKET}/jobs/{made['job_id']}/"
    )


def test_the_answer_to_an_order_names_the_records_too(api: Api) -> None:
    """It is the job as a reader sees it."""
    job_id = submitted(api, YAML).body["job_id"]
    assert api.post(f"/jobs/{job_id}/cancel").body["records"] == f"s3://{BUCKET}/jobs/{job_id}/"


def test_a_bucket_that_is_away_keeps_nobody_from_submitting(api: Api) -> None:
    """The job is kept and the scheduler woken; the text is recorded later, from the table."""
    api.functions.aws.answers["PutObject"] = _refuse
    answer = submitted(api, YAML)
    assert answer.status == 201 and api.functions.aws.operations()["SendMessage"] == 1
    (left,) = api.functions.job(answer.body["job_id"]).commands
    assert left.command == commands.RecordAttempt(0)
    del api.functions.aws.answers["PutObject"]
    api.functions.now = later(600)
    api.functions.call("reconciler", {})
    assert objects(api) == {f"jobs/{answer.body['job_id']}/spec.yaml": YAML}
    assert not api.functions.job(answer.body["job_id"]).commands


def _refuse(asked: dict[str, Any]) -> dict[str, Any]:
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")


def test_an_attempt_that_has_ended_is_recorded_with_what_was_sent_and_what_became_of_it(api: Api) -> None:
    """Seed 004: configuration, payload, the backend's ids, beginning and end, exit code, kind and message."""
    gang(api.functions, status=JobStatus.STOPPING, stop_purpose="FAIL", stop_reason="it crashed", running_at=later(-60))
    there = launched()
    for rank in (0, 1):
        api.functions.call("ecs_task_handler", rank_event(JOB, 1, rank, "STOPPED", exit_code=3))
    ((key, text),) = objects(api).items()
    kept = json.loads(text)
    assert key == f"jobs/{JOB}/a01/attempt.json"
    assert kept["backend_ids"] == list(there.task_ids) and kept["backend"] == "ecs"
    assert (kept["attempt_id"], kept["status"], kept["exit_code"]) == (f"{JOB}--a01", "FAILED", 3)
    assert kept["failure_kind"] == "RUNTIME_ERROR" and "3" in kept["message"] and kept["ended_at"]
    assert kept["config"]["command"] == ["python", "train.py"]
    assert "clientToken" not in kept["sent"] and "LAUNCH_SIGNATURE" not in text
    assert kept["sent"]["placementConstraints"][0]["expression"].endswith(there.instances[0])
    assert api.functions.job().status is JobStatus.FAILED


def test_no_secret_of_a_log_goes_into_a_record(api: Api) -> None:
    """The lines are copied from the log group, and other people may read the bucket."""
    logging(api)
    lines = ("login with token=hf_abcdef", "ValueError: https://me:hunter2@h cannot be reached")
    events = [{"timestamp": 1, "message": line, "ingestionTime": 1} for line in lines]
    page = {"events": events, "nextForwardToken": "f/1", "nextBackwardToken": "b/1"}
    api.functions.aws.answers["GetLogEvents"] = lambda asked: page
    gang(api.functions, status=JobStatus.STOPPING, stop_purpose="FAIL", stop_reason="it crashed", running_at=later(-60))
    for rank in (0, 1):
        api.functions.call("ecs_task_handler", rank_event(JOB, 1, rank, "STOPPED", exit_code=3))
    (text,) = objects(api).values()
    kept = ["login with token=***", "ValueError: https://me:***@h cannot be reached"]
    assert json.loads(text)["log"] == {"rank": 0, "lines": kept, "why_none": None}


def test_a_deployment_that_does_not_record_puts_nothing(functions: Functions) -> None:
    """And says so."""
    api = Api(functions)
    for host in plan().instances:
        functions.store.save_instance(instance(host))
    made = api.post("/jobs", ASKED)
    assert made.body["records"] is None and objects(api) == {}


def test_an_order_for_an_attempt_that_is_over_records_that_one(api: Api) -> None:
    """Whoever finds it not done may come late."""
    gang(api.functions, attempt=2, commands=(pending(JOB, 1, commands.RecordAttempt(1), until=-1),))
    api.functions.call("reconciler", {})
    assert [*objects(api)] == [f"jobs/{JOB}/a01/attempt.json"]


@pytest.mark.parametrize("job_id", ["ecs/train", "../../verdicts/x", "a b"])
def test_a_name_of_a_persons_leaves_the_folder_of_no_job(job_id: str) -> None:
    """Adopted jobs have names that we did not make."""
    key = submitted_request(BUCKET, job_id, "{}")["Key"]
    assert key == f"jobs/{quote(job_id, safe='')}/spec.json" and key.count("/") == 2


def test_on_ray_what_was_sent_is_the_order_of_that_attempt() -> None:
    """Under the submission id by which Ray's own list has it."""
    record = job(attempt=2, spec=spec(backend=Backend.RAY, entrypoint="python train.py"))
    there = plan(world=1)
    request = attempt_request(BUCKET, CLUSTER, record, there, {"attempt": 1})
    kept = json.loads(request["Body"])
    assert kept["sent"]["submission_id"] == f"{JOB}--a01" and kept["sent"]["runtime_env"]["env_vars"]["ATTEMPT"] == "1"
    assert submission_of(record).submission_id == f"{JOB}--a02"


def test_what_a_person_sent_is_not_known() -> None:
    """An adopted attempt was started without us."""
    request = attempt_request(BUCKET, CLUSTER, job(attempt=1, started_by_person=True), plan(), {})
    assert json.loads(request["Body"])["sent"] is None
