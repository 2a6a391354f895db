"""What a large world leaves out changes nothing: whole runs, with and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model import health
from sandbox.cluster.model.cluster import ModelInstance, StatusCheck
from simulator.fast.fidelity import LARGE, THOROUGH, Fidelity
from simulator.faults.delivery import Envelope, Unruly, nothing
from simulator.memory_store.store import MemoryStore
from simulator.world import ATTEMPTS_KEPT, World
from tests.simulator.incidents import INCIDENTS, QUICK, TRAIN_S, ended, ending, troubled

DAY_S = 86_400.0


def steps_of(world: World) -> list[tuple[str, str, str]]:
    """Every effect, with all that it was given."""
    return [(step.invocation, step.name, str(step.given)) for step in world.invocations.steps]


@pytest.mark.parametrize("name", INCIDENTS)
def test_passing_over_looks_leaves_every_step_and_every_line_as_it_was(name: str) -> None:
    """The transcript and every effect, to the letter, are those of the run that looks at everything each minute."""
    thorough, _ = INCIDENTS[name]()
    quick, _ = INCIDENTS[name](fidelity=QUICK)
    assert quick.transcript.text() == thorough.transcript.text()
    assert steps_of(quick) == steps_of(thorough)


@pytest.mark.parametrize("name", INCIDENTS)
def test_a_world_that_remembers_nothing_comes_to_the_same_end(name: str) -> None:
    """Without transcript, steps and the events that nobody selects: the same decisions, mails, machines and hours."""
    thorough, job_id = INCIDENTS[name]()
    large, _ = INCIDENTS[name](fidelity=LARGE)
    assert ending(large, job_id) == ending(thorough, job_id)
    assert large.transcript.rows == thorough.transcript.rows
    assert large.actions.notified == thorough.actions.notified
    assert large.timeline.now == thorough.timeline.now
    assert (large.invocations.steps, large.invocations.done, large.transcript.lines, large.actions.published) == (
        [],
        [],
        [],
        [],
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_seed_of_faults_runs_the_same(seed: int) -> None:
    """Lost, doubled and late events, deaths between steps and overlapping work strike at the same places."""

    def run(economy: Fidelity) -> World:
        trouble = troubled(seed)
        world = World(instances=5, train_s=TRAIN_S, nemesis=trouble, delivery=Unruly(seed), economy=economy)
        job_id = world.submit()
        trouble.begin(world)
        world.let_pass(120)
        world.break_gpu(world.model_instance(0))
        ended(world, job_id)
        return world

    thorough, quick = run(THOROUGH), run(QUICK)
    assert quick.transcript.text() == thorough.transcript.text()
    assert steps_of(quick) == steps_of(thorough)


# -- what time alone shows ---------------------------------------------------------------------------------------------


def impaired(world: World, machine: ModelInstance) -> None:
    """EC2's check of the host fails; only a look shows it, and only after five minutes."""
    world.fleet.announce(health.impair, machine, StatusCheck.SYSTEM)


def impaired_for_a_while(world: World, machine: ModelInstance) -> None:
    """It is well again without another word."""
    impaired(world, machine)
    world.timeline.after(4_000, machine.impaired.pop, StatusCheck.SYSTEM, None)


def planned(world: World, machine: ModelInstance) -> None:
    """EC2 will reboot it in two hours, and does."""
    world.fleet.plan(machine, "system-reboot", 7_200)


def taken_away(world: World, machine: ModelInstance) -> None:
    """The machine is terminated behind an agent that was cut off: ECS never says so, and EC2 forgets it in an hour."""
    world.fleet.disconnect(machine)
    world.fleet.terminate(machine)


@pytest.mark.parametrize("happens", [impaired, impaired_for_a_while, planned, taken_away])
@pytest.mark.parametrize("is_idle", [False, True], ids=["working", "idle"])
def test_what_no_event_tells_is_found_at_the_same_minute(
    happens: Callable[[World, ModelInstance], None], is_idle: bool
) -> None:
    """Every event is lost after a quiet hour: the reconciler's looks find it no later than without passing over any."""

    def run(economy: Fidelity) -> World:
        world = World(instances=3, economy=economy)
        if not is_idle:
            world.until_status(world.submit(), JobStatus.RUNNING)
        world.let_pass(3_600)
        assert world.idle_skip is None or world.idle_skip.skipped > 20
        world.delivery = nothing
        happens(world, world.model_instance(0))
        world.let_pass(4 * 3_600)
        return world

    thorough, quick = run(THOROUGH), run(QUICK)
    assert quick.transcript.text() == thorough.transcript.text()
    assert steps_of(quick) == steps_of(thorough)


def test_a_late_word_is_compared_with_the_machine_at_once() -> None:
    """An alarm comes hours after it was raised, to a gang that runs: the next round finds the machine well."""

    def run(economy: Fidelity) -> World:
        def hours_late(envelope: Envelope) -> tuple[float, ...]:
            return (7_000.0 if "CloudWatch" in envelope["detail-type"] else 1.0,)

        world = World(instances=3, economy=economy, delivery=hours_late)
        world.until_status(world.submit(), JobStatus.RUNNING)
        machine = world.model_instance(2)
        impaired(world, machine)
        world.timeline.after(60, machine.impaired.pop, StatusCheck.SYSTEM, None)
        world.let_pass(4 * 3_600)
        return world

    thorough, quick = run(THOROUGH), run(QUICK)
    assert "HealthReported" in thorough.transcript.text()
    assert quick.transcript.text() == thorough.transcript.text()
    assert quick.idle_skip is not None and quick.idle_skip.resyncs_skipped > 50


def test_a_record_that_falls_behind_is_compared_in_the_next_round() -> None:
    """Nothing moves in the cluster, but a record of it is written: the comparison is made again."""

    def run(economy: Fidelity) -> World:
        world = World(instances=3, economy=economy)
        world.until_status(world.submit(), JobStatus.RUNNING)
        world.let_pass(1_815)
        store, name = world.recovery.store, world.model_instance(2).instance_id
        record = store.load_instance(name)
        assert record is not None
        store.save_instance(replace(record, ecs_version=0))
        world.let_pass(120)
        assert world.instance(world.model_instance(2)).ecs_version == record.ecs_version
        return world

    assert steps_of(run(QUICK)) == steps_of(run(THOROUGH))


def test_a_cool_down_ends_when_it_ends() -> None:
    """A job that waits for nothing but its cool-down is placed by the first tick after it."""

    def run(economy: Fidelity) -> World:
        world = World(instances=3, economy=economy)
        job_id = world.submit()
        for attempt in (1, 2):
            world.until(lambda n=attempt: world.job(job_id).attempt == n and len(world.ranks(job_id)) == 2, "no start")
            world.exit(job_id, 1, 139)
        world.until(lambda: world.job(job_id).attempt == 3 and len(world.ranks(job_id)) == 2, "attempt 3 did not run")
        return world

    thorough, quick = run(THOROUGH), run(QUICK)
    assert quick.timeline.now == thorough.timeline.now
    assert steps_of(quick) == steps_of(thorough)


# -- what is saved -----------------------------------------------------------------------------------------------------


def test_an_idle_cluster_is_looked_at_once_an_hour() -> None:
    """Of the ticks of a day on which nothing happens almost all are passed over."""
    world = World(instances=3, economy=QUICK)
    world.let_pass(3_600)
    assert world.idle_skip is not None
    before = world.idle_skip.skipped
    world.let_pass(DAY_S)
    assert 2 * 1_440 - (world.idle_skip.skipped - before) <= 2 * 24 + 2


def test_a_job_that_runs_is_looked_at_without_comparing_the_cluster() -> None:
    """Its look is due every other minute; the whole cluster is compared with the tables once an hour."""
    world = World(instances=3, economy=QUICK)
    world.until_status(world.submit(), JobStatus.RUNNING)
    world.let_pass(3_600)
    assert world.idle_skip is not None
    before = world.idle_skip.resyncs_skipped + world.idle_skip.skipped
    world.let_pass(DAY_S)
    left_out = world.idle_skip.resyncs_skipped + world.idle_skip.skipped - before
    assert 1_440 + 1_440 - left_out <= 2 * 24 + 2


def test_a_look_at_a_gang_that_runs_writes_nothing_about_its_ranks() -> None:
    """What is known is not written again: for each look the job's record twice, however many ranks there are."""
    world = World(instances=6)
    world.until_status(world.submit(6), JobStatus.RUNNING)
    world.let_pass(600)
    before = len(world.invocations.done)
    world.let_pass(3_600)
    written = Counter(step.name for step in world.invocations.done[before:])
    assert written == {"store.save_job": 30, "store.remove_finished_job_commands": 30}


def test_memory_does_not_grow_with_the_number_of_attempts() -> None:
    """Plans, verdicts and pokes of long ago are gone, and ECS forgets tasks after a day."""
    world = World(instances=4, economy=LARGE)
    job_id = world.submit(2, attempts_max=20)
    store = world.store
    assert isinstance(store, MemoryStore)
    for attempt in range(1, 9):
        runs = (attempt, JobStatus.RUNNING)
        world.until(lambda runs=runs: (world.job(job_id).attempt, world.job(job_id).status) == runs, "no start")
        world.let_pass(DAY_S / 2)
        world.exit(job_id, 1, 139)
    world.until_status(job_id, JobStatus.RUNNING)
    assert len(store.plans) <= ATTEMPTS_KEPT and len(store.progress) <= ATTEMPTS_KEPT
    assert len(world.checks.bucket) <= 2 * 4
    assert len(world.cluster.tasks) <= 3 * (2 + 2) + 2
    assert len(world.cluster.tokens) <= 3 * (2 + 2) + 2


def test_an_instance_is_not_forgotten_with_its_old_verdicts() -> None:
    """The verdict of the check before last is gone, the last one is there."""
    world = World(instances=2, economy=LARGE, train_s=None)
    job_id = world.submit(2)
    for _ in range(2):
        world.until_status(job_id, JobStatus.RUNNING)
        world.exit(job_id, 1, 139)
        world.until(lambda: world.job(job_id).status is JobStatus.DIAGNOSING, "no check")
    world.until(lambda: all(i.status is InstanceStatus.AVAILABLE for i in world.instances()), "no end of the checks")
    checks = {instance.instance_id: instance.checks for instance in world.instances()}
    for name, last in checks.items():
        assert f"check/{name}/{last}" in world.checks.bucket
    assert world.timeline.now - world.timeline.start < timedelta(hours=1)
