"""What a diagnosis changes: an error that would come again is not tried again, a machine is not blamed for the network.

Once every rank has ended, the witnesses are heard before any machine is checked. The health check stays the judge of
machines; a decided conclusion only spares it where nothing of a machine is in doubt: the program's own error ends the
job at once, with its line; a broken connection, a hung worker or a notice that was lost is started again, without those
instances that are named. Whatever is undecided goes to the check.
"""

from __future__ import annotations

from typing import Any

from .. import commands, events
from ..diagnosis.words import Cause, Remedy
from ..machine import Given, Ignore, Step
from ..names import listed
from .conclusion import Conclusion
from .endings import cooled_down, failed, poke, unless_held
from .record import Job, JobStatus

GOES_ON = (Remedy.RESTART, Remedy.LEAVE_OUT, Remedy.WAIT, Remedy.RELEASE)
ENDS = (Cause.APPLICATION, Cause.CONFIGURATION)
"""Errors of the program that would come again. Memory and NaN have machines for rivals, which the check rules out."""

END_PERCENT = 75
"""How sure a diagnosis must be to end a job for good: a start in vain costs an attempt, an end in error the run."""


def current(job: Job) -> Conclusion | None:
    """The conclusion on the job's last attempt, if there is one."""
    return job.conclusion if job.conclusion is not None and job.conclusion.attempt == job.attempt else None


def is_spared(job: Job) -> bool:
    """Whether the machines of the last attempt need no check: what ended it was not theirs."""
    conclusion = current(job)
    return conclusion is not None and conclusion.decided and (_ends(conclusion) or conclusion.remedy in GOES_ON)


def diagnosed(job: Job, event: events.Diagnosed, given: Given) -> Step | Ignore:
    """Keep the conclusion, and act on it where it is sure; else the checks, ordered already, take their course."""
    if current(job) is not None:
        return Ignore("this attempt is diagnosed")
    conclusion = event.conclusion
    changes: dict[str, Any] = {"conclusion": conclusion}
    if not conclusion.decided or not (_ends(conclusion) or conclusion.remedy in GOES_ON):
        return Step(JobStatus.DIAGNOSING, f"{job.reason}; {conclusion.said}", changes)
    changes["attempts_counted"] = job.attempts_counted + 1
    if _ends(conclusion):
        return failed(job, f"{conclusion.said}; it would fail again", (), changes)
    if not job.attempts_left(given.policy):
        last = f"attempt {job.attempt} was the last of {job.attempts_max(given.policy)}: {job.stop_reason}"
        return failed(job, f"{last}; {conclusion.said}", (), changes)
    changes |= {**cooled_down(job, given), "repairing": ()}
    how = "no machine is to blame"
    if conclusion.remedy is Remedy.LEAVE_OUT:
        changes["left_out"] = {one: job.instances.index(one) for one in conclusion.instances if one in job.instances}
        how = f"elsewhere than on {listed(conclusion.instances)} if there is room"
    # No check takes the claims off the machines, as it would before it begins.
    orders = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke(job))
    step = Step(JobStatus.RECOVERING, f"{conclusion.said}; started again, {how}", changes, orders)
    return unless_held(job, step)


def _ends(conclusion: Conclusion) -> bool:
    sure = conclusion.decided and conclusion.confidence >= END_PERCENT
    return sure and conclusion.remedy is Remedy.FAIL and conclusion.cause in ENDS
