"""Leaving what was submitted and what became of it where people keep records (seed 004: a folder for each task).

A record is written whole each time, so it may be written again and again: first when the attempt has ended, again when
its checks have said who is to blame.
"""

from __future__ import annotations

from ..attempts import attempt_view
from ..core import commands
from ..core.attempt import Plan
from ..core.job.record import Job
from ..core.machine import Pending
from .kit import DONE, Acted, Kit


def record(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Write the text that was submitted (attempt 0), or what is known of an attempt."""
    order: commands.RecordAttempt = pending.command
    if order.attempt == 0:
        text = kit.store.load_submitted(job.job_id) if kit.submitted is None else kit.submitted
        kit.actions.record_submitted(job, text or "")
        return DONE
    plan = kit.store.load_plan(job.job_id, order.attempt)
    progress = kit.store.load_progress(job.job_id, order.attempt)
    view = attempt_view(job, order.attempt, plan, progress)
    kit.actions.record_attempt(job, plan or Plan(job.job_id, order.attempt, ()), view)
    return DONE
