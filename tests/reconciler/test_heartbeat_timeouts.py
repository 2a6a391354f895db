"""Heartbeats through the whole loop, over the store in memory and on DynamoDB: silence, its end, races and crashes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus, MachineState
from gpu_recovery.core.heartbeat import GpuHealth, RankExit, RunningRank, XidSeen
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus, StopPurpose
from gpu_recovery.core.policy import policy_from
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler import heartbeat_timeouts
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.memory_store.store import MemoryStore
from tests.aws.records import JOB
from tests.recovery.heartbeat_world import IDS, Died, Scene, dies_before

S = JobStatus


def lost(scene: Scene) -> Scene:
    """The same, once the agent on the first instance has been silent for long enough."""
    scene.falls_silent(0)
    assert (scene.job.status, scene.job.silent) == (S.LOST, (IDS[0],))
    return scene


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
    before = (scene.job, [scene.instance(n) for n in range(4)], scene.store.beats(IDS), len(scene.aws.said))
    for _ in range(2):
        scene.sweep()
    assert before == (scene.job, [scene.instance(n) for n in range(4)], scene.store.beats(IDS), len(scene.aws.said))


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
    assert len(scene.store.beats(IDS)[IDS[0]].ranks) == 1


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
    scene.aws.dead[IDS[0]] = MachineState.TERMINATED
    scene.passes(600)
    scene.beats(1, 2, 3)
    scene.round()
    assert scene.instance().status is InstanceStatus.GONE
    assert (scene.job.status, scene.job.stop_purpose) == (S.STOPPING, StopPurpose.DIAGNOSE)
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and set(progress.stopped) == {0}


def test_gap_4_nothing_that_dies_loses_an_exit_or_frees_a_gpu(scene: Scene) -> None:
    """The function that hears of an exit is killed: the agent tells it again, and the question is asked once."""
    exits = (RankExit(JOB, 1, 0, code=1),)
    report = scene.report(0, exits=exits, running=())
    with dies_before(scene.store, "save_job"), suppress(Died):
        scene.hearing.hear(report)
    assert scene.claims() == [1] * 4
    before = scene.job.version
    scene.hearing.hear(report)
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
    scene.beats(0, health=GpuHealth.OK, digest="d-1", inventory=inventory, xids=(XidSeen(xid, "GPU-1"),))
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


# -- what ECS and EC2 say ----------------------------------------------------------------------------------------------


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
        scene.aws.dead[IDS[0]] = MachineState.STOPPED
    elif dead == "gone":
        scene.changes_instance(0, status=InstanceStatus.GONE)
    else:
        scene.aws.disconnected.add(IDS[0])
    words, unsure, deaf = heartbeat_timeouts.what_others_say(scene.recovery, scene.job)
    assert set(words) == {IDS[0]} and all(words.values()) and not deaf
    assert unsure == ((IDS[0],) if dead == "disconnected" else ())


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


def test_a_heartbeat_that_was_never_told_is_found_at_the_jobs_next_look(scene: Scene) -> None:
    """The function died between writing it and telling of it."""
    lost(scene)
    with dies_before(scene.store, "save_job"), dies_before(scene.store, "save_instance"), suppress(Died):
        scene.beats(0)
    assert scene.job.status is S.LOST
    scene.passes(scene.policy.look_s)
    scene.beats(1, 2, 3)
    scene.round()
    assert scene.job.status is S.RUNNING


# -- many at once ------------------------------------------------------------------------------------------------------


def test_many_silent_at_once_make_nobody_lost_and_stop_every_repair(store: Store) -> None:
    """Three of ten: one mail, no LOST job, no repair, whatever a watcher says of one; then it ends by itself."""
    scene = Scene(store, IDS)
    scene.beats()
    scene.falls_silent(0, 1, 2)
    fleet = scene.store.load_fleet()
    assert fleet.deaf is not None and (fleet.deaf.silent, fleet.deaf.reporting) == (3, 10)
    assert scene.job.status is S.RUNNING and not any(scene.instance(n).silent_since for n in range(10))
    assert len(scene.aws.said) == 1
    scene.recovery.tell(
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


def test_a_lost_job_is_not_decided_about_while_many_are_silent(store: Store) -> None:
    """The first of them fell silent before the others: its machine may be as well as theirs."""
    scene = Scene(store, IDS)
    scene.beats()
    scene.falls_silent(0)
    assert scene.job.status is S.LOST
    scene.aws.dead[IDS[0]] = MachineState.STOPPED
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


def test_a_fleet_of_one_is_lost_alone(store: Store) -> None:
    """One of one may be the machine as well as the network: its job waits, and nothing is freed."""
    scene = Scene(store, IDS[:1])
    scene.beats()
    scene.falls_silent(0)
    assert scene.job.status is S.LOST and scene.store.load_fleet().deaf is None


# -- races and crashes -------------------------------------------------------------------------------------------------


def test_a_heartbeat_between_the_sweeps_look_and_its_mark_wins(scene: Scene) -> None:
    """It is not silent, and nobody is told that it is."""
    scene.passes(200)
    scene.beats(1, 2, 3)
    original = scene.store.mark_silent

    def mark(instance_id: str, seen_at: Any) -> bool:
        scene.beats(0)
        return original(instance_id, seen_at)

    scene.store.mark_silent = mark  # type: ignore[method-assign]
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
    tell, spoken = scene.recovery.tell, list[str]()

    def slow(to: str, event: Any) -> Any:
        if not spoken and isinstance(event, events.InstanceSilent | events.RankSilent):
            spoken.append(to)
            scene.passes(1)
            scene.beats(0)
        return tell(to, event)

    object.__setattr__(scene.recovery, "tell", slow)
    scene.sweep()
    assert spoken and scene.job.status is S.RUNNING and scene.instance().silent_since is None


def test_a_sweep_that_dies_between_mark_and_telling_is_made_good_by_the_next(scene: Scene) -> None:
    """The mark alone tells nobody."""
    scene.passes(200)
    scene.beats(1, 2, 3)
    with dies_before(scene.store, "save_instance"), suppress(Died, ExceptionGroup):
        scene.sweep()
    assert scene.store.beats(IDS)[IDS[0]].silent_since is not None and scene.instance().silent_since is None
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


@settings(max_examples=150, deadline=None)
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
                name = ("save_job", "save_instance", "settle_job", "mark_silent")[seconds % 4]
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
