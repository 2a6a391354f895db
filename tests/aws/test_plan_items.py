"""Parts of the plan of a large gang on DynamoDB: functions side by side, and plans that an earlier release wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.attempt_store import DynamoAttemptHistory
from gpu_recovery.aws.dynamodb import CONFLICTS_MAX, typed
from gpu_recovery.aws.item_codec import ItemUnreadable, item_of
from gpu_recovery.aws.plan_items import plan_key
from gpu_recovery.aws.rank_parts import PART_RANKS
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.attempt import RankTask
from gpu_recovery.core.job.spec import NNODES_MAX
from gpu_recovery.execution.context import RANKS_AT_ONCE
from gpu_recovery.ports.errors import TryAgainSoon

from simulator.dynamodb.double import DynamoDb
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.records import JOB, launched, plan
from tests.aws.test_dynamo_calls import meddled

WORLD = 2 * PART_RANKS + 6
HEAD = plan_key(JOB, 1)
LAUNCH_WRITES_MAX = 600
"""Write units that the plan of 3,000 ranks may cost, from its first write until each rank has its task."""


def written_by_an_earlier_release(store: DynamoStore, world: int) -> None:
    """One item without parts, for a gang of any size."""
    store.jobs.put({"job_id_rank": HEAD, **item_of(plan(world=world))}, "attribute_not_exists(job_id_rank)")


def plans(store: DynamoStore) -> dict[str, dict[str, Any]]:
    """The stored items of plans by key."""
    keys = [plan_key(JOB, 1, part) for part in range(4)]
    return store.jobs.get_all(keys)


@pytest.mark.parametrize(("world", "sizes"), [(64, [64]), (65, [64, 1]), (WORLD, [64, 64, 6])])
def test_a_plan_has_an_item_for_each_64_ranks(double_store: DynamoStore, world: int, sizes: list[int]) -> None:
    """Small gangs have the item that they always had."""
    double_store.begin_attempt(plan(world=world))
    items = plans(double_store)
    assert list(items) == [HEAD, f"{HEAD}#part1", f"{HEAD}#part2"][: len(sizes)]
    assert items[HEAD].get("parts") == (len(sizes) if len(sizes) > 1 else None)
    assert [len(item["instances"]) for item in items.values()] == sizes


def test_a_plan_that_an_earlier_release_wrote_stays_one_item(double_store: DynamoStore) -> None:
    """It is read whole and rank by rank, its tasks are recorded, and it is not written a second time."""
    written_by_an_earlier_release(double_store, WORLD)
    assert double_store.begin_attempt(launched(world=WORLD)) == plan(world=WORLD)
    there = replace(launched(world=WORLD), signed=False)
    for ranks in (range(3), range(PART_RANKS, WORLD)):
        task_ids = tuple(task if rank in ranks else "" for rank, task in enumerate(there.task_ids))
        double_store.record_tasks(replace(there, task_ids=task_ids), ranks)
        assert double_store.load_plan(JOB, 1) == replace(there, task_ids=task_ids)
        for rank in (0, PART_RANKS, WORLD - 1):
            expected = RankTask(task_ids[rank], there.instances[rank])
            assert double_store.load_planned_task(JOB, 1, rank) == expected
    assert double_store.load_planned_task(JOB, 1, WORLD) == RankTask("", "")
    assert list(plans(double_store)) == [HEAD]


def test_two_functions_that_begin_an_attempt_have_the_same_plan(double_store: DynamoStore) -> None:
    """The other function writes its plan after this function has read that there is none."""
    other = replace(plan(world=WORLD), instances=tuple(f"i-other-{rank}" for rank in range(WORLD)))

    def late(call: Any, request: dict[str, Any]) -> Any:
        if HEAD in str(request["TransactItems"][0]):
            double_store.begin_attempt(other)
        return call(**request)

    assert meddled(double_store, "transact_write_items", late).begin_attempt(plan(world=WORLD)) == other
    assert double_store.load_plan(JOB, 1) == other


@pytest.mark.parametrize("times", [1, CONFLICTS_MAX])
def test_a_conflict_with_another_function_is_no_plan(double_store: DynamoStore, times: int) -> None:
    """The other function's transaction may fail, so this function tries again, or the command later."""
    left = [times]

    def conflicting(call: Any, request: dict[str, Any]) -> Any:
        if HEAD not in str(request["TransactItems"][0]) or not left[0]:
            return call(**request)
        left[0] -= 1
        reasons = [{"Code": "TransactionConflict"}, *[{"Code": "None"}] * (len(request["TransactItems"]) - 1)]
        error = {"Error": {"Code": "TransactionCanceledException", "Message": ""}, "CancellationReasons": reasons}
        raise ClientError(error, "TransactWriteItems")

    store = meddled(double_store, "transact_write_items", conflicting)
    if times == CONFLICTS_MAX:
        with pytest.raises(TryAgainSoon, match=HEAD):
            store.begin_attempt(plan(world=WORLD))
    assert store.begin_attempt(plan(world=WORLD)) == double_store.load_plan(JOB, 1) == plan(world=WORLD)


def test_a_plan_without_one_of_its_parts_is_named(double_store: DynamoStore) -> None:
    """Read without it, its ranks would never be stopped. The tasks of its ranks are not written elsewhere."""
    double_store.begin_attempt(plan(world=WORLD))
    key = typed({"job_id_rank": plan_key(JOB, 1, 2)})
    double_store.jobs.client.delete_item(TableName=double_store.jobs.name, Key=key)
    before = plans(double_store)
    double_store.record_tasks(launched(world=WORLD), [WORLD - 1])
    assert plans(double_store) == before
    with pytest.raises(ItemUnreadable, match=f"plan {HEAD}.*part2 is missing"):
        double_store.load_plan(JOB, 1)


def test_the_history_of_attempts_shows_plans_of_both_forms(double_store: DynamoStore) -> None:
    """Attempt 1 was begun by an earlier release, attempt 2 is in parts."""
    written_by_an_earlier_release(double_store, WORLD)
    double_store.begin_attempt(launched(attempt=2, world=WORLD))
    found = DynamoAttemptHistory(double_store.jobs.client, double_store.jobs.name).of(JOB, (1, 2, 3))
    assert [each[0] for each in found.values()] == [plan(world=WORLD), launched(attempt=2, world=WORLD), None]


def test_a_launch_of_3000_ranks_writes_each_part_of_its_plan_a_few_times(metered: DynamoDb) -> None:
    """The launch records its tasks 100 at a time. The whole plan would be 30 times 150 KB."""
    store, there = dynamo_store(DoubleClient(metered)), launched(world=NNODES_MAX)
    held = store.begin_attempt(plan(world=NNODES_MAX))
    for start in range(0, NNODES_MAX, RANKS_AT_ONCE):
        done = start + RANKS_AT_ONCE
        held = replace(held, task_ids=there.task_ids[:done] + ("",) * (NNODES_MAX - done))
        store.record_tasks(held, range(start, done))
    assert metered.meter is not None
    units = {key: number for key, number in metered.meter.writes.items() if HEAD in str(key.value)}
    assert sum(units.values()) <= LAUNCH_WRITES_MAX and len(units) == -(-NNODES_MAX // PART_RANKS)
    found = store.load_plan(JOB, 1)
    assert found is not None and found.task_ids == there.task_ids
