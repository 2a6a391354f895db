"""Stages of a training, row by row of the catalogue: probe, ECC, memory, occupants (1, 3-6, 51), and what they cost."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observations import Check, Occupant
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis import GPUHealthError, gpu_state, stages
from gpu_recovery_client.diagnosis.gpu_state import EccWatch, Gpu, Nvml, own

from tests.client.training_process import (
    Clock,
    Ear,
    FakeNvml,
    FakeTorch,
    NVMLError,
    OutOfMemoryError,
    with_nvml,
    with_torch,
)

MB = 1 << 20
SOUND: dict[str, Any] = {"corrected": 0, "uncorrected": 0, "memory": (70e9, 10e9), "processes": []}


@pytest.fixture
def ear(ear: Ear) -> Ear:
    """Without NVML."""
    with_nvml(ear, None)
    ear.reports()
    return ear


@pytest.fixture
def torch(ear: Ear, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """The program uses a GPU."""
    found: FakeTorch = with_torch(monkeypatch, FakeTorch(clock))
    return found


def step(name: str = "rollout", **how: Any) -> None:
    """One stage in which nothing happens."""
    with diagnosis.stage(name, step=7, **how):
        pass


# -- without a GPU -----------------------------------------------------------------------------------------------------


def test_a_stage_is_told_before_and_after_where_there_is_no_gpu(ear: Ear) -> None:
    """Neither torch nor NVML: what remains is that it began and ended."""
    step()
    before, after = ear.reports()
    assert [(one.stage, one.moment, one.step) for one in (before, after)] == [
        ("rollout", "before", 7),
        ("rollout", "after", 7),
    ]
    assert before.probe is None and not before.synchronised and before.corrected is None and before.boot_id


def test_what_a_stage_raises_goes_on_and_is_told_with_the_check_before_it(ear: Ear) -> None:
    """Row 1 needs both: the window of suspects begins at the last check that was clean."""
    step("weights_update")
    ear.reports()
    step("weights_update")
    with pytest.raises(RuntimeError, match="CUDA error"), diagnosis.stage("weights_update", step=8):
        raise RuntimeError("CUDA error: an illegal memory access\nCUDA kernel errors might be asynchronous")
    *before, last = ear.reports()
    assert [(one.moment, one.step, one.error) for one in before] == [("before", 8, ""), ("after", 7, "")]
    assert (last.moment, last.step, last.is_synchronising) == ("after", 8, False)
    assert last.error == "RuntimeError: CUDA error: an illegal memory access CUDA kernel errors might be asynchronous"


def test_what_is_no_exception_is_not_told_as_one(ear: Ear) -> None:
    """Ctrl-C, or a training that is suspended."""
    with pytest.raises(KeyboardInterrupt), diagnosis.stage("rollout"):
        raise KeyboardInterrupt
    assert [one.moment for one in ear.reports()] == ["before"]


# -- row 4 and 5: the probe --------------------------------------------------------------------------------------------


def test_row_4_the_probe_waits_and_compares_before_it_passes(
    ear: Ear, torch: FakeTorch, caplog: pytest.LogCaptureFixture
) -> None:
    """The defect: without waiting it passes on a context that is dead."""
    step()
    assert torch.calls == ["matmul", "synchronize"]
    before = ear.reports()[0]
    assert (before.probe, before.synchronised, before.matches) == (Check.PASSED, True, True)
    assert "[rollout] GPU health check passed" in caplog.messages


def test_row_5_a_probe_that_fails_stops_the_stage(ear: Ear, torch: FakeTorch, caplog: pytest.LogCaptureFixture) -> None:
    """The sentence of the seed, in both languages; the report is on its way before the error."""
    torch.fails = RuntimeError("CUDA error: uncorrectable ECC error encountered")
    with pytest.raises(GPUHealthError) as failed:
        step()
    assert str(failed.value) == "GPU fault detected in stage rollout"
    assert failed.value.chinese == "GPU故障检测于rollout阶段"
    assert any(one.startswith("[rollout] GPU health check failed: RuntimeError: CUDA error") for one in caplog.messages)
    (report,) = ear.reports()
    assert (report.probe, report.synchronised, report.matches, report.is_synchronising) == (
        Check.FAILED,
        True,
        None,
        True,
    )
    assert "uncorrectable ECC error" in report.error


def test_a_result_that_is_wrong_is_a_fault_that_no_exception_tells(ear: Ear, torch: FakeTorch) -> None:
    """Silent corruption: the GPU computes, and computes wrong."""
    torch.wrong_by = 1
    with pytest.raises(GPUHealthError):
        step()
    (report,) = ear.reports()
    assert (report.probe, report.matches) == (Check.FAILED, False)


@pytest.mark.parametrize("why", ["no memory left", "a graph is captured", "no context yet"])
def test_what_is_no_fault_of_the_gpu_is_no_fault(ear: Ear, torch: FakeTorch, why: str) -> None:
    """The program has all of its memory, or is at a moment at which nobody may wait, or has not begun with CUDA."""
    torch.fails = OutOfMemoryError("CUDA out of memory") if why == "no memory left" else None
    torch.capturing, torch.initialized = why == "a graph is captured", why != "no context yet"
    step()
    assert [one.probe for one in ear.reports()] == [None, None]
    assert "matmul" not in torch.calls or why == "no memory left"


# -- row 3: ECC --------------------------------------------------------------------------------------------------------


def test_row_3_a_rise_of_either_counter_is_said_and_told(
    ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The defect: uncorrected errors kill jobs, and only corrected ones were read."""
    nvml = FakeNvml(a={**SOUND, "corrected": 3, "uncorrected": 0})
    with_nvml(ear, nvml)
    step("weights_update")
    assert {(one.corrected, one.uncorrected) for one in ear.reports()} == {(3, 0)}
    assert not [one for one in caplog.messages if "increased" in one]
    nvml.gpus["a"] |= {"corrected": 5, "uncorrected": 1}
    step("weights_update")
    assert {(one.gpu, one.corrected, one.uncorrected) for one in ear.reports()} == {("GPU-a", 5, 1)}
    assert [one for one in caplog.messages if "increased" in one] == [
        "[weights_update] GPU ECC errors increased: 3 -> 5",
        "[weights_update] GPU ECC errors increased: 0 -> 1 (uncorrected)",
    ]


def test_a_counter_that_falls_begins_anew() -> None:
    """The driver was loaded again: 2 after 7 is no rise, and 3 after that is one."""
    watch = EccWatch()
    assert [watch.increased(Gpu("GPU-a", n, None)) for n in (7, 2, 3, 3)] == [[], [], [("corrected", 2, 3)], []]
    assert watch.increased(Gpu("GPU-b", 9, 9)) == []


def test_several_gpus_and_what_they_do_not_tell(ear: Ear) -> None:
    """The defect: `int()` of several lines, or of [N/A]."""
    with_nvml(ear, FakeNvml(a=SOUND, b={"uncorrected": 4}))
    step()
    found = {(one.gpu, one.moment): one for one in ear.reports()}
    assert set(found) == {(gpu, moment) for gpu in ("GPU-a", "GPU-b") for moment in ("before", "after")}
    bare = found["GPU-b", "before"]
    assert (bare.corrected, bare.uncorrected, bare.occupants) == (None, 4, None)


def test_the_gpus_of_a_process_are_its_own() -> None:
    """By what torch says, by what CUDA may see, by the local rank; else all of them."""
    every = tuple(Gpu(f"GPU-{name}") for name in "abcd")
    assert own(every, "GPU-c", {"LOCAL_RANK": "1"}) == every[2:3]
    assert own(every, "", {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-d", "LOCAL_RANK": "0"}) == (every[1], every[3])
    assert own(every, "GPU-x", {"LOCAL_RANK": "1"}) == every[1:2]
    assert own(every, "", {"CUDA_VISIBLE_DEVICES": "2,3", "LOCAL_RANK": "1"}) == every
    assert own(every, "", {"LOCAL_RANK": "9"}) == own(every, "", {"LOCAL_RANK": "x"}) == own(every, "", {}) == every


# -- rows 6 and 51: memory ---------------------------------------------------------------------------------------------


def test_row_6_an_operation_is_traced_with_the_memory_of_its_process(
    ear: Ear, torch: FakeTorch, caplog: pytest.LogCaptureFixture
) -> None:
    """The line of the seed, and a report."""
    diagnosis.operation("before_upload_weights", "weights_update", 7)
    assert caplog.messages == [
        "[GPU_OP] stage=weights_update, operation=before_upload_weights, "
        "cuda_memory_allocated=40.00GB, cuda_memory_reserved=41.00GB"
    ]
    (report,) = ear.reports()
    assert (report.moment, report.operation, report.allocated_gb, report.reserved_gb) == (
        "during",
        "before_upload_weights",
        40.0,
        41.0,
    )


def test_row_51_who_is_on_the_gpu_is_told_with_its_owner(ear: Ear, caplog: pytest.LogCaptureFixture) -> None:
    """A resident rollout is there by design; whose a process is, it says itself."""
    processes = [(os.getpid(), 40_960 * MB), (77, 30_720 * MB), (78, None)]
    with_nvml(ear, FakeNvml(a={**SOUND, "processes": processes}))
    step()
    report = ear.reports()[0]
    assert report.occupants == (Occupant(os.getpid(), 40_960.0, "train"), Occupant(77, 30_720.0), Occupant(78, 0.0))
    assert "[rollout] GPU occupied by 3 processes, total memory: 71680 MB" in caplog.messages


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_looking_costs_less_than_a_hundredth_of_the_time(ear: Ear, clock: Clock, torch: FakeTorch) -> None:
    """Steps of 50 ms with a probe of 5 ms: it is made as often as fits, and never forgotten."""
    torch.costs_s = 0.005
    began = clock.at
    for _ in range(4_000):
        clock.at += 0.05
        step()
    probes = torch.calls.count("synchronize")
    assert probes * torch.costs_s <= stages.ALLOWANCE_S + 0.01 * (clock.at - began) + torch.costs_s
    assert probes >= 0.9 * 0.01 * (clock.at - began) / torch.costs_s


def test_a_probe_that_is_asked_for_is_made_whatever_it_costs(ear: Ear, torch: FakeTorch) -> None:
    """And one that is not wanted is not."""
    torch.costs_s = 10.0
    for wanted in (True, True, None, False):
        step(probe=wanted)
    assert torch.calls.count("synchronize") == 2


def test_fast_steps_are_told_seldom(ear: Ear, clock: Clock) -> None:
    """Of one stage one report before and one after it in five seconds."""
    found = []
    for _ in range(200):
        step()
        clock.at += 0.05
        found += ear.reports()
    assert 4 <= len(found) <= 6


def test_nvml_is_not_asked_on_the_trainings_own_thread(ear: Ear) -> None:
    """On a GPU that is lost it may never answer."""
    nvml = FakeNvml(a=SOUND)
    with_nvml(ear, nvml)
    step()
    assert nvml.asked == 0
    ear.reports()
    assert nvml.asked > 0


def test_an_nvml_that_hangs_costs_its_own_numbers_and_nothing_else(ear: Ear) -> None:
    """Its thread waits; what else is to be told is told, and it is asked again once it has answered."""
    held = threading.Event()

    class Hanging(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            count = super().nvmlDeviceGetCount()
            held.wait(30)
            return count

    hanging = Hanging(a=SOUND)
    made = with_nvml(ear, hanging, deadline_s=0.05)
    step()
    assert [(one.moment, one.corrected) for one in ear.reports()] == [("before", None), ("after", None)]
    assert made.read() is None and hanging.asked == 1
    held.set()
    while (answer := made.read()) is None:  # a thread may need more than the deadline on a busy machine
        pass
    assert answer == (Gpu("GPU-a", 0, 0, 70.0, 10.0, ()),)


@pytest.mark.parametrize("error", [NVMLError("driver not loaded"), OSError("no library"), ImportError("no binding")])
def test_where_there_is_no_nvml_it_is_asked_once(error: Exception) -> None:
    """A laptop, a CPU instance, a driver that is not loaded."""
    nvml = FakeNvml(a=SOUND)
    nvml.init = error
    made = Nvml(lambda: nvml)
    assert (made.read(), made.is_there, made.read(), nvml.asked) == (None, False, None, 0)


def test_the_boot_is_told_since_counters_begin_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And nothing where it cannot be read."""
    assert len(gpu_state.boot_id()) == 36
    monkeypatch.setattr(gpu_state, "BOOT_ID", tmp_path / "none")
    assert gpu_state.boot_id() == ""
