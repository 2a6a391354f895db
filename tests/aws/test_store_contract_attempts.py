"""What every store promises about attempts: a rank's fact counts once, whatever is delivered in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from gpu_recovery.aws.rank_parts import PART_RANKS
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.attempt import AttemptProgress, Plan, RankTask
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.task import EndingKind
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import ProgressUpdate

from simulator.dynamodb.double import DynamoDb
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.records import JOB, OTHER_JOB, checked, failure, launched, plan


def test_an_attempt_begins_with_its_plan_and_an_empty_progress(store: Store) -> None:
    """Both can be read back, and other attempts cannot."""
    assert store.begin_attempt(plan()) == plan()
    assert store.load_plan(JOB, 1) == plan()
    assert store.load_progress(JOB, 1) == AttemptProgress(JOB, 1, world=2)
    assert store.load_plan(JOB, 2) is None
    assert store.load_progress(OTHER_JOB, 1) is None


def test_the_launch_key_never_changes(store: Store) -> None:
    """A task that carries a signature of another key would be nobody's."""
    assert store.launch_key() == store.launch_key() != ""


def test_two_functions_that_create_the_launch_key_at_once_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the first write holds; one more deployment has another key."""
    first = dynamo_store(DoubleClient(DynamoDb()))
    second, third = (DynamoStore(first.jobs.client, first.jobs.name, first.table.name) for _ in range(2))
    keys: list[str] = []
    get = second.jobs.get

    def late(key: str) -> Any:
        found = get(key)
        keys.append("" if keys else first.launch_key())
        return found

    monkeypatch.setattr(second.jobs, "get", late)
    assert second.launch_key() == keys[0] == third.launch_key()
    assert keys[0] != dynamo_store(DoubleClient(DynamoDb())).launch_key()


def test_an_attempt_that_is_begun_again_keeps_what_is_known(store: Store) -> None:
    """The first plan holds, and the progress is not emptied."""
    store.begin_attempt(plan())
    store.record_tasks(replace(plan(), task_ids=("task-0", ""), instances=("i-other", plan().instances[1])), (0,))
    store.add_running(JOB, 1, 0)
    held = store.begin_attempt(plan())
    assert held.instances == ("i-other", plan().instances[1])
    assert held.task_ids == ("task-0", "")
    progress = store.load_progress(JOB, 1)
    assert progress is not None and progress.running == {0}


def test_attempt_numbers_of_three_digits_are_kept_apart(store: Store) -> None:
    """Attempt 100 is not attempt 10."""
    store.begin_attempt(plan(attempt=10))
    store.begin_attempt(plan(attempt=100))
    store.add_stopped(JOB, 100, 1, None)
    ten, hundred = store.load_progress(JOB, 10), store.load_progress(JOB, 100)
    assert ten is not None and ten.stopped == frozenset()
    assert hundred is not None and hundred.stopped == {1}


def test_every_task_can_be_entered_at_once(store: Store) -> None:
    """The task ids of a launch replace the empty ones."""
    store.begin_attempt(plan())
    store.record_tasks(replace(plan(), task_ids=("task-0", "task-1")), (0, 1))
    held = store.load_plan(JOB, 1)
    assert held is not None and held.task_ids == ("task-0", "task-1")


def test_a_task_of_an_attempt_that_was_never_begun_is_passed_over(store: Store) -> None:
    """Entering it creates no plan."""
    store.record_task(JOB, 1, 0, RankTask("task-0", "i-1"))
    store.record_tasks(plan(), (0, 1))
    assert store.load_plan(JOB, 1) is None


WORLD = PART_RANKS + 6
"""Ranks of the smallest kind of gang in parts: 64 ranks in the head and 6 in the second part."""
STARTED_BY_A_USER = Plan(JOB, 1, ("", "", ""), task_ids=("", "", ""))


def test_the_ranks_of_a_gang_that_a_user_started_are_recorded_one_by_one(store: Store) -> None:
    """The plan shows them together, whether the attempt was begun before or after, and keeps what it has."""
    store.record_task(JOB, 1, 2, RankTask("task-2", "i-2"))
    store.begin_attempt(STARTED_BY_A_USER)
    assert store.begin_attempt(STARTED_BY_A_USER).task_ids == ("", "", "task-2")
    store.record_task(JOB, 1, 0, RankTask("task-0", ""))
    store.record_task(JOB, 1, 0, RankTask("task-0", "i-0"))
    seen = store.load_plan(JOB, 1)
    assert seen is not None
    assert (seen.instances, seen.task_ids) == (("i-0", "", "i-2"), ("task-0", "", "task-2"))
    store.record_tasks(seen, (0, 2))
    store.record_task(JOB, 1, 1, RankTask("task-1", "i-1"))
    whole = store.load_plan(JOB, 1)
    assert whole is not None and whole.instances == ("i-0", "i-1", "i-2")
    assert store.load_plan(JOB, 2) is None


def test_the_first_recorded_task_of_a_rank_stays(store: Store) -> None:
    """Another task of the same rank is a stranger's."""
    first, other = RankTask("task-0", "i-0"), RankTask("another", "i-9")
    assert store.load_task(JOB, 1, 0) is None
    assert store.record_task(JOB, 1, 0, first) == store.record_task(JOB, 1, 0, other) == first
    assert store.load_task(JOB, 1, 0) == first


def test_the_tasks_of_a_placed_gang_are_those_of_its_plan(store: Store) -> None:
    """A rank that is not started yet has none."""
    store.begin_attempt(plan())
    store.record_task(JOB, 1, 0, RankTask("task-0", "i-0"))
    held = store.load_plan(JOB, 1)
    assert held is not None and held.task_ids == ("", "")


@pytest.mark.parametrize("world", [1, PART_RANKS, PART_RANKS + 1, 2 * PART_RANKS + 6])
def test_the_plan_of_a_gang_of_any_size_is_read_as_it_was_written(store: Store, world: int) -> None:
    """Whole, and rank by rank. The second function that begins the attempt gets the stored plan."""
    first = replace(launched(world=world), epochs=tuple(range(world)), port_offset=3)
    assert store.begin_attempt(first) == first
    other = replace(first, instances=("i-other",) * world, task_ids=("another",) * world)
    assert store.begin_attempt(other) == store.load_plan(JOB, 1) == first
    for rank in {0, world // 2, min(world, PART_RANKS) - 1, world - 1}:
        assert store.load_planned_task(JOB, 1, rank) == RankTask(first.task_ids[rank], first.instances[rank])


@pytest.mark.parametrize("world", [2, PART_RANKS, PART_RANKS + 6])
@pytest.mark.parametrize("outside", [0, 1, PART_RANKS, 999_999_999 - 2 * PART_RANKS])
def test_a_rank_that_the_plan_does_not_have_has_no_task(store: Store, world: int, outside: int) -> None:
    """The attempt is known nevertheless."""
    assert store.load_planned_task(JOB, 1, world + outside) is None
    store.begin_attempt(launched(world=world))
    assert store.load_planned_task(JOB, 1, world + outside) == RankTask("", "")
    assert store.load_planned_task(JOB, 2, world + outside) is None


@pytest.mark.parametrize("ranks", [(0, 63), (5, 64, 69), range(WORLD)], ids=["head", "both", "all"])
def test_the_tasks_of_some_ranks_of_a_large_gang_are_recorded(store: Store, ranks: Sequence[int]) -> None:
    """A launch records them part by part, and no part changes another."""
    store.begin_attempt(plan(world=WORLD))
    task_ids = tuple(f"task-{rank}" if rank in ranks else "" for rank in range(WORLD))
    recorded = replace(plan(world=WORLD), task_ids=task_ids)
    store.record_tasks(recorded, ranks)
    assert store.load_plan(JOB, 1) == recorded
    whole = replace(recorded, task_ids=tuple(f"task-{rank}" for rank in range(WORLD)))
    store.record_tasks(whole, [rank for rank in range(WORLD) if rank not in ranks])
    assert store.load_plan(JOB, 1) == whole
    store.record_tasks(replace(whole, attempt=2), ranks)
    assert store.load_plan(JOB, 2) is None


def test_the_tasks_of_a_large_gang_that_a_user_started_are_found_rank_by_rank(store: Store) -> None:
    """In the plan if they are recorded there, else in the items of their own."""
    unknown = ("",) * WORLD
    store.begin_attempt(Plan(JOB, 1, unknown, task_ids=unknown))
    for rank in (3, PART_RANKS, WORLD - 1):
        store.record_task(JOB, 1, rank, RankTask(f"task-{rank}", f"i-{rank}"))
    seen = store.load_plan(JOB, 1)
    assert seen is not None and seen.instances[WORLD - 1] == f"i-{WORLD - 1}"
    store.record_tasks(seen, (3, PART_RANKS))
    store.record_task(JOB, 1, 7, RankTask("task-7", "i-7"))
    seen = store.load_plan(JOB, 1)
    assert seen is not None and [rank for rank, task in enumerate(seen.task_ids) if task] == [3, 7, 64, 69]
    for rank in (0, 3, 7, PART_RANKS, WORLD - 2, WORLD - 1):
        assert store.load_planned_task(JOB, 1, rank) == RankTask(seen.task_ids[rank], seen.instances[rank])


def test_facts_of_an_attempt_that_was_never_begun_are_none(store: Store) -> None:
    """Nobody can make an attempt by naming it."""
    assert store.add_running(JOB, 1, 0) is None
    assert store.add_stopped(JOB, 1, 0, failure(0)) is None
    assert store.add_checked(JOB, 1, 0, checked()) is None
    assert store.load_progress(JOB, 1) is None


def test_a_rank_that_the_attempt_does_not_have_counts_for_nothing(store: Store) -> None:
    """A number outside the gang would complete its set while a real rank still runs."""
    store.begin_attempt(plan())
    store.add_stopped(JOB, 1, 0, None)
    assert store.add_stopped(JOB, 1, 2, failure(2)) is None
    assert store.add_running(JOB, 1, 2) is None
    progress = store.load_progress(JOB, 1)
    assert progress is not None and (progress.stopped, progress.running, progress.failure) == ({0}, frozenset(), None)


def test_a_running_rank_counts_once(store: Store) -> None:
    """The second word of it is None; the first carries the progress afterwards."""
    store.begin_attempt(plan())
    first = store.add_running(JOB, 1, 1)
    assert first is not None and first.progress.running == {1} and not first.first_failure
    assert store.add_running(JOB, 1, 1) is None


def test_a_rank_that_ended_does_not_run_again(store: Store) -> None:
    """STOPPED dominates: a RUNNING that comes late is no news."""
    store.begin_attempt(plan())
    store.add_stopped(JOB, 1, 0, None)
    assert store.add_running(JOB, 1, 0) is None
    progress = store.load_progress(JOB, 1)
    assert progress is not None and progress.running == frozenset()


def test_a_rank_ends_once(store: Store) -> None:
    """Whether the repeated word says success or failure."""
    store.begin_attempt(plan())
    store.add_running(JOB, 1, 0)
    first = store.add_stopped(JOB, 1, 0, None)
    assert first is not None and first.progress.stopped == {0} and first.progress.running == {0}
    assert store.add_stopped(JOB, 1, 0, None) is None
    assert store.add_stopped(JOB, 1, 0, failure(0)) is None
    progress = store.load_progress(JOB, 1)
    assert progress is not None and progress.failure is None


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_exactly_one_failure_is_the_first_whatever_the_order(store: Store, order: tuple[int, ...]) -> None:
    """Rank 1 succeeded; of the others, delivered twice each, the one that comes first is the first."""
    store.begin_attempt(plan(world=3))
    answers = [
        (rank, store.add_stopped(JOB, 1, rank, None if rank == 1 else failure(rank)))
        for rank in order
        for _ in range(2)
    ]
    flagged = [rank for rank, answer in answers if answer is not None and answer.first_failure]
    failing = [rank for rank in order if rank != 1]
    assert flagged == failing[:1]
    assert [rank for rank, answer in answers if answer is not None] == list(order)
    progress = store.load_progress(JOB, 1)
    assert progress is not None and progress.all_stopped and progress.failure == failure(failing[0])


def test_what_ended_by_itself_is_counted_once_and_what_was_stopped_is_not(store: Store) -> None:
    """Delivered twice each: a success, an exit, a rank that we stopped, another exit."""
    store.begin_attempt(plan(world=4))
    ours = replace(failure(2), ending=replace(failure(2).ending, kind=EndingKind.STOPPED_BY_US))
    counts: list[int] = []
    for rank, failed in ((0, None), (1, failure(1)), (2, ours), (3, failure(3))):
        first, again = store.add_stopped(JOB, 1, rank, failed), store.add_stopped(JOB, 1, rank, failed)
        assert first is not None and again is None
        counts.append(first.progress.own_ends)
    progress = store.load_progress(JOB, 1)
    assert counts == [0, 1, 1, 2] and progress is not None and progress.own_ends == 2


def test_the_addition_that_completes_a_set_shows_it_complete(store: Store) -> None:
    """Whoever adds last, and nobody else, sees the whole gang."""
    store.begin_attempt(plan(world=3))
    ended = [store.add_stopped(JOB, 1, rank, None) for rank in (2, 0, 1)]
    assert [one is not None and one.progress.all_stopped for one in ended] == [False, False, True]
    results = [store.add_checked(JOB, 1, rank, checked()) for rank in (1, 2, 0)]
    assert [one is not None and one.progress.all_checked for one in results] == [False, False, True]


def test_the_first_result_of_a_check_stays(store: Store) -> None:
    """A second result for the same rank is None."""
    store.begin_attempt(plan())
    first = store.add_checked(JOB, 1, 0, checked(CheckOutcome.REBOOT))
    assert first is not None and first.progress.checked == {0: checked(CheckOutcome.REBOOT)}
    assert store.add_checked(JOB, 1, 0, checked()) is None
    progress = store.load_progress(JOB, 1)
    assert progress is not None and progress.checked == {0: checked(CheckOutcome.REBOOT)}


def test_attempts_of_one_job_do_not_touch_each_other(store: Store) -> None:
    """A late word of attempt 1 leaves attempt 2 as it is."""
    store.begin_attempt(plan(attempt=1))
    store.begin_attempt(plan(attempt=2))
    store.add_stopped(JOB, 1, 0, failure(0))
    assert store.load_progress(JOB, 2) == AttemptProgress(JOB, 2, world=2)


ADDITIONS: Mapping[str, Callable[[Store, int], ProgressUpdate | None]] = {
    "all_running": lambda store, rank: store.add_running(JOB, 1, rank),
    "all_stopped": lambda store, rank: store.add_stopped(JOB, 1, rank, None),
    "all_checked": lambda store, rank: store.add_checked(JOB, 1, rank, checked()),
}


@pytest.mark.parametrize(
    "store",
    [
        "memory",
        "double",
        pytest.param("ministack", marks=pytest.mark.slow),
        pytest.param("moto", marks=pytest.mark.full),  # it parses each expression anew: nine seconds a case
    ],
    indirect=True,
)
@pytest.mark.parametrize("name", ADDITIONS)
@pytest.mark.parametrize("last", [0, WORLD - 1], ids=["in the head", "in a part"])
def test_only_the_last_rank_of_a_large_gang_has_the_whole_progress(store: Store, name: str, last: int) -> None:
    """Every other answer holds its own fact alone, which completes nothing. A repeated fact is None."""
    store.begin_attempt(plan(world=WORLD))
    for rank in (rank for rank in range(WORLD) if rank != last):
        answer = ADDITIONS[name](store, rank)
        assert answer is not None and not getattr(answer.progress, name)
        progress = answer.progress
        assert {*progress.running, *progress.stopped, *progress.checked} == {rank} and progress.world == WORLD
    assert ADDITIONS[name](store, 1) is None
    whole = ADDITIONS[name](store, last)
    assert whole is not None and getattr(whole.progress, name)
    assert whole.progress == store.load_progress(JOB, 1) and ADDITIONS[name](store, last) is None
    assert ADDITIONS[name](store, WORLD) is None


@pytest.mark.parametrize("order", [(0, 1, 64, 69), (64, 69, 0, 1), (69, 0, 64, 1)])
def test_one_failure_of_a_large_gang_is_the_first_whatever_its_part(store: Store, order: tuple[int, ...]) -> None:
    """The head decides between the parts, and the ends of all parts are added up."""
    store.begin_attempt(plan(world=WORLD))
    answers = [store.add_stopped(JOB, 1, rank, failure(rank)) for rank in order]
    assert [one is not None and one.first_failure for one in answers] == [True, False, False, False]
    assert answers[0] is not None and answers[0].progress.failure == failure(order[0])
    for rank in set(range(WORLD)) - set(order):
        latest = store.add_stopped(JOB, 1, rank, None)
    assert latest is not None and latest.progress.all_stopped and not latest.first_failure
    assert (latest.progress.failure, latest.progress.own_ends) == (failure(order[0]), 4)


def test_ranks_of_a_large_gang_that_ended_unseen_count_as_started(store: Store) -> None:
    """The last RUNNING tells that all run, whichever part the unseen end completed."""
    store.begin_attempt(plan(world=WORLD))
    for rank in range(WORLD - 1):
        ADDITIONS["all_stopped" if rank % 2 else "all_running"](store, rank)
    whole = store.add_running(JOB, 1, WORLD - 1)
    assert whole is not None and whole.progress.all_running and len(whole.progress.stopped) == WORLD // 2 - 1
    assert whole.progress == store.load_progress(JOB, 1)


def test_an_attempt_is_known_by_each_of_its_ranks(store: Store) -> None:
    """Before it is begun none is."""
    assert not store.has_progress(JOB, 1, 0) and not store.has_progress(JOB, 1, WORLD - 1)
    store.begin_attempt(plan(world=WORLD))
    assert store.has_progress(JOB, 1, 0) and store.has_progress(JOB, 1, WORLD - 1)
    before = ADDITIONS["all_running"](store, WORLD - 1)
    store.begin_attempt(plan(world=WORLD))
    progress = store.load_progress(JOB, 1)
    assert before is not None and progress is not None and progress.running == {WORLD - 1}


# -- held ranks --------------------------------------------------------------------------------------------------------


def test_the_end_of_a_held_process_is_a_failure_and_no_end_of_the_rank(store: Store) -> None:
    """The container lives, so its GPUs are not free; the end of the process counts once, before and after it."""
    store.begin_attempt(plan())
    update = store.add_held(JOB, 1, 0, failure(0))
    assert update is not None and update.first_failure and update.progress.held == {0}
    assert store.add_held(JOB, 1, 0, failure(0)) is None and store.add_running(JOB, 1, 0) is None
    progress = store.load_progress(JOB, 1)
    assert progress is not None and (progress.held, progress.stopped, progress.own_ends) == ({0}, frozenset(), 1)
    assert not progress.all_stopped and not progress.all_held


@pytest.mark.parametrize("world", [1, 2, PART_RANKS, PART_RANKS + 3])
def test_the_last_held_rank_completes_the_gang(store: Store, world: int) -> None:
    """Also where some ranks have ended with their container, and where the ranks are in several items."""
    store.begin_attempt(plan(world=world))
    update = None
    for rank in range(world):
        assert update is None or not update.progress.all_held
        ended = rank % 2 and rank != world - 1
        update = store.add_stopped(JOB, 1, rank, None) if ended else store.add_held(JOB, 1, rank, failure(rank))
        assert update is not None
    assert update is not None and update.progress.all_held and not update.progress.all_stopped
    assert update.progress.all_running and update.progress.failure == failure(0)


@pytest.mark.parametrize("world", [2, PART_RANKS + 3])
@pytest.mark.parametrize("own", [True, False])
def test_the_end_of_a_held_container_completes_the_gang_and_counts_no_end_again(
    store: Store, world: int, own: bool
) -> None:
    """ECS reports the exit code of the process, which its agent has reported before."""
    store.begin_attempt(plan(world=world))
    for rank in range(world):
        store.add_held(JOB, 1, rank, failure(rank))
    update = None
    for rank in reversed(range(world)):
        assert update is None or not update.progress.all_stopped
        update = store.add_stopped(JOB, 1, rank, failure(rank) if own else None)
        assert update is not None and not update.first_failure
        assert store.add_stopped(JOB, 1, rank, failure(rank)) is None
        assert store.add_held(JOB, 1, rank, failure(rank)) is None
    assert update is not None and update.progress.all_stopped
    assert update.progress.own_ends == world


def test_the_plan_says_whether_a_task_may_be_used_again(store: Store) -> None:
    """Its end is looked for in later attempts only then: each look costs a read."""
    store.begin_attempt(replace(launched(), hold_s=300))
    store.begin_attempt(launched(attempt=2))
    first, second = store.load_planned_task(JOB, 1, 0), store.load_planned_task(JOB, 2, 0)
    assert first is not None and second is not None
    assert (first.can_be_held, second.can_be_held) == (True, False)
