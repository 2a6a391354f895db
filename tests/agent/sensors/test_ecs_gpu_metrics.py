"""The file of the ECS agent's DCGM watch: fresh or nothing, one report for each XID, and no effect on the status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.ecs_gpu_metrics import (
    BY_DCGM,
    FILE_BYTES_MAX,
    READ_EVERY_S,
    STALE_AFTER_S,
    EcsGpuMetricsSensor,
)
from gpu_recovery_agent.sensors.gpu_health import IMPAIRED, OK, UNKNOWN, GpuHealthStatus

GPU = {
    "gpu_uuid": "GPU-2a95d2f5-c87a-9cb4-52d4-393d7059e8f5",
    "gpu_utilization_percent": 0,
    "memory_total_bytes": 16106127360,
    "power_draw_watts": 9.887,
    "restart_app_xid_count": 0,
}
"""A GPU as in the example of aws/amazon-ecs-agent, pull request 5057."""
TICK_S = 60.0


class Watch:
    """The file, its writer, and the sensor with a clock of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.path, self.now, self.minute = folder / "gpu-metrics.json", 0.0, 0
        self.sensor = self.again()

    def again(self) -> EcsGpuMetricsSensor:
        self.sensor = EcsGpuMetricsSensor(self.path, AgentLog(), lambda: self.now)
        return self.sensor

    def content(self, **changes: Any) -> dict[str, Any]:
        stamp = f"2026-07-14T{19 + self.minute // 60:02}:{self.minute % 60:02}:51Z"
        return {"timestamp": stamp, "healthy": True, "gpus": [GPU], **changes}

    def tick(self, **changes: Any) -> None:
        """dcgm-init writes the file of the next minute."""
        self.minute, self.now = self.minute + 1, self.now + TICK_S
        self.path.write_text(json.dumps(self.content(**changes)))

    def look(self, *logged: int, reported: tuple[int, ...] = ()) -> list[int]:
        self.now += READ_EVERY_S
        found = self.sensor.poll(logged, reported)
        assert all(xid.source == BY_DCGM and xid.count == 1 for xid in found)
        return [xid.xid for xid in found]

    def fresh(self, *logged: int, **changes: Any) -> list[int]:
        """Two ticks, so that the sensor has seen the file change."""
        found = []
        for _ in range(2):
            self.tick(**changes)
            found += self.look(*logged)
        return found


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def test_a_fresh_file_of_healthy_gpus_is_healthy(watch: Watch) -> None:
    """Once the sensor has seen the timestamp change."""
    assert watch.fresh() == []
    assert (watch.sensor.status, "1 GPU" in watch.sensor.sentence) == (OK, True)


def test_a_file_that_was_there_before_is_nothing_until_it_changes(watch: Watch) -> None:
    """A dead dcgm-init leaves its last file: healthy or not, it is no evidence."""
    watch.tick(healthy=False, unhealthy_reason="XID_79")
    assert watch.look() == [] and watch.sensor.status == UNKNOWN
    watch.tick()
    watch.again()
    for _ in range(100):
        assert watch.look() == [] and watch.sensor.status == UNKNOWN


def test_a_file_that_is_not_renewed_becomes_unknown(watch: Watch) -> None:
    """After the ECS agent's own 120 s."""
    watch.fresh()
    watch.now += STALE_AFTER_S - 2 * READ_EVERY_S
    watch.look()
    assert watch.sensor.status == OK
    watch.now += 3 * READ_EVERY_S
    watch.look()
    assert watch.sensor.status == UNKNOWN and "not renewed" in watch.sensor.sentence
    watch.tick()
    watch.look()
    assert watch.sensor.status == OK


@pytest.mark.parametrize(
    "content",
    [{"connection_lost": True}, {"gpus": []}, {"gpus": None}, {"gpus": [], "connection_lost": True}],
)
def test_a_lost_connection_and_an_empty_list_are_not_healthy(watch: Watch, content: dict[str, Any]) -> None:
    """`healthy` stays true while DCGM is away, and no GPU is no healthy GPU."""
    assert watch.fresh(**content) == []
    assert watch.sensor.status == UNKNOWN


def test_an_xid_is_reported_once_and_stays_a_word_of_the_past(watch: Watch) -> None:
    """dcgm-init repeats it until it starts again."""
    bad = {"healthy": False, "unhealthy_reason": "XID_48"}
    assert watch.fresh(**bad) == [48]
    for _ in range(5):
        watch.tick(**bad)
        assert watch.look() == []
    assert watch.sensor.status == IMPAIRED
    watch.again()
    assert watch.fresh(**bad) == [48]  # the server did not acknowledge it
    watch.again()
    for _ in range(2):
        watch.tick(**bad)
        assert watch.look(reported=(48,)) == []


def test_an_xid_that_the_kernel_log_has_is_not_counted_again(watch: Watch) -> None:
    """The file confirms it."""
    assert watch.fresh(79, 48, healthy=False, unhealthy_reason="XID_48") == []
    assert watch.sensor.status == IMPAIRED


@pytest.mark.parametrize("reason", [None, "", "THERMAL", "XID_", "XID_0", "xid 48", 7, "XID_48 XID_79", "XID_99999"])
def test_a_reason_that_is_no_xid_reports_no_xid(watch: Watch, reason: Any) -> None:
    """The file says only that something is wrong."""
    assert watch.fresh(healthy=False, unhealthy_reason=reason) == []
    assert watch.sensor.status == IMPAIRED


def test_the_file_never_changes_the_status_by_nvml(watch: Watch) -> None:
    """It is one more source; a latched reason would keep an instance out of use for ever."""
    for content in ({}, {"healthy": False, "unhealthy_reason": "XID_48"}, {"connection_lost": True}):
        watch.fresh(**content)
        for status in (OK, IMPAIRED, UNKNOWN):
            assert watch.sensor.with_dcgm_sentence(GpuHealthStatus(status, "NVML")).status == status
    watch.fresh()
    assert watch.sensor.with_dcgm_sentence(GpuHealthStatus(OK)).sentence == ""
    assert "no fault" in watch.sensor.with_dcgm_sentence(GpuHealthStatus(UNKNOWN, "NVML is off")).sentence
    watch.fresh(healthy=False, unhealthy_reason="XID_48")
    assert "XID_48" in watch.sensor.with_dcgm_sentence(GpuHealthStatus(OK)).sentence


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"healthy": true, "gpus": []}',
        b'{"timestamp": 7, "healthy": true}',
        b'{"timestamp": "yesterday", "healthy": true}',
        b'{"timestamp": "2026-07-14T19:13:51Z", "healthy": "false"}',
        b'{"timestamp": "2026-07-14T19:13:51Z", "healthy": true, "connection_lost": 1}',
        b"[" * 100_000,
        b" " * (FILE_BYTES_MAX + 1),
    ],
)
def test_a_file_that_nobody_can_read_is_said_once_and_is_no_alarm(
    watch: Watch, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is wrong with it."""
    watch.fresh()
    watch.path.write_bytes(raw)
    for _ in range(3):
        assert watch.look() == []
    assert (watch.sensor.status, watch.sensor.sentence) == (UNKNOWN, "")
    assert capfd.readouterr().err.count("no evidence about the GPUs") == 1


def test_unknown_fields_are_left_alone(watch: Watch) -> None:
    """A later release may add some."""
    assert watch.fresh(schema=2, gpus=[{**GPU, "nvlink": {"errors": [1] * 1_000}}], more="x" * 10_000) == []
    assert watch.sensor.status == OK


@pytest.mark.parametrize("written", [None, b""])
def test_no_file_and_an_empty_file_are_silent(
    watch: Watch, written: bytes | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Most instances have none; dcgm-init begins with an empty one."""
    if written is not None:
        watch.path.write_bytes(written)
    assert watch.look() == [] and watch.sensor.status == UNKNOWN
    assert capfd.readouterr().err == ""


def test_it_can_be_switched_off() -> None:
    """Without a path nothing is read."""
    assert EcsGpuMetricsSensor(None, AgentLog()).poll((), ()) == []
