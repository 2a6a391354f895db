"""The modules of `simulator.fast` change nothing: the same runs with and without them end in the same outcome.

QUICK turns on the filter of ticks and the cache of descriptions, LARGE leaves out memory and checks as well. A gang of
these runs is small, so the cache is made to keep answers about as few as two machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus

from sandbox.cluster.model import health
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import StatusCheck
from simulator.fast import describe_cache
from simulator.fast.fidelity import LARGE, THOROUGH, Fidelity
from simulator.faults.delivery import Envelope, Unruly, nothing
from simulator.world import World
from tests.simulator.incidents import INCIDENTS, QUICK, TRAIN_S, ended, ending, troubled
from tests.tiers import seeds


@pytest.fixture(autouse=True)
def caches_small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cache of descriptions keep answers about two machines or more."""
    monkeypatch.setattr(describe_cache, "MANY", 2)


def steps_of(world: World) -> list[tuple[str, str, str]]:
    """Every effect, with all that it was given."""
    return [(step.invocation, step.name, str(step.given)) for step in world.invocations.steps]


@dataclass(frozen=True)
class Outcome:
    """What a thorough run of an incident ended in. Tests share it, so it keeps no world."""

    transcript: str
    steps: list[tuple[str, str, str]]
    ending: tuple[Any, ...]
    rows: Any
    notified: Any
    now: datetime


@cache
def thoroughly(name: str) -> Outcome:
    """The outcome of an incident with full fidelity."""
    world, job_id = INCIDENTS[name]()
    return Outcome(
        world.transcript.text(),
        steps_of(world),
        ending(world, job_id),
        world.transcript.rows,
        world.actions.notified,
        world.timeline.now,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", INCIDENTS)
def test_passing_over_looks_leaves_every_step_and_every_line_as_it_was(name: str) -> None:
    """The transcript and every effect, to the letter, are those of the run that looks at everything each minute."""
    thorough = thoroughly(name)
    quick, _ = INCIDENTS[name](fidelity=QUICK)
    assert quick.transcript.text() == thorough.transcript
    assert steps_of(quick) == thorough.steps


@pytest.mark.slow
@pytest.mark.parametrize("name", INCIDENTS)
def test_a_world_that_remembers_nothing_comes_to_the_same_end(name: str) -> None:
    """Without transcript, steps and the events that nobody selects: the same decisions, mails, machines and hours."""
    thorough = thoroughly(name)
    large, job_id = INCIDENTS[name](fidelity=LARGE)
    assert ending(large, job_id) == thorough.ending
    assert large.transcript.rows == thorough.rows
    assert large.actions.notified == thorough.notified
    assert large.timeline.now == thorough.now
    assert (large.invocations.steps, large.invocations.done, large.transcript.lines, large.actions.published) == (
        [],
        [],
        [],
        [],
    )


@pytest.mark.parametrize("seed", seeds(12, fast=2, default=4))
def test_a_seed_of_faults_runs_the_same(seed: int) -> None:
    """Lost, doubled and late events, deaths between steps and overlapping work strike at the same places."""

    def run(fidelity: Fidelity) -> World:
        trouble = troubled(seed)
        world = World(instances=5, train_s=TRAIN_S, nemesis=trouble, delivery=Unruly(seed), fidelity=fidelity)
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


@pytest.mark.slow
@pytest.mark.parametrize("happens", [impaired, impaired_for_a_while, planned, taken_away])
@pytest.mark.parametrize("is_idle", [False, True], ids=["working", "idle"])
def test_what_no_event_tells_is_found_at_the_same_minute(
    happens: Callable[[World, ModelInstance], None], is_idle: bool
) -> None:
    """Every event is lost after a quiet hour: the reconciler's looks find it no later than without passing over any."""

    def run(fidelity: Fidelity) -> World:
        world = World(instances=3, fidelity=fidelity)
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


def test_a_late_report_is_compared_with_ecs_in_the_next_cycle() -> None:
    """A report of ECS arrives minutes late and the report that withdraws it is lost: the next cycle finds it."""

    def run(fidelity: Fidelity) -> World:
        def late(envelope: Envelope) -> tuple[float, ...]:
            if envelope["detail-type"] != "ECS Container Instance Health Change":
                return (1.0,)
            return (200.0,) if envelope["detail"]["overallStatus"] == "IMPAIRED" else ()

        world = World(instances=3, fidelity=fidelity, delivery=late)
        world.until_status(world.submit(), JobStatus.RUNNING)
        machine = world.model_instance(2)
        world.fleet.announce(health.report_health, machine, "DAEMON", "IMPAIRED", "a daemon failed")
        world.let_pass(1)
        world.fleet.announce(health.report_health, machine, "DAEMON", "OK", None)
        world.let_pass(198)
        assert not world.instance(machine).health
        world.let_pass(4 * 3_600)
        assert world.instance(machine).health["DAEMON"].status == "OK"
        return world

    thorough, quick = run(THOROUGH), run(QUICK)
    assert thorough.transcript.text().count("HealthReported") == 2
    assert quick.transcript.text() == thorough.transcript.text()
    assert quick.idle_skip is not None and quick.idle_skip.resyncs_skipped > 50


def test_a_record_that_falls_behind_is_compared_in_the_next_round() -> None:
    """Nothing moves in the cluster, but a record of it is written: the comparison is made again."""

    def run(fidelity: Fidelity) -> World:
        world = World(instances=3, fidelity=fidelity)
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

    def run(fidelity: Fidelity) -> World:
        world = World(instances=3, fidelity=fidelity)
        job_id = world.submit()
        for attempt in (1, 2):
            world.until(lambda n=attempt: world.job(job_id).attempt == n and len(world.ranks(job_id)) == 2, "no start")
            world.exit(job_id, 1, 139)
        world.until(lambda: world.job(job_id).attempt == 3 and len(world.ranks(job_id)) == 2, "attempt 3 did not run")
        return world

    thorough, quick = run(THOROUGH), run(QUICK)
    assert quick.timeline.now == thorough.timeline.now
    assert steps_of(quick) == steps_of(thorough)
