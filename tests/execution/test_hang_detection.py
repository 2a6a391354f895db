"""A gang that no longer makes progress: found by what its ranks report, and stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.events import JobLookDue
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.execution.hang_detection import describe_hang

from tests.aws.records import JOB, NOW, later, plan
from tests.execution.failed_gang import FIRST, failed, loop, two_instances
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    return two_instances(functions)


def test_a_gang_that_stands_still_is_found_and_stopped(api: Api) -> None:
    """Ranks run and agents report, but no value grows for `progress_timeout_s`; while a value grows it runs on."""
    stands = [
        ProgressReport(report_id=f"p{n}", at_s=NOW.timestamp() + 60 * n, instance_id=FIRST, rank=0, value=7.0)
        for n in range(20)
    ]
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW, look_at=later(600))
    store = api.functions.store
    api.functions.aws.tasks[attempt_id(JOB, 1)] = ["task-0", "task-1"]
    for rank in (0, 1):
        store.add_running(JOB, 1, rank)
    store.add_observations(JOB, 1, FIRST, stands[:11])
    look = api.functions.job().look_at
    assert look is not None
    api.functions.now = later(600)
    loop(api).handle(JOB, JobLookDue(at=later(600), attempt=1, look_at=look))
    assert api.functions.job().status is JobStatus.RUNNING
    store.add_observations(JOB, 1, FIRST, stands[11:])
    api.functions.now = later(1_150)
    look = api.functions.job().look_at
    assert look is not None
    loop(api).handle(JOB, JobLookDue(at=later(1_150), attempt=1, look_at=look))
    after = api.functions.job()
    assert after.status is JobStatus.STOPPING and "no rank has made progress for" in after.stop_reason


def test_a_stall_that_is_longer_than_what_is_kept_is_seen_all_the_same(api: Api) -> None:
    """Each word says for how long nothing has changed; a word without a value says nothing."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None)
    store, job_now = api.functions.store, api.functions.job()
    at_s = NOW.timestamp()
    silent = [ProgressReport(report_id=f"n{n}", at_s=at_s + n, instance_id=FIRST, rank=0) for n in range(0, 1_200, 100)]
    store.add_observations(JOB, 1, FIRST, silent)
    policy = loop(api).policy

    def stands() -> str | None:
        return describe_hang(store, policy, job_now, plan(), later(1_200))

    assert stands() is None
    word = ProgressReport(report_id="v", at_s=at_s + 1_190, instance_id=FIRST, rank=0, value=3.0, unchanged_s=100.0)
    store.add_observations(JOB, 1, FIRST, [word])
    assert stands() is None
    store.add_observations(JOB, 1, FIRST, [replace(word, report_id="w", at_s=at_s + 1_195, unchanged_s=1_000.0)])
    assert stands() == "no rank has made progress for 1005 s, although its instances report"
