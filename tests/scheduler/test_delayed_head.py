"""The head of a queue that jobs which passed it delay: what its record keeps for the next passes."""

from __future__ import annotations

import pytest
from gpu_recovery.core import events
from gpu_recovery.ports.store import Store
from gpu_recovery.scheduler.schedule import read

from tests.scheduler.test_schedule import Cluster


@pytest.fixture
def cluster(store: Store) -> Cluster:
    """Two instances."""
    return Cluster(store, 2)


def test_a_head_that_only_those_that_passed_it_delay_hears_so_once(cluster: Cluster) -> None:
    """Its record keeps since when, for the slack of the next passes."""
    cluster.submit("holder", user="bob", max_runtime_s=3_600)
    cluster.schedule()
    cluster.runs("holder")
    cluster.submit("head", 2, user="bob")
    cluster.submit("next", user="ana", max_runtime_s=600)
    assert cluster.schedule() == 1
    cluster.runs("next")
    assert cluster.job("head").passed_since is None
    cluster.passes(60)
    cluster.recovery.handle("holder", events.AllRanksStopped(at=cluster.now, attempt=1))
    cluster.schedule()
    told = cluster.job("head")
    assert told.passed_since == cluster.now
    assert told.reason.endswith("; next passed it, or it could start now")
    cluster.passes(60)
    cluster.schedule()
    assert cluster.job("head") == told
    assert read(cluster.recovery).snapshot.waiting[0].passed_since == told.passed_since
