"""What a report leads to beside presence: orders repeated, health that is news, inventories asked for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import (
    HEARTBEAT_RANKS_MAX,
    AgentCommandKind,
    GpuHealth,
    Heartbeat,
    RankHeartbeat,
    ReportedSxid,
    ReportedXid,
    RunningRank,
)
from gpu_recovery.core.instance.record import Claim, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.execution.hand_over import CLOCK_SKEW
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.ports.errors import AnotherAgent

from simulator.memory_store.store import MemoryStore
from tests.aws.records import JOB, job
from tests.recovery.heartbeat_world import BOOT, IDS, Died, Scene, dies_before


def test_a_forced_cancel_leaves_an_order_that_is_repeated_until_the_rank_is_gone(scene: Scene) -> None:
    """For each instance of the attempt that was ever heard of; neither a late report nor one of GPUs takes it back."""
    wish = events.CancelRequested(at=scene.now, attempt=1, by="ada", force=True)
    scene.recovery.handle(JOB, wish)
    first = scene.beats(0).commands
    assert [(one.job_id, one.attempt, one.kind) for one in first] == [(JOB, 1, "stop")]
    assert scene.beats(0, age_s=300.0).commands == ()
    assert scene.beats(0, running=None).commands == ()
    assert scene.beats(0).commands == first
    assert scene.beats(0, running=()).commands == ()
    assert scene.beats(0).commands == first  # one report without the rank may come of a restart
    scene.passes(200)
    assert scene.beats(0, running=()).commands == ()
    assert scene.beats(0).commands == ()
    assert scene.beats(1).commands == first


@pytest.mark.parametrize("attempt", [1, 0])
def test_an_order_reaches_a_rank_whose_gpus_are_free_by_the_word_of_ecs(scene: Scene, attempt: int) -> None:
    """ECS may have forgotten the task of a rank that lives on. The rank is refused as over, and still stopped."""
    running = (RunningRank(JOB, attempt, 0, 0),)
    scene.beats(0, running=running)
    scene.recovery.handle(JOB, events.CancelRequested(at=scene.now, attempt=1, by="ada", force=True))
    scene.changes_instance(0, claims={})
    for _ in range(20):
        scene.passes(15)
        said = scene.beats(0, running=running)
        assert [(one.kind, one.attempt) for one in said.commands] == [(AgentCommandKind.STOP, attempt)]
    assert said.updated == 0
    scene.beats(0, running=())
    scene.passes(200)
    assert scene.beats(0, running=()).commands == ()
    assert scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders == {}


def test_a_suspension_goes_through_ecs_and_no_agent_hears_of_it(scene: Scene) -> None:
    """One SIGTERM: a second would end the grace."""
    scene.recovery.handle(JOB, events.SuspendRequested(at=scene.now, attempt=1, by="ada"))
    assert (scene.job.status, scene.aws.stopped) == (JobStatus.SUSPENDING, ["task-0"])
    assert scene.beats(0).commands == () and scene.beats(1).commands == ()


@pytest.mark.parametrize("told_attempt", [1, 0])
def test_where_ecs_knows_no_task_of_rank_0_the_suspension_goes_through_its_agent(
    scene: Scene, told_attempt: int
) -> None:
    """With the job's own grace, to rank 0's instance alone; repeated until the rank is gone."""
    scene.aws.forgotten.add("task-0")
    scene.recovery.handle(JOB, events.SuspendRequested(at=scene.now, attempt=1, by="ada"))
    assert (scene.job.status, scene.aws.stopped) == (JobStatus.SUSPENDING, [])
    running = (RunningRank(JOB, told_attempt, 0),)
    (order,) = scene.beats(0, running=running).commands
    assert (order.kind, order.job_id, order.attempt) == (AgentCommandKind.SUSPEND, JOB, told_attempt)
    assert order.grace_s == scene.job.spec.suspend_grace_s
    assert scene.beats(0, running=running).commands == (order,)
    assert [scene.beats(n).commands for n in (1, 2, 3)] == [()] * 3
    scene.passes(200)
    scene.beats(0, running=())
    assert scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders == {}


def test_health_is_told_when_it_changes_and_not_each_time(scene: Scene) -> None:
    """Four times a minute the same word is no news."""
    scene.beats(0, health=GpuHealth.OK, digest="d1")
    version = scene.instance().version
    scene.passes(15)
    scene.beats(0, health=GpuHealth.OK, digest="d1")
    assert scene.instance().version == version
    scene.beats(0, health=GpuHealth.IMPAIRED, sentence="a row could not be remapped", digest="d1")
    assert scene.instance().status is InstanceStatus.CHECKING


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (GpuHealth.OK, HealthStatus.OK),
        (GpuHealth.UNKNOWN, HealthStatus.INSUFFICIENT_DATA),
        (GpuHealth.IMPAIRED, HealthStatus.IMPAIRED),
    ],
)
def test_each_health_of_an_agent_is_saved_with_its_status(scene: Scene, said: GpuHealth, status: HealthStatus) -> None:
    """Each word differs from the word before."""
    scene.beats(0, health=GpuHealth.OK if said is GpuHealth.UNKNOWN else GpuHealth.UNKNOWN)
    scene.passes(15)
    scene.beats(0, health=said, digest="d1")
    assert scene.instance().health[HealthKind.NODE_AGENT].status is status


@pytest.mark.parametrize("age_s", [300.0, float(PRESETS[Preset.ADAPTIVE].suspect_s)])
def test_late_health_is_not_told_over_what_is_known_now(scene: Scene, age_s: float) -> None:
    """It says how the GPUs were; nothing would ever take it back. A report as old as the suspect limit is late."""
    scene.beats(0, health=GpuHealth.OK)
    scene.passes(15)
    scene.beats(0, health=GpuHealth.IMPAIRED, age_s=age_s)
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.beats(0, health=GpuHealth.OK, age_s=300.0, xids=(ReportedXid(79, "GPU-1"),))
    assert scene.instance().status is InstanceStatus.CHECKING and "XID 79" in scene.instance().reason


def test_health_that_was_never_told_is_told_when_the_report_is_repeated(scene: Scene) -> None:
    """The function died, so the agent had no answer."""
    report = scene.report(0, health=GpuHealth.IMPAIRED, sentence="GPU 3 is lost")
    with dies_before(scene.store, "save_instance"), suppress(Died):
        scene.hearing.receive(report)
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.hearing.receive(report)
    assert scene.instance().status is InstanceStatus.CHECKING


def test_an_agent_is_answered_though_others_could_not_be_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error it would only report the same again. What was to be said is kept, and raised by the reconciler."""

    def unreachable(*given: Any) -> None:
        raise ConnectionError("the bus is away")

    with monkeypatch.context() as away:
        away.setattr(scene.aws, "publish", unreachable)
        assert scene.beats(0, xids=(ReportedXid(79, "GPU-1"),)).updated == 1
        assert scene.instance().status is InstanceStatus.CHECKING
        assert [type(one.command) for one in scene.instance().commands] == [commands.PublishEvent]
        scene.passes(scene.policy.command_lease_s + 1)
        with pytest.raises(ExceptionGroup) as raised:
            scene.round()
        assert raised.group_contains(ConnectionError, match="the bus is away")
    scene.passes(scene.policy.command_lease_s + 1)
    scene.round()
    assert scene.instance().commands == ()


def test_an_inventory_is_asked_for_until_it_has_come(scene: Scene) -> None:
    """By its digest; what has come is kept as it was said."""
    assert scene.beats(0, health=GpuHealth.OK, digest="d1").wants_inventory
    sent = scene.beats(0, health=GpuHealth.OK, digest="d2", inventory={"gpus": [{"uuid": "GPU-1"}]})
    assert not sent.wants_inventory
    assert not scene.beats(0, health=GpuHealth.OK, digest="d2").wants_inventory
    kept = scene.store.load_inventory(IDS[0])
    assert kept is not None and kept[:2] == ("d2", '{"gpus":[{"uuid":"GPU-1"}]}')


@pytest.mark.parametrize(
    ("job_id", "known"), [(JOB, 1), ("gone-1", 0), ("other-1", 0)], ids=["its job", "no job", "a job elsewhere"]
)
def test_the_rank_of_a_claim_without_a_rank_comes_from_the_record_of_the_job(
    scene: Scene, job_id: str, known: int
) -> None:
    """An earlier release saved such claims. A claim without such a job refuses its rank, and the report is accepted."""
    scene.store.create_job(job("other-1", status=JobStatus.RUNNING, attempt=1, instances=IDS[1:2]), "")
    scene.changes_instance(0, claims={job_id: Claim(1, 8)})
    answer = scene.beats(0, running=(RunningRank(job_id, 1, 0),))
    assert (answer.updated, len(answer.refused)) == (known, 1 - known)


# -- errors of the kernel's log ----------------------------------------------------------------------------------------


def test_an_xid_of_an_earlier_boot_is_history_and_no_reason_to_look(scene: Scene) -> None:
    """The machine has booted since. What was logged stands in its history, and nothing is checked or rebooted."""
    lost = (ReportedXid(79, "GPU-1", boot_id=BOOT), ReportedXid(48, "GPU-2", boot_id=BOOT))
    scene.passes(100)
    scene.beats(0, boot_id="boot-2", uptime_s=40.0, sequence=1, xids=lost, running=())
    record = scene.instance()
    assert record.status is InstanceStatus.AVAILABLE and record.boot_id == "boot-2"
    assert record.reason == "logged before this boot: XID 79 on GPU-1; XID 48 on GPU-2"
    assert record.history[-1].reason == record.reason
    scene.beats(0, boot_id="boot-2", uptime_s=60.0, xids=(ReportedXid(79, "GPU-1", boot_id="boot-2"),), running=())
    assert scene.instance().status is InstanceStatus.CHECKING


def test_a_flood_of_one_cause_is_no_repetition(scene: Scene) -> None:
    """Four hundred lines within seconds are one crash of a training; two crashes are for a look."""
    scene.beats(0, xids=(ReportedXid(31, "GPU-1", 400, bursts=1),))
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.beats(0, xids=(ReportedXid(31, "GPU-1", 401, bursts=2),))
    assert scene.instance().status is InstanceStatus.CHECKING
    assert "XID 31 on GPU-1, 2 times within a day" in scene.instance().reason


def test_the_count_of_an_agent_that_knows_no_occurrences_is_taken_as_it_is(scene: Scene) -> None:
    """An older one tells nothing else."""
    scene.beats(0, xids=(ReportedXid(31, "GPU-1", 2),))
    assert scene.instance().status is InstanceStatus.CHECKING


def test_a_fatal_error_of_a_switch_is_a_reason_to_look(scene: Scene) -> None:
    """One that is not fatal is none, unless it comes again and again."""
    scene.beats(0, sxids=(ReportedSxid(12020, False, 4),))
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.beats(0, sxids=(ReportedSxid(24007, True, boot_id="boot-0"),))
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.beats(0, sxids=(ReportedSxid(24007, True),))
    assert scene.instance().status is InstanceStatus.CHECKING
    assert "fatal SXid 24007 of an NVSwitch" in scene.instance().reason


# -- two agents on one instance ----------------------------------------------------------------------------------------


def test_two_agents_in_step_are_told_apart_and_operators_hear_it_once_a_day(scene: Scene) -> None:
    """Of the same boot and with the same numbers; nothing happens to the instance or its job."""
    scene.beats(0, run="aaaaaaaa")
    scene.beats(0, run="bbbbbbbb")
    for _ in range(3):
        scene.passes(15)
        with pytest.raises(AnotherAgent):
            scene.beats(0, run="aaaaaaaa")
        scene.beats(0, run="bbbbbbbb")
    assert scene.subjects() == [f"[GPU-RECOVERY][SEV3] {IDS[0]}: two agents report for it"]
    assert scene.instance().status is InstanceStatus.AVAILABLE and scene.job.status is JobStatus.RUNNING
    scene.passes(86_400)
    with pytest.raises(AnotherAgent):
        scene.beats(0, run="aaaaaaaa")
    assert len(scene.subjects()) == 2


def test_a_function_that_dies_before_it_entered_that_it_told_tells_twice_and_not_never(scene: Scene) -> None:
    """The refusal comes again with the next report."""
    scene.beats(0, run="aaaaaaaa")
    scene.beats(0, run="bbbbbbbb")
    with dies_before(scene.store, "mark_duplicate_agent"), suppress(Died):
        scene.beats(0, run="aaaaaaaa")
    with pytest.raises(AnotherAgent):
        scene.beats(0, run="aaaaaaaa")
    assert len(scene.subjects()) == 2


# -- a function that is in a hurry -------------------------------------------------------------------------------------


def test_what_is_not_begun_in_time_is_left_to_the_reconciler_at_once(scene: Scene) -> None:
    """The decision is kept; its commands are free for the next round, and do not wait for a claim to expire."""
    hurried = replace(scene.recovery, has_time=lambda: False)
    HeartbeatReceiver(hurried).receive(scene.report(0, health=GpuHealth.IMPAIRED, sentence="GPU 3 is lost"))
    record = scene.instance()
    assert record.status is InstanceStatus.CHECKING and record.commands
    assert {one.acting_until for one in record.commands} == {scene.now - CLOCK_SKEW}
    scene.round()
    assert not scene.instance().commands


def test_commands_are_begun_until_the_time_is_over_and_none_after(scene: Scene) -> None:
    """What was begun is settled with what it led to."""
    left = iter([True])
    hurried = replace(scene.recovery, has_time=lambda: next(left, False))
    hearing = HeartbeatReceiver(hurried)
    hearing.receive(scene.report(0, health=GpuHealth.IMPAIRED))
    whole = Scene(MemoryStore(), IDS[:4])
    whole.beats()
    with dies_before(whole.store, "remove_finished_instance_commands"), suppress(Died):
        whole.beats(0, health=GpuHealth.IMPAIRED)
    assert len(scene.instance().commands) == len(whole.instance().commands) - 1


def test_a_heartbeat_remembers_no_more_ranks_than_its_item_may_hold(scene: Scene) -> None:
    """The reconciler takes out the longest unseen, so that no report must."""
    for attempt in range(2, HEARTBEAT_RANKS_MAX + 5):
        scene.passes(1)
        scene.store.save_heartbeat(
            Heartbeat(IDS[0], scene.now, ranks={str(scene.log(0, attempt)): RankHeartbeat(JOB, attempt, 0, scene.now)}),
            True,
        )
    scene.beats()
    scene.sweep()
    left = scene.store.load_heartbeats(IDS[:1])[IDS[0]].ranks
    assert {rank.attempt for rank in left.values()} == {1, *range(6, HEARTBEAT_RANKS_MAX + 5)}
    assert len(left) == HEARTBEAT_RANKS_MAX
