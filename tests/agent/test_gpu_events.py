"""GPU Operational Events (preview): read only where they are switched on, bounded, and never in the way of a report."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery_agent.gpu_events import EVENTS_MAX, GpuEventQueue
from gpu_recovery_agent.log import AgentLog

from tests.agent.api import Api
from tests.agent.node import Node

LOST = {
    "uuid": "GPU-0",
    "sourceModule": "GPU-BUS",
    "moduleEventCode": 3,
    "categoryId": 3,
    "severity": 40,
    "attributes": 32,
    "groupAttributes": 0,
    "xid": 79,
}
ECHO = {"uuid": "GPU-0", "sourceModule": "GPU-RAS", "moduleEventCode": 23, "categoryId": 2, "severity": 20}


def event(number: int) -> dict[str, Any]:
    return {"code": number, "category": 1, "severity": 10, "attributes": 0, "group_attributes": 0}


def reading(*events: Any, **more: Any) -> dict[str, Any]:
    return {"gpus": [], "gpu_events": {"events": list(events), **more}}


def test_what_waits_is_bounded_and_leaves_when_the_server_has_it() -> None:
    """The newest stay; what came in between stays for the next report."""
    queue = GpuEventQueue(AgentLog())
    assert queue.add(reading(*map(event, range(EVENTS_MAX + 8))))
    sent = queue.batch
    assert [one["code"] for one in sent] == list(range(8, EVENTS_MAX + 8))
    queue.add(reading(event(99)))
    queue.acknowledge(sent)
    assert [one["code"] for one in queue.batch] == [99]


@pytest.mark.parametrize(
    "found", [None, {}, {"gpu_events": 7}, {"gpu_events": {"events": 7}}, reading(7, {"code": "x"})]
)
def test_a_reading_without_events_adds_none(found: Any) -> None:
    """Also one of another shape."""
    queue = GpuEventQueue(AgentLog())
    assert not queue.add(found) and not queue.batch


def test_one_reading_counts_once_and_its_trouble_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """The loop sees a reading many times."""
    queue, one = GpuEventQueue(AgentLog()), reading(event(1))
    assert queue.add(one) and not queue.add(one) and len(queue.batch) == 1
    for _ in range(3):
        queue.add(reading(trouble="this driver gives no GPU Operational Events: Not Supported"))
    assert capfd.readouterr().err.count("Not Supported") == 1


def test_an_empty_list_says_that_events_are_read_and_none_came() -> None:
    """A driver that gives none, or a reading that failed, says nothing: no list is reported."""
    queue = GpuEventQueue(AgentLog())
    assert queue.batch is None
    for found, batch in ((reading(), ()), (reading(trouble="Not Supported"), None), (reading(), ()), ({}, None)):
        queue.add(found)
        assert queue.batch == batch


@pytest.mark.slow
def test_the_events_are_reported_once_with_the_xids_that_they_stand_for(api: Api, node: Node) -> None:
    """Through the binding's own structures, in the child process."""
    node.set_nvml(goe=[LOST, ECHO])
    node.agent(GPU_RECOVERY_GPU_EVENTS="on")
    api.until(lambda reports: any(one.get("gpu_events") for one in reports))
    reports = api.count(len(api.heard) + 3)
    (told,) = [one["gpu_events"] for one in reports if one.get("gpu_events")]
    first, second = told
    assert first == {
        "gpu": "GPU-0",
        "module": "GPU-BUS",
        "code": 3,
        "category": 3,
        "severity": 40,
        "attributes": 32,
        "group_attributes": 0,
        "xid": 79,
    }
    assert second["module"] == "GPU-RAS" and "xid" not in second
    assert reports[-1]["gpu_events"] == []  # they are read, and there is none


@pytest.mark.slow
def test_an_agent_whose_nvml_hangs_does_not_say_that_no_event_came(api: Api, node: Node) -> None:
    """Nobody can read the events then."""
    node.set_nvml(goe=[LOST])
    node.agent(GPU_RECOVERY_GPU_EVENTS="on", GPU_RECOVERY_NVML_DEADLINE_MS="300")
    api.until(lambda reports: any(one.get("gpu_events") for one in reports))
    node.set_nvml(hang="nvmlDeviceGetCount")
    hung = api.next(lambda report: "has not answered" in report["health"].get("sentence", ""))
    assert "gpu_events" not in hung


@pytest.mark.slow
def test_a_driver_without_events_costs_one_line_and_no_report(api: Api, node: Node) -> None:
    """The GPUs are read on."""
    node.agent(GPU_RECOVERY_GPU_EVENTS="on")
    api.until(lambda reports: any("inventory" in one for one in reports))
    reports = api.count(len(api.heard) + 3)
    assert not any("gpu_events" in one for one in reports)
    assert node.said().count("no GPU Operational Events") == 1


@pytest.mark.slow
def test_the_preview_is_off_by_default(api: Api, node: Node) -> None:
    """A driver with events is not asked for them."""
    node.set_nvml(goe=[LOST])
    node.agent()
    api.until(lambda reports: any("inventory" in one for one in reports))
    assert not any("gpu_events" in one for one in api.count(len(api.heard) + 2))
