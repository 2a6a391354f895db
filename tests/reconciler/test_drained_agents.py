"""A drained daemon is not a lost one: ECS stops the agent's service on an instance that is DRAINING."""

from __future__ import annotations

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.heartbeat import BY_DAEMON, BY_ROLE
from gpu_recovery.core.instance.record import EcsStatus, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from tests.recovery.heartbeat_world import Scene

STALE_S = PRESETS[Preset.ADAPTIVE].heartbeat_stale_s


def beats(scene: Scene, *which: int, by: str = BY_DAEMON) -> None:
    for one in which:
        scene.hearing.receive(scene.report(one), by=by)


def passes_without_the_first(scene: Scene, seconds: int) -> None:
    """Time goes on; the other agents report, and the reconciler compares every minute."""
    for at in range(0, seconds, 15):
        scene.passes(15)
        beats(scene, 1, 2, 3)
        if at % 60 == 0:
            scene.sweep()
    scene.sweep()


def quarantine(scene: Scene) -> None:
    scene.recovery.handle(scene.ids[0], events.QuarantineRequested(at=scene.now, by="ana"))
    assert scene.instance().status is InstanceStatus.QUARANTINED and scene.instance().drained


@pytest.mark.parametrize(("by", "is_lost"), [(BY_DAEMON, False), (BY_ROLE, True)])
def test_a_quarantine_that_stops_the_daemon_does_not_make_the_job_lost(scene: Scene, by: str, is_lost: bool) -> None:
    """The job works on. An agent that ECS does not stop has no such excuse."""
    beats(scene, 0, by=by)
    beats(scene, 1, 2, 3)
    quarantine(scene)
    told = len(scene.aws.said)
    passes_without_the_first(scene, 1_800)
    assert (scene.job.status is JobStatus.LOST) is is_lost
    assert (scene.instance().silent_since is not None) is is_lost
    assert is_lost or len(scene.aws.said) == told


def test_an_instance_that_a_person_drains_is_not_silent_either(scene: Scene) -> None:
    """ECS stops the service there as well."""
    beats(scene, 0, 1, 2, 3)
    scene.changes_instance(0, ecs_status=EcsStatus.DRAINING)
    passes_without_the_first(scene, 1_800)
    assert scene.job.status is JobStatus.RUNNING and scene.instance().silent_since is None


def test_after_a_repair_the_daemon_has_the_timeout_to_come_back(scene: Scene) -> None:
    """Its last heartbeat is older than the reboot; ECS starts it once the instance is ACTIVE again."""
    beats(scene, 0, 1, 2, 3)
    passes_without_the_first(scene, 60)
    scene.changes_instance(0, status=InstanceStatus.REBOOTING, drained=True)
    passes_without_the_first(scene, 900)
    scene.changes_instance(0, status=InstanceStatus.VERIFYING, status_at=scene.now, drained=False)
    passes_without_the_first(scene, STALE_S - 15)
    assert scene.instance().silent_since is None and scene.job.status is JobStatus.RUNNING
    passes_without_the_first(scene, 60)
    assert scene.instance().silent_since is not None, "now it is silent"


def test_a_daemon_that_dies_in_use_is_lost_as_any_agent(scene: Scene) -> None:
    """Nobody has stopped it."""
    beats(scene, 0, 1, 2, 3)
    passes_without_the_first(scene, STALE_S + 60)
    assert scene.job.status is JobStatus.LOST and scene.instance().silent_since is not None
