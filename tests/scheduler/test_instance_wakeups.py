"""A pass that instances ask for: it costs no write where nobody waits, and misses nobody who does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.store import Store

from tests.recovery.heartbeat_world import IDS
from tests.scheduler.test_schedule import Cluster

S = JobStatus


@pytest.fixture
def cluster(store: Store) -> Cluster:
    """Two instances."""
    return Cluster(store, 2)


def written(cluster: Cluster) -> list[str]:
    """Which of its writes the scheduler makes from now on."""
    names: list[str] = []
    for name in ("begin_term", "save_pass"):
        real = getattr(cluster.store, name)
        noted = lambda *given, _name=name, _real=real: (names.append(_name), _real(*given))[1]  # noqa: E731
        setattr(cluster.store, name, noted)
    return names


def test_an_instance_that_is_free_writes_nothing_where_nobody_waits(cluster: Cluster) -> None:
    """Each of a gang of thousands says so once; the clock, too, is in the same batch."""
    cluster.submit("a")
    assert cluster.schedule("a/1") == 1
    names = written(cluster)
    assert cluster.schedule(f"{IDS[0]}/7", f"{IDS[1]}/9", "#tick/1") == 0 and names == []
    assert cluster.schedule(f"{IDS[0]}/8", "a/2") == 0 and names == ["begin_term", "save_pass"]


def test_an_instance_that_is_free_is_given_to_whoever_waits(cluster: Cluster) -> None:
    """The last pass has left somebody in line, whatever the index shows by now."""
    cluster.submit("a", 2)
    assert cluster.schedule("a/1") == 1
    cluster.submit("b")
    assert cluster.schedule("b/1") == 0
    for one in IDS[:2]:
        cluster.store.release_instance(one, "a", False, 1)
    cluster.store.save_job(replace(cluster.job("a"), status=S.SUCCEEDED))
    real, cluster.store.load_queue = cluster.store.load_queue, lambda *_: ()  # type: ignore[method-assign]
    names = written(cluster)
    assert cluster.schedule(f"{IDS[0]}/7") == 0 and names == ["begin_term", "save_pass"]
    cluster.store.load_queue = real  # type: ignore[method-assign]
    assert cluster.schedule(f"{IDS[0]}/8") == 1


def test_an_instance_that_is_free_is_given_to_one_whose_own_word_was_lost(cluster: Cluster) -> None:
    """The last pass knew of nobody, but the line does."""
    assert cluster.schedule("#tick/1") == 0
    cluster.submit("a")
    assert cluster.schedule(f"{IDS[0]}/7") == 1


def test_after_a_pass_that_died_an_instance_is_enough_to_wake_the_next(cluster: Cluster) -> None:
    """Nobody knows what the one that died would have left."""
    cluster.store.begin_term()
    names = written(cluster)
    assert cluster.schedule(f"{IDS[0]}/7") == 0 and names == ["begin_term", "save_pass"]
