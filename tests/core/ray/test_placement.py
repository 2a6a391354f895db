"""Who goes to the Ray cluster next, by what Ray counts and by what has been given and not been taken yet."""

from __future__ import annotations

from datetime import timedelta

from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.ray.placement import PoolPlacement, PoolSnapshot, place
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import NOW
from tests.core.ray.build import SPEC, placed, queued


def wants(gpus: int, n: int = 0, priority: Priority = Priority.NORMAL) -> Job:
    """Job number `n` in line, one node with so many GPUs."""
    return queued(f"job-{n}", SPEC, NOW + timedelta(seconds=n), gpus_per_node=gpus, priority=priority)


def answer(*waiting: Job, live: tuple[Job, ...] = (), free: float = 8, in_all: float = 8) -> PoolPlacement:
    """The placement of `waiting` on one node with `free` of `in_all` GPUs."""
    return place(PoolSnapshot(waiting, live, {"node": free} if free else {}, in_all))


def test_a_job_waits_until_all_its_gpus_are_free() -> None:
    """All or nothing, over the sum of the nodes."""
    job = queued(nnodes=2, gpus_per_node=4)
    assert place(PoolSnapshot((job,), (), {"a": 5.0, "b": 3.0}, 16)).admitted == (job,)
    waits = place(PoolSnapshot((job,), (), {"a": 4.0, "b": 3.0}, 16)).rejected
    assert waits == ((job, "needs 8 GPUs of the Ray cluster; 7 are free", ""),)


def test_what_was_given_is_not_given_again_before_its_driver_takes_it() -> None:
    """A driver takes its GPUs seconds after it was let go; until then Ray shows them free."""
    fresh = placed(wants(8))
    assert answer(wants(4, 1), live=(fresh,)).admitted == ()
    assert answer(wants(4, 1), live=(fresh,), free=16, in_all=16).admitted != ()


def test_gpus_that_others_hold_are_not_given() -> None:
    """Somebody who uses the cluster past the queue is seen by what is free."""
    assert answer(wants(4), free=3).admitted == ()


def test_the_first_in_line_is_not_passed_by_smaller_ones() -> None:
    """Else a large job would wait for ever."""
    first, second = wants(8, 1), wants(1, 2)
    assert answer(second, first, free=4).rejected == (
        (first, "needs 8 GPUs of the Ray cluster; 4 are free", ""),
        (second, "waits behind job-1 for the Ray cluster", ""),
    )


def test_a_job_larger_than_the_cluster_holds_nobody_back() -> None:
    """It is told what the cluster has; a cluster may grow."""
    giant, small = wants(16, 1), wants(1, 2)
    found = answer(giant, small)
    assert found.admitted == (small,)
    assert found.rejected == ((giant, "needs 16 GPUs; the Ray cluster has 8 in all, used or free", ""),)


def test_a_higher_priority_goes_first_then_who_was_first_in_line() -> None:
    """Seed 003's order, which the whole queue keeps."""
    low, high, later = wants(8, 1, Priority.LOW), wants(8, 2, Priority.HIGH), wants(8, 3, Priority.HIGH)
    assert answer(low, later, high).admitted == (high,)


sizes = st.lists(st.tuples(st.integers(1, 12), st.sampled_from(Priority)), max_size=8)


@given(sizes, sizes, st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_no_gpu_is_given_twice_and_nobody_is_forgotten(
    waiting: list[tuple[int, Priority]], live: list[tuple[int, Priority]], free: list[int]
) -> None:
    """Whatever is in line and under way: what goes fits, and every job gets one answer, whatever order it came in."""
    jobs = [wants(gpus, n, priority) for n, (gpus, priority) in enumerate(waiting)]
    others = [placed(wants(gpus, 100 + n)) for n, (gpus, _) in enumerate(live)]
    in_all = len(free) * 8.0
    nodes = {str(n): float(gpus) for n, gpus in enumerate(free)}
    found = place(PoolSnapshot(tuple(jobs), tuple(others), nodes, in_all))
    given_gpus = sum(job.spec.gpus_per_node for job in found.admitted)
    assert given_gpus <= sum(free) or not given_gpus
    assert not given_gpus or given_gpus + sum(job.spec.gpus_per_node for job in others) <= in_all
    assert sorted(job.job_id for job in (*found.admitted, *(waits.job for waits in found.rejected))) == sorted(
        job.job_id for job in jobs
    )
    assert place(PoolSnapshot(tuple(reversed(jobs)), tuple(others), nodes, in_all)) == found
