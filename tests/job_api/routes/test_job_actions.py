"""Jobs canceled: while they wait, while they run, and while they are launched."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, job, launched, plan
from tests.lambdas.api_gateway import Api

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
