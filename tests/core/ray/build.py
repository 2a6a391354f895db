"""Jobs on Ray for the tests, taken as far as a test needs them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.ray import state_machine as ray_state_machine
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

from tests.core.build import ADAPTIVE, NOW

SPEC = JobSpec("ppo", 1, 8, backend=Backend.RAY, entrypoint="python train.py", user="ada")


def applied(decision: Decision[Job]) -> Job:
    """The record after a decision that must have changed something."""
    assert decision.outcome is EventOutcome.APPLIED, decision.reason
    return decision.record


def queued(job_id: str = "ppo-1", spec: JobSpec = SPEC, now: datetime = NOW, **changes: Any) -> Job:
    """A job that has just been submitted."""
    return replace(state_machine.created(job_id, replace(spec, **changes), ADAPTIVE, now).record, commands=())


def tell(record: Job, event: events.JobEvent, policy: RecoveryPolicy = ADAPTIVE, now: datetime = NOW) -> Decision[Job]:
    """What a job on Ray makes of an event."""
    return ray_state_machine.decide(record, event, policy, now)


def placed(record: Job | None = None, now: datetime = NOW) -> Job:
    """A job that was let go."""
    record = record or queued()
    event = events.JobPlaced(at=now, attempt=record.attempt, version=record.version, instances=(), epochs=())
    return applied(tell(record, event, now=now))


def taken(record: Job | None = None, now: datetime = NOW) -> Job:
    """A job whose driver Ray has taken."""
    record = record or placed()
    return applied(tell(record, events.AttemptLaunched(at=now, attempt=record.attempt), now=now))


def running(record: Job | None = None, now: datetime = NOW) -> Job:
    """A job whose driver runs."""
    record = record or taken()
    return applied(tell(record, events.AllRanksRunning(at=now, attempt=record.attempt), now=now))


def canceled(record: Job, now: datetime = NOW) -> Job:
    """A job that a person has canceled."""
    return applied(tell(record, events.CancelRequested(at=now, attempt=record.attempt, by="ada"), now=now))


def ended(attempt: int, kind: EndingKind | None, code: int | None = 1, sentence: str = "") -> events.AllRanksStopped:
    """The end of a driver; `kind` None for success."""
    if kind is None:
        return events.AllRanksStopped(at=NOW, attempt=attempt, failure=None)
    failure = RankFailure(0, "", NOW, Ending(kind, code, sentence or f"ended as {kind}"))
    return events.AllRanksStopped(at=NOW, attempt=attempt, failure=failure)
