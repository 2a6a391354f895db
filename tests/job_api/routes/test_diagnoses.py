"""POST /api/v2/diagnoses, with DynamoDB of moto: attempts of jobs, and cases that a caller brings along."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.events import JobLookDue
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, NOW, job, later, plan
from tests.execution.failed_gang import IMPORT, LIES, SECOND, failed, loop, no_such_stream, two_instances, wrote
from tests.lambdas.api_gateway import Api, refused, user_token
from tests.lambdas.conftest import Functions


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    return two_instances(functions)


def test_an_attempt_is_diagnosed_when_it_is_asked_for(api: Api) -> None:
    """As JSON and as a page in both languages; nothing is written."""
    failed(api, reports=(LIES,))
    before = api.functions.kept()
    answer = api.post("/diagnoses", {"job_id": JOB})
    assert (answer.status, answer.body["cause"], answer.body["attempt"]) == (200, "GPU_FAULT", 1)
    assert answer.body["scope"]["names"] and "r1" in answer.body["evidence"]
    assert "What: GPU_FAULT" in answer.body["page"]["en"] and "原因: GPU_FAULT" in answer.body["page"]["zh"]
    assert api.functions.kept() == before


@pytest.mark.parametrize(
    ("status", "attempt", "follows"),
    [
        (JobStatus.FAILED, 1, "Next: The job has FAILED and is not tried again."),
        (JobStatus.CANCELED, 1, "Next: Nothing: the job has ended."),
        (JobStatus.RUNNING, 2, "Next: Nothing: the job is at a later attempt already."),
        (JobStatus.DIAGNOSING, 1, "Next: The job ends. An operator must remove the cause"),
    ],
)
def test_what_comes_next_is_true_of_the_job(api: Api, status: JobStatus, attempt: int, follows: str) -> None:
    """A job that has FAILED is not tried again."""
    full = "OSError: [Errno 28] No space left on device: '/fsx/checkpoints/step-4.pt'"
    failed(api, full, status=status, attempt=attempt)
    body = api.post("/diagnoses", {"job_id": JOB, "attempt": 1}).body
    assert follows in body["page"]["en"] and "下一步: " in body["page"]["zh"]
    assert body["remedy_sentence"] == Remedy(body["remedy"]).sentence


def acted_upon(status: JobStatus, **changes: Any) -> dict[str, Any]:
    """A job that was started again because of a verdict on its first attempt."""
    verdict = DiagnosisResult(
        1, Cause.WORKER_HANG, f"instance {SECOND}", (SECOND,), Remedy.LEAVE_OUT, 80, True, "no answer", spares=True
    )
    return {"status": status, "attempt": 2, "stop_purpose": None, "conclusion": verdict, **changes}


def test_a_diagnosis_tells_how_the_verdict_of_its_attempt_turned_out(api: Api) -> None:
    """It is open, then the next attempt lasts, and the job's record and the page say so; of others nothing is said."""
    failed(api, reports=(LIES,), **acted_upon(JobStatus.RUNNING, running_at=NOW, look_at=later(1_800)))
    store = api.functions.store
    store.begin_attempt(plan(attempt=2))
    answer = api.post("/diagnoses", {"job_id": JOB, "attempt": 1})
    assert (answer.body["outcome"]["cause"], answer.body["outcome"]["held"]) == ("WORKER_HANG", None)
    api.functions.now = later(1_800)
    loop(api).handle(JOB, JobLookDue(at=later(1_800), attempt=2, look_at=later(1_800)))
    assert [one.held for one in api.functions.job().verdicts] == [True]
    answer = api.post("/diagnoses", {"job_id": JOB, "attempt": 1})
    assert answer.body["outcome"]["held"] is True
    assert answer.body["page"]["en"].endswith(answer.body["outcome"]["english"] + "\n")
    assert "has held" in answer.body["page"]["en"] and "处置有效" in answer.body["page"]["zh"]
    other = api.post("/diagnoses", {"job_id": JOB, "attempt": 2})
    assert other.body["outcome"] is None and "Outcome" not in other.body["page"]["en"]


def test_a_machine_that_failed_again_and_again_is_likelier_to_be_the_one(api: Api) -> None:
    """The same reports, with and without its past."""
    failed(api, reports=(LIES,))
    before = api.post("/diagnoses", {"job_id": JOB}).body
    record = api.functions.instance(SECOND)
    past = tuple(signal_at(NOW, LemonSignal.OUT) for _ in range(4))
    api.functions.store.save_instance(replace(record, past=past))
    after = api.post("/diagnoses", {"job_id": JOB}).body
    assert after["cause"] == before["cause"] == "GPU_FAULT"
    assert after["confidence"] > before["confidence"]


def test_a_viewer_may_ask(api: Api) -> None:
    """It changes nothing."""
    failed(api)
    token = user_token(api, "ana", "viewer")
    assert api.post("/diagnoses", {"job_id": JOB}, token=token).status == 200


def test_a_case_that_is_brought_along_is_judged(api: Api) -> None:
    """Without any job; what is kept of it is nothing."""
    case = {
        "reports": [
            {
                "type": "stage",
                "id": "s",
                "at_s": 5,
                "instance": "i-0b",
                "stage": "rollout",
                "gpu": "1",
                "probe": "passed",
                "synchronised": True,
                "matches": False,
            }
        ],
        "workers": [{"name": "w", "instance_id": "i-0b"}],
    }
    before = api.functions.kept()
    answer = api.post("/diagnoses", case)
    assert (answer.status, answer.body["cause"], answer.body["job_id"]) == (200, "GPU_FAULT", None)
    assert api.functions.kept() == before
    again = json.loads(json.dumps(case))
    again["reports"] *= 3
    assert api.post("/diagnoses", again).body == answer.body


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ([], 400, "body"),
        ({"job_id": "none"}, 404, "job_id"),
        ({"job_id": 7}, 404, "job_id"),
        ({"job_id": JOB, "attempt": 9}, 404, "attempt"),
        ({"job_id": JOB, "attempt": "1"}, 404, "attempt"),
        ({"job_id": JOB, "reports": []}, 400, "reports"),
        ({"colour": 1}, 400, "colour"),
        ({"reports": 7}, 400, "reports"),
        ({"reports": [7]}, 400, "reports[0]"),
        ({"at_s": True}, 400, "at_s"),
        ({"workers": [{"name": "w"}]}, 400, "workers[0]"),
        ({"workers": [{"name": 1}]}, 400, "workers[0].name"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(api: Api, body: Any, status: int, field: str) -> None:
    """A problem document names the field."""
    failed(api)
    refused(api.post("/diagnoses", body), status, field)


@pytest.mark.parametrize(
    ("attempts", "detail"), [(0, "the job has no attempt yet"), (1, "must be from 1 to 1")], ids=["none", "one"]
)
def test_the_refusal_of_an_attempt_names_the_attempts_there_are(api: Api, attempts: int, detail: str) -> None:
    """A queued job has had none."""
    api.functions.store.create_job(job(attempt=attempts), "")
    assert refused(api.post("/diagnoses", {"job_id": JOB, "attempt": 2}), 404, "attempt") == detail


@pytest.mark.parametrize(
    "told",
    [{"part": -1}, {"part": 4}, {"instance_id": ""}, {"lines": ()}, {"lines": ("",)}, {"rank": 7}, {"rank": None}],
    ids=str,
)
def test_what_no_wrapper_tells_stands_for_nothing(api: Api, told: dict[str, Any]) -> None:
    """Any process of the instance may write to the socket: the reason why there is no log stays."""
    failed(api, reports=(replace(wrote(1, SECOND, IMPORT), **told),))
    api.functions.aws.answers["GetLogEvents"] = no_such_stream
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert list(found["unread_logs"]) == ["1", "0"] and IMPORT not in found["page"]["en"]


def test_a_log_that_can_be_read_is_read_instead(api: Api) -> None:
    """It reaches further back; and the words of a rank count only from where that rank was."""
    failed(api, "step 1", IMPORT, reports=(wrote(1, SECOND, "NCCL WARN timeout"), wrote(0, SECOND, IMPORT)))
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert {one.split("/")[1] for one in found["evidence"] if one.startswith("log/")} == {"1"}
    assert "NCCL" not in found["page"]["en"]
