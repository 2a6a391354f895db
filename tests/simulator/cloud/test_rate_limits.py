"""AWS's limits and the time of calls: what an invocation spends, what that delays, and what it costs too much."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon
from hypothesis import given
from hypothesis import strategies as st

from infra.functions import FUNCTIONS, ONE_PROCESSOR_MIB
from simulator.cloud.fleet import FleetTimings
from simulator.cloud.rate_limits import (
    EC2_MUTATE,
    ECS_MODIFY,
    MEMORY_MIB,
    PROCESSOR_MIB,
    RETRY_FOR_S,
    TIMEOUT_S,
    Bucket,
    Costs,
    Limit,
    Meter,
)
from simulator.fast.fidelity import LARGE, THOROUGH, Fidelity
from simulator.virtual_clock import VirtualClock
from simulator.world import World
from tests.simulator.incidents import QUICK, gpu_fault

START_S = FleetTimings().start_s


def meter(costs: Costs) -> Meter:
    """A meter that nobody dies of."""

    def die() -> None:
        raise AssertionError("nothing here takes so long")

    return Meter(VirtualClock(), costs, die)


def seconds(world: World) -> float:
    """Virtual time since the world began."""
    return (world.timeline.now - world.timeline.start).total_seconds()


# -- buckets -----------------------------------------------------------------------------------------------------------


def test_a_burst_goes_through_and_the_rest_at_the_rate() -> None:
    """A hundred calls at once, and then forty in each second."""
    bucket = Bucket(ECS_MODIFY)
    waits = []
    for _ in range(180):
        waits.append(bucket.wait(0))
        bucket.take(0 + waits[-1])
    assert waits[:100] == [0] * 100
    assert waits[100:] == pytest.approx([n / 40 for n in range(1, 81)])


def test_a_bucket_that_is_left_alone_fills_up_and_no_further() -> None:
    """After an hour there is one burst, not more."""
    bucket = Bucket(Limit(2, 1))
    bucket.take(0)
    bucket.take(3_600)
    bucket.take(3_600)
    assert bucket.wait(3_600) == pytest.approx(1)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=300), st.integers(1, 50), st.floats(0.5, 50))
def test_no_more_calls_than_the_limit_allows(gaps: list[float], burst: int, per_s: float) -> None:
    """In any stretch of time: the burst, and what flows in meanwhile."""
    bucket, now, taken = Bucket(Limit(burst, per_s)), 0.0, []
    for gap in gaps:
        now += gap
        now += bucket.wait(now)
        bucket.take(now)
        taken.append(now)
    for first in range(0, len(taken), 7):
        for last in range(first, len(taken), 5):
            assert last - first + 1 <= burst + (taken[last] - taken[first]) * per_s + 1e-6


# -- one invocation ----------------------------------------------------------------------------------------------------


def test_many_answers_are_waited_for_at_once_and_the_processor_works_on_one() -> None:
    """A call by one of 32 threads takes a 32nd, unless the function's own work takes longer."""
    one = meter(Costs(call_s=3.2, store_s=0.08, cpu_s=0.02))
    with one.invocation("reconciler") as spent:
        one.call()
        assert spent.spent_s == pytest.approx(3.2)
        with one.at_once():
            one.call()
            assert spent.spent_s == pytest.approx(3.3)
            one.call("DynamoDB")
            assert spent.spent_s == pytest.approx(3.32)
        one.call("DynamoDB")
        assert spent.spent_s == pytest.approx(3.4)
        assert one.timeline.lag == spent.spent_s
    assert one.timeline.lag == 0


def test_there_are_no_more_calls_at_once_than_there_is_work() -> None:
    """One piece of work takes its whole time, three a third each; what one of several starts has their threads."""
    one = meter(Costs(call_s=0.8))
    with one.invocation("reconciler") as spent:
        one.each(lambda _: one.call(), range(1))
        assert spent.spent_s == pytest.approx(0.8)
        one.each(lambda _: one.call(), range(3))
        assert spent.spent_s == pytest.approx(0.8 + 0.8)
        one.each(lambda _: one.each(lambda _: one.call(), range(1)), range(64))
        assert spent.spent_s == pytest.approx(0.8 + 0.8 + 1.6)
        one.call()
        assert spent.spent_s == pytest.approx(0.8 + 0.8 + 1.6 + 0.8)


def test_calls_of_four_kinds_share_one_bucket_and_reads_have_none() -> None:
    """RunTask, StopTask and both orders about container instances."""
    one = meter(Costs())
    kinds = ("RunTask", "StopTask", "UpdateContainerInstancesState", "DeregisterContainerInstance")
    with one.invocation("reconciler") as spent:
        for number in range(140):
            one.call(kinds[number % 4])
            one.call()
        assert spent.spent_s == pytest.approx(1)


def test_a_call_that_finds_no_token_in_time_is_refused_after_the_last_retry() -> None:
    """Another invocation has used the bucket up for longer than botocore asks again."""
    one = meter(Costs())
    with one.invocation("scheduler"):
        for _ in range(100 + 40 * 8):
            one.call("RunTask")
    with one.invocation("reconciler") as spent:
        with pytest.raises(TryAgainSoon):
            one.call("RunTask")
        assert spent.spent_s == RETRY_FOR_S
    assert one.refused == 1


def test_a_reboot_is_asked_for_once() -> None:
    """Its client does not repeat: without a token there is an error at once."""
    one = meter(Costs())
    with one.invocation("reconciler") as spent:
        for _ in range(EC2_MUTATE.burst):
            one.call("RebootInstances")
        with pytest.raises(TryAgainSoon):
            one.call("RebootInstances")
        assert spent.spent_s == 0


def test_each_is_tried_and_the_first_failure_is_raised() -> None:
    """As the product's threads do it."""
    tried = []

    def work(item: int) -> None:
        tried.append(item)
        if item in (2, 3):
            raise ValueError(item)

    with pytest.raises(ValueError, match="2"):
        meter(Costs()).each(work, range(5))
    assert tried == [0, 1, 2, 3, 4]


def test_a_function_with_less_memory_has_less_of_a_processor() -> None:
    """The event handler has 512 of 1,769 MiB. The time of an answer stays the same."""
    one, took = meter(Costs(call_s=0.08, store_s=0.0, cpu_s=0.02)), {}
    for name in ("scheduler", "ecs_instance_monitor"):
        with one.invocation(name) as spent:
            one.call("DynamoDB")
            took[name] = spent.spent_s
            one.call()
            assert spent.spent_s - took[name] == pytest.approx(0.08)
    assert took["scheduler"] == pytest.approx(0.02)
    assert took["ecs_instance_monitor"] == pytest.approx(0.02 * 1_769 / 512)


def test_every_function_has_the_time_and_the_memory_that_are_deployed() -> None:
    """The limits are those of `infra/functions.py`."""
    assert {row.name: row.timeout_s for row in FUNCTIONS} == TIMEOUT_S
    assert {row.name: row.memory_mib for row in FUNCTIONS} == MEMORY_MIB
    assert PROCESSOR_MIB == ONE_PROCESSOR_MIB


# -- worlds ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_large_gang_starts_as_ecs_lets_its_ranks_through() -> None:
    """Of 260 ranks a hundred start at once, and the last 4 seconds after them."""
    plain, limited = (World(instances=260, fidelity=LARGE, costs=costs) for costs in (None, Costs()))
    for world in (plain, limited):
        job_id = world.submit(260)
        world.until(lambda world=world: len(world.fleet.running()) >= 100, "no burst")
        first = seconds(world)
        world.until(lambda world=world: len(world.fleet.running()) == 260, "not all started")
        assert seconds(world) - first == pytest.approx(0 if world is plain else 160 / 40, abs=0.1)
        assert world.job(job_id).attempt == 1


def runs_again(world: World, job_id: str) -> bool:
    """Whether every rank of attempt 2 runs."""
    job = world.job(job_id)
    return (job.attempt, job.status, len(world.fleet.running())) == (2, JobStatus.RUNNING, job.spec.nnodes)


@pytest.mark.slow
def test_what_is_stopped_and_checked_waits_for_ecs_as_well() -> None:
    """One recovery of 260 ranks takes 4 seconds longer for each of stop, check and relaunch."""
    taken = []
    for costs in (None, Costs()):
        world = World(instances=262, fidelity=LARGE, costs=costs)
        job_id = world.submit(260)
        world.until(lambda world=world: len(world.fleet.running()) == 260, "no start")
        world.let_pass(60)
        before = seconds(world)
        world.break_gpu(world.model_instance(0))
        world.until(lambda world=world, job_id=job_id: runs_again(world, job_id), "no recovery")
        taken.append(seconds(world) - before)
    assert taken[1] - taken[0] == pytest.approx(3 * 4, abs=2)


def test_an_invocation_that_needs_more_than_its_time_is_killed_there() -> None:
    """The launcher dies in the middle: what it had started starts, and nothing of what was to follow is done."""
    world = World(instances=100, retries=False, costs=Costs(call_s=28, store_s=0.1))
    world.asleep["reconciler"] = world.timeline.start + timedelta(hours=1)
    world.submit(100)
    world.until(lambda: bool(world.invocations.killed), "nobody was killed", limit_s=900)
    last = world.invocations.killed[0]
    assert last is not None and last.invocation == "scheduler"
    assert world.meter is not None and world.meter.longest["scheduler"] == TIMEOUT_S["scheduler"]
    launched = len(world.calls("RunTask"))
    assert 0 < launched < 100
    world.let_pass(TIMEOUT_S["scheduler"] + START_S)
    assert len(world.fleet.running()) == launched
    assert world.jobs()[0].status is JobStatus.SUBMITTING


def test_what_a_slow_invocation_starts_starts_later() -> None:
    """Three seconds until the scheduler is woken, and each rank as long after it as the launcher had spent by then.

    The launcher first asks EC2 about the instances, in one call. Then two calls are made at once, of which together one
    is answered in half the time that each takes.
    """
    started: dict[float, list[float]] = {}
    for call_s in (3.0, 0.0):
        world = World(instances=2, costs=Costs(call_s=call_s, store_s=0))
        world.submit(2)
        started[call_s] = []
        for running in (1, 2):
            world.until(lambda world=world, running=running: len(world.fleet.running()) >= running, "no start")
            started[call_s].append(seconds(world))
    assert started[3.0] == [at + 3 + 3 + n * 3 / 2 for n, at in enumerate(started[0.0], 1)]


def test_the_scheduler_is_not_woken_while_it_works() -> None:
    """Its queue hands out nothing more meanwhile, and afterwards everything that waits at once."""
    world = World(instances=2, costs=Costs(call_s=0.8, store_s=0.8))
    begun: list[float] = []
    whole = world.run_scheduler

    def counted() -> None:
        begun.append(seconds(world))
        whole()

    world.run_scheduler = counted  # type: ignore[method-assign]
    for number in range(8):
        world.timeline.after(number, world.functions.poked, f"poke {number}", 0)
    world.let_pass(30)
    assert begun == [1.0, 4.2, 6.6, 9.0]  # four calls in the first pass, three in the others


@pytest.mark.parametrize("fidelity", [THOROUGH, QUICK])
def test_a_run_with_costs_is_the_same_with_and_without_passing_over(fidelity: Fidelity) -> None:
    """What is kept of former looks is paid for like a look."""
    costs = Costs(call_s=0.1, store_s=0.01)
    thorough, _ = gpu_fault(costs=costs)
    quick, _ = gpu_fault(costs=costs, fidelity=fidelity)
    assert quick.transcript.text() == thorough.transcript.text()
    assert thorough.meter is not None and quick.meter is not None
    for name in ("scheduler", "ecs_task_handler", "dcgm_task_monitor"):
        assert quick.meter.longest[name] == pytest.approx(thorough.meter.longest[name])


@pytest.mark.parametrize("fidelity", [THOROUGH, QUICK])
def test_a_look_costs_the_same_whether_its_answer_is_known_or_not(fidelity: Fidelity) -> None:
    """One list of tasks and two of instances, a description of each, one question for machines and one for statuses."""
    world = World(instances=3, costs=Costs(call_s=1), fidelity=fidelity)
    world.until_status(world.submit(3), JobStatus.RUNNING)
    world.let_pass(300)
    ids = [machine.instance_id for machine in world.model_instances()]
    assert world.meter is not None
    for _ in range(2):
        with world.meter.invocation("somebody") as spent:
            assert len(list(world.actions.running_tasks())) == 3
            assert len(list(world.actions.container_instances())) == 3
            assert len(world.actions.describe_ec2(ids)) == len(world.actions.describe_ec2_status(ids)) == 3
        assert spent.spent_s == 2 + 3 + 1 + 1


@pytest.mark.parametrize(
    ("operation", "burst", "per_s"),
    [
        ("DescribeTasks", 100, 20),
        ("ListContainerInstances", 100, 20),
        ("DescribeInstances", 100, 20),
        ("DescribeInstanceStatus", 50, 10),
    ],
)
def test_reads_are_limited_for_all_invocations_together(operation: str, burst: int, per_s: int) -> None:
    """A burst of 100 and 20 a second, or of 50 and 10 a second. A second invocation waits for the same bucket."""
    world = World(instances=1, costs=Costs())
    assert world.meter is not None
    calls = burst + 2 * per_s
    for expected in (2.0, 2.0 + calls / per_s):
        with world.meter.invocation("somebody") as spent:
            for _ in range(calls):
                world.meter.call(operation)
        assert spent.spent_s == pytest.approx(expected)


def test_a_read_waits_for_no_read_that_comes_later() -> None:
    """A long invocation, far below the rate, is simulated first. It delays no invocation that begins meanwhile."""
    one = meter(Costs())
    with one.invocation("reconciler") as spent:
        for _ in range(60):
            one.wait(1.0)
            one.call("ListTasks")
    assert spent.spent_s == pytest.approx(60)
    with one.invocation("scheduler") as spent:
        for _ in range(100):
            one.call("ListTasks")
    assert spent.spent_s == 0


def test_a_read_without_a_token_in_time_is_refused() -> None:
    """As a change is: after the last of botocore's retries."""
    one = meter(Costs())
    with one.invocation("scheduler"):
        for _ in range(100 + 20 * 8):
            one.call("DescribeTasks")
    with one.invocation("reconciler") as spent:
        with pytest.raises(TryAgainSoon):
            one.call("DescribeTasks")
        assert spent.spent_s == RETRY_FOR_S
    assert one.refused == 1


def test_calls_that_take_nothing_change_nothing() -> None:
    """A meter without limits and times leaves the transcript as it is."""
    plain, _ = gpu_fault()
    metered, _ = gpu_fault(costs=replace(Costs(), throttled=False))
    assert metered.transcript.text() == plain.transcript.text()
    assert metered.timeline.now - plain.timeline.now == timedelta()
