"""Items of the plan of an attempt: one for each PART_RANKS ranks, so that no partition key takes too many reads.

Ranks 0 to 63 are in the head, `<job>#a01#plan`, the next 64 ranks in `<job>#a01#plan#part1`, and so on, as in the
progress (`progress_items`). Each event of a rank reads the item of this rank: one read unit for a gang of any size. The
head of a gang of more than PART_RANKS ranks also has `parts`, the number of items.

An earlier release kept each plan in one item of any size: a head without `parts`. Its plans stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.aws.item_codec import decode, item_of, reading
from gpu_recovery.aws.progress_items import progress_key
from gpu_recovery.aws.rank_parts import PART_RANKS, ItemsInParts, create, part_of, part_ranks, parts_in
from gpu_recovery.core.attempt import Plan


def plan_key(job_id: str, attempt: int, part: int = 0) -> str:
    """Return the key of an item of an attempt's plan; part 0 is the head."""
    head = f"{progress_key(job_id, attempt)}#plan"
    return f"{head}#part{part}" if part else head


def items_of(plan: Plan) -> list[dict[str, Any]]:
    """Return the items of a plan, the head first."""
    count = parts_in(len(plan.instances))
    keys = [plan_key(plan.job_id, plan.attempt, part) for part in range(count)]
    items = [{"job_id_rank": key, **item_of(_part(plan, part))} for part, key in enumerate(keys)]
    if count > 1:
        items[0]["parts"] = count
    return items


class PlanItems(ItemsInParts[Plan]):
    """The items of the plans in the job table."""

    name, key = "plan", staticmethod(plan_key)

    def begin(self, plan: Plan) -> bool:
        """Write `plan` unless there is one, all items together or none. Return whether it was written.

        Raises:
            TryAgainSoon: DynamoDB throttled the write, or other functions held the items at every try.
        """
        return create(self.jobs, items_of(plan))

    def load_rank(self, job_id: str, attempt: int, rank: int) -> Plan | None:
        """Return the plan cut to one rank, without a rank if the plan does not have it; None if there is no plan."""
        part = part_of(rank)
        item, first = self.jobs.get(plan_key(job_id, attempt, part)), part * PART_RANKS
        if item is None and part > 0:
            # No such part: an earlier release began the attempt, there is no such rank, or there is no plan.
            item, first = self.jobs.get(plan_key(job_id, attempt)), 0
        return _cut(_plan(item), range(rank - first, rank - first + 1)) if item is not None else None

    def record_tasks(self, plan: Plan, ranks: Iterable[int]) -> None:
        """Write the task ids and instances of `plan` into the stored items of `ranks`; see `ports.store`."""
        count = parts_in(len(plan.instances))
        for part in sorted({part_of(rank) for rank in ranks}):
            is_such_item = "attribute_exists(parts)" if part == 0 and count > 1 else "attribute_exists(job_id_rank)"
            if not self._update(part, _part(plan, part), is_such_item):
                # No such item: an earlier release began the attempt, or nobody did.
                self._update(0, plan, "attribute_exists(job_id_rank) AND attribute_not_exists(parts)")
                return

    def _update(self, part: int, plan: Plan, condition: str) -> bool:
        key, values = plan_key(plan.job_id, plan.attempt, part), {":t": list(plan.task_ids), ":i": list(plan.instances)}
        return self.jobs.update(key, "SET task_ids = :t, instances = :i", condition, {}, values) is not None

    def whole(self, head: Mapping[str, Any]) -> Plan:
        """Return the whole plan of an attempt from its head."""
        first, *others = parts = [_plan(item) for item in self.parts(head)]
        if not others:
            return first
        return replace(
            first,
            instances=tuple(instance for part in parts for instance in part.instances),
            epochs=tuple(epoch for part in parts for epoch in part.epochs),
            task_ids=tuple(task_id for part in parts for task_id in part.task_ids),
        )


def _part(plan: Plan, part: int) -> Plan:
    return _cut(plan, part_ranks(part, len(plan.instances)))


def _cut(plan: Plan, ranks: range) -> Plan:
    """Return the plan with these of its ranks alone."""
    some = slice(ranks.start, ranks.stop)
    return replace(plan, instances=plan.instances[some], epochs=plan.epochs[some], task_ids=plan.task_ids[some])


def _plan(item: Mapping[str, Any]) -> Plan:
    with reading(f"plan {item['job_id_rank']}", item):
        plan: Plan = decode(Plan, item)
        return plan
