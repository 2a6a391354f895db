"""What a report leads to beside presence: orders repeated, health that is news, inventories asked for."""

from __future__ import annotations

from contextlib import suppress

from gpu_recovery.core import events
from gpu_recovery.core.heartbeat import GpuHealth, XidSeen
from gpu_recovery.core.instance.record import InstanceStatus

from tests.aws.records import JOB
from tests.loop.listening import IDS, Died, Scene, dies_before


def test_a_forced_cancel_leaves_an_order_that_is_repeated_until_the_rank_is_gone(scene: Scene) -> None:
    """For each instance of the attempt that was ever heard of; neither a late report nor one of GPUs takes it back."""
    wish = events.CancelRequested(at=scene.now, attempt=1, by="ada", force=True)
    scene.recovery.tell(JOB, wish)
    first = scene.beats(0).orders
    assert [(one.job_id, one.attempt, one.kind) for one in first] == [(JOB, 1, "stop")]
    assert scene.beats(0, age_s=300.0).orders == ()
    assert scene.beats(0, running=None).orders == ()
    assert scene.beats(0).orders == first
    assert scene.beats(0, running=()).orders == ()
    assert scene.beats(0).orders == first  # one report without the rank may come of a restart
    scene.passes(200)
    assert scene.beats(0, running=()).orders == ()
    assert scene.beats(0).orders == ()
    assert scene.beats(1).orders == first


def test_health_is_told_when_it_changes_and_not_each_time(scene: Scene) -> None:
    """Four times a minute the same word is no news."""
    scene.beats(0, health=GpuHealth.OK, digest="d1")
    version = scene.instance().version
    scene.passes(15)
    scene.beats(0, health=GpuHealth.OK, digest="d1")
    assert scene.instance().version == version
    scene.beats(0, health=GpuHealth.IMPAIRED, sentence="a row could not be remapped", digest="d1")
    assert scene.instance().status is InstanceStatus.CHECKING


def test_late_health_is_not_told_over_what_is_known_now(scene: Scene) -> None:
    """It says how the GPUs were; nothing would ever take it back."""
    scene.beats(0, health=GpuHealth.OK)
    scene.passes(15)
    scene.beats(0, health=GpuHealth.IMPAIRED, age_s=300.0)
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.beats(0, health=GpuHealth.OK, age_s=300.0, xids=(XidSeen(79, "GPU-1"),))
    assert scene.instance().status is InstanceStatus.CHECKING and "XID 79" in scene.instance().reason


def test_health_that_was_never_told_is_told_when_the_report_is_repeated(scene: Scene) -> None:
    """The function died, so the agent had no answer."""
    report = scene.report(0, health=GpuHealth.IMPAIRED, sentence="GPU 3 is lost")
    with dies_before(scene.store, "save_instance"), suppress(Died):
        scene.hearing.hear(report)
    assert scene.instance().status is InstanceStatus.AVAILABLE
    scene.hearing.hear(report)
    assert scene.instance().status is InstanceStatus.CHECKING


def test_an_inventory_is_asked_for_until_it_has_come(scene: Scene) -> None:
    """By its digest; what has come is kept as it was said."""
    assert scene.beats(0, health=GpuHealth.OK, digest="d1").wants_inventory
    sent = scene.beats(0, health=GpuHealth.OK, digest="d2", inventory={"gpus": [{"uuid": "GPU-1"}]})
    assert not sent.wants_inventory
    assert not scene.beats(0, health=GpuHealth.OK, digest="d2").wants_inventory
    kept = scene.store.inventory(IDS[0])
    assert kept is not None and kept[:2] == ("d2", '{"gpus":[{"uuid":"GPU-1"}]}')
