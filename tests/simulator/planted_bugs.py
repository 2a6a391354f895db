"""Five bugs to plant in the product. Each way of looking must find each of them, or its silence would say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.events import AllRanksStopped, JobDeadlineReached
from gpu_recovery.core.instance import repair
from gpu_recovery.core.job import state_machine, stopping
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import EventOutcome, Transition
from gpu_recovery.recovery import Recovery

from simulator.memory_store.store import MemoryStore


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """What is said about attempt 1 moves attempt 2."""
    patch.setattr(state_machine, "outdated_reason", lambda record, event: "")


def act_before_save(patch: pytest.MonkeyPatch) -> None:
    """Orders leave before any record knows of them."""

    def keep_job(self: Recovery, before: Any, event: Any, decision: Any, settling: str) -> Any:
        if decision.outcome is not EventOutcome.APPLIED:
            return decision
        self.execute(replace(decision.record, revision=before.revision), decision.commands)
        stored = self.store.load_job(before.job_id)
        assert stored is not None
        after = replace(decision.record, commands=(), revision=stored.revision)
        return replace(decision, record=self.store.save_job(after, decision.quota))

    patch.setattr(Recovery, "_save_job", keep_job)


def reconnect_is_reboot(patch: pytest.MonkeyPatch) -> None:
    """An agent that is back counts as a machine that has booted."""
    patch.setattr(repair, "proves_reboot", lambda reboot, verdict: True)


def no_version_check(patch: pytest.MonkeyPatch) -> None:
    """A stale writer wins."""
    kept = MemoryStore.save_job

    def save_anyway(self: MemoryStore, record: Any, *quota: Any) -> Any:
        stored = self.load_job(record.job_id)
        return kept(self, replace(record, revision=stored.revision if stored else 0), *quota)

    patch.setattr(MemoryStore, "save_job", save_anyway)


def free_on_suspicion(patch: pytest.MonkeyPatch) -> None:
    """Ranks that do not end in time are taken for ended, and their GPUs for free."""

    def suspect(record: Any, event: Any, given: Any) -> Any:
        ended = AllRanksStopped(at=event.at, attempt=event.attempt)
        return stopping.all_stopped(record, ended, given)

    patch.setitem(
        state_machine.TRANSITIONS, (JobStatus.STOPPING, JobDeadlineReached), Transition.to(suspect, *JobStatus)
    )
