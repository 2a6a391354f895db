"""The NVML of the tests answers as a real library did: the same values, types and errors for each call of the agent."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpu_recovery_agent.sensors import gpu_health, nvml_reading

from tests.agent.node import FAKE_NVML
from tests.recorded_gpu.recorded import content

RECORDED, CALLS = content("nvml.json"), content("calls.json")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The NVML of the tests, with one GPU whose NVLink is switched off, as on the recorded machine."""
    state = tmp_path / "nvml.json"
    state.write_text(json.dumps({"gpus": [{"links": ""}]}))
    monkeypatch.setenv("FAKE_NVML", str(state))
    spec = importlib.util.spec_from_file_location("fake_pynvml", FAKE_NVML / "pynvml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "real_pynvml", None)
    spec.loader.exec_module(module)
    return module


def shape(value: Any) -> Any:
    """A value without what differs between two GPUs: the names of its fields, and their types."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return type(value).__name__


def test_a_reading_has_the_same_values_as_that_of_the_real_library(nvml: ModuleType) -> None:
    """What the real library does not know is unknown here, too, with the same reason."""
    (real,), (fake,) = RECORDED["reading"]["gpus"], nvml_reading.read(nvml)["gpus"]
    assert fake["missing"] == real["missing"]
    energy = {"energy_mj": CALLS["calls"]["TotalEnergyConsumption"]["value"]}  # asked since a later release
    assert shape({**fake, "processes": 0}) == shape({**real, **energy})


def test_the_real_reading_is_healthy() -> None:
    """Nothing that the real library lacks makes the GPU suspicious."""
    health = gpu_health.gpu_health_of(RECORDED["reading"], trouble=None, hung=False, silent_s=0.0, gpus_before=1)
    assert health == gpu_health.GpuHealthStatus(gpu_health.OK)


def error_of(nvml: ModuleType, call: Any) -> int:
    """The number of the error that a call raises; 0 if it raises none."""
    try:
        call()
    except nvml.NVMLError as error:
        return int(error.value)
    return 0


def test_wrong_calls_have_the_errors_of_the_real_library(nvml: ModuleType) -> None:
    """A GPU that is not there, a structure in place of a pointer, a link that is switched off."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = nvml.nvmlEccSramErrorStatus_v1
    tried = {
        "index 1 that is not there": lambda: nvml.nvmlDeviceGetHandleByIndex(1),
        "SramEccErrorStatus": lambda: nvml.nvmlDeviceGetSramEccErrorStatus(0, ctypes.byref(status)),
        "SramEccErrorStatus without byref": lambda: nvml.nvmlDeviceGetSramEccErrorStatus(0, status),
        "RetiredPagesPendingStatus": lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(0),
        "MigMode": lambda: nvml.nvmlDeviceGetMigMode(0),
        **{f"NvLinkState.{link}": lambda link=link: nvml.nvmlDeviceGetNvLinkState(0, link) for link in range(20)},
    }
    recorded = CALLS["calls"]
    assert {name: error_of(nvml, call) for name, call in tried.items()} == {
        name: recorded[name].get("error", 0) for name in tried
    }
    assert nvml.nvmlDeviceGetMigMode(0) == recorded["MigMode"]["value"]


def test_fields_have_the_errors_and_the_types_of_the_real_library(nvml: ModuleType) -> None:
    """The fields that the agent reads, and one that no driver has."""
    numbers = [nvml_reading.RECOVERY_ACTION, nvml.NVML_FI_DEV_MEMORY_TEMP, *nvml_reading.LINK_TOTALS]
    numbers += [*nvml_reading.LINK_FIELDS, 303]
    found = {one.fieldId: (one.nvmlReturn, one.valueType) for one in nvml.nvmlDeviceGetFieldValues(0, numbers)}
    assert found == {
        number: (CALLS["fields"][str(number)]["return"], CALLS["fields"][str(number)]["type"]) for number in numbers
    }
