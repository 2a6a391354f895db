"""Attempts in the job table: the plan in the items of `plan_items`, the progress in the items of `progress_items`.

The ranks of a gang that a user started are seen one by one: each has its task under `<job>#a01#rank0`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import decode, item_of, reading
from gpu_recovery.aws.job_store import DynamoJobStore
from gpu_recovery.aws.plan_items import PlanItems, plan_key
from gpu_recovery.aws.progress_items import ProgressItems, progress_key
from gpu_recovery.aws.rank_parts import NOT_STORED
from gpu_recovery.core.attempt import AttemptProgress, Plan, RankTask, with_tasks
from gpu_recovery.core.events import Checked
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.values import ProgressUpdate

LAUNCH_KEY = "#launch-key"
"""Key of the item with the launch key."""


def task_key(job_id: str, attempt: int, rank: int) -> str:
    """Return the key of the task of a rank that a user started."""
    return f"{progress_key(job_id, attempt)}#rank{rank}"


class DynamoAttemptStore(DynamoJobStore):
    """The attempts of the store; see `ports.store.AttemptStore` for the contract of each method."""

    def launch_key(self) -> str:
        """Return the secret key of launch signatures. It never changes, so each function reads it once."""
        return self._launch_key

    @cached_property
    def _launch_key(self) -> str:
        item = self.jobs.get(LAUNCH_KEY)
        if item is None:
            # If two functions create the key at once, the condition lets one write win, and both read its key.
            created = {"job_id_rank": LAUNCH_KEY, "launch_key": secrets.token_hex(32)}
            item = created if self.jobs.put(created, NOT_STORED) else self.jobs.get(LAUNCH_KEY)
        return str((item or {})["launch_key"])

    def begin_attempt(self, plan: Plan) -> Plan:
        """Write `plan` and an empty progress unless they exist. Return the stored plan.

        The progress is written first: a stored plan always has a progress.
        """
        self._progress.begin(plan.job_id, plan.attempt, len(plan.instances))
        if self._plans.begin(plan):
            return plan
        return self.load_plan(plan.job_id, plan.attempt) or plan

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        """Return the plan of an attempt; None if there is none."""
        plan = self._plans.load(job_id, attempt)
        return self._with_tasks(plan) if plan is not None else None

    def load_planned_task(self, job_id: str, attempt: int, rank: int) -> RankTask | None:
        """Return the instance and the task that the plan has for a rank. None if there is no plan."""
        plan = self._plans.load_rank(job_id, attempt, rank)
        if plan is None:
            return None
        planned = RankTask(next(iter(plan.task_ids), ""), next(iter(plan.instances), ""), plan.hold_s > 0)
        if plan.epochs or all(plan.task_ids):
            return planned
        return self.load_task(job_id, attempt, rank) or planned

    def _with_tasks(self, plan: Plan) -> Plan:
        """Return the plan with the tasks of ranks that a user started. They are recorded in items of their own."""
        if plan.epochs or all(plan.task_ids):
            return plan
        unknown = [rank for rank, task_id in enumerate(plan.task_ids) if not task_id]
        keys = {task_key(plan.job_id, plan.attempt, rank): rank for rank in unknown}
        items = self.jobs.get_all(list(keys))
        return with_tasks(plan, {keys[key]: _task(item) for key, item in items.items()})

    def load_progress(self, job_id: str, attempt: int) -> AttemptProgress | None:
        """Return the progress of an attempt; None if there is none."""
        return self._progress.load(job_id, attempt)

    def has_progress(self, job_id: str, attempt: int, rank: int) -> bool:
        """Return whether the attempt has been begun, by the item with the facts of the rank."""
        return self._progress.has_rank(job_id, attempt, rank)

    def record_task(self, job_id: str, attempt: int, rank: int, task: RankTask) -> RankTask:
        """Record the task of one rank, unless another task is recorded. Return the recorded task.

        The item of a rank has a key of its own. The tasks in the plan are lists for 64 ranks, which functions that
        record several ranks at once would overwrite for each other.
        """
        key = task_key(job_id, attempt, rank)
        item = {"job_id_rank": key, **item_of(task)}
        is_free = "attribute_not_exists(job_id_rank) OR task_id = :t"
        if self.jobs.put(item, is_free, {":t": task.task_id}):
            return task
        return self.load_task(job_id, attempt, rank) or task

    def load_task(self, job_id: str, attempt: int, rank: int) -> RankTask | None:
        """Return the recorded task of a rank; None if none is recorded."""
        item = self.jobs.get(task_key(job_id, attempt, rank))
        return _task(item) if item is not None else None

    def record_tasks(self, plan: Plan, ranks: Iterable[int]) -> None:
        """Write the task ids and instances of `ranks` into the stored plan."""
        self._plans.record_tasks(plan, ranks)

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        """Add the rank to the running ranks. Return the update; None if the fact is known or the rank unknown."""
        return self._progress.add_running(job_id, attempt, rank)

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        """Add the rank to the stopped ranks. Return the update; None if the end is known or the rank unknown."""
        return self._progress.add_stopped(job_id, attempt, rank, failure)

    def add_held(self, job_id: str, attempt: int, rank: int, failure: RankFailure) -> ProgressUpdate | None:
        """Add the rank to the held ranks. Return the update; None if its end is known or the rank unknown."""
        return self._progress.add_held(job_id, attempt, rank, failure)

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        """Add the check result of the rank's instance. Return the update; None if the rank has a result already."""
        return self._progress.add_checked(job_id, attempt, rank, result)

    @cached_property
    def _progress(self) -> ProgressItems:
        return ProgressItems(self.jobs)

    @cached_property
    def _plans(self) -> PlanItems:
        return PlanItems(self.jobs)


class DynamoAttemptHistory:
    """`job_api.dependencies.AttemptHistory` on DynamoDB.

    client:    a low-level boto3 DynamoDB client.
    job_table: name of the job table.
    """

    def __init__(self, client: Any, job_table: str) -> None:
        self.jobs = Table(client, job_table, "job_id_rank")

    def of(self, job_id: str, attempts: Sequence[int]) -> Mapping[int, tuple[Plan | None, AttemptProgress | None]]:
        """Return the plan and the progress of each attempt by its number; None for an item that is not stored."""
        keys = [key(job_id, number) for number in attempts for key in (plan_key, progress_key)]
        items = self.jobs.get_all(keys)
        progress = ProgressItems(self.jobs).load_all(job_id, attempts, items)
        plans = PlanItems(self.jobs).load_all(job_id, attempts, items)
        return {number: (plans.get(number), progress.get(number)) for number in attempts}


def _task(item: Mapping[str, Any]) -> RankTask:
    with reading(f"rank {item['job_id_rank']}", item):
        task: RankTask = decode(RankTask, item)
        return task
