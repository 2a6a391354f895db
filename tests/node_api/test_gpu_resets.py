"""Orders to reset GPUs: they reach the agent only while the instance waits for the reset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.fleet import Pause
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, ReportedReset
from gpu_recovery.core.instance.record import InstanceStatus, RepairLevel, RepairNeed
from gpu_recovery.node_api.report_parser import ReportInvalid, parse_report

from simulator.memory_store.store import MemoryStore
from tests.recovery.heartbeat_world import IDS, Scene

ORDER = AgentCommand(f"reset/{IDS[0]}/1", AgentCommandKind.RESET, "", 1, 120)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """An instance whose GPUs are to be reset."""
    scene = Scene(MemoryStore(), IDS[:2])
    scene.beats(0, resets=True)
    need = RepairNeed(RepairLevel.RESET, "the driver asks for a reset", scene.now)
    scene.changes_instance(0, status=InstanceStatus.RESETTING, epoch=1, need=need, claims={})
    scene.store.add_agent_command(IDS[0], ORDER)
    yield scene


def test_the_order_is_repeated_until_the_reset_has_ended(scene: Scene) -> None:
    """Also to an agent that has restarted; then the instance is checked, and the order is gone."""
    assert scene.beats(0, resets=True).commands == (ORDER,)
    assert scene.beats(0, resets=True).commands == (ORDER,)
    assert scene.beats(0, resets=True, reset=ReportedReset(ORDER.order_id, True, "done")).commands == ()
    assert scene.instance(0).status is InstanceStatus.VERIFYING
    assert not scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders


@pytest.mark.parametrize(
    "changes", [{"status": InstanceStatus.AVAILABLE}, {"epoch": 2}, {"status": InstanceStatus.REBOOTING}]
)
def test_an_order_that_applies_no_more_is_not_given(scene: Scene, changes: dict[str, Any]) -> None:
    """A late write of the order may follow the end of the wait. Nothing is reset under the next job."""
    scene.changes_instance(0, **changes)
    assert scene.beats(0, resets=True).commands == ()
    assert not scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders


@pytest.mark.parametrize("how", ["paused", "breaker"])
def test_an_order_is_held_back_while_repairs_are_stopped(scene: Scene, how: str) -> None:
    """An operator who pauses recovery stops a reset that has not begun. It is ordered again after that."""
    fleet = scene.store.load_fleet()
    stopped = {
        "paused": {"pause": Pause("ops@example.com", "a tour of the hall", scene.now)},
        "breaker": {"opened_at": scene.now, "opened_because": "5 of 20 instances"},
    }[how]
    scene.store.save_fleet(replace(fleet, **stopped))
    assert scene.beats(0, resets=True).commands == ()
    scene.store.save_fleet(replace(scene.store.load_fleet(), pause=None, opened_at=None, opened_because=""))
    assert scene.beats(0, resets=True).commands == (ORDER,)


def test_the_end_of_another_reset_changes_nothing(scene: Scene) -> None:
    """An agent repeats how its last reset ended, until the next reset."""
    earlier = ReportedReset(f"reset/{IDS[0]}/0", True, "done")
    assert scene.beats(0, resets=True, reset=earlier).commands == (ORDER,)
    assert scene.instance(0).status is InstanceStatus.RESETTING


def test_a_report_says_whether_its_agent_can_reset_gpus() -> None:
    """An empty object means that it can and has reset none; a malformed result is refused."""
    body = {"boot_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12, "uptime_s": 5.0, "sequence": 1}
    none, able = parse_report(IDS[0], body), parse_report(IDS[0], {**body, "reset": {}})
    assert (none.resets, none.reset, able.resets, able.reset) == (False, None, True, None)
    ended = {"order": "reset/i/1", "done": True, "sentence": "the GPUs were reset"}
    assert parse_report(IDS[0], {**body, "reset": ended}).reset == ReportedReset("reset/i/1", True, ended["sentence"])
    with pytest.raises(ReportInvalid):
        parse_report(IDS[0], {**body, "reset": {"order": 4}})
