"""Attempts in memory: `ports.store.AttemptStore` with the results that DynamoDB gives."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.events import Checked
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.values import ProgressUpdate

from simulator.memory_store.limits import check_plan, check_progress


class MemoryAttempts:
    """Implements `ports.store.AttemptStore`, which documents arguments and results."""

    def __init__(self) -> None:
        self.plans: dict[tuple[str, int], Plan] = {}
        self.progress: dict[tuple[str, int], AttemptProgress] = {}
        self.attempts_kept: int | None = None
        """The number of latest attempts of a job for which plan and progress are saved; None: all attempts."""
        self._checked_characters: dict[tuple[str, int], int] = {}
        """Characters of the summaries in the progress of each attempt."""

    def launch_key(self) -> str:
        """Return the key of launch signatures. It is constant, so that every run of a seed is the same."""
        return "launch-key"

    def begin_attempt(self, plan: Plan) -> Plan:
        """Write `plan` and an empty progress unless they exist; return the stored plan."""
        key = (plan.job_id, plan.attempt)
        if self.attempts_kept is not None:
            old = (plan.job_id, plan.attempt - self.attempts_kept)
            self.plans.pop(old, None)
            self.progress.pop(old, None)
        if key not in self.plans:
            check_plan(plan)
        self.progress.setdefault(key, AttemptProgress(*key, world=len(plan.instances)))
        return self.plans.setdefault(key, plan)

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        """Return the plan of an attempt, or None."""
        return self.plans.get((job_id, attempt))

    def load_progress(self, job_id: str, attempt: int) -> AttemptProgress | None:
        """Return the progress of an attempt, or None."""
        return self.progress.get((job_id, attempt))

    def record_task(self, plan: Plan, rank: int, instance_id: str, task_id: str) -> None:
        """Write the instance and the task id of one rank into the stored plan."""
        stored = self.load_plan(plan.job_id, plan.attempt)
        if stored is not None:
            instances = _with_rank(stored.instances, rank, instance_id)
            task_ids = _with_rank(stored.task_ids, rank, task_id)
            self.plans[plan.job_id, plan.attempt] = replace(stored, instances=instances, task_ids=task_ids)

    def record_tasks(self, plan: Plan) -> None:
        """Write the task ids of all ranks of `plan` into the stored plan."""
        stored = self.load_plan(plan.job_id, plan.attempt)
        if stored is not None:
            self.plans[plan.job_id, plan.attempt] = replace(stored, task_ids=plan.task_ids)

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        """Record that the rank runs, unless that or its end is known."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank >= progress.world:
            return None
        if rank in progress.running or rank in progress.stopped:
            return None
        return ProgressUpdate(self._save_progress(replace(progress, running=progress.running | {rank})))

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        """Record that the rank has ended, and its failure if it is the first of the attempt."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank >= progress.world or rank in progress.stopped:
            return None
        first = failure is not None and progress.failure is None
        own_ends = progress.own_ends + (failure is not None and failure.ending.is_own)
        failed = failure if first else progress.failure
        updated = replace(progress, stopped=progress.stopped | {rank}, failure=failed, own_ends=own_ends)
        return ProgressUpdate(self._save_progress(updated), first)

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        """Record the health check of the rank's instance, unless a result is recorded already."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank in progress.checked:
            return None
        key = (job_id, attempt)
        after = replace(progress, checked={**progress.checked, rank: result})
        written = self._checked_characters.get(key, 0) + len(result.summary)
        check_progress(after, written)
        self._checked_characters[key] = written
        return ProgressUpdate(self._save_progress(after))

    def _save_progress(self, progress: AttemptProgress) -> AttemptProgress:
        self.progress[progress.job_id, progress.attempt] = progress
        return progress


def _with_rank(values: tuple[str, ...], rank: int, value: str) -> tuple[str, ...]:
    return tuple(value if number == rank else old for number, old in enumerate(values))
