"""Reads the present state of the GPUs from the driver: presence, recovery action, memory.

It calls `nvidia-smi -q -x`, not `--query-gpu`. A query names its fields, and a field that the driver does not know
makes the whole query fail; the XML leaves such a field out. Drivers since 565 have the recovery action (NVML's field
230). A driver that does not answer in time is no verdict: the reason is recorded and the check continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from health_check.recovery_action import RecoveryAction, action_in
from health_check.remedies import DEADLINE_PASSED, HOST_SHORT, KILLED
from health_check.run import ProcessRun, run_bounded
from health_check.xid import bus_id

COMMAND = ("nvidia-smi", "-q", "-x")
ANSWERS_WITHIN_S = 300.0
"""Seconds that nvidia-smi may take: ten times what eight GPUs take while the driver is not kept loaded (about 30 s)."""
GPUS_MAX = 256
TEXT_MAX = 64
NO_DEVICES = "the driver shows no GPU to the health check"
_LOST = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)\s{0,2}(?:(\d{1,3}):\s)?([0-9a-fA-F:.]{7,20})?"
    r"[^\n]{0,80}?(Unknown Error|is lost)",
)


@dataclass(frozen=True)
class DriverGpu:
    """One GPU that answered; None for a value that the driver does not report."""

    index: int
    uuid: str | None
    pci_bus_id: str | None
    action: RecoveryAction
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    sram_threshold_exceeded: bool | None = None
    uncorrected_errors: int | None = None  # since the driver was loaded
    action_text: str | None = None
    """The driver's own words for `action`."""


@dataclass(frozen=True)
class LostGpu:
    """One GPU that the driver knows and cannot reach."""

    index: int | None
    pci_bus_id: str | None


@dataclass(frozen=True)
class DriverReport:
    """The driver's answer.

    `no_answer` is the reason for a missing answer. `gpus` is empty then, but `lost` may have entries. `hung` says that
    nvidia-smi did not answer before its deadline. `killed` says that another process killed it, as the kernel does
    without memory, or that the host had no room for it.
    """

    version: str | None = None
    gpus: tuple[DriverGpu, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    no_answer: str | None = None
    hung: bool = False
    killed: bool = False

    @property
    def late(self) -> bool:
        """Whether the missing answer may have no other cause than a slow host."""
        return self.hung or self.killed

    def index_of(self, pci_bus_id: str | None) -> int | None:
        """Return the index of the GPU at a PCI address; None if it is unknown."""
        known: list[DriverGpu | LostGpu] = [*self.gpus, *self.lost]
        return next((gpu.index for gpu in known if pci_bus_id and gpu.pci_bus_id == pci_bus_id), None)


def ask(run: Callable[..., ProcessRun] = run_bounded, timeout_s: float = ANSWERS_WITHIN_S) -> DriverReport:
    """Return the driver's answer, within `timeout_s` seconds."""
    answer = run(COMMAND, timeout_s)
    return parse(answer.output, answer.error, answer.exit_code)


def parse(output: str, error: str, exit_code: int) -> DriverReport:
    """Return the report of the output of nvidia-smi. Pure; never raises."""
    lost = tuple(dict.fromkeys(_lost(output + "\n" + error)))
    root = _xml(output)
    if root is None:
        hung = exit_code == DEADLINE_PASSED
        first = next((line for line in (error + "\n" + output).split("\n") if line.strip()), "it printed nothing")
        reason = "it did not answer in time" if hung else " ".join(first.split())[:200]
        killed = exit_code in (HOST_SHORT, KILLED)
        no_answer = f"nvidia-smi ended with {exit_code}: {reason}"
        return DriverReport(lost=lost, no_answer=no_answer, hung=hung, killed=killed)
    taken = {gpu.index for gpu in lost}
    free = (index for index in range(2 * GPUS_MAX) if index not in taken)
    gpus = tuple(_gpu(node, index) for node, index in zip(root.findall("gpu")[:GPUS_MAX], free, strict=False))
    version = _text(root, "driver_version")
    return DriverReport(version, gpus, lost, None if gpus or lost else NO_DEVICES)


def _xml(output: str) -> ElementTree.Element | None:
    begin, end = output.find("<nvidia_smi_log"), output.rfind("</nvidia_smi_log>")
    if begin < 0 or end < begin:
        return None
    try:
        return ElementTree.fromstring(output[begin : end + len("</nvidia_smi_log>")])
    except (ElementTree.ParseError, ValueError):
        return None


def _lost(text: str) -> Iterator[LostGpu]:
    for match in _LOST.finditer(text):
        yield LostGpu(int(match[1]) if match[1] else None, bus_id(match[2].rstrip(":.")) if match[2] else None)


def _gpu(node: ElementTree.Element, index: int) -> DriverGpu:
    counts = [
        int(text)
        for error in node.findall("ecc_errors/volatile/*")
        if "uncorrectable" in str(error.tag) and (text := (error.text or "").strip()).isascii() and text.isdigit()
        if len(text) <= 12
    ]
    return DriverGpu(
        index=index,
        uuid=_text(node, "uuid"),
        pci_bus_id=bus_id(str(node.get("id", ""))[:TEXT_MAX]),
        action=action_in(_text(node, "gpu_recovery_action")),
        action_text=_text(node, "gpu_recovery_action"),
        remap_pending=_yes(node, "remapped_rows/remapped_row_pending"),
        remap_failed=_yes(node, "remapped_rows/remapped_row_failure"),
        sram_threshold_exceeded=_yes(node, "ecc_errors/aggregate/sram_threshold_exceeded"),
        uncorrected_errors=sum(counts) if counts else None,
    )


def _text(node: ElementTree.Element, path: str) -> str | None:
    return " ".join((node.findtext(path) or "")[: 4 * TEXT_MAX].split())[:TEXT_MAX] or None


def _yes(node: ElementTree.Element, path: str) -> bool | None:
    return {"yes": True, "no": False}.get((_text(node, path) or "").casefold())
