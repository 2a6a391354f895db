"""Bugs of the queue to plant in the product: each breaks what another part of it relies on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import cluster_snapshot, commands, events
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job import suspension
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue import ordering
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.state_machine import QuotaChange, Transition
from gpu_recovery.scheduler import schedule

from simulator.memory_store import store
from simulator.memory_store.store import MemoryStore


def no_term(patch: pytest.MonkeyPatch) -> None:
    """A pass gives places after another has begun."""
    patch.setattr(MemoryStore, "check_term", lambda self, quota: None)


def counted_later(patch: pytest.MonkeyPatch) -> None:
    """A quota is counted by itself, after the write that takes it up: with the next one."""
    count = MemoryStore.count
    left: dict[int, QuotaChange | None] = {}

    def behind(self: MemoryStore, quota: QuotaChange | None) -> None:
        count(self, left.pop(id(self), None))
        left[id(self)] = quota

    patch.setattr(MemoryStore, "count", behind)


def never_given_back(patch: pytest.MonkeyPatch) -> None:
    """What a suspended job took up of its quota is not given back."""
    changes = job_state_machine.quota_change

    def kept(before: Any, after: Any, event: Any) -> QuotaChange | None:
        return None if after.status is JobStatus.SUSPENDED else changes(before, after, event)

    patch.setattr(job_state_machine, "quota_change", kept)


def quota_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Whoever fits is given a place."""
    patch.setattr(QuotaAdmission, "refusal", lambda self, job: None)


def given_back_early(patch: pytest.MonkeyPatch) -> None:
    """The GPUs of a job that is to make room are given away when it is told so."""

    def suspend(record: Any, event: Any, given: Any) -> Any:
        step = suspension.suspend(record, event, given)
        release = commands.ReleaseInstances(record.instances, attempt=record.attempt)
        return replace(step, commands=(*step.commands, release)) if hasattr(step, "commands") else step

    row = Transition.to(suspend, JobStatus.SUSPENDING)
    patch.setitem(job_state_machine.TRANSITIONS, (JobStatus.RUNNING, events.SuspendRequested), row)


def queued_anew(patch: pytest.MonkeyPatch) -> None:
    """A suspended job is in line since it was suspended."""
    known = job_state_machine.TRANSITIONS[JobStatus.STOPPING, events.AllRanksStopped]

    def all_stopped(record: Any, event: Any, given: Any) -> Any:
        step = known.decide(record, event, given)
        if step.status is not JobStatus.SUSPENDED:
            return step
        return replace(step, changes={**step.changes, "queued_at": given.now})

    patch.setitem(
        job_state_machine.TRANSITIONS,
        (JobStatus.STOPPING, events.AllRanksStopped),
        Transition.to(all_stopped, *JobStatus),
    )


def to_the_end_of_the_line(patch: pytest.MonkeyPatch) -> None:
    """A suspended job waits behind all others of its priority."""

    def place_in_line(one: Any) -> tuple[Any, ...]:
        return (-one.priority, not one.recovering, one.suspended_at is not None, one.queued_at, one.job_id)

    patch.setattr(ordering, "queue_position_key", place_in_line)


def claims_what_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A claim does not look at what is left of the instance, and a pass not at what was given without a claim yet: each
    of them alone is made good by the other."""

    def may_claim(instance: Any, job_id: str, claim: Any, epoch: int) -> bool:
        return instance.epoch == epoch and instance.claims.get(job_id, claim) == claim

    patch.setattr(store, "_may_claim", may_claim)
    patch.setattr(cluster_snapshot, "_promised", lambda entries: {})


def ticks_find_nothing(patch: pytest.MonkeyPatch) -> None:
    """The clock never wakes a pass: only those who change something do."""
    patch.setattr(schedule, "_is_due", lambda last, now: False)
