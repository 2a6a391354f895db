"""What an invocation reads, and what is known of it from other states."""

from __future__ import annotations

import pytest

from simulator.explore import read_tracking
from simulator.explore.action import SCHEDULER, Action
from simulator.explore.memoization import EffectMemory, RememberedEffects
from simulator.explore.read_tracking import JOBS, ReadTrackingStore
from simulator.explore.small_world import SmallWorld
from simulator.explore.state_capture import StateCapture
from simulator.explore.transition import Transitions


def test_whoever_asks_for_one_instance_has_read_that_one() -> None:
    """In the order of the first time, and each once."""
    world = SmallWorld()
    first, second = (one.instance_id for one in world.model_instances()[:2])
    world.reads.begin()
    for name in (second, first, second):
        world.store.load_instance(name)
    world.store.load_job(world.job_id)
    assert list(world.reads.places) == [("machines", second), ("machines", first), JOBS]
    assert not world.reads.is_everything


def test_what_nobody_has_thought_of_may_have_read_everything() -> None:
    """A question of the store that is in no list, and any order to AWS that machines answer."""
    world = SmallWorld()
    for ask in (world.store.load_queue, lambda: world.recovery.actions.describe_tasks(())):
        world.reads.begin()
        ask()
        assert world.reads.is_everything


def test_what_is_read_outside_of_the_invocation_does_not_count() -> None:
    """Those who judge a state read all of it."""
    world = SmallWorld()
    world.reads.begin()
    with world.reads.looking_away():
        world.store.load_job(world.job_id)
        world.store.load_queue()
    assert not world.reads.is_everything and not world.reads.places


def test_what_has_read_the_same_reads_the_same_next() -> None:
    """Else it depends on something that nobody notes, and to remember it would be wrong."""
    stage = Transitions(SmallWorld())
    core = stage.cores[stage.begin()]
    first, second = (("machines", one.instance_id) for one in stage.world.model_instances()[:2])
    memory = EffectMemory(stage.copier)
    memory.put(("key",), core, [first], RememberedEffects(1, (), ()))
    assert memory.recall(("key",), core) == RememberedEffects(1, (), ())
    with pytest.raises(LookupError, match="having read the same"):
        memory.put(("key",), core, [second], RememberedEffects(1, (), ()))


def test_a_change_of_what_was_not_read_is_not_remembered() -> None:
    """The scheduler places the job: that is more than has become of one instance."""
    stage = Transitions(SmallWorld())
    number = stage.begin()
    before = stage.cores[number]
    after = stage.cores[stage.done(number, Action(SCHEDULER)).after.core]
    first = ("machines", stage.world.model_instances()[0].instance_id)
    assert before != after
    assert EffectMemory(stage.copier).changes([first], before, after) is None


def test_a_field_that_nobody_has_thought_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of the store that is neither copied nor known to be the same in every state would leak from one state
    into another."""
    world = SmallWorld()
    world.memory.pondered = object()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"MemoryStore\.pondered"):
        StateCapture(world)


def test_every_door_that_is_listed_is_one_of_the_store() -> None:
    """A name that is listed and misspelt would be no harm, and of no use."""
    world = SmallWorld()
    assert isinstance(world.store, ReadTrackingStore)
    for name in read_tracking._OF_JOBS | read_tracking._OF_ONE | read_tracking._OF_NOTHING:
        assert callable(getattr(world.memory, name))
    for name in read_tracking._OF_ORDERS:
        assert callable(getattr(world.actions, name))
