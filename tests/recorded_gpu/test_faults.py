"""Programs that fail on a real GPU: no part of the system may blame the machine for them."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.findings_document import findings_document
from gpu_recovery.core.xid import needs_check
from gpu_recovery_agent.flight_recorder.dump import read_dump
from gpu_recovery_agent.flight_recorder.reports import reports
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.kernel_log import KernelLogSensor

from health_check import driver, kernel_log
from health_check.driver import DriverReport, RecoveryAction
from health_check.evidence import weigh
from health_check.examine import judge
from health_check.kernel_log import KernelLog
from health_check.remedies import HealthOutcome
from health_check.xid_table import XidPolicy
from tests.health_check.examinations import BOOTED_AT, examination
from tests.recorded_gpu.recorded import BUS, FOLDER, content, driver_lines

FAULTS = {fault["name"]: fault for fault in content("faults.json")}
OF_PROGRAMS = {"runtime_error_cuda", "device_assert", "cuda_oom"}
KMSG = (FOLDER / "kmsg.txt").read_text(encoding="utf-8")


def cause(lines: list[str]) -> str | None:
    """The kind of the line that explains the failure."""
    found: dict[str, Any] | None = findings_document(classify(lines))["cause"]
    return found["kind"] if found else None


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"cuda endless, killed"}))
def test_the_output_of_a_faulty_program_blames_the_program(name: str) -> None:
    """Among them an assertion in a file with the name `xid.cu`, whose tenth line is no XID 10."""
    fault = FAULTS[name]
    assert fault["code"] == 1 and fault["recovery_action_after"] == 0
    assert cause([*fault["stderr"], *fault["stdout"]]) in OF_PROGRAMS
    assert cause(fault["stderr"]) in OF_PROGRAMS or not fault["stderr"]
    assert cause(fault["kernel_log"]) == ("xid_application" if fault["nvml_xids"] else None)


def test_a_killed_program_leaves_no_trace_in_the_log() -> None:
    """Its kernel would never have ended."""
    killed = FAULTS["cuda endless, killed"]
    assert (killed["code"], killed["kernel_log"], killed["nvml_xids"]) == (-9, [], [])
    assert cause([*killed["stderr"], *killed["stdout"]]) is None


def test_the_kernel_log_has_each_xid_of_nvml_and_more() -> None:
    """An access outside of shared memory is XID 13 and then 43; the events of NVML have the 43 alone."""
    logged = {}
    for name, fault in FAULTS.items():
        codes = [int(line.split("): ")[1].split(",")[0]) for line in fault["kernel_log"] if "Xid" in line]
        logged[name] = list(dict.fromkeys(codes))
        assert set(fault["nvml_xids"]) <= set(codes)
    assert logged["cuda shared"] == [13, 43] and FAULTS["cuda shared"]["nvml_xids"] == [43]
    assert logged["torch assert"] == logged["cuda trap"] == [43]
    assert logged["torch oom"] == []


def test_the_agent_reports_each_xid_of_the_log_and_the_server_asks_for_no_check() -> None:
    """All of them within ten seconds: each number is one occurrence on its GPU."""
    sensor = KernelLogSensor(FOLDER / "kmsg.txt", AgentLog())
    seen = sensor.poll()
    assert sensor.poll() == []
    sensor.close()
    assert len(seen) == sum("Xid" in line for line in driver_lines()) == 15
    last = {one.xid: one for one in seen}
    assert {xid: (one.gpu, one.count, one.bursts, one.action) for xid, one in last.items()} == {
        31: (BUS, 3, 1, None),
        43: (BUS, 5, 1, None),
        13: (BUS, 7, 1, None),
    }
    assert not any(needs_check(one.xid, one.bursts, one.action) for one in seen)


def driver_answer() -> DriverReport:
    """The answer of nvidia-smi."""
    return driver.parse((FOLDER / "nvidia_smi.xml").read_text(encoding="utf-8"), "", 0)


def test_the_answer_of_a_real_nvidia_smi_is_read() -> None:
    """Each value that the health check uses is there."""
    answer = driver_answer()
    (gpu,) = answer.gpus
    assert (answer.version, answer.no_answer, answer.lost) == ("580.159.04", None, ())
    assert (gpu.index, gpu.pci_bus_id, gpu.action, gpu.action_text) == (0, BUS, RecoveryAction.NONE, "None")
    assert (gpu.remap_pending, gpu.remap_failed, gpu.sram_threshold_exceeded) == (False, False, False)
    assert gpu.uncorrected_errors == 0 and gpu.uuid == content("calls.json")["calls"]["UUID"]["value"]


def test_a_passive_check_after_all_the_faults_finds_the_machine_healthy() -> None:
    """It names the XIDs, and they ask for nothing."""
    seen, said = KernelLog(kernel_log.parse(KMSG, BOOTED_AT)), driver_answer()
    evidence = weigh(seen, said, level=0, policy=XidPolicy.NVIDIA, since=None, expected_gpus=1)
    verdict = judge(examination(seen=seen, said=said, evidence=evidence), level=0, expected_gpus=1)
    assert verdict.outcome is HealthOutcome.HEALTHY
    assert {(one.code, str(one.remedy)) for one in verdict.findings} == {
        ("XID_13", "IGNORE"),
        ("XID_31", "IGNORE"),
        ("XID_43", "IGNORE"),
    }


def test_the_last_lines_of_a_crashed_rank_blame_the_program() -> None:
    """Around the traceback there are warnings of NCCL; those of a rank that was ended in a hang explain nothing."""
    crash, hang = content("last_lines.json")
    assert crash["exit"] == {"code": 1, "held": True} and cause(crash["lines"]) == "runtime_error_cuda"
    assert hang["exit"] == {"signal": 15, "held": True, "asked": True} and cause(hang["lines"]) is None


def test_a_dump_of_nccl_shows_what_its_rank_waits_for() -> None:
    """The collective stands behind an endless kernel of the program. A group of one rank has no report."""
    dump = read_dump((FOLDER / "flight_dump_0.pickle").read_bytes())
    (group,) = dump.groups
    assert (dump.version, group.name, group.description, group.members) == ("2.10", "0", "default_pg", (0,))
    assert (group.enqueued, group.completed, group.op) == (2, 1, "all_reduce of 1048576 Float")
    assert group.is_waiting and reports(dump, 0) == []
