"""Offers and recalls of warm spares in a pass: the failure of one job concerns no other job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.heartbeat import Heartbeat, running_log_id
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import RecoveryError
from gpu_recovery.ports.store import Store
from gpu_recovery.scheduler import schedule as schedule_module

from tests.recovery.heartbeat_world import IDS, Quiet
from tests.scheduler.test_schedule import Cluster

JOBS = ("a", "b")


@pytest.fixture
def cluster(store: Store) -> Cluster:
    """Five instances. Two jobs of one instance run in the wrapper, and each lacks a warm spare."""
    cluster = Cluster(store, 5)
    cluster.policy = replace(cluster.policy, restart_in_place=True, warm_spares=1)
    for name in JOBS:
        cluster.submit(name)
        assert cluster.schedule(f"{name}/1") == 1
        cluster.runs(name)
    logs = {cluster.job(name).instances[0]: str(running_log_id(name, 1, 0)) for name in JOBS}
    for number, instance_id in enumerate(IDS[:5]):
        holds = (logs[instance_id],) if instance_id in logs else ()
        store.save_heartbeat(Heartbeat(instance_id, cluster.now, "boot", cluster.now, number, 15, holds=holds), True)
    return cluster


def spares(cluster: Cluster) -> list[int]:
    """The number of warm spares of each job, also of those that were ordered and not started yet."""
    return [len(cluster.job(name).spares) for name in JOBS]


def asked(cluster: Cluster) -> int:
    """Run the pass that both jobs ask for. Return the number of jobs that it placed."""
    return cluster.schedule(*(f"{name}/2" for name in JOBS))


def test_each_job_that_asks_gets_its_warm_spare(cluster: Cluster) -> None:
    """On instances of their own."""
    asked(cluster)
    assert spares(cluster) == [1, 1]
    assert len({spare.instance_id for name in JOBS for spare in cluster.job(name).spares}) == 2


def test_no_warm_spare_takes_the_room_of_a_growth_that_waits(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The growth waits for the end of an idle check. Its other instances are free meanwhile."""
    place = schedule_module.place
    monkeypatch.setattr(schedule_module, "may_grow", lambda *given: {""})
    monkeypatch.setattr(schedule_module, "place", lambda *given: replace(place(*given), waiting_growths=("e",)))
    asked(cluster)
    assert spares(cluster) == [0, 0]


def fails_to_load(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, reads: int = 0) -> None:
    """Let no function read the record of the job any more, after so many reads."""
    whole, left = cluster.store.load_job, [reads]

    def load_job(job_id: str) -> Any:
        if job_id == name:
            left[0] -= 1
            if left[0] < 0:
                raise RecoveryError(f"the record of {name} cannot be read")
        return whole(job_id)

    monkeypatch.setattr(cluster.store, "load_job", load_job)


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_job_that_fails_keeps_no_other_job_from_its_warm_spare(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """Its record cannot be read in the reading of the pass, before the offer, or at the offer. The pass is saved."""
    cluster.passes(1)
    logged: list[Exception] = []
    monkeypatch.setattr(Quiet, "placement_failed", lambda _, failure: logged.append(failure), raising=False)
    with monkeypatch.context() as patch:
        fails_to_load(cluster, patch, "a", reads)
        asked(cluster)
    assert spares(cluster) == [0, 1]
    assert cluster.store.load_last_pass().at == cluster.now
    assert [str(failure) for failure in logged] == ["the record of a cannot be read"]


def test_a_job_that_fails_keeps_no_job_waiting(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that waits gets its place in the pass that the other job asks for."""
    cluster.submit("c")
    with monkeypatch.context() as patch:
        fails_to_load(cluster, patch, "a")
        assert asked(cluster) == 1
    assert cluster.job("c").status is JobStatus.SUBMITTED


def test_a_job_that_fails_keeps_its_warm_spare_and_the_others_give_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job waits for three instances. The next pass recalls the warm spare that is left, and the job is placed."""
    asked(cluster)
    cluster.submit("c", 3)
    with monkeypatch.context() as patch:
        fails_to_load(cluster, patch, "a")
        cluster.schedule("c/1")
    assert spares(cluster) == [1, 0]
    cluster.schedule("#tick/1")
    assert spares(cluster) == [0, 0]
    assert cluster.schedule("#pass/1") == 1 and cluster.job("c").status is JobStatus.SUBMITTED
