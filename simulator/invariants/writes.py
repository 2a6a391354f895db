"""The invariants of single writes and decisions, checked when they are made.

The records alone do not show these violations afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_recovery.core.events import JobEvent, NamedInstancePassed, SpareEnded, SpareSeen
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import Decision, EventOutcome, QuotaChange
from gpu_recovery.ports.store import Store

from simulator.invariants import quotas


def unfenced(record: Any, event: Any, decision: Decision[Any]) -> Sequence[str]:
    """Return the violation of I11 by an event: an event about another attempt must change nothing.

    The events of a warm spare are about its number, which no other warm spare of the job ever has. The result of a
    background check is about a suspicion, which accepts one result.
    """
    about_a_job = isinstance(record, Job) and isinstance(event, JobEvent)
    about_a_job = about_a_job and not isinstance(event, SpareSeen | SpareEnded | NamedInstancePassed)
    if about_a_job and decision.outcome is EventOutcome.APPLIED and event.attempt != record.attempt:
        event_text = f"{type(event).__name__} about attempt {event.attempt}"
        return (f"I11: {record.job_id}, at attempt {record.attempt}, was moved by {event_text}",)
    return ()


class WriteCheckedStore:
    """A store that adds a sentence to `broken` for each forbidden write.

    Three writes are forbidden: over a revision that was not read, a placement beyond a quota or from an earlier
    term, and the loss of a job's place in the queue.
    """

    def __init__(self, store: Store, broken: list[str]) -> None:
        self._store, self._broken = store, broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def who_answers(self, name: str) -> Any:
        """Return the object that implements the method `name`: this store, or the store behind it."""
        return self if name in vars(type(self)) else self._store

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Any:
        """Save the job, and check its revision, its place in the queue, its term and its quota."""
        before, term = self._store.load_job(job.job_id), self._store.load_last_pass().term
        arguments = () if quota is None else (quota,)
        saved = self._store.save_job(job, *arguments)
        self._check(job.job_id, job, before)
        if before is not None and job.queued_at != before.queued_at:
            self._broken.append(f"I10: {job.job_id} was in line since {before.queued_at}, now since {job.queued_at}")
        if quota is not None and quota.term not in (None, term):
            self._broken.append(f"I11: {job.job_id} was given a place in term {quota.term}, which ended for {term}")
        # A quota does not stop the recovery of a gang that an operator started: it was not counted before.
        recovers_adopted = before is not None and before.started_by_person and before.status is JobStatus.RECOVERING
        if before is not None and job.quota_nodes > before.quota_nodes and not recovers_adopted:
            self._broken += quotas.exceeded(self._store, job)
        return saved

    def save_instance(self, instance: Instance, *fleet: Any) -> Instance:
        """Save the instance, and check its revision."""
        before = self._store.load_instance(instance.instance_id)
        saved = self._store.save_instance(instance, *fleet)
        self._check(instance.instance_id, instance, before)
        return saved

    def _check(self, name: str, record: Job | Instance, stored: Job | Instance | None) -> None:
        if stored is not None and stored.revision != record.revision:
            revisions = f"read at revision {record.revision}, over revision {stored.revision}"
            self._broken.append(f"I11: {name} was written by one who had {revisions}")
