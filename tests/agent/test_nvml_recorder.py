"""The recorder: what NVML answers and what each question costs, as one document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_recovery_agent import VERSION
from gpu_recovery_agent.nvml_recorder import NO_NVML, ROUNDS, Timed
from gpu_recovery_agent.sensors.nvml_reading import LINK_TOTALS

from tests.agent.node import Node


def run(node: Node, **more: str) -> subprocess.CompletedProcess[str]:
    """The recorder as a process, with the node's NVML."""
    command = [sys.executable, "-m", "gpu_recovery_agent.nvml_recorder"]
    return subprocess.run(
        command, env={**node.environment, **more}, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
def test_every_question_is_counted_and_the_answers_name_no_machine(node: Node) -> None:
    """A reading of two GPUs: who is asked once for each, and what identifies them is gone."""
    node.set_nvml(gpus=[{"processes": [4242, 4243]}, {"raises": {"nvmlDeviceGetPowerUsage": 3}}])
    done = run(node)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["agent"], found["rounds"], found["reading"]["driver"]) == (VERSION, ROUNDS, "580.82.07")
    first, second = found["reading"]["gpus"]
    assert (first["uuid"], first["processes"], second["power_mw"]) == ("GPU-0", 2, None)
    assert "4242" not in done.stdout
    calls = found["calls"]
    assert calls["nvmlDeviceGetCount"]["each_reading"] == 1 and calls["nvmlDeviceGetUUID"]["each_reading"] == 2
    assert calls["nvmlDeviceGetPowerUsage"]["each_reading"] == 2  # a refusal takes its time as well
    assert calls["nvmlDeviceGetFieldValues"]["each_reading"] == 2 * (2 + len(LINK_TOTALS))
    assert "NVMLError" not in calls and all(one["most_us"] >= one["median_us"] >= 0 for one in calls.values())
    assert found["reading_us"]["most"] >= found["reading_us"]["median"] > 0


@pytest.mark.slow
def test_a_machine_without_nvml_is_said(node: Node) -> None:
    """No record of nothing."""
    node.set_nvml(init=12)
    done = run(node)
    assert (done.returncode, done.stdout) == (NO_NVML, "") and "NVML cannot be read" in done.stderr


def test_a_question_is_timed_by_the_clock_whether_it_is_answered_or_refused() -> None:
    """In microseconds; what is no question is handed on as it is."""

    class Refused(Exception):
        """As the binding's."""

    def raises() -> Any:
        raise Refused

    times = iter([1.0, 1.25, 2.0, 2.5])
    now: Callable[[], float] = lambda: next(times)  # noqa: E731
    timed = Timed(SimpleNamespace(nvmlOne=lambda: 7, nvmlTwo=raises, NVML_X=3, NVMLError=Refused), now)
    assert (timed.nvmlOne(), timed.NVML_X, timed.NVMLError) == (7, 3, Refused)
    with pytest.raises(Refused):
        timed.nvmlTwo()
    assert timed.calls == {"nvmlOne": [250_000.0], "nvmlTwo": [500_000.0]}
