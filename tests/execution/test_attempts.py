"""What a job asks of an instance, and that the job may be over by the time that the instance hears of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.job.record import TERMINAL, JobStatus
from gpu_recovery.execution.attempts import as_it_is_waited_for

from tests.core.build import NOW, running

CHECK = events.CheckRequested(at=NOW, job_id="sft-1", attempt=1, may_reboot=True)
REPAIR = events.RepairRequested(at=NOW, job_id="sft-1", attempt=1, sentence="a rank cannot be stopped")
CHECKED = (JobStatus.DIAGNOSING, JobStatus.RECOVERING)


@pytest.mark.parametrize("status", list(JobStatus))
def test_who_waits_for_what_it_has_asked_for(status: JobStatus) -> None:
    """For a check, who looks into the attempt or goes on after it; for the end of a rank, who is not over."""
    job = replace(running(), status=status)
    assert as_it_is_waited_for(job, CHECK) == replace(CHECK, awaited=status in CHECKED)
    assert as_it_is_waited_for(job, REPAIR) == replace(REPAIR, awaited=status not in TERMINAL)


@pytest.mark.parametrize("asked", [CHECK, REPAIR])
def test_nobody_waits_for_what_another_attempt_has_asked_for(
    asked: events.CheckRequested | events.RepairRequested,
) -> None:
    """The attempt that wanted it has been left behind."""
    job = replace(running(), status=JobStatus.DIAGNOSING, attempt=2)
    assert as_it_is_waited_for(job, asked) == replace(asked, awaited=False)
