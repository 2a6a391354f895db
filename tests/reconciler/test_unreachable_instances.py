"""An instance that is silent, and not for long enough to be lost: what ECS and EC2 say of it counts by itself."""

from __future__ import annotations

import pytest
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthKind
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus, StopPurpose
from gpu_recovery.reconciler import heartbeat_timeouts
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.reconciler.resync import resync_ec2

from tests.aws.records import JOB
from tests.recovery.heartbeat_world import IDS, Scene

S = JobStatus


@pytest.mark.parametrize("state", [Ec2InstanceState.TERMINATED, Ec2InstanceState.STOPPED])
def test_a_machine_that_ec2_shows_off_is_left_behind_long_before_its_job_would_be_lost(
    scene: Scene, state: Ec2InstanceState
) -> None:
    """EC2 is asked about every instance in each round, whether it is heard of or not: nobody waits for a silence."""
    scene.aws.dead[IDS[0]] = state
    scene.passes(60)
    scene.beats(1, 2, 3)
    reconcile(scene.recovery, (resync_ec2, heartbeat_timeouts.check_heartbeats))
    assert scene.aws.listings == ["ec2"]
    assert (scene.job.status, scene.job.stop_purpose) == (S.STOPPING, StopPurpose.RELAUNCH)
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and set(progress.stopped) == {0}


def test_an_instance_that_ec2_finds_impaired_is_dealt_with_while_it_is_only_unreachable(scene: Scene) -> None:
    """What EC2 says counts by itself: its silence adds nothing, and is not waited for."""
    scene.aws.impaired[IDS[0]] = HealthKind.SYSTEM_STATUS
    scene.passes(130)
    scene.beats(1, 2, 3)
    reconcile(scene.recovery, (resync_ec2, heartbeat_timeouts.check_heartbeats))
    assert scene.instance().silent_since is None and scene.instance().status is InstanceStatus.QUARANTINED
    assert "SYSTEM_STATUS" in scene.instance().reason and scene.job.status is S.STOPPING


def test_a_disconnected_agent_of_ecs_decides_nothing_about_an_instance_that_is_only_unreachable(scene: Scene) -> None:
    """It disconnects by itself several times an hour, and a job that is not LOST yet may be heard of again."""
    scene.aws.disconnected.add(IDS[0])
    scene.passes(130)
    scene.beats(1, 2, 3)
    reconcile(scene.recovery, (resync_ec2, heartbeat_timeouts.check_heartbeats))
    assert (scene.instance().status, scene.job.status) == (InstanceStatus.AVAILABLE, S.RUNNING)
    assert scene.claims() == [1] * 4 and not scene.aws.stopped
