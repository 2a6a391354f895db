"""Carrying out the order to find out why an attempt failed."""

from __future__ import annotations

from ..core import commands, events
from ..core.job.record import Job, JobStatus
from ..core.machine import Pending
from .kit import DONE, Acted, Kit, Message


def gather(kit: Kit, job: Job, pending: Pending) -> Acted:
    """Hear every witness of the attempt and tell the job what they come to. Void once the job waits for it no more."""
    order: commands.GatherEvidence = pending.command
    if order.attempt != job.attempt or job.status is not JobStatus.DIAGNOSING:
        return DONE
    # Not before a gang has failed: the rules and the words of logs are a fifth of a function's start.
    from .. import witnesses  # noqa: PLC0415

    plan = kit.store.load_plan(job.job_id, order.attempt)
    if plan is None:
        return DONE
    heard = witnesses.heard(kit.store, kit.actions, kit.policy, job, plan, kit.now)
    conclusion = witnesses.conclusion_of(heard, heard.diagnosis(kit.policy, kit.now), plan)
    if conclusion is None:
        return DONE
    return Acted((Message(job.job_id, events.Diagnosed(at=kit.now, attempt=order.attempt, conclusion=conclusion)),))
