"""Jobs canceled: while they wait, while they run, and while they are launched."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import JobStatus, StopPurpose

from tests.aws.records import JOB, job, launched, plan
from tests.lambdas.api_gateway import Api, refused

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_a_waiting_job_is_canceled_at_once(api: Api) -> None:
    """And says by whom."""
    api.functions.store.create_job(job(), "")
    body = api.post(f"/jobs/{JOB}/cancel").body
    assert body["status"] == "CANCELED" and "operator" in body["reason"]
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "CANCELED"


def test_a_running_job_is_stopped_first(api: Api) -> None:
    """Its tasks are told to stop; it is canceled when they have ended."""
    store = api.functions.store
    store.create_job(job(status=JobStatus.RUNNING, attempt=1, launched=True, instances=plan().instances), "")
    store.begin_attempt(launched())
    api.functions.aws.tasks[attempt_id(JOB, 1)] = list(launched().task_ids)
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "STOPPING"
    api.functions.wake()
    assert len(api.functions.aws.asked("StopTask")) == 2


def _saved(api: Api, status: JobStatus, **changes: Any) -> None:
    record = job(status=status, attempt=1, launched=True, instances=plan().instances, **changes)
    api.functions.store.create_job(record, "")
    api.functions.store.begin_attempt(launched())


@pytest.mark.parametrize(("purpose", "status"), [(StopPurpose.DIAGNOSE, 202), (StopPurpose.CANCEL, 200)])
def test_a_job_that_stops_is_canceled_once(api: Api, purpose: StopPurpose, status: int) -> None:
    """202 if its ranks stop for another purpose, 200 if they stop for a cancellation."""
    _saved(api, JobStatus.STOPPING, stop_purpose=purpose)
    assert api.post(f"/jobs/{JOB}/cancel").status == status
    assert api.functions.job().stop_purpose is StopPurpose.CANCEL


def test_a_failed_cancellation_is_not_canceled_again(api: Api) -> None:
    """The job failed because the end of its ranks was never confirmed. The detail names the status."""
    _saved(api, JobStatus.FAILED, stop_purpose=StopPurpose.CANCEL)
    assert "is FAILED" in refused(api.post(f"/jobs/{JOB}/cancel"), 409)
    assert api.functions.job().status is JobStatus.FAILED


@pytest.mark.parametrize(
    ("status", "held", "answer"),
    [
        (JobStatus.RUNNING, False, 202),
        (JobStatus.SUSPENDING, True, 200),
        (JobStatus.FAILED, False, 409),
        (JobStatus.FAILED, True, 409),
    ],
)
def test_a_suspension_answers_whether_it_applies(api: Api, status: JobStatus, held: bool, answer: int) -> None:
    """202 for a new suspension, 200 for a job that is suspended already, 409 for a job that cannot be suspended."""
    _saved(api, status, held=held)
    assert api.post(f"/jobs/{JOB}/suspend").status == answer
    assert api.functions.job().held is (held or answer == 202)


def test_a_cancellation_is_not_lost_to_a_launch(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler places the job between the API's look at it and its order: it is canceled all the same."""
    store = api.functions.store
    store.create_job(job(), "")
    client = import_module("gpu_recovery.aws.wiring").recovery().store.jobs.client
    get_item, placed = client.get_item, []

    def placing_after_the_first_look(**request: Any) -> Any:
        answer = get_item(**request)
        if not placed:
            placed.append(JOB)
            fields = {"status": JobStatus.SUBMITTED, "attempt": 1, "launched": True, "instances": plan().instances}
            store.save_job(replace(api.functions.job(), **fields))
        return answer

    monkeypatch.setattr(client, "get_item", placing_after_the_first_look)
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "STOPPING"
    assert placed
