"""Heartbeat timeouts through the whole loop, over the store in memory and on DynamoDB."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import GpuHealth, RankExit, ReportedXid, RunningRank
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import policy_from
from gpu_recovery.ports.store import Store

from tests.aws.records import JOB
from tests.recovery.heartbeat_world import IDS, Died, Scene, dies_before, lost

S = JobStatus


# -- silence and its end -----------------------------------------------------------------------------------------------


def test_an_instance_that_is_silent_for_three_minutes_makes_its_job_lost(scene: Scene) -> None:
    """Not a minute sooner; no GPU changes hands, and one mail says so."""
    scene.passes(180)
    scene.beats(1, 2, 3)
    scene.sweep()
    assert scene.job.status is S.RUNNING and scene.instance().silent_since is None
    scene.passes(1)
    scene.sweep()
    assert scene.job.status is S.LOST and scene.instance().silent_since is not None
    assert scene.claims() == [1] * 4 and scene.instance().status is InstanceStatus.AVAILABLE
    assert len(scene.subjects()) == 1 and "LOST" in scene.subjects()[0]


def test_the_next_heartbeat_brings_it_back(scene: Scene) -> None:
    """By itself, without a round of the reconciler; the agent is told nothing special."""
    answer = lost(scene).beats(0)
    assert (answer.updated, answer.revived, answer.refused) == (1, 1, ())
    assert scene.job.status is S.RUNNING and scene.instance().silent_since is None
    assert scene.beats(0).revived == 0
    assert scene.claims() == [1] * 4 and not scene.aws.stopped


def test_a_sweep_that_runs_twice_changes_nothing(scene: Scene) -> None:
    """Neither a record nor a heartbeat nor a mail."""
    lost(scene)
    before = (scene.job, [scene.instance(n) for n in range(4)], scene.store.load_heartbeats(IDS), len(scene.aws.said))
    for _ in range(2):
        scene.sweep()
    assert before == (
        scene.job,
        [scene.instance(n) for n in range(4)],
        scene.store.load_heartbeats(IDS),
        len(scene.aws.said),
    )


def test_a_job_that_was_never_heard_of_is_never_lost(store: Store) -> None:
    """Instances without an agent, and an agent that does not know of the rank: a safe upgrade."""
    scene = Scene(store, IDS[:3])
    scene.beats(1, running=())
    scene.beats(2, running=None)
    scene.passes(3_600)
    scene.sweep()
    assert scene.job.status is S.RUNNING and scene.instance(0).silent_since is None


def test_a_rank_that_its_instance_no_longer_speaks_of_is_silent(scene: Scene) -> None:
    """The instance itself is not: its job alone is LOST, and comes back with the rank."""
    for _ in range(13):
        scene.passes(15)
        scene.beats(0, running=())
        scene.beats(1, 2, 3)
    scene.sweep()
    assert scene.job.status is S.LOST and scene.instance().silent_since is None
    before = scene.job
    scene.sweep()
    assert scene.job == before
    assert scene.beats(0).revived == 1
    assert scene.job.status is S.RUNNING


def test_an_instance_that_is_heard_without_its_rank_does_not_bring_the_job_back(scene: Scene) -> None:
    """Its agent lives again; whether the rank does is still to be heard."""
    lost(scene).beats(0, running=())
    scene.sweep()
    assert scene.instance().silent_since is None and scene.job.status is S.LOST
    scene.passes(15)
    scene.beats(0)
    assert scene.job.status is S.RUNNING


def test_a_report_that_comes_late_is_no_sign_of_life(scene: Scene) -> None:
    """Out of the spool, after the instance was lost: it revives nobody."""
    answer = lost(scene).beats(0, age_s=120.0)
    assert (answer.updated, answer.revived) == (0, 0)
    assert scene.job.status is S.LOST
    scene.sweep()
    assert scene.instance().silent_since is not None


def test_the_agent_of_seed_000_revives_by_running_logs(scene: Scene) -> None:
    """First it speaks of GPUs and then of tasks; the answer counts what was lost."""
    legacy: dict[str, Any] = {"boot_id": None, "sequence": None, "running": None, "uptime_s": None}
    lost(scene).beats(0, **legacy)
    assert scene.job.status is S.LOST
    answer = scene.beats(0, running_logs=(scene.log(), scene.log(0, 2), 12345), **legacy)
    assert (answer.updated, answer.revived) == (1, 1)
    assert scene.job.status is S.RUNNING


# -- other attempts, other epochs, ends --------------------------------------------------------------------------------


def test_a_heartbeat_of_another_attempt_or_epoch_is_refused_and_revives_nobody(scene: Scene) -> None:
    """It is written nowhere, and the agent hears why."""
    lost(scene)
    for rank in (RunningRank(JOB, 2, 0, 0), RunningRank(JOB, 1, 1, 0), RunningRank(JOB, 1, 0, 7)):
        answer = scene.beats(0, running=(rank,))
        assert [refused for refused, why in answer.refused if why] == [rank] and answer.updated == 0
    assert scene.job.status is S.LOST
    assert len(scene.store.load_heartbeats(IDS)[IDS[0]].ranks) == 1


def test_a_rank_launched_under_an_epoch_is_known_by_it_however_the_instance_went_on(store: Store) -> None:
    """A repair that was called off has raised the instance's epoch; the rank that lives carries the one before."""
    scene = Scene(store, IDS[:2])
    launched = replace(scene.instance().claims[JOB], epoch=0)
    scene.changes_instance(0, epoch=1, claims={JOB: launched})
    answer = scene.beats(0)
    assert (answer.updated, answer.refused) == (1, ())


@pytest.mark.parametrize("status", [S.SUCCEEDED, S.FAILED, S.CANCELED, S.STOPPING])
def test_gap_1_a_heartbeat_in_flight_revives_no_job_that_has_ended(scene: Scene, status: JobStatus) -> None:
    """The job row is what counts, and no report of anybody moves it."""
    scene.store.save_job(replace(lost(scene).job, status=status))
    before = scene.job
    scene.beats(0)
    scene.sweep()
    assert scene.job == before


def test_gap_2_an_exit_of_an_attempt_that_is_over_does_not_touch_the_next(scene: Scene) -> None:
    """Only the attempt that runs is asked about."""
    scene.store.save_job(replace(scene.job, attempt=2))
    before = scene.job
    scene.beats(0, exits=(RankExit(JOB, 1, 0, code=1),))
    assert scene.job == before


def test_gap_4_nothing_that_dies_loses_an_exit_or_frees_a_gpu(scene: Scene) -> None:
    """The function that hears of an exit is killed: the agent tells it again, and the question is asked once."""
    exits = (RankExit(JOB, 1, 0, code=1),)
    report = scene.report(0, exits=exits, running=())
    with dies_before(scene.store, "save_job"), suppress(Died):
        scene.hearing.receive(report)
    assert scene.claims() == [1] * 4
    before = scene.job.version
    scene.hearing.receive(report)
    assert scene.job.version == before + 1 and scene.claims() == [1] * 4


@pytest.mark.parametrize("gang", [(0, 1), (0, 1, 2)])
def test_gap_5_a_gang_is_one_job_however_many_of_its_ranks_are_silent(store: Store, gang: tuple[int, ...]) -> None:
    """Among enough others that speak: LOST once, back when the last of them is heard."""
    scene = Scene(store, IDS)
    scene.policy = policy_from({"repair_budget_percent": 30})
    scene.recovery = replace(scene.recovery, policy=scene.policy)
    scene.beats()
    scene.falls_silent(*gang)
    assert (scene.job.status, set(scene.job.silent)) == (S.LOST, {IDS[n] for n in gang})
    assert len([one for one in scene.subjects() if "LOST" in one]) == 1
    for n in gang:
        assert scene.job.status is S.LOST
        scene.beats(n)
    assert scene.job.status is S.RUNNING


def test_gap_7_an_agent_that_says_nothing_of_its_gpus_does_not_say_that_they_are_well(scene: Scene) -> None:
    """Unknown is not OK: it takes no suspicion back."""
    scene.beats(0, health=GpuHealth.IMPAIRED, sentence="GPU 3: 2 uncorrected errors")
    assert scene.instance().status is InstanceStatus.CHECKING
    for health in (None, GpuHealth.UNKNOWN):
        scene.beats(0, health=health)
        assert scene.instance().health[HealthKind.NODE_AGENT].status is not HealthStatus.OK


@pytest.mark.parametrize(("xid", "status"), [(79, InstanceStatus.CHECKING), (43, InstanceStatus.AVAILABLE)])
def test_gap_7_an_xid_leads_to_a_check_and_a_process_on_a_gpu_to_nothing(
    scene: Scene, xid: int, status: InstanceStatus
) -> None:
    """Seed 000 hears of no fault, and takes any process for use: here the claims say who has which GPU."""
    gpus = [{"uuid": "GPU-1", "processes": [{"pid": 4242, "memory": None}]}]
    inventory = {"agent": "0.3.0", "driver": "580", "gpus": gpus}
    scene.beats(0, health=GpuHealth.OK, digest="d-1", inventory=inventory, xids=(ReportedXid(xid, "GPU-1"),))
    record = scene.instance()
    assert (record.status, {job: one.gpus for job, one in record.claims.items()}) == (status, {JOB: 8})


def test_gap_8_ranks_that_were_seen_under_another_boot_have_ended(scene: Scene) -> None:
    """A process id that lives again after a reboot is another process."""
    lost(scene)
    scene.passes(60)
    scene.beats(0, boot_id="boot-2", uptime_s=30.0, running=())
    assert scene.instance().boot_id == "boot-2"
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and 0 in progress.stopped


# -- agents that are forgotten, and many at once -----------------------------------------------------------------------


def test_a_rank_that_has_ended_is_forgotten_an_hour_later(scene: Scene) -> None:
    """One write, once. A rank whose job still has GPUs there is remembered, however long it is silent."""
    forgotten: list[str] = []
    forget = scene.store.forget_ranks
    object.__setattr__(scene.store, "forget_ranks", lambda name, ranks: forgotten.append(name) or forget(name, ranks))
    scene.changes_instance(0, claims={})
    for _ in range(2):
        scene.passes(1_790)
        scene.beats(0, running=())
        scene.beats(1, running=())
        scene.sweep()
    assert not forgotten
    scene.passes(20)
    for _ in range(3):
        scene.beats(0, running=())
        scene.beats(1, running=())
        scene.sweep()
    assert forgotten == [IDS[0]]
    assert [len(beat.ranks) for beat in scene.store.load_heartbeats(IDS[:2]).values()] == [0, 1]


def test_an_agent_that_was_taken_away_is_forgotten_after_a_day(store: Store) -> None:
    """It would make the fleet deaf, and its instance useless, for ever."""
    scene = Scene(store, IDS)
    scene.beats()
    scene.falls_silent(0, 1, 2, 3)
    assert scene.store.load_fleet().deaf is not None
    scene.passes(scene.policy.heartbeat_forget_s)
    scene.beats(4, 5, 6, 7, 8, 9)
    scene.sweep()
    assert scene.store.load_fleet().deaf is None
    assert all(scene.instance(n).silent_since is None for n in range(10))


def test_one_silent_instance_is_used_again_once_its_agent_is_forgotten(scene: Scene) -> None:
    """A day without a word: there is no agent, and the machine may work without one."""
    lost(scene)
    assert scene.instance(0).silent_since is not None
    scene.passes(scene.policy.heartbeat_forget_s)
    scene.beats(1, 2, 3)
    scene.sweep()
    assert scene.instance(0).silent_since is None and scene.claims() == [1] * 4


def test_many_silent_at_once_make_nobody_lost_and_stop_every_repair(store: Store) -> None:
    """Three of ten: one mail, no LOST job, no repair, whatever a watcher says of one; then it ends by itself."""
    scene = Scene(store, IDS)
    scene.beats()
    scene.falls_silent(0, 1, 2)
    fleet = scene.store.load_fleet()
    assert fleet.deaf is not None and (fleet.deaf.silent, fleet.deaf.reporting) == (3, 10)
    assert scene.job.status is S.RUNNING and not any(scene.instance(n).silent_since for n in range(10))
    assert len(scene.aws.said) == 1
    scene.recovery.handle(
        IDS[0],
        events.HealthReported(
            at=scene.now, kind=HealthKind.INSTANCE_STATUS, status=HealthStatus.IMPAIRED, since=scene.now
        ),
    )
    assert not scene.aws.rebooted
    scene.beats()
    scene.sweep()
    assert scene.store.load_fleet().deaf is None
    assert scene.job.status is S.RUNNING


def test_a_fleet_of_one_is_lost_alone(store: Store) -> None:
    """One of one may be the machine as well as the network: its job waits, and nothing is freed."""
    scene = Scene(store, IDS[:1])
    scene.beats()
    scene.falls_silent(0)
    assert scene.job.status is S.LOST and scene.store.load_fleet().deaf is None
