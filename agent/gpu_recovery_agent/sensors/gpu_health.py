"""From a reading to a word on the GPUs: `ok`, `impaired` or `unknown`, a sentence, and the inventory. Pure, and total.

Impaired is a reason to look, and the health check decides. A row that waits to be remapped is none: the memory in use
is not affected, and the reset it waits for ends everybody's work. It is in the inventory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpu_recovery_agent import VERSION
from gpu_recovery_agent.sensors.nvml_reading import CORRUPTED_INFOROM, GPU_LOST, RESET_REQUIRED, UNKNOWN_ERROR

OK, IMPAIRED, UNKNOWN = "ok", "impaired", "unknown"
SENTENCE_MAX = 500
DIGEST_DIGITS = 16
ERRORS = {
    CORRUPTED_INFOROM: "its InfoROM is corrupted",
    GPU_LOST: "it is lost",
    RESET_REQUIRED: "it needs a reset",
    UNKNOWN_ERROR: "NVML has met an unknown error",
}
ACTIONS = (
    "none",
    "a reset of the GPU",
    "a reboot",
    "a drain of P2P",
    "a drain and a reset",
    "a reset of the GPU's bus",
)
"""By the number of field 230."""
GAUGES = {
    "memory",
    "clocks_event_reasons",
    "temperature",
    "memory_temperature",
    "power_mw",
    "utilization",
    "pcie_width",
    "pcie_replays",
    "link_errors",
    "processes",
}
"""What moves without anything having happened: it is in an inventory, and no reason to send one."""


@dataclass(frozen=True)
class GpuHealthStatus:
    """`sentence` is empty when there is nothing to say."""

    status: str
    sentence: str = ""


def judge(
    reading: dict[str, Any] | None, *, trouble: str | None, hung: bool, silent_s: float, gpus_before: int
) -> GpuHealthStatus:
    """The health that a reading and its lack tell. `gpus_before` is the most that were seen since the boot."""
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
    found = [text for gpu in gpus_in(reading) for text in _of_a_gpu(gpu)]
    if reading.get("count", 0) < gpus_before:
        found.insert(0, f"{reading.get('count', 0)} of {gpus_before} GPUs are present")
    return GpuHealthStatus(IMPAIRED if found else OK, "; ".join(found)[:SENTENCE_MAX])


def with_note(health: GpuHealthStatus, remark: str) -> GpuHealthStatus:
    """The same word on the GPUs, with something beside it that the agent could not see."""
    return replace(health, sentence="; ".join(filter(None, (health.sentence, remark)))[:SENTENCE_MAX])


def _of_a_gpu(gpu: dict[str, Any]) -> Iterator[str]:
    who = f"GPU {gpu.get('index')}"
    if gpu.get("error") in ERRORS:
        yield f"{who}: {ERRORS[gpu['error']]}"
    elif "name" not in gpu:
        yield f"{who}: it cannot be reached"
    action = gpu.get("recovery_action")
    if isinstance(action, int) and action > 0:
        yield f"{who}: the driver asks for {ACTIONS[action] if action < len(ACTIONS) else f'action {action}'}"
    if _of(gpu, "remapped").get("failure"):
        yield f"{who}: a spare row could not be mapped in"
    if gpu.get("sram_threshold_exceeded"):
        yield f"{who}: its count of SRAM errors has passed the threshold"
    uncorrected = _of(gpu, "ecc").get("uncorrected_volatile")
    if uncorrected and not _of(gpu, "remapped").get("pending"):
        yield f"{who}: {uncorrected} uncorrectable memory errors since the driver was loaded"


def inventory(reading: dict[str, Any], kernel_log_unread: str | None) -> dict[str, Any]:
    """Everything that was read, with the agent's own version and what it cannot see."""
    found: dict[str, Any] = {"agent": VERSION, "driver": reading.get("driver"), "gpus": gpus_in(reading)}
    return found | ({"kernel_log": kernel_log_unread} if kernel_log_unread else {})


def digest(found: dict[str, Any]) -> str:
    """Changes when something about the GPUs has happened: an inventory without its gauges, hashed."""
    lasting = [{name: value for name, value in gpu.items() if name not in GAUGES} for gpu in found["gpus"]]
    for gpu in lasting:
        gpu.pop("missing", None)
        if "ecc" in gpu:  # corrected errors come by the thousand on some healthy GPUs
            gpu["ecc"] = {name: count for name, count in (gpu["ecc"] or {}).items() if name.startswith("un")}
    text = json.dumps({**found, "gpus": lasting}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def gpus_in(reading: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The GPUs of a reading; none of one that failed."""
    gpus = (reading or {}).get("gpus")
    return gpus if isinstance(gpus, list) else []


def _of(gpu: dict[str, Any], name: str) -> dict[str, Any]:
    value = gpu.get(name)
    return value if isinstance(value, dict) else {}
