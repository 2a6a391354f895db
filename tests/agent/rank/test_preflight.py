"""The preflight of a rank: the real wrapper with stand-ins for nvidia-smi, dcgmi, and the programs of an all-reduce."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.diagnosis.observations import PreflightReport, StepResult
from gpu_recovery.core.diagnosis.preflight import PROOFS as OF_THE_SERVER
from gpu_recovery.core.diagnosis.preflight import differences
from gpu_recovery.core.task import PREFLIGHT, PREFLIGHT_FAILED
from gpu_recovery_agent import clock
from gpu_recovery_agent.rank import (
    hold,
    preflight,
    preflight_steps,
)
from gpu_recovery_agent.sensors.training_socket import TrainingSocket

from tests.agent.api import WITHIN_S, Api
from tests.agent.conftest import NOW_S
from tests.agent.node import Node, wait_until
from tests.agent.rank.preflight_answers import STEPS, xml

PASSED_ALL_REDUCE = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 231.498 \n#\n"
WRONG_ALL_REDUCE = "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 231.498 \n#\n"
"""The last lines of `all_reduce_perf` (src/common.cu of NVIDIA/nccl-tests). With wrong values it ends with 1."""


class Image:
    """The image of a training: a PATH of its own, with stand-ins for the programs that a preflight asks."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.trained = folder / "bin", folder / "trained"
        self.bin.mkdir()
        for name in ("sh", "sleep", "touch", "cat"):
            (self.bin / name).symlink_to(f"/bin/{name}")

    def has(self, name: str, prints: str = "", code: int = 0, then: str = "") -> None:
        """A program that prints a text, then runs a line of shell, and ends with a status."""
        (self.bin / f"{name}.txt").write_text(prints)
        (self.bin / name).write_text(f"#!/bin/sh\ncat {self.bin}/{name}.txt\n{then}\nexit {code}\n")
        (self.bin / name).chmod(0o755)

    def variables(self, **more: str) -> dict[str, str]:
        wanted = {"GPU_RECOVERY_PREFLIGHT": "quick", "GPUS_PER_NODE": "2", "PATH": str(self.bin)}
        return {**wanted, **more}


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """An image with two healthy GPUs, and without a program for an all-reduce or dcgmi."""
    found = Image(tmp_path)
    found.has("nvidia-smi", xml("None", "None"))
    found.has("python3", '{"absent": "the image has no PyTorch"}')
    return found


def starts(node: Node, image: Image, **more: str) -> Any:
    """A rank whose training leaves a file."""
    return node.rank("sh", "-c", f"touch {image.trained}", **image.variables(**more))


def results(ear: TrainingSocket) -> dict[str, StepResult]:
    """The result of each step, as the server reads what the agent has heard."""
    return {step.name: step.result for step in heard(ear).steps}


def heard(ear: TrainingSocket) -> PreflightReport:
    """The next preflight report, which the server then has."""
    found: list[PreflightReport] = []

    def has_come() -> bool:
        ear.poll(NOW_S)
        batch = ear.batch()
        reports, left_out = observed("i-1", [one.to_json(NOW_S) for one in batch])
        assert left_out == 0
        ear.acknowledge(batch, 0)
        found.extend(one.report for one in reports if isinstance(one.report, PreflightReport))
        return bool(found)

    wait_until(has_come)
    return found[0]


def end_of(node: Node, log: int = 100) -> dict[str, Any]:
    return json.loads((node.running / f"{log}.exit").read_text())


@pytest.mark.slow
def test_a_healthy_container_trains_and_a_step_that_is_absent_has_not_passed(
    node: Node, ear: TrainingSocket, image: Image
) -> None:
    """The agent gets one report with a result for each step."""
    assert starts(node, image).wait(WITHIN_S) == 0
    assert image.trained.exists()
    report = heard(ear)
    assert report.rank == 0 and tuple(step.name for step in report.steps) == STEPS
    found = {step.name: step.result for step in report.steps}
    passed = {name for name, result in found.items() if result is StepResult.PASSED}
    assert passed == {"gpu_count", "recovery_action"}
    assert {found[name] for name in STEPS if name not in passed} == {StepResult.NOT_RUN}


@pytest.mark.slow
def test_every_step_passes_in_an_image_that_has_everything(node: Node, ear: TrainingSocket, image: Image) -> None:
    """Level 1 of DCGM and an all-reduce of nccl-tests are run, with the number of GPUs of the job."""
    fabric = "<fabric><state>Completed</state><status>Success</status></fabric>"
    image.has("nvidia-smi", xml("None", "None", fabric=fabric))
    image.has("all_reduce_perf", PASSED_ALL_REDUCE, then=f'echo "$@" > {image.bin}/asked')
    image.has("dcgmi", json.dumps({"tests": [{"results": [{"status": "Pass"}, {"status": "Skip"}]}]}))
    assert starts(node, image, GPU_RECOVERY_RDMA_DEVICES="0").wait(WITHIN_S) == 0
    assert set(results(ear).values()) == {StepResult.PASSED}
    assert "-g 2" in (image.bin / "asked").read_text()


FAULTS = {
    "fewer GPUs": ({"prints": xml("None")}, {}, "gpu_count"),
    "a lost GPU": (
        {"prints": "Unable to determine the device handle for GPU1: 00:1b.0: Unknown Error\n" + xml("None")},
        {},
        "gpu_count",
    ),
    "off the bus": ({"prints": "Unable to query", "code": 15}, {}, "gpu_count"),
    "another GPU": (
        {"prints": xml("None", "None")},
        {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-7"},
        "gpu_count",
    ),
    "a reset": ({"prints": xml("None", "Reset")}, {}, "recovery_action"),
    "a reboot": ({"prints": xml("Reboot", "None")}, {}, "recovery_action"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_proved_fault_ends_the_rank_before_the_training(
    node: Node, ear: TrainingSocket, image: Image, fault: str
) -> None:
    """The exit has the documented code, the report the step, and no GPU time is spent after that."""
    nvidia_smi, more, step = FAULTS[fault]
    image.has("nvidia-smi", **nvidia_smi)
    image.has("all_reduce_perf", PASSED_ALL_REDUCE, then=f"touch {image.bin}/reduced")
    rank = starts(node, image, **more)
    found = results(ear)
    assert rank.wait(WITHIN_S) == PREFLIGHT_FAILED
    assert found[step] is StepResult.FAILED and found["nccl_loopback"] is StepResult.NOT_RUN
    assert not image.trained.exists() and not (image.bin / "reduced").exists()
    assert end_of(node)["code"] == PREFLIGHT_FAILED
    assert node.files() == ["100.exit"]


@pytest.mark.slow
def test_the_agent_reports_a_failed_preflight_at_once_and_the_rank_waits_for_that(
    node: Node, api: Api, image: Image
) -> None:
    """Its next report would be due in 15 s, after the wrapper has given up."""
    image.has("nvidia-smi", xml("None"))
    node.running.mkdir()
    node.agent(GPU_RECOVERY_INTERVAL_MS="15000", GPU_RECOVERY_NVML="off")
    api.count(1)
    rank = starts(node, image)
    report = api.next(lambda one: any(found["type"] == "preflight" for found in one.get("diagnosis") or ()))
    (found,) = [found for found in report["diagnosis"] if found["type"] == "preflight"]
    assert (found["job"], found["attempt"], found["steps"][0]["result"]) == ("run-1", 1, "failed")
    assert rank.wait(WITHIN_S) == PREFLIGHT_FAILED
    assert b"has not passed on" not in rank.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("all_reduce", "result"),
    [
        ({"prints": WRONG_ALL_REDUCE, "code": 1}, StepResult.FAILED),
        ({"prints": WRONG_ALL_REDUCE}, StepResult.FAILED),
        ({"prints": PASSED_ALL_REDUCE, "code": 1}, StepResult.INCONCLUSIVE),
        ({"prints": "CUDA failure: uncorrectable ECC error encountered", "code": 1}, StepResult.FAILED),
        ({"prints": "NCCL failure: unhandled system error", "code": 1}, StepResult.INCONCLUSIVE),
        ({"prints": "", "code": 0}, StepResult.INCONCLUSIVE),
    ],
    ids=["a wrong sum", "a wrong sum and 0", "too slow", "an error of the hardware", "another error", "no result"],
)
def test_only_an_error_of_the_hardware_in_an_all_reduce_ends_the_rank(
    node: Node, ear: TrainingSocket, image: Image, all_reduce: dict[str, Any], result: StepResult
) -> None:
    """Any other error may come from the image, and the training shows whether it matters."""
    image.has("all_reduce_perf", **all_reduce)
    rank = starts(node, image)
    assert results(ear)["nccl_loopback"] is result
    fails = result is StepResult.FAILED
    assert rank.wait(WITHIN_S) == (PREFLIGHT_FAILED if fails else 0)
    assert image.trained.exists() is not fails


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nvidia-smi", "all_reduce_perf", "dcgmi"])
def test_a_step_that_hangs_is_killed_with_its_children_and_the_training_starts(
    node: Node, ear: TrainingSocket, image: Image, name: str
) -> None:
    """It is inconclusive, also after the lines of a pass. Its child may hold a GPU, so the child is killed as well."""
    pid = image.bin / "pid"
    image.has(name, PASSED_ALL_REDUCE, then=f"trap '' TERM INT\nsleep 600 & echo $! > {pid}\nwait")
    # Without time for the rest of the preflight only the first program that hangs can end.
    assert starts(node, image, GPU_RECOVERY_PREFLIGHT_BUDGET_S="8").wait(WITHIN_S) == 0
    found = results(ear)
    hung = {"nvidia-smi": "gpu_count", "all_reduce_perf": "nccl_loopback", "dcgmi": "dcgm_level_1"}[name]
    assert found[hung] is StepResult.INCONCLUSIVE
    assert image.trained.exists()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prints", "step"),
    [
        ("all_reduce_perf", "CUDA failure: uncorrectable NVLink error detected", "nccl_loopback"),
        ("nvidia-smi", "Unable to determine the device handle for GPU1: 00:1b.0: Unknown Error", "gpu_count"),
    ],
)
def test_a_step_that_hangs_after_an_error_of_the_hardware_ends_the_rank(
    node: Node, ear: TrainingSocket, image: Image, name: str, prints: str, step: str
) -> None:
    """The error is a proof, although the program did not end."""
    image.has(name, prints, then="sleep 600")
    rank = starts(node, image, GPU_RECOVERY_PREFLIGHT_BUDGET_S="8")
    assert results(ear)[step] is StepResult.FAILED
    assert rank.wait(WITHIN_S) == PREFLIGHT_FAILED
    assert not image.trained.exists()


@pytest.mark.slow
def test_a_signal_that_ends_the_container_ends_the_preflight(node: Node, image: Image) -> None:
    """The training never starts, the exit names the signal, and no program is left."""
    pid = image.bin / "pid"
    image.has("nvidia-smi", then=f"sleep 600 & echo $! > {pid}\nwait")
    rank = starts(node, image)
    wait_until(lambda: pid.exists() and pid.read_text().strip())
    assert json.loads((node.running / "100.json").read_text())["remote_pid"] == rank.pid, "the agent sees the rank"
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(WITHIN_S) == 128 + signal.SIGTERM
    assert not image.trained.exists() and end_of(node)["signal"] == signal.SIGTERM
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


@pytest.mark.slow
def test_an_order_to_hold_cuts_the_preflight_short(node: Node, ear: TrainingSocket, image: Image) -> None:
    """Another rank has failed: the gang does not wait for a preflight. A step that was cut short names no instance."""
    (node.running / hold.AGENT_FILE).write_text(json.dumps({"uptime_s": clock.uptime_s()}))
    image.has("all_reduce_perf", then=f"touch {image.bin}/began\nsleep 600")
    rank = node.rank("sh", "-c", "sleep 600", **image.variables(GPU_RECOVERY_HOLD_S="300"))
    wait_until((image.bin / "began").exists)
    order = {"kind": "hold", "attempt": 1, "grace_s": 0}
    (node.running / "100.order").write_text(json.dumps(order))
    wait_until((node.running / "100.exit").exists)
    assert end_of(node)["held"] is True and rank.poll() is None
    report = heard(ear)
    found = {step.name: step.result for step in report.steps}
    assert found["nccl_loopback"] is found["dcgm_level_1"] is StepResult.NOT_RUN
    passed = tuple(replace(step, result=StepResult.PASSED) for step in report.steps)
    gang = {f"i-{number}": replace(report, instance_id=f"i-{number}", steps=passed) for number in range(2, 5)}
    assert differences({"i-1": report, **gang}) == {}


@pytest.mark.slow
def test_an_attempt_that_is_over_asks_no_gpu(node: Node, ear: TrainingSocket, image: Image) -> None:
    """The order comes while nvidia-smi runs: none of its three steps has a result."""
    (node.running / hold.AGENT_FILE).write_text(json.dumps({"uptime_s": clock.uptime_s()}))
    image.has("nvidia-smi", then=f"touch {image.bin}/began\nsleep 600")
    node.rank("sh", "-c", "sleep 600", **image.variables(GPU_RECOVERY_HOLD_S="300"))
    wait_until((image.bin / "began").exists)
    (node.running / "100.order").write_text(json.dumps({"kind": "hold", "attempt": 1, "grace_s": 0}))
    assert results(ear) == dict.fromkeys(STEPS, StepResult.NOT_RUN)


@pytest.mark.slow
def test_in_a_container_that_waited_only_the_cheap_steps_are_run(node: Node, ear: TrainingSocket, image: Image) -> None:
    """The gang is to continue soon. A GPU that was lost meanwhile is still found, and that rank is not held again."""
    (node.running / hold.AGENT_FILE).write_text(json.dumps({"uptime_s": clock.uptime_s()}))
    runs = image.bin / "runs"
    image.has("all_reduce_perf", PASSED_ALL_REDUCE, then=f"echo x >> {runs}")
    rank = node.rank("sh", "-c", "exit 7", **image.variables(GPU_RECOVERY_HOLD_S="300"))
    assert results(ear)["nccl_loopback"] is StepResult.PASSED
    wait_until((node.running / "100.exit").exists)
    begins_again(node, 1)
    found = results(ear)
    assert (found["gpu_count"], found["nccl_loopback"]) == (StepResult.PASSED, StepResult.NOT_RUN)
    wait_until((node.running / "200.exit").exists)
    image.has("nvidia-smi", xml("None"))
    begins_again(node, 2)
    assert results(ear)["gpu_count"] is StepResult.FAILED
    assert rank.wait(WITHIN_S) == PREFLIGHT_FAILED
    assert runs.read_text() == "x\n" and end_of(node, 300)["code"] == PREFLIGHT_FAILED


def begins_again(node: Node, attempt: int) -> None:
    """The agent starts the attempt after this one in the container that waits."""
    later = {"ATTEMPT": str(attempt + 1), "RANK": "0", "RUNNING_LOG_ID": str(100 * (attempt + 1))}
    order = {"kind": "start", "attempt": attempt, "environment": later}
    (node.running / f"{100 * attempt}.order").write_text(json.dumps(order))


@pytest.mark.slow
def test_without_the_variable_nothing_is_tested(node: Node, image: Image) -> None:
    """The image is as it was."""
    image.has("nvidia-smi", then=f"touch {image.bin}/asked")
    assert starts(node, image, GPU_RECOVERY_PREFLIGHT="").wait(WITHIN_S) == 0
    assert image.trained.exists() and not (image.bin / "asked").exists()


def test_the_server_and_the_wrapper_agree() -> None:
    """On the variable, the exit code, and the steps whose failure is a proof."""
    assert (preflight.VARIABLE, preflight.PREFLIGHT_FAILED) == (PREFLIGHT, PREFLIGHT_FAILED)
    assert preflight_steps.PROOFS == OF_THE_SERVER
