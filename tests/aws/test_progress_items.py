"""Parts of the progress of a large gang on DynamoDB: killed functions, and attempts that an earlier release began."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.attempt_store import DynamoAttemptHistory
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable
from gpu_recovery.aws.progress_items import progress_key
from gpu_recovery.aws.rank_parts import PART_RANKS, parts_in
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.attempt import missed_event
from gpu_recovery.core.events import AllRanksRunning, AllRanksStopped, InstancesChecked, RankFailed
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import NNODES_MAX

from simulator.dynamodb.limits import TRANSACTION_ACTIONS_MAX
from tests.aws.records import JOB, NOW, checked, failure, plan
from tests.aws.test_dynamo_calls import meddled

WORLD = 2 * PART_RANKS + 6
HEAD = progress_key(JOB, 1)


class Killed(Exception):
    """The function was killed before its next write."""


def kill_before_the_head(store: DynamoStore) -> DynamoStore:
    """A function that is killed after it wrote a fact into its part, before it writes the head."""

    def call(call: Any, request: dict[str, Any]) -> Any:
        if request["Key"] == typed({"job_id_rank": HEAD}) and "_parts" in request["UpdateExpression"]:
            raise Killed
        if request["Key"] == typed({"job_id_rank": HEAD}) and "failure" in request["UpdateExpression"]:
            raise Killed
        return call(**request)

    return meddled(store, "update_item", call)


@pytest.mark.parametrize(
    ("status", "add", "event"),
    [
        (JobStatus.SUBMITTED, lambda store, rank: store.add_running(JOB, 1, rank), AllRanksRunning),
        (JobStatus.STOPPING, lambda store, rank: store.add_stopped(JOB, 1, rank, None), AllRanksStopped),
        (JobStatus.DIAGNOSING, lambda store, rank: store.add_checked(JOB, 1, rank, checked()), InstancesChecked),
    ],
    ids=["running", "stopped", "checked"],
)
@pytest.mark.parametrize("last", [3, PART_RANKS + 3])
def test_a_function_that_is_killed_between_part_and_head_loses_no_event(
    double_store: DynamoStore, status: JobStatus, add: Any, event: type, last: int
) -> None:
    """Its fact counts as known, so no repeated event of ECS helps: the reconciler finds it in the whole progress."""
    double_store.begin_attempt(plan(world=WORLD))
    for rank in set(range(WORLD)) - {last}:
        add(double_store, rank)
    with pytest.raises(Killed):
        add(kill_before_the_head(double_store), last)
    assert add(double_store, last) is None
    progress = double_store.load_progress(JOB, 1)
    assert progress is not None
    assert isinstance(missed_event(status, progress, plan(world=WORLD), NOW), event)


def test_a_first_failure_that_never_reached_the_head_is_found(double_store: DynamoStore) -> None:
    """The next failure is the first in the head, and stays it."""
    double_store.begin_attempt(plan(world=WORLD))
    with pytest.raises(Killed):
        kill_before_the_head(double_store).add_stopped(JOB, 1, PART_RANKS, failure(PART_RANKS))
    progress = double_store.load_progress(JOB, 1)
    assert progress is not None and progress.failure == failure(PART_RANKS)
    assert isinstance(missed_event(JobStatus.RUNNING, progress, plan(world=WORLD), NOW), RankFailed)
    later = double_store.add_stopped(JOB, 1, 7, failure(7))
    progress = double_store.load_progress(JOB, 1)
    assert later is not None and later.first_failure and progress is not None and progress.failure == failure(7)


def begun_by_an_earlier_release(store: DynamoStore, world: int) -> None:
    """One item without parts, for a gang of any size."""
    item = {"job_id_rank": HEAD, "job_id": JOB, "attempt": 1, "world": world, "checked": {}, "schema": SCHEMA}
    store.jobs.put(item, "attribute_not_exists(job_id_rank)")


def test_an_attempt_that_an_earlier_release_began_stays_one_item(double_store: DynamoStore) -> None:
    """Each fact returns the whole progress, as before, and the attempt is not begun a second time."""
    begun_by_an_earlier_release(double_store, WORLD)
    double_store.begin_attempt(plan(world=WORLD))
    for rank in range(WORLD):
        answer = double_store.add_stopped(JOB, 1, rank, failure(rank) if rank == PART_RANKS else None)
        assert answer is not None and len(answer.progress.stopped) == rank + 1
        assert answer.first_failure == (rank == PART_RANKS)
        assert double_store.add_stopped(JOB, 1, rank, None) is None
    assert answer.progress.all_stopped and answer.progress == double_store.load_progress(JOB, 1)
    assert double_store.jobs.get(progress_key(JOB, 1, 1)) is None
    assert double_store.has_progress(JOB, 1, WORLD - 1)


def test_the_history_of_attempts_shows_large_and_small_gangs_whole(double_store: DynamoStore) -> None:
    """The parts of an attempt are read together."""
    double_store.begin_attempt(plan(world=WORLD))
    double_store.begin_attempt(plan(attempt=2))
    double_store.add_running(JOB, 1, WORLD - 1)
    double_store.add_running(JOB, 2, 1)
    found = DynamoAttemptHistory(double_store.jobs.client, double_store.jobs.name).of(JOB, (1, 2, 3))
    assert found == {
        1: (plan(world=WORLD), double_store.load_progress(JOB, 1)),
        2: (plan(attempt=2), double_store.load_progress(JOB, 2)),
        3: (None, None),
    }
    assert found[1][1] is not None and found[1][1].running == {WORLD - 1}


def test_a_progress_without_one_of_its_parts_is_named(double_store: DynamoStore) -> None:
    """Read without it, the gang would never end."""
    double_store.begin_attempt(plan(world=WORLD))
    part = progress_key(JOB, 1, 2)
    double_store.jobs.client.delete_item(TableName=double_store.jobs.name, Key=typed({"job_id_rank": part}))
    with pytest.raises(ItemUnreadable, match=f"progress {HEAD}.*part2 is missing"):
        double_store.load_progress(JOB, 1)


def test_the_largest_gang_is_begun_by_one_transaction() -> None:
    """Half of an attempt can never exist."""
    assert parts_in(NNODES_MAX) <= TRANSACTION_ACTIONS_MAX
