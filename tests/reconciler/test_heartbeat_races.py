"""Heartbeat timeouts under races and crashes: functions that die, and reports between a look and its mark."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.job.record import JobStatus
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store.store import MemoryStore
from tests.aws.records import JOB
from tests.recovery.heartbeat_world import IDS, Died, Scene, dies_before, lost

S = JobStatus


# -- races and crashes -------------------------------------------------------------------------------------------------


def test_a_heartbeat_between_the_sweeps_look_and_its_mark_wins(scene: Scene) -> None:
    """It is not silent, and nobody is told that it is."""
    scene.passes(200)
    scene.beats(1, 2, 3)
    original = scene.store.mark_heartbeat_missing

    def mark(instance_id: str, seen_at: Any) -> bool:
        scene.beats(0)
        return original(instance_id, seen_at)

    scene.store.mark_heartbeat_missing = mark  # type: ignore[method-assign]
    scene.sweep()
    assert scene.job.status is S.RUNNING and scene.instance().silent_since is None


@pytest.mark.parametrize("by_rank", [False, True])
def test_a_heartbeat_between_the_mark_and_the_telling_wins(scene: Scene, by_rank: bool) -> None:
    """The silence that is told after it is over; the job is LOST for no longer than until it is told."""
    if by_rank:
        for _ in range(13):
            scene.passes(15)
            scene.beats(0, running=())
            scene.beats(1, 2, 3)
    else:
        scene.passes(200)
        scene.beats(1, 2, 3)
    tell, spoken = scene.recovery.handle, list[str]()

    def slow(to: str, event: Any) -> Any:
        if not spoken and isinstance(event, events.InstanceSilent | events.RankSilent):
            spoken.append(to)
            scene.passes(1)
            scene.beats(0)
        return tell(to, event)

    object.__setattr__(scene.recovery, "handle", slow)
    scene.sweep()
    assert spoken and scene.job.status is S.RUNNING and scene.instance().silent_since is None


def test_a_sweep_that_dies_between_mark_and_telling_is_made_good_by_the_next(scene: Scene) -> None:
    """The mark alone tells nobody."""
    scene.passes(200)
    scene.beats(1, 2, 3)
    with dies_before(scene.store, "save_instance"), suppress(Died, ExceptionGroup):
        scene.sweep()
    assert scene.store.load_heartbeats(IDS)[IDS[0]].silent_since is not None and scene.instance().silent_since is None
    scene.sweep()
    assert scene.instance().silent_since is not None and scene.job.status is S.LOST


def test_an_instance_that_was_heard_by_a_function_that_died_is_found_by_the_sweep(scene: Scene) -> None:
    """And what it is told does not hide the next silence, which may have begun before the sweep."""
    lost(scene)
    with dies_before(scene.store, "save_instance"), dies_before(scene.store, "save_job"), suppress(Died):
        scene.beats(0)
    scene.passes(100)
    scene.beats(1, 2, 3)
    scene.sweep()
    assert scene.instance().silent_since is None and scene.job.status is S.RUNNING
    for _ in range(7):
        scene.passes(15)
        scene.beats(1, 2, 3)
    scene.sweep()
    assert scene.instance().silent_since is not None and scene.job.status is S.LOST


def test_the_sweep_revives_only_ranks_that_the_latest_report_spoke_of(scene: Scene) -> None:
    """The heartbeat remembers others."""
    lost(scene)
    with dies_before(scene.store, "save_instance"), dies_before(scene.store, "save_job"), suppress(Died):
        scene.beats(0, running=())
    scene.sweep()
    assert scene.instance().silent_since is None and scene.job.status is S.LOST


def test_a_boot_that_was_heard_by_a_function_that_died_is_found_by_the_sweep(scene: Scene) -> None:
    """The ranks of the boot before have ended all the same."""
    scene.passes(120)
    with dies_before(scene.store, "save_instance"), suppress(Died):
        scene.beats(0, boot_id="boot-2", uptime_s=30.0, running=())
    scene.sweep()
    assert scene.instance().boot_id == "boot-2"
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and 0 in progress.stopped and 1 not in progress.stopped


# -- whatever the order ------------------------------------------------------------------------------------------------


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("beat", "beat", "without", "late", "sweep", "round", "crash", "wait")),
        st.integers(0, 3),
        st.sampled_from((1, 15, 60, 100, 200)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_whatever_happens_a_job_whose_every_rank_is_heard_is_running_and_no_gpu_was_freed(
    steps: list[tuple[str, int, int]],
) -> None:
    """Silences, heartbeats, functions that die and rounds in any order, on machines that live."""
    scene = Scene(MemoryStore(), IDS[:4])
    for kind, which, seconds in steps:
        scene.passes(seconds)
        match kind:
            case "beat":
                scene.beats(which)
            case "without":
                scene.beats(which, running=())
            case "late":
                scene.beats(which, age_s=90.0)
            case "sweep":
                scene.sweep()
            case "round":
                scene.round()
            case "crash":
                name = ("save_job", "save_instance", "remove_finished_job_commands", "mark_heartbeat_missing")[
                    seconds % 4
                ]
                with dies_before(scene.store, name), suppress(Died, ExceptionGroup):
                    scene.beats(which) if seconds % 2 else scene.round()
        assert scene.job.status in (S.RUNNING, S.LOST)
        assert scene.claims() == [1] * 4 and not scene.aws.stopped and not scene.aws.rebooted
    for _ in range(30):  # until every claim of a dead function has expired, and every look was taken
        scene.passes(15)
        scene.beats()
        scene.round()
    assert scene.job.status is S.RUNNING, scene.job.reason
    assert not any(scene.instance(n).silent_since for n in range(4)) and scene.store.load_fleet().deaf is None
