"""What the exploration stands on: states that are put back as they were, and told apart by what matters alone."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core.job.downtime import Downtime
from gpu_recovery.ecs_events import rank_progress
from gpu_recovery.reconciler import reconcile

from simulator.explore.action import DELIVER, RECONCILER, SCHEDULER, STEP, TIME, Action, NextState
from simulator.explore.model import Bounds, DeliveryPace, ExploredFault
from simulator.explore.search import Search
from simulator.explore.small_world import Incident, SmallWorld
from simulator.explore.state_capture import Core, StateCapture
from simulator.explore.state_equivalence import LEFT_OUT
from simulator.explore.transition import Transitions
from tests.simulator.explore.reference_search import SlowCore, written
from tests.tiers import seeds

LEAST, MOST = 30, 1_000


def one_way(stage: Transitions, seed: int) -> list[tuple[Action, int]]:
    """One way through the world, as a seed has it: each action, and the state that follows. A third of the events is
    never delivered, so that time has to pass."""
    draw = random.Random(seed)
    core, pending, way = stage.begin(), list[int](), list[tuple[Action, int]]()
    while not stage.finals[core]:
        assert len(way) < MOST, "it leads nowhere"
        actions = [Action(DELIVER, event) for event in pending]
        actions += [Action(STEP, n) for n in range(len(stage.steps(core)))]
        actions += [*stage.woken(core), *(one for one in stage.befalling(core) if one.name != "end_well")]
        moving = [one for one in actions if stage.done(core, one).after != NextState(core)]
        if not moving:
            moving = [Action(TIME)] if stage.time_may_pass(core) else [Action("end_well")]
        action = draw.choice(moving)
        after = stage.done(core, action).after
        pending = [event for event in pending if action != Action(DELIVER, event)]
        pending += [event for event in after.emitted if draw.random() < 2 / 3]
        core = after.core
        way.append((action, core))
    return way


@pytest.mark.parametrize("seed", seeds(20, fast=0, default=3))
def test_a_state_that_is_put_back_goes_on_as_if_it_had_never_been_away(seed: int) -> None:
    """The same actions in one world without a break, and in another that is elsewhere between any two of them."""
    broken = Transitions(SmallWorld(Incident.FLAKY))
    way = one_way(broken, seed)
    straight = Transitions(SmallWorld(Incident.FLAKY))
    straight.begin()
    straight.events = broken.events  # so that both have one number for an event
    steps = straight.steps(0)
    assert len({after for _, after in way}) > LEAST
    assert {SCHEDULER, RECONCILER, DELIVER, STEP, TIME, "strike"} <= {action.name for action, _ in way}
    for action, after in way:
        straight.world.timeline.due = []
        follows = straight.unbroken(action, steps)
        broken.copier.put(broken.cores[0])
        steps = straight.steps(follows.core)
        broken.copier.put(broken.cores[after])
        assert in_full(straight.world, steps) == in_full(broken.world, broken.steps(after))


def in_full(world: SmallWorld, steps: tuple[Any, ...]) -> str:
    """What the world holds, but for what is left out."""
    return written(SlowCore(world, steps), world)


def otherwise(record: Any) -> Any:
    """The record with everything else in the fields that are left out. The spec is what the user sent, for ever; of
    repairs there are fewer than the cap."""
    changes: dict[str, Any] = {}
    for name in LEFT_OUT[type(record)] - {"spec"}:
        value = getattr(record, name)
        if name == "repairs":
            changes[name] = 1
        elif isinstance(value, int):
            changes[name] = value + 7
        elif isinstance(value, datetime):
            changes[name] = value - timedelta(hours=5)
        elif isinstance(value, Downtime):
            changes[name] = replace(value, since=value.since - timedelta(hours=5), incident_id="another")
        else:
            changes[name] = type(value)()
    return replace(record, **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("incident", "kind"),
    [
        (Incident.CRASH, ExploredFault.CRASH),
        pytest.param(Incident.GPU, ExploredFault.DROP, marks=pytest.mark.full),
    ],
)
def test_what_is_left_out_of_a_name_matters_to_nobody(
    incident: Incident, kind: ExploredFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other texts, no history and other versions in every record of every state, the same states are found."""
    bounds = Bounds(incident, 1, frozenset({kind}), DeliveryPace.ALL)
    before = Search(bounds).run()
    put = StateCapture.put

    def put_otherwise(self: StateCapture, core: Core, *, anew: bool = False) -> None:
        put(self, core, anew=anew)
        memory = self.world.memory
        memory.jobs.records = {name: otherwise(one) for name, one in self.records(core, "jobs").items()}
        memory.machines.records = {name: otherwise(one) for name, one in self.records(core, "machines").items()}
        memory.run_times = {"as long as any": {1: 77}}

    monkeypatch.setattr(StateCapture, "put", put_otherwise)
    after = Search(bounds).run()
    assert (after.states_by_faults, after.transitions) == (before.states_by_faults, before.transitions)
    assert after.violation is None and after.ends == before.ends


@pytest.mark.slow
def test_a_state_without_a_way_to_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks after a job whose event was lost: it waits for ever, and that is said."""
    monkeypatch.setattr(reconcile, "process_due_job", lambda recovery, job_id: None)
    walk = Search(Bounds(Incident.CRASH, 1, frozenset({ExploredFault.DROP}), DeliveryPace.ALL)).run()
    assert walk.violation is not None
    assert walk.violation.told[0].startswith("I2: no final state can be reached from here")


def test_a_function_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no invariant forbids may still be wrong: in the world explored nothing gives a function cause to raise."""

    def fail(*given: object) -> None:
        raise RuntimeError("by mistake")

    monkeypatch.setattr(rank_progress, "running_event", fail)
    walk = Search(Bounds(Incident.GPU, 0, frozenset(), DeliveryPace.ALL)).run()
    assert walk.violation is not None
    assert walk.violation.told == ["deliver raised: RuntimeError: by mistake"]
