"""LOST jobs: what ECS and EC2 say of their silent instances, and what follows."""

from __future__ import annotations

from contextlib import suppress

import pytest
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus, StopPurpose
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler import lost_jobs

from tests.aws.records import JOB
from tests.recovery.heartbeat_world import IDS, Died, Scene, dies_before, lost

S = JobStatus


def test_gap_3_a_silence_that_lasts_resolves_itself(scene: Scene) -> None:
    """ECS's agent is silent too: the gang is stopped and the machine repaired; GPUs wait for the proof."""
    lost(scene)
    scene.aws.disconnected.add(IDS[0])
    scene.passes(600)
    scene.beats(1, 2, 3)
    scene.round()
    assert scene.job.status is S.LOST and not scene.aws.stopped  # agents of ECS disconnect by themselves: once more
    scene.passes(120)
    scene.beats(1, 2, 3)
    scene.round()
    assert (scene.job.status, scene.job.stop_purpose) == (S.STOPPING, StopPurpose.DIAGNOSE)
    assert scene.claims() == [1] * 4
    assert scene.instance().status is not InstanceStatus.AVAILABLE
    assert [scene.instance(n).status for n in (1, 2, 3)] == [InstanceStatus.AVAILABLE] * 3


def test_a_lost_job_whose_machine_is_off_goes_on_elsewhere(scene: Scene) -> None:
    """Its rank has ended with the machine, for certain: nobody waits for a repair, and the job is not given up."""
    lost(scene)
    scene.aws.dead[IDS[0]] = Ec2InstanceState.TERMINATED
    scene.passes(600)
    scene.beats(1, 2, 3)
    scene.round()
    assert scene.instance().status is InstanceStatus.GONE
    assert (scene.job.status, scene.job.stop_purpose) == (S.STOPPING, StopPurpose.DIAGNOSE)
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and set(progress.stopped) == {0}


def test_a_healthy_job_is_not_killed_because_its_agent_died(scene: Scene) -> None:
    """ECS and EC2 find the machine alive: RUNNING again, and the silence of that agent is not told twice."""
    lost(scene).passes(600)
    scene.beats(1, 2, 3)
    scene.round()
    assert scene.job.status is S.RUNNING and not scene.aws.stopped
    for _ in range(5):
        scene.passes(180)
        scene.beats(1, 2, 3)
        scene.round()
    assert scene.job.status is S.RUNNING and scene.claims() == [1] * 4
    assert len([one for one in scene.subjects() if "LOST" in one]) == 1


@pytest.mark.parametrize("dead", ["stopped", "gone", "disconnected"])
def test_who_counts_as_dead(scene: Scene, dead: str) -> None:
    """EC2 shows it stopped; it has left the cluster; only the agent of ECS is not connected, which is doubtful."""
    lost(scene)
    if dead == "stopped":
        scene.aws.dead[IDS[0]] = Ec2InstanceState.STOPPED
    elif dead == "gone":
        scene.changes_instance(0, status=InstanceStatus.GONE)
    else:
        scene.aws.disconnected.add(IDS[0])
    words, unsure, deaf = lost_jobs.evidence_of_death(scene.recovery, scene.job)
    assert set(words) == {IDS[0]} and all(words.values()) and not deaf
    assert unsure == ((IDS[0],) if dead == "disconnected" else ())


def test_a_heartbeat_that_was_never_told_is_found_at_the_jobs_next_look(scene: Scene) -> None:
    """The function died between writing it and telling of it."""
    lost(scene)
    with dies_before(scene.store, "save_job"), dies_before(scene.store, "save_instance"), suppress(Died):
        scene.beats(0)
    assert scene.job.status is S.LOST
    scene.passes(scene.policy.poll_interval_s)
    scene.beats(1, 2, 3)
    scene.round()
    assert scene.job.status is S.RUNNING


def test_a_lost_job_is_not_decided_about_while_many_are_silent(store: Store) -> None:
    """The first of them fell silent before the others: its machine may be as well as theirs."""
    scene = Scene(store, IDS)
    scene.beats()
    scene.falls_silent(0)
    assert scene.job.status is S.LOST
    scene.aws.dead[IDS[0]] = Ec2InstanceState.STOPPED
    scene.falls_silent(0, 1, 2, 3)
    scene.passes(600)
    scene.round()
    assert scene.job.status is S.LOST and not scene.aws.stopped
    scene.beats(1, 2, 3, 4, 5, 6, 7, 8, 9)
    scene.sweep()
    scene.passes(600)
    scene.beats(1, 2, 3, 4, 5, 6, 7, 8, 9)
    scene.round()
    assert scene.job.status is S.STOPPING
