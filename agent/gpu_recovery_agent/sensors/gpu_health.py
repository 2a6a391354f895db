"""Derives GPU health from an NVML reading: a status, a sentence, the inventory. Pure.

The status is `ok`, `impaired` or `unknown`. `impaired` causes a health check, which decides. A row that waits for
remapping does not make a GPU impaired: the memory in use is not affected, and the reset that it needs would end every
job on the GPU. The inventory shows it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpu_recovery_agent import VERSION
from gpu_recovery_agent.parsers.recovery_action import RecoveryAction, action_of
from gpu_recovery_agent.sensors.nvml_reading import CORRUPTED_INFOROM, GPU_LOST, RESET_REQUIRED, UNKNOWN_ERROR

OK, IMPAIRED, UNKNOWN = "ok", "impaired", "unknown"
SENTENCE_MAX = 500
PERCENT_MAX = 100
DIGEST_DIGITS = 16
ERRORS = {
    CORRUPTED_INFOROM: "its InfoROM is corrupted",
    GPU_LOST: "it is lost",
    RESET_REQUIRED: "it needs a reset",
    UNKNOWN_ERROR: "NVML reports an unknown error",
}
"""Sentences for error numbers of NVML."""
ACTIONS = {
    RecoveryAction.GPU_RESET: "a reset of the GPU",
    RecoveryAction.NODE_REBOOT: "a reboot",
    RecoveryAction.DRAIN_P2P: "a drain of P2P",
    RecoveryAction.DRAIN_AND_RESET: "a drain and a reset",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "a recovery of the IMEX domain",
    RecoveryAction.BUS_RESET: "a reset of the GPU's bus",
    RecoveryAction.SYSTEM_REBOOT: "a reboot of the system",
}
"""Recovery actions of the driver in words."""
GAUGES = {
    "memory",
    "clocks_event_reasons",
    "temperature",
    "memory_temperature",
    "power_mw",
    "energy_mj",
    "utilization",
    "pcie_width",
    "pcie_replays",
    "link_errors",
    "processes",
}
"""Fields that change without an event. An inventory contains them, but their change alone does not cause a new
inventory.
"""


@dataclass(frozen=True)
class GpuHealthStatus:
    """The health of all GPUs. `sentence` is empty if there is nothing to report."""

    status: str
    sentence: str = ""


def gpu_health_of(
    reading: dict[str, Any] | None, *, trouble: str | None, hung: bool, silent_s: float, gpus_before: int
) -> GpuHealthStatus:
    """Return the health of the GPUs.

    Args:
        reading: the last NVML reading; None before the first.
        trouble: why NVML cannot be read; None if it can.
        hung: whether the deadline of NVML has passed.
        silent_s: seconds since the last answer of NVML.
        gpus_before: the largest number of GPUs seen since the start of the agent.
    """
    if hung:
        return GpuHealthStatus(IMPAIRED, f"NVML has not answered for {int(silent_s)} s")
    if trouble:
        return GpuHealthStatus(UNKNOWN, trouble[:SENTENCE_MAX])
    if reading is None:
        return GpuHealthStatus(UNKNOWN, "NVML has not been read yet")
    error = reading.get("error")
    if isinstance(error, dict):
        status = IMPAIRED if error.get("code") in ERRORS or gpus_before else UNKNOWN
        return GpuHealthStatus(status, str(error.get("text", ""))[:SENTENCE_MAX])
    if not gpus_in(reading) and not gpus_before:
        return GpuHealthStatus(UNKNOWN, "NVML lists no GPU")
    driver = reading.get("driver")
    sentences = [text for gpu in gpus_in(reading) for text in _of_a_gpu(gpu, driver)]
    if reading.get("count", 0) < gpus_before:
        sentences.insert(0, f"{reading.get('count', 0)} of {gpus_before} GPUs are present")
    return GpuHealthStatus(IMPAIRED if sentences else OK, "; ".join(sentences)[:SENTENCE_MAX])


def with_note(health: GpuHealthStatus, note: str) -> GpuHealthStatus:
    """Return the same status, with a note about what the agent could not read."""
    return replace(health, sentence="; ".join(filter(None, (health.sentence, note)))[:SENTENCE_MAX])


def _of_a_gpu(gpu: dict[str, Any], driver: str | None) -> Iterator[str]:
    who = f"GPU {gpu.get('index')}"
    if gpu.get("error") in ERRORS:
        yield f"{who}: {ERRORS[gpu['error']]}"
    elif "name" not in gpu:
        yield f"{who}: it cannot be reached"
    action = gpu.get("recovery_action")
    if isinstance(action, int) and action > 0:
        asked = ACTIONS.get(action_of(action, driver), f"recovery action {action}, which this release does not know")
        yield f"{who}: the driver asks for {asked}"
    if _of(gpu, "remapped").get("failure"):
        yield f"{who}: a spare row could not be mapped in"
    if gpu.get("sram_threshold_exceeded"):
        yield f"{who}: its count of SRAM errors exceeds the threshold"
    uncorrected = _of(gpu, "ecc").get("uncorrected_volatile")
    if uncorrected and not _of(gpu, "remapped").get("pending"):
        yield f"{who}: {uncorrected} uncorrectable memory errors since the driver was loaded"


def inventory(reading: dict[str, Any], kernel_log_unread: str | None) -> dict[str, Any]:
    """Return the content of the reading, with the agent's version and the reason if the kernel log is unreadable."""
    content: dict[str, Any] = {"agent": VERSION, "driver": reading.get("driver"), "gpus": gpus_in(reading)}
    return content | ({"kernel_log": kernel_log_unread} if kernel_log_unread else {})


def digest(inventory: dict[str, Any]) -> str:
    """Return a hash that changes when an event concerns the GPUs: a hash of the inventory without its gauges."""
    lasting = [{name: value for name, value in gpu.items() if name not in GAUGES} for gpu in inventory["gpus"]]
    for gpu in lasting:
        gpu.pop("missing", None)
        if "ecc" in gpu:  # some healthy GPUs have thousands of corrected errors
            gpu["ecc"] = {name: count for name, count in (gpu["ecc"] or {}).items() if name.startswith("un")}
    text = json.dumps({**inventory, "gpus": lasting}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def utilization(reading: dict[str, Any] | None) -> list[int | None]:
    """Return the utilization of each GPU in percent.

    It is None where NVML does not know it, as of a lost GPU or of a GPU that MIG divides: 0 would mean an idle GPU.
    """
    return [_percent(gpu.get("utilization")) for gpu in gpus_in(reading)]


def _percent(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= PERCENT_MAX else None


def gpus_in(reading: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the GPUs of a reading; an empty list for a failed reading."""
    gpus = (reading or {}).get("gpus")
    return gpus if isinstance(gpus, list) else []


def _of(gpu: dict[str, Any], name: str) -> dict[str, Any]:
    value = gpu.get(name)
    return value if isinstance(value, dict) else {}
