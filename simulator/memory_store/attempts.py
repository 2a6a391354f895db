"""Attempts in memory: `ports.store.AttemptStore` with the results that DynamoDB gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpu_recovery.aws.rank_parts import part_of, parts_in
from gpu_recovery.core.attempt import AttemptProgress, Plan, RankTask, with_tasks
from gpu_recovery.core.events import Checked
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.values import ProgressUpdate

from simulator.memory_store.limits import check_plan, check_progress, checked_bytes


class MemoryAttempts:
    """Implements `ports.store.AttemptStore`, which documents arguments and results."""

    def __init__(self) -> None:
        self.plans: dict[tuple[str, int], Plan] = {}
        self.tasks: dict[tuple[str, int], dict[int, RankTask]] = {}
        """Tasks of ranks that users started, by attempt and rank."""
        self.progress: dict[tuple[str, int], AttemptProgress] = {}
        self.attempts_kept: int | None = None
        """The number of latest attempts of a job for which plan and progress are saved; None: all attempts."""
        self._checked_bytes: dict[tuple[str, int, int], int] = {}
        """Size of the check results in each part of the progress of each attempt."""

    def launch_key(self) -> str:
        """Return the key of launch signatures. It is constant, so that every run of a seed is the same."""
        return "launch-key"

    def begin_attempt(self, plan: Plan) -> Plan:
        """Write `plan` and an empty progress unless they exist; return the stored plan."""
        key = (plan.job_id, plan.attempt)
        if self.attempts_kept is not None:
            old = (plan.job_id, plan.attempt - self.attempts_kept)
            self.plans.pop(old, None)
            self.tasks.pop(old, None)
            self.progress.pop(old, None)
        check_plan(plan)
        self.progress.setdefault(key, AttemptProgress(*key, world=len(plan.instances)))
        if key not in self.plans:
            self.plans[key] = plan
            return plan
        return self.load_plan(*key) or plan

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        """Return the plan of an attempt, with the recorded tasks of its ranks, or None."""
        plan = self.plans.get((job_id, attempt))
        if plan is None or plan.epochs or all(plan.task_ids):
            return plan
        return with_tasks(plan, self.tasks.get((job_id, attempt), {}))

    def load_planned_task(self, job_id: str, attempt: int, rank: int) -> RankTask | None:
        """Return the task and the instance of one rank as `load_plan` has them, or None."""
        plan = self.plans.get((job_id, attempt))
        if plan is None:
            return None
        task_ids, instances = plan.task_ids[rank : rank + 1], plan.instances[rank : rank + 1]
        planned = RankTask(next(iter(task_ids), ""), next(iter(instances), ""), plan.hold_s > 0)
        if plan.epochs or all(task_ids):
            return planned
        return self.load_task(job_id, attempt, rank) or planned

    def load_progress(self, job_id: str, attempt: int) -> AttemptProgress | None:
        """Return the progress of an attempt, or None."""
        return self.progress.get((job_id, attempt))

    def has_progress(self, job_id: str, attempt: int, rank: int) -> bool:
        """Return whether the attempt has a progress."""
        return (job_id, attempt) in self.progress

    def record_task(self, job_id: str, attempt: int, rank: int, task: RankTask) -> RankTask:
        """Record the task of one rank, unless another task is recorded; return the recorded task."""
        tasks = self.tasks.setdefault((job_id, attempt), {})
        if rank not in tasks or tasks[rank].task_id == task.task_id:
            tasks[rank] = task
        return tasks[rank]

    def load_task(self, job_id: str, attempt: int, rank: int) -> RankTask | None:
        """Return the recorded task of a rank, or None."""
        return self.tasks.get((job_id, attempt), {}).get(rank)

    def record_tasks(self, plan: Plan, ranks: Iterable[int]) -> None:
        """Write the task ids and instances of `ranks`, and of no other rank, into the stored plan."""
        stored = self.plans.get((plan.job_id, plan.attempt))
        if stored is None:
            return
        task_ids, instances = list(stored.task_ids), list(stored.instances)
        for rank in ranks:
            task_ids[rank], instances[rank] = plan.task_ids[rank], plan.instances[rank]
        updated = replace(stored, task_ids=tuple(task_ids), instances=tuple(instances))
        self.plans[plan.job_id, plan.attempt] = updated

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        """Record that the rank runs, unless that or its end is known."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank >= progress.world:
            return None
        if rank in progress.running or rank in progress.stopped or rank in progress.held:
            return None
        after = self._save_progress(replace(progress, running=progress.running | {rank}))
        return ProgressUpdate(after if after.all_running else _seen_by_part(after, running=frozenset({rank})))

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        """Record that the rank has ended, and its failure if it is the first of the attempt."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank >= progress.world or rank in progress.stopped:
            return None
        first = failure is not None and progress.failure is None and rank not in progress.held
        # The end of the process of a held rank was counted before.
        is_own = failure is not None and failure.ending.is_own and rank not in progress.held
        failed = failure if first else progress.failure
        after = self._save_progress(
            replace(progress, stopped=progress.stopped | {rank}, failure=failed, own_ends=progress.own_ends + is_own)
        )
        fact = {"stopped": frozenset({rank}), "failure": failure if first else None, "own_ends": int(is_own)}
        is_whole = after.all_stopped or after.all_held
        return ProgressUpdate(after if is_whole else _seen_by_part(after, **fact), first)

    def add_held(self, job_id: str, attempt: int, rank: int, failure: RankFailure) -> ProgressUpdate | None:
        """Record that the process of the rank has ended while its container waits."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank >= progress.world or rank in progress.stopped or rank in progress.held:
            return None
        first, is_own = progress.failure is None, failure.ending.is_own
        failed = failure if first else progress.failure
        after = self._save_progress(
            replace(progress, held=progress.held | {rank}, failure=failed, own_ends=progress.own_ends + is_own)
        )
        fact = {"held": frozenset({rank}), "failure": failure if first else None, "own_ends": int(is_own)}
        return ProgressUpdate(after if after.all_held else _seen_by_part(after, **fact), first)

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        """Record the health check of the rank's instance, unless a result is recorded already."""
        progress = self.load_progress(job_id, attempt)
        if progress is None or rank >= progress.world or rank in progress.checked:
            return None
        key = (job_id, attempt, part_of(rank))
        after = replace(progress, checked={**progress.checked, rank: result})
        written = self._checked_bytes.get(key, 0) + checked_bytes(rank, result)
        check_progress(after, part_of(rank), written)
        self._checked_bytes[key] = written
        self._save_progress(after)
        return ProgressUpdate(after if after.all_checked else _seen_by_part(after, checked={rank: result}))

    def _save_progress(self, progress: AttemptProgress) -> AttemptProgress:
        self.progress[progress.job_id, progress.attempt] = progress
        return progress


def _seen_by_part(after: AttemptProgress, **fact: Any) -> AttemptProgress:
    """Return the progress that DynamoDB returns after a fact that completes no set: of a large gang only the fact."""
    if parts_in(after.world) == 1:
        return after
    return AttemptProgress(after.job_id, after.attempt, after.world, **fact)
