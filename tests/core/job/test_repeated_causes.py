"""Causes that a restart does not cure: full storage, and an error of the program that comes again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.task import EndingKind

from tests.core import build
from tests.core.job.test_diagnosing import CRASHED, diagnosed, ended

FULL_HERE = DiagnosisResult(
    1, Cause.STORAGE, f"instance {build.IDS[0]}", (build.IDS[0],), Remedy.LEAVE_OUT, 94, True, "No space left on device"
)
FULL_SHARED = replace(FULL_HERE, where="shared storage", instances=(), remedy=Remedy.PERSON)


def _second(before: DiagnosisResult) -> Job:
    """The job whose second attempt has ended, after the first was diagnosed as `before`."""
    record = build.applied(build.tell(ended(), events.Diagnosed(at=build.NOW, attempt=1, conclusion=before)))
    record = build.placed(record)
    record = build.applied(build.tell(record, events.AttemptLaunched(at=build.NOW, attempt=2)))
    failed = replace(build.failure(EndingKind.FAILED, 1), rank=1)
    return build.applied(build.tell(record, events.AllRanksStopped(at=build.NOW, attempt=2, failure=failed)))


def test_full_shared_storage_ends_the_job_at_once() -> None:
    """Also after a long run, and with attempts left: no attempt frees space."""
    lasted = replace(ended(), running_at=build.NOW - timedelta(seconds=9_000), incident_at=build.NOW)
    for record in (ended(), lasted):
        after = build.applied(diagnosed(record, FULL_SHARED))
        assert after.status is JobStatus.FAILED and after.attempts_left(build.ADAPTIVE)
        assert "an operator must fix the cause first" in after.reason


def test_full_storage_of_an_instance_is_tried_once_elsewhere() -> None:
    """If another machine is full, too, the storage is shared. If the same is full, it is that machine's."""
    second = _second(FULL_HERE)
    elsewhere = replace(FULL_HERE, attempt=2, where=f"instance {build.IDS[1]}", instances=(build.IDS[1],))
    same = replace(FULL_HERE, attempt=2)
    for found, instances in ((elsewhere, ()), (same, (build.IDS[0],))):
        event = events.Diagnosed(at=build.NOW, attempt=2, conclusion=found)
        after = build.applied(build.tell(second, event))
        assert after.status is JobStatus.FAILED, after.reason
        assert after.conclusion is not None and after.conclusion.instances == instances
        assert f"attempt 1 ended for full storage on {build.IDS[0]}, too" in after.reason


def test_full_storage_that_is_known_after_the_checks_is_not_retried() -> None:
    """A restart cures most crashes, but not this."""
    crash = build.diagnosing(build.failure(EndingKind.CRASHED, 139))
    after = build.applied(build.checked(replace(crash, conclusion=FULL_SHARED), {}))
    assert after.status is JobStatus.FAILED and "an operator must fix the cause first" in after.reason


MEMORY = DiagnosisResult(
    1, Cause.HOST_MEMORY, f"instance {build.IDS[0]}", (build.IDS[0],), Remedy.FAIL, 73, True, "out of memory"
)


@pytest.mark.parametrize(
    ("first", "second", "ran_s", "ends"),
    [
        (MEMORY, MEMORY, 60, True),
        (replace(MEMORY, cause=Cause.GPU_MEMORY), MEMORY, 60, False),
        (replace(MEMORY, decided=False), MEMORY, 60, False),
        (MEMORY, replace(MEMORY, decided=False), 60, False),
        (replace(MEMORY, remedy=Remedy.CHECK), replace(MEMORY, remedy=Remedy.CHECK), 60, False),
        (MEMORY, MEMORY, build.ADAPTIVE.stable_run_s, False),
    ],
)
def test_an_error_of_the_program_that_comes_again_after_a_restart_ends_the_job(
    first: DiagnosisResult, second: DiagnosisResult, ran_s: int, ends: bool
) -> None:
    """The checks come first, because an instance may cause it. A long run is progress, and is tried again."""
    record = build.applied(diagnosed(ended(), first))
    record = build.applied(build.checked(record, {}))
    assert record.left_out == ({build.IDS[0]: 0} if first.decided and first.remedy is Remedy.FAIL else {})
    record = build.placed(record)
    record = build.applied(build.tell(record, events.AttemptLaunched(at=build.NOW, attempt=2)))
    record = build.applied(build.tell(record, events.AllRanksStopped(at=build.NOW, attempt=2, failure=CRASHED)))
    record = replace(record, running_at=build.NOW - timedelta(seconds=ran_s))
    record = build.applied(diagnosed(record, replace(second, attempt=2)))
    assert record.status is JobStatus.DIAGNOSING
    after = build.applied(build.checked(record, {}))
    assert after.status is (JobStatus.FAILED if ends else JobStatus.RECOVERING)
    assert ("attempt 1 ended for the same cause; it would fail again" in after.reason) is ends
