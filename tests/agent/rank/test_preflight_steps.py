"""The steps of the preflight on given answers, and the budget of all of them under a clock of the test."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gpu_recovery_agent import clock
from gpu_recovery_agent.rank import (
    preflight,
    preflight_program,
    preflight_steps,
    preflight_tests,
)
from gpu_recovery_agent.rank.delivery import LINE_BYTES_MAX
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.rank.output_tail import encoded
from gpu_recovery_agent.rank.preflight_program import Answer
from gpu_recovery_agent.rank.process import Ended

from tests.agent.rank.preflight_answers import STEPS, xml

ROOT = Path(__file__).parents[3]


def finding(name: str, answer: str, code: int = 0, **environment: str) -> str:
    """The result of a step for an answer of nvidia-smi."""
    driver = preflight_steps.parsed(Answer(answer, code))
    variables = {"GPUS_PER_NODE": "2", **environment}
    step = {"count": preflight_steps.gpu_count, "action": preflight_steps.recovery_action}
    return (step[name](driver, variables) if name in step else preflight_steps.nvlink_fabric(driver)).result


@pytest.mark.parametrize(
    ("name", "answer", "environment", "result"),
    [
        ("count", xml("None", "None"), {}, "passed"),
        ("count", xml("None", "None", "None"), {}, "passed"),
        ("count", xml("None", "None"), {"GPUS_PER_NODE": ""}, "not_run"),
        ("count", xml("None"), {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}, "inconclusive"),
        ("count", xml("None"), {"NVIDIA_VISIBLE_DEVICES": "void"}, "inconclusive"),
        ("count", "<nvidia_smi_log><gpu></nvidia_smi_log>", {}, "inconclusive"),
        ("count", "", {}, "inconclusive"),
        ("action", xml("Drain P2P", "None"), {}, "inconclusive"),
        ("action", xml("Replace Cooling", "None"), {}, "inconclusive"),
        ("action", xml("N/A", "None"), {}, "not_run"),
        ("action", xml("", ""), {}, "not_run"),
        ("action", xml(), {}, "not_run"),
        ("action", xml("None", "None", "Reboot"), {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}, "passed"),
        ("fabric", xml("None"), {}, "not_run"),
        ("fabric", xml("None", fabric="<fabric><state>N/A</state></fabric>"), {}, "not_run"),
        ("fabric", xml("None", fabric="<fabric><state>In Progress</state></fabric>"), {}, "inconclusive"),
        (
            "fabric",
            xml("None", fabric="<fabric><state>Completed</state><status>Failure</status></fabric>"),
            {},
            "failed",
        ),
    ],
)
def test_what_proves_nothing_is_neither_passed_nor_failed(
    name: str, answer: str, environment: dict[str, str], result: str
) -> None:
    """GPUs of other containers do not count, and ECS may have given fewer GPUs than the job wanted."""
    assert finding(name, answer, **environment) == result


@pytest.mark.parametrize(
    ("states", "expected", "result", "active"),
    [
        (["4: ACTIVE"] * 2, "2", "passed", 2),
        (["4: ACTIVE", "1: DOWN"], "2", "failed", 1),
        (["4: ACTIVE"], None, "not_run", 1),
        ([], "1", "failed", 0),
        ([], None, "not_run", 0),
    ],
)
def test_rdma_devices_are_counted_by_their_active_ports(
    tmp_path: Path, states: list[str], expected: str | None, result: str, active: int
) -> None:
    """Without an expected number there is no result, but the number is reported for the comparison of the ranks."""
    for number, state in enumerate(states):
        port = tmp_path / "class/infiniband" / f"rdmap{number}" / "ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    variables = {} if expected is None else {preflight_steps.EXPECTED_RDMA: expected}
    found = preflight_steps.rdma_devices(variables, tmp_path)
    assert (found.result, found.value) == (result, float(active))


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Answer('{"gb_s": 412.5, "gpus": 8}', 0), "passed"),
        (Answer('{"absent": "no PyTorch"}', 0), "not_run"),
        (Answer('{"wrong": 3}', 0), "failed"),
        (Answer('{"error": "AcceleratorError: uncorrectable NVLink error detected"}', 0), "failed"),
        (Answer('{"error": "RuntimeError: out of memory"}', 0), "inconclusive"),
        (Answer('{"gb_s": "fast"}', 0), "inconclusive"),
        (Answer("Segmentation fault", 139), "inconclusive"),
        (Answer('{"gb_s": 412.5, "gpus": 8}', None, True), "inconclusive"),
    ],
)
def test_the_answer_of_the_program_for_pytorch_is_read(answer: Answer, result: str) -> None:
    """A program that ended too late has no result, even if it printed one."""
    assert preflight_tests.of_script(answer).result == result


@pytest.mark.parametrize(
    ("statuses", "code", "text", "result"),
    [
        (["Pass", "Skip"], 0, "", "passed"),
        (["Skip"], 0, "", "inconclusive"),
        (["Pass", "Fail"], 0, "", "failed"),
        (["Pass", "Warn"], 0, "", "inconclusive"),
        (["Pass"], 226, "", "inconclusive"),
        (None, 255, "Error: unable to establish a connection to the specified host: localhost", "not_run"),
        (None, 1, "", "inconclusive"),
    ],
)
def test_level_1_of_dcgm_passes_only_with_a_test_that_passed(
    statuses: list[str] | None, code: int, text: str, result: str
) -> None:
    """A test that was skipped is no pass."""
    said = text if statuses is None else json.dumps({"tests": [{"status": one} for one in statuses]})
    assert preflight_tests.of_dcgmi(Answer(said, code)).result == result


class FakeTensor:
    """A tensor of the stand-in for PyTorch: one value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> Any:
        return FakeTensor(float(self.value == other))

    __hash__ = None  # type: ignore[assignment]

    def all(self) -> bool:
        return bool(self.value)


class FakeTorch:
    """A stand-in for PyTorch whose all-reduce adds, or is wrong on a GPU."""

    def __init__(self, wrong: int = -1, has_nccl: bool = True) -> None:
        self.version = self
        self.cuda, self._wrong, self._has_nccl = self, wrong, has_nccl
        if has_nccl:
            self.nccl = self

    def init(self) -> None: ...

    def synchronize(self, gpu: int) -> None: ...

    def device_count(self) -> int:
        return 4

    def full(self, shape: Any, value: float, device: str) -> FakeTensor:
        return FakeTensor(value)

    def zeros_like(self, tensor: FakeTensor) -> FakeTensor:
        return FakeTensor(0.0)

    def is_available(self, tensors: Any) -> bool:
        return True

    def all_reduce(self, inputs: list[FakeTensor], outputs: list[FakeTensor]) -> None:
        for gpu, output in enumerate(outputs):
            output.value = sum(one.value for one in inputs) + (gpu == self._wrong)


def test_the_program_for_pytorch_compares_each_sum() -> None:
    """On a stand-in for PyTorch: one wrong GPU is named, and a build without NCCL is no pass."""
    from gpu_recovery_agent.rank.nccl_loopback import loopback  # noqa: PLC0415 - a program, not a module of the wrapper

    assert loopback(FakeTorch(), 0)["gpus"] == 4
    assert loopback(FakeTorch(wrong=2), 4) == {"wrong": 2}
    assert "absent" in loopback(FakeTorch(has_nccl=False), 4)


def test_an_invalid_budget_is_said_and_the_default_is_used() -> None:
    """A typing error must not prevent a gang from starting."""
    said: list[str] = []
    texts = ("20", "8", "61", "no", "0", "7", "1")
    found = [preflight.budget_s({preflight.BUDGET_VARIABLE: text}, said.append) for text in texts]
    assert found == [20, 8, 60, 60, 60, 8, 8]
    assert len(said) == 5 and "'7'" in said[3] and "8" in said[3]
    assert preflight.budget_s({}, said.append) == 60 and len(said) == 5


def test_the_documents_say_the_smallest_budget() -> None:
    """In both languages, and in the table of variables."""
    least = preflight.BUDGET_LEAST_S
    for page, text in (
        ("docs/preflight.md", f"sets a smaller number, at least {least}."),
        ("docs/preflight.zh.md", f"可以设置更小的秒数，至少 {least}。"),
        ("agent/README.md", f"at most, {least} to {preflight.BUDGET_S}; a smaller value counts as {least}"),
    ):
        assert text in (ROOT / page).read_text(encoding="utf-8")


def test_without_time_nvidia_smi_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that had no time is no evidence against an instance."""
    ticks = itertools.count(0.0, 10.0)
    monkeypatch.setattr(clock, "monotonic_s", lambda: next(ticks))
    monkeypatch.setattr(preflight_program, "Command", None)
    found = preflight.run_preflight({preflight.BUDGET_VARIABLE: "8"}, lambda line: None, True, lambda: False)
    assert {step.name: step.finding.result for step in found.steps} == dict.fromkeys(STEPS, "not_run")
    texts = {step.finding.sentence for step in found.steps if step.name != "rdma_devices"}
    assert texts == {"there was no time left"}


class HangingCommand:
    """A program that never ends by itself, under a clock of the test. Unless it is stuck, SIGKILL ends it."""

    now, is_stuck = 0.0, False
    asked: ClassVar[list[str]] = []

    def __init__(self, arguments: Any, environment: Any, ends: Any) -> None:
        self.asked.append(os.path.basename(arguments[0]))
        self.pid = -1

    def go(self) -> None: ...

    def wait(self, policy: Any, poll_s: Any) -> Ended:
        while True:
            HangingCommand.now += poll_s()
            if policy.due() == signal.SIGKILL and not self.is_stuck:
                return Ended(signal=signal.SIGKILL)

    def end_the_rest(self, within_s: float) -> None:
        HangingCommand.now += within_s


@pytest.mark.parametrize("is_stuck", [False, True], ids=["killed", "cannot be killed"])
@pytest.mark.parametrize(("budget", "programs"), [("60", 3), ("15", 1), ("8", 1)])
def test_the_preflight_never_takes_longer_than_its_budget(
    monkeypatch: pytest.MonkeyPatch, budget: str, programs: int, is_stuck: bool
) -> None:
    """By a clock of the test: every program hangs, and none begins without time. No such step ends the rank."""
    HangingCommand.now, HangingCommand.is_stuck = 0.0, is_stuck
    HangingCommand.asked.clear()
    monkeypatch.setattr(clock, "monotonic_s", lambda: HangingCommand.now)
    monkeypatch.setattr(preflight_program, "Command", HangingCommand)
    for module in (preflight_steps, preflight_tests):
        monkeypatch.setattr(module, "found_in_path", lambda names, environment: f"/bin/{names[0]}")
    variables = {"GPUS_PER_NODE": "8", preflight.BUDGET_VARIABLE: budget}
    found = preflight.run_preflight(variables, lambda line: None, True, lambda: False)
    assert HangingCommand.now <= float(budget)
    assert len(HangingCommand.asked) == programs
    assert {step.finding.result for step in found.steps} == {"inconclusive", "not_run"} and found.failure is None


@pytest.mark.parametrize("text", ["x", "\n", '"', "\\", "\ud800", "\U0001f4a5", "gpu "])
@pytest.mark.parametrize("result", ["passed", "failed"])
def test_only_a_failed_preflight_is_urgent_and_every_report_fits(result: str, text: str) -> None:
    """The agent sends an urgent observation at once. Its socket takes no longer line."""
    finding = preflight_steps.Finding(result, "s" * 500, text * 500, 1.5)
    found = preflight.Preflight([preflight.Step(name, finding, 1.0) for name in STEPS])
    report = found.report(RankIdentity("j" * 120, 1_000_000, 1_000_000))
    assert report.get("urgent", False) is (result == "failed")
    assert len(encoded(report)) <= LINE_BYTES_MAX
