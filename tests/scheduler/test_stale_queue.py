"""A pass of the scheduler with an outdated index: what it neither places in vain nor keeps from other jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.instance.record import PRESENT
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.store import Store

from tests.recovery.heartbeat_world import IDS
from tests.scheduler.test_schedule import Cluster

S = JobStatus


@pytest.fixture
def cluster(store: Store) -> Cluster:
    """One instance."""
    return Cluster(store, 1)


def test_a_canceled_job_that_the_index_still_shows_keeps_no_instance_from_the_next(cluster: Cluster) -> None:
    """The cancellation wakes the scheduler with the id of the job, and the pass that follows places the next job."""
    cluster.submit("canceled")
    cluster.submit("next")
    shown = cluster.store.load_queue()
    cluster.recovery.handle("canceled", events.CancelRequested(at=cluster.now, attempt=0, by="ana"))
    cluster.store.load_queue = lambda *_: shown  # type: ignore[method-assign]
    assert cluster.schedule("canceled/2") == 1
    assert cluster.status("canceled", "next") == [S.CANCELED, S.SUBMITTED]


def test_a_job_is_not_launched_on_an_instance_that_was_repaired_since_the_index_was_read(cluster: Cluster) -> None:
    """The instance is free again but has another epoch: the job waits without a launch, a reason or an attempt."""
    cluster.submit("a")
    listed = cluster.store.instances_in(PRESENT)
    record = cluster.store.load_instance(IDS[0])
    assert record is not None
    cluster.store.save_instance(replace(record, epoch=record.epoch + 1))
    queued, real = cluster.job("a"), cluster.store.instances_in
    cluster.store.instances_in = lambda *_: listed  # type: ignore[method-assign]
    assert cluster.schedule() == 0
    assert cluster.job("a") == queued
    assert cluster.actions.poked[-1].startswith("#pass/")
    cluster.store.instances_in = real  # type: ignore[method-assign]
    assert cluster.schedule("#pass/1") == 1
    assert cluster.actions.launched == {"a": IDS[:1]}
    assert cluster.job("a").attempt == 1
