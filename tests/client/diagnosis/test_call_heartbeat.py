"""Heartbeats to a worker while a call to it is open (row 12)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.client import BadStatusLine
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery_client.diagnosis import call_heartbeat
from gpu_recovery_client.diagnosis.call_heartbeat import EVERY_S, CallHeartbeat

from tests.client.training_process import Clock, Ear


class Worker:
    """Answers heartbeats with these statuses; an exception is raised, and the last one lasts."""

    def __init__(self, *statuses: Any) -> None:
        self.statuses, self.asked = list(statuses), list[tuple[str, float]]()
        self.polled = threading.Event()

    def get(self, path: str, timeout_s: float) -> Any:
        self.asked.append((path, timeout_s))
        self.polled.set()
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(status, BaseException):
            raise status
        return status, {}

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Any:
        raise AssertionError("a heartbeat is a GET")


def test_a_heartbeat_that_fails_is_told_with_its_status(ear: Ear) -> None:
    """Of the worker, which is elsewhere; one that is answered tells nothing."""
    worker = Worker(503, 200)
    heartbeat = CallHeartbeat(worker, "rollout-0")
    assert [heartbeat.poll(), heartbeat.poll()] == [503, 200]
    assert worker.asked == [("/heartbeat", 5.0)] * 2
    (report,) = ear.reports()
    assert (report.worker, report.instance_id, report.status, report.value) == ("rollout-0", "", 503, None)


@pytest.mark.parametrize(
    "error", [TimeoutError("timed out"), ConnectionRefusedError("nobody is there"), BadStatusLine("no HTTP")]
)
def test_a_heartbeat_without_an_answer_has_no_status(ear: Ear, error: Exception) -> None:
    """The call itself goes on."""
    assert CallHeartbeat(Worker(error), "rollout-0").poll() == 0
    assert [one.status for one in ear.reports()] == [0]


def test_a_worker_that_stays_away_is_told_of_every_ten_seconds(ear: Ear, clock: Clock) -> None:
    """A call of two hours has 1,440 heartbeats."""
    heartbeat = CallHeartbeat(Worker(503), "rollout-0")
    told = 0
    for _ in range(12):
        heartbeat.poll()
        told += len(ear.reports())
        clock.at += EVERY_S
    assert told == 6


def test_the_heartbeat_is_polled_as_long_as_the_call(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread, which ends with the block, also when the block raises."""
    worker = Worker(200)
    monkeypatch.setattr(import_module(call_heartbeat.__module__), "Http", lambda address: worker)
    with pytest.raises(ZeroDivisionError), call_heartbeat("http://10.0.0.7:8000", "rollout-0", every_s=0.001):
        assert worker.polled.wait(20)
        raise ZeroDivisionError
    named = [one for one in threading.enumerate() if one.name == "gpu-recovery-heartbeat"]
    for thread in named:
        thread.join(20)
    assert not any(thread.is_alive() for thread in named)
