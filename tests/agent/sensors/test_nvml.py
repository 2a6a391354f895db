"""NVML through its own binding, in a child process: values, nothing, errors, silence."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import gpu_health, nvml_reading
from gpu_recovery_agent.sensors.nvml import NvmlSensor

from tests.agent.node import Node, wait_until

pytestmark = pytest.mark.slow
THERMAL_SLOWDOWN, POWER_BRAKE = 0x40, 0x80
"""Of the hardware: bits of nvmlClocksEventReasons."""


class Watched:
    """A sensor whose clock is the test's."""

    def __init__(self, node: Node) -> None:
        self.now = 0.0
        self.sensor = NvmlSensor(node.environment, AgentLog(), interval_s=15.0, deadline_s=30.0, now=lambda: self.now)

    def reading(self) -> dict[str, Any]:
        """The next answer."""
        self.now += 15.0
        self.sensor.poll()
        wait_until(self.sensor.poll, "no answer of NVML")
        assert self.sensor.reading is not None
        return self.sensor.reading

    def health(self, gpus_before: int = 0) -> gpu_health.GpuHealthStatus:
        sensor = self.sensor
        return gpu_health.gpu_health_of(
            sensor.reading,
            trouble=sensor.trouble,
            hung=sensor.hung,
            silent_s=sensor.unanswered_s,
            gpus_before=gpus_before,
        )


@pytest.fixture
def watched(node: Node) -> Any:
    found = Watched(node)
    yield found
    found.sensor.close()


def test_a_healthy_gpu_is_read_whole(watched: Watched) -> None:
    """Every question has a value, or is one that this GPU does not know."""
    reading = watched.reading()
    (gpu,) = reading["gpus"]
    assert (reading["driver"], reading["count"]) == ("580.82.07", 1)
    assert gpu["uuid"] == "GPU-0" and gpu["pci"] == "00000000:10:00.0"
    assert gpu["ecc"] == {
        "corrected_volatile": 0,
        "corrected_aggregate": 0,
        "uncorrected_volatile": 0,
        "uncorrected_aggregate": 0,
    }
    assert gpu["remapped"] == {"corrected": 0, "uncorrected": 0, "pending": False, "failure": False}
    assert (gpu["recovery_action"], gpu["links"], gpu["sram_threshold_exceeded"]) == (0, "11", False)
    assert gpu["missing"] == {"Not Supported (3)": ["retirement_pending"]}
    assert watched.health() == gpu_health.GpuHealthStatus("ok")


def test_what_a_gpu_does_not_know_is_null_with_its_reason(node: Node, watched: Watched) -> None:
    """N/A costs one value and never the reading."""
    silent = ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState", "230")
    node.set_nvml(gpus=[{"raises": dict.fromkeys((*silent, "nvmlDeviceGetPowerUsage"), 3)}])
    (gpu,) = watched.reading()["gpus"]
    assert gpu["remapped"] is None and gpu["links"] is None and gpu["power_mw"] is None
    assert gpu["recovery_action"] is None and set(gpu["ecc"].values()) == {None}
    assert {"recovery_action", "remapped", "ecc.uncorrected_volatile", "links", "power_mw"} <= set(
        gpu["missing"]["Not Supported (3)"]
    )
    assert watched.health() == gpu_health.GpuHealthStatus("ok")


def test_nothing_at_all_is_no_crash(node: Node, watched: Watched) -> None:
    """A GPU that answers no question is still one that is there."""
    node.set_nvml(gpus=[{"raises": {"*": 3}}])
    assert watched.reading()["gpus"] == [{"index": 0, "missing": {"Not Supported (3)": ["handle"]}}]
    assert "cannot be reached" in watched.health().sentence


@pytest.mark.parametrize(("code", "words"), [(14, "InfoROM"), (15, "lost"), (16, "reset")])
def test_a_gpu_that_is_lost_or_needs_a_reset_is_impaired(node: Node, watched: Watched, code: int, words: str) -> None:
    """NVML's own words for it, on any question; the other GPU is read all the same."""
    node.set_nvml(gpus=[{"raises": {"nvmlDeviceGetRemappedRows": code}}, {}])
    lost, other = watched.reading()["gpus"]
    assert lost["error"] == code and other["ecc"]["uncorrected_volatile"] == 0
    found = watched.health()
    assert found.status == "impaired" and words in found.sentence and "GPU 0" in found.sentence


def test_a_lost_gpu_is_asked_nothing_more(node: Node, watched: Watched) -> None:
    """Every further question could be the one that never returns."""
    node.set_nvml(gpus=[{"raises": {"nvmlDeviceGetName": 15}}], hang="nvmlDeviceGetTemperatureV")
    (gpu,) = watched.reading()["gpus"]
    assert "temperature" in gpu["missing"]["the GPU is lost"]


def test_errors_that_rise_are_told(node: Node, watched: Watched) -> None:
    """Corrected ones are the gauge's, uncorrectable ones a reason to look."""
    node.set_nvml(gpus=[{"ecc": [7, 9, 0, 0]}])
    watched.reading()
    assert watched.health().status == "ok"
    node.set_nvml(gpus=[{"ecc": [7, 9, 2, 5]}])
    assert watched.reading()["gpus"][0]["ecc"]["uncorrected_aggregate"] == 5
    assert watched.health() == gpu_health.GpuHealthStatus(
        "impaired", "GPU 0: 2 uncorrectable memory errors since the driver was loaded"
    )


def test_a_row_that_waits_is_in_the_inventory_and_ends_nobodys_work(node: Node, watched: Watched) -> None:
    """A failed remapping is what no reset cures."""
    node.set_nvml(gpus=[{"remapped": [0, 1, 1, 0], "ecc": [0, 0, 1, 1]}])
    assert watched.reading()["gpus"][0]["remapped"]["pending"] is True
    assert watched.health().status == "ok"
    node.set_nvml(gpus=[{"remapped": [0, 1, 0, 1]}])
    watched.reading()
    assert watched.health() == gpu_health.GpuHealthStatus("impaired", "GPU 0: a spare row could not be mapped in")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (1, "a reset of the GPU"),
        (2, "a reboot"),
        (5, "a reset of the GPU's bus"),  # of driver 580, which the node has
        (6, "a reset of the GPU's bus"),
        (7, "a reboot of the system"),
        (9, "recovery action 9, which this release does not know"),
    ],
)
def test_the_recovery_that_the_driver_asks_for_is_an_impairment(
    node: Node, watched: Watched, action: int, words: str
) -> None:
    """Its field 230 has eight values, and may get more."""
    node.set_nvml(gpus=[{"action": action}])
    assert watched.reading()["gpus"][0]["recovery_action"] == action
    found = watched.health()
    assert found == gpu_health.GpuHealthStatus("impaired", f"GPU 0: the driver asks for {words}")


def test_action_5_of_a_newer_driver_is_the_imex_domain(node: Node, watched: Watched) -> None:
    """Branch 595 gave the number to it."""
    node.set_nvml(gpus=[{"action": 5}], driver="595.45.04")
    assert watched.reading()["driver"] == "595.45.04"
    assert watched.health().sentence == "GPU 0: the driver asks for a recovery of the IMEX domain"


def test_why_the_clocks_are_held_back_is_in_the_inventory_and_no_reason_to_look(node: Node, watched: Watched) -> None:
    """NVML's bits are reported as they are, with a thermal and a power brake of the hardware among them.

    A question without an answer is null with its reason. A change of the bits makes no other inventory.
    """
    node.set_nvml(gpus=[{"reasons": THERMAL_SLOWDOWN | POWER_BRAKE}])
    slowed = watched.reading()
    assert slowed["gpus"][0]["clocks_event_reasons"] == 0xC0 and watched.health() == gpu_health.GpuHealthStatus("ok")
    node.set_nvml(gpus=[{"reasons": 0}])
    free = watched.reading()
    assert free["gpus"][0]["clocks_event_reasons"] == 0
    assert gpu_health.digest(gpu_health.inventory(slowed, None)) == gpu_health.digest(gpu_health.inventory(free, None))
    node.set_nvml(gpus=[{"raises": {"nvmlDeviceGetCurrentClocksEventReasons": 3}}])
    (gpu,) = watched.reading()["gpus"]
    assert gpu["clocks_event_reasons"] is None and "clocks_event_reasons" in gpu["missing"]["Not Supported (3)"]


def test_a_link_that_goes_down_is_another_inventory(node: Node, watched: Watched) -> None:
    """A digit for each link; the totals of errors over all links, up to NVLink 4, are gauges."""
    node.set_nvml(gpus=[{"links": "1111", "link_errors": 3}])
    up = watched.reading()
    assert up["gpus"][0]["links"] == "1111"
    assert up["gpus"][0]["link_errors"] == {"crc_flit": 3, "crc_data": 3, "replay": 3, "recovery": 3}
    node.set_nvml(gpus=[{"links": "1101", "link_errors": 9}])
    down = watched.reading()
    assert down["gpus"][0]["links"] == "1101" and down["gpus"][0]["link_errors"]["replay"] == 9
    assert gpu_health.digest(gpu_health.inventory(up, None)) != gpu_health.digest(gpu_health.inventory(down, None))


def test_from_nvlink_5_on_each_link_that_is_up_counts_for_itself(node: Node, watched: Watched) -> None:
    """The totals are gone, and the sum over the links is told; a link that is down is not asked."""
    counts = {"208/0": 5, "208/2": 7, "211/0": 1, "213/2": 2, "214/1": 900}
    zeros = {f"{number}/{link}": 0 for number in nvml_reading.LINK_FIELDS for link in range(3)}
    totals = {str(number): 3 for number in nvml_reading.LINK_TOTALS}
    node.set_nvml(gpus=[{"links": "101", "link_fields": zeros | counts, "raises": totals}])
    (gpu,) = watched.reading()["gpus"]
    assert gpu["link_errors"] == {
        "receive": 12,
        "integrity": 1,
        "recovered": 2,
        "recovery_failed": 0,
        "recovery_events": 0,
    }
    assert set(gpu["missing"]["Not Supported (3)"]) >= {"link_errors.crc_flit", "link_errors.recovery"}
    assert watched.health() == gpu_health.GpuHealthStatus("ok")


def test_nvlink_5_without_a_link_that_is_up_asks_for_no_field(node: Node, watched: Watched) -> None:
    """There is nothing to add up, and nothing that could fail."""
    totals = {str(number): 3 for number in nvml_reading.LINK_TOTALS}
    node.set_nvml(gpus=[{"links": "00", "raises": totals}])
    (gpu,) = watched.reading()["gpus"]
    assert (gpu["links"], gpu["link_errors"]) == ("00", {})


@pytest.mark.parametrize("on", [True, False])
def test_whether_a_gpu_is_divided_is_told(node: Node, watched: Watched, on: bool) -> None:
    """MIG on or off; a GPU that knows no MIG is neither. Switching it is another inventory."""
    node.set_nvml(gpus=[{"mig": on}, {"mig": None}])
    reading = watched.reading()
    divided, other = reading["gpus"]
    assert (divided["mig"], other["mig"]) == (on, None) and "mig" not in divided.get("missing", {}).get(
        "Not Supported (3)", []
    )
    node.set_nvml(gpus=[{"mig": not on}, {"mig": None}])
    changed = watched.reading()
    assert gpu_health.digest(gpu_health.inventory(reading, None)) != gpu_health.digest(
        gpu_health.inventory(changed, None)
    )


def test_a_gpu_that_wears_out_is_an_impairment(node: Node, watched: Watched) -> None:
    """Errors of its SRAM beyond the threshold: no reset gives it a longer life."""
    node.set_nvml(gpus=[{"sram": 1}])
    watched.reading()
    assert watched.health() == gpu_health.GpuHealthStatus(
        "impaired", "GPU 0: its count of SRAM errors exceeds the threshold"
    )


def test_gap_7_a_gpu_is_told_with_its_health_and_silence_is_never_zero_gpus_that_are_well(
    node: Node, watched: Watched
) -> None:
    """Seed 000's agent knows memory and processes, takes a process for use, knows no MIG, and tells of no GPUs, with
    `ok`, when nvidia-smi hangs."""
    node.set_nvml(gpus=[{"mig": True, "reasons": THERMAL_SLOWDOWN, "ecc": [1, 2, 0, 3], "processes": [4242]}])
    reading = watched.reading()
    (gpu,) = reading["gpus"]
    assert reading["driver"] == "580.82.07" and gpu["clocks_event_reasons"] == THERMAL_SLOWDOWN and gpu["mig"] is True
    assert gpu["ecc"]["corrected_volatile"] == 1 and gpu["ecc"]["uncorrected_aggregate"] == 3
    assert gpu["processes"] == [{"pid": 4242, "memory": None}] and watched.health() == gpu_health.GpuHealthStatus("ok")
    node.set_nvml(hang="nvmlDeviceGetCount")
    watched.now += 15.0
    watched.sensor.poll()
    watched.now += 30.0
    assert watched.sensor.poll()
    assert watched.health().status == "impaired" and len(gpu_health.gpus_in(watched.sensor.gpus)) == 1


def test_a_gpu_that_is_gone_from_the_list_is_missed(node: Node, watched: Watched) -> None:
    """A list that is shorter than before says nothing of whom it leaves out."""
    node.set_nvml(gpus=[{}, {}])
    watched.reading()
    node.set_nvml(gpus=[{}])
    watched.reading()
    assert watched.health(gpus_before=2) == gpu_health.GpuHealthStatus("impaired", "1 of 2 GPUs are present")


def test_a_list_without_a_gpu_is_never_well(node: Node, watched: Watched) -> None:
    """A driver that knows no GPU answers without an error. Nothing was read, so nothing is known."""
    node.set_nvml(gpus=[])
    assert watched.reading()["count"] == 0
    assert watched.health() == gpu_health.GpuHealthStatus("unknown", "NVML lists no GPU")
    assert watched.health(gpus_before=1) == gpu_health.GpuHealthStatus("impaired", "0 of 1 GPUs are present")


def test_a_reader_that_hangs_is_killed_once_and_another_asks_when_it_is_gone(node: Node, watched: Watched) -> None:
    """Past the deadline the health is impaired, and says for how long; afterwards it is well again."""
    sensor = watched.sensor
    watched.reading()
    node.set_nvml(hang="nvmlDeviceGetUUID")
    watched.now = 30.0
    sensor.poll()
    watched.now = 59.9
    sensor.poll()
    assert not sensor.hung
    watched.now = 60.0
    assert sensor.poll()
    watched.now = 77.0
    assert watched.health() == gpu_health.GpuHealthStatus("impaired", "NVML has not answered for 62 s")
    node.set_nvml()
    wait_until(lambda: sensor.poll() or sensor._child is None)
    assert watched.health().status == "impaired"
    assert watched.reading()["count"] == 1
    assert watched.health().status == "ok" and sensor.started == 2


def test_a_reader_that_cannot_be_killed_is_left_behind_alone(node: Node, watched: Watched) -> None:
    """What sleeps in the driver survives SIGKILL; a new reader every minute would pile up until the memory is full."""
    sensor = watched.sensor
    watched.reading()
    assert sensor._child is not None
    real, killed = sensor._child.kill, []
    sensor._child.kill = lambda: killed.append(1)  # type: ignore[method-assign]
    node.set_nvml(hang="nvmlDeviceGetUUID")
    for _ in range(100):
        watched.now += 15.0
        sensor.poll()
    assert (sensor.started, len(killed)) == (1, 1)
    assert watched.health().status == "impaired"
    real()


def test_a_reader_that_dies_is_no_verdict_on_the_gpus(watched: Watched) -> None:
    """The library may crash; the next reading says how the GPUs are."""
    watched.reading()
    assert watched.sensor._child is not None
    watched.sensor._child.kill()
    wait_until(lambda: watched.sensor.poll() or watched.sensor.trouble)
    assert watched.health().status == "unknown"
    watched.reading()
    assert watched.health().status == "ok"


@pytest.mark.parametrize(("code", "status"), [(12, "unknown"), (9, "unknown"), (999, "impaired"), (15, "impaired")])
def test_an_nvml_that_does_not_begin_is_said(node: Node, watched: Watched, code: int, status: str) -> None:
    """A machine without a driver is no broken one; and no list is never an empty list."""
    node.set_nvml(init=code)
    watched.reading()
    assert watched.health().status == status and "NVML cannot be initialized" in watched.health().sentence
    assert watched.sensor.gpus is None


def test_an_nvml_that_cannot_be_read_is_in_the_journal_once_and_so_is_its_return(
    node: Node, watched: Watched, capfd: pytest.CaptureFixture[str]
) -> None:
    """A person who looks for a missing GPU reads the journal first."""
    node.set_nvml(init=12)
    for _ in range(3):
        watched.reading()
    node.set_nvml()
    for _ in range(3):
        watched.reading()
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "cannot be read: NVML cannot be initialized" in line] == lines[:1]
    assert lines[1:] == ["the GPUs can be read again"]


def test_a_container_without_the_drivers_library_takes_that_of_the_host(tmp_path: Path) -> None:
    """The default runtime of Docker mounts no library. The link is absolute on some systems."""
    host = tmp_path / "host"
    (host / "usr/lib64").mkdir(parents=True)
    source = next(Path(path) for path in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6") if Path(path).exists())
    (host / "usr/lib64/libnvidia-ml.so.570").write_bytes(source.read_bytes())
    (host / "usr/lib64/libnvidia-ml.so.1").symlink_to("/usr/lib64/libnvidia-ml.so.570")
    program = (
        "from gpu_recovery_agent.sensors.child import nvml\nimport sys\n"
        "nvml._load_the_hosts_library(sys.argv[1])\nprint(open('/proc/self/maps').read())"
    )
    told = subprocess.run([sys.executable, "-c", program, str(host)], capture_output=True, text=True, check=True)
    assert str(host / "usr/lib64/libnvidia-ml.so.570") in told.stdout
    alone = subprocess.run([sys.executable, "-c", program, ""], capture_output=True, text=True, check=True)
    assert "libnvidia-ml" not in alone.stdout


def test_the_reader_never_gets_the_token(node: Node, watched: Watched) -> None:
    """It loads a library that is not ours."""
    watched.reading()
    assert watched.sensor._child is not None
    raw = Path(f"/proc/{watched.sensor._child.pid}/environ").read_bytes()
    assert b"FAKE_NVML=" in raw and b"s3cret" not in raw


def test_the_installed_binding_knows_every_name_that_is_asked() -> None:
    """The fake has what the test wrote; only the real one says whether the names are right."""
    folder = str(Path(__file__).parents[1] / "fake_nvml")
    assert folder not in sys.path
    binding = importlib.import_module("pynvml")
    names = set(re.findall(r"(?:nvml|_nvml)\.(\w+)", inspect.getsource(nvml_reading)))
    assert {"nvmlDeviceGetTotalEccErrors", "c_nvmlEccSramErrorStatus_v1_t", "NVMLError"} <= names
    assert not {name for name in names if not hasattr(binding, name)}
    assert binding.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == nvml_reading.RECOVERY_ACTION
