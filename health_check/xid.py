"""Parses kernel messages into errors: XIDs of a GPU, SXids of an NVSwitch. Pure.

It never raises. The shapes differ by driver release: with and without `PCI:`; with or without text after the code;
with an anonymised address; with a line that only says that a GPU has fallen off the bus (which is XID 79), in one
message or in two.

Some errors have a sentence and no XID of their own. Each counts as the XID that names the same state of the driver:

- UVM "requiring os reboot": the driver then sets its recovery action to a reboot, XID 154 (`nv_gpu_ops.c`).
- NV_ERR_RESET_REQUIRED: the driver refuses calls until the GPU is reset, XID 154 with a reset (`rpc.c`).
- A heartbeat of the GPU's system processor that timed out: an error of the GSP, XID 120.

The files are those of github.com/NVIDIA/open-gpu-kernel-modules. The XIDs are in docs.nvidia.com/deploy/xid-errors. The
sentences give no PCI address. A suspended or virtual GPU also prints the third, so the driver's action overrides it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from .kernel_log import KernelMessage

FALLEN_OFF_THE_BUS = 79
"""The XID of a GPU that has fallen off the bus."""
PREEMPTIVE_REMOVAL = 45
"""The XID of a channel that the driver removed. It is never a cause: docs.nvidia.com/deploy/xid-errors."""
_NAMED_CAUSE = re.compile(r"\bcaused by previous Xid (\d{1,4})\b", re.I)
"""The end of an XID 45 since driver 590, if another XID made the driver remove the channel (`kernel_rc.c` of
open-gpu-kernel-modules).
"""
_MIG_INSTANCES = re.compile(r"(?: GPU-(?:I|CI):\d{1,4}){1,2}$")
"""The ids of a GPU instance and of a compute instance of MIG, behind the address of the GPU (`kernel_rc.c`)."""
TEXT_MAX = 300
MESSAGES_OF_ONE_LOSS = 5
"""Largest distance of the two messages that report one lost GPU, counted in NVIDIA messages of the log."""
_XID = re.compile(r"NVRM:\s{0,4}Xid\s{0,4}\(([^)\n]{1,64})\)[^:\n]{0,40}:\s{0,4}(\d{1,4})(?!\d)(.*)", re.DOTALL)
_ADDRESS = r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_LOST = re.compile(rf"NVRM:\s{{1,4}}GPU {_ADDRESS}\.0:\s{{1,4}}GPU has fallen off the bus")
_LOST_BEGINS = re.compile(rf"NVRM:\s{{1,4}}The NVIDIA GPU {_ADDRESS}\.0")
_LOST_ENDS = "fallen off the bus and is not responding to commands"
_SXID = re.compile(r"SXid[^:\n]{0,8}\((?:PCI:)?([0-9a-fA-F:.]{1,32})\):\s{0,4}(\d{1,6}),\s{0,4}(Fatal|Non-fatal)", re.I)
_FABRIC_MANAGER = re.compile(r"detected NVSwitch (non-)?fatal error (\d{1,6})", re.I)
_SENTENCES = (
    (re.compile(r"uvm encountered global fatal error .{0,40}requiring os reboot"), 154, "0x2 (Node Reboot Required)"),
    (re.compile(r"NVRM:.*\[NV_ERR_RESET_REQUIRED\]"), 154, "0x1 (GPU Reset Required)"),
    (re.compile(r"NVRM:.{0,80}\b(?:GSP(?: RM)?|LibOS) heartbeat timed out", re.I), 120, ""),
)
"""Sentences without an XID, each with the XID that it counts as, and the recovery action of an XID 154."""
SENTENCE_MAX = 200
_PCI = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?")


@dataclass(frozen=True)
class XidEvent:
    """One XID. `pci_bus_id` is `dddd:bb:dd`, or None if the log hides it; `text` is the text after the code."""

    code: int
    pci_bus_id: str | None
    at: datetime | None
    text: str


@dataclass(frozen=True)
class SxidEvent:
    """One error of an NVSwitch."""

    code: int
    is_fatal: bool
    at: datetime | None
    text: str


@dataclass(frozen=True)
class LoggedErrors:
    """All errors in the order of the log."""

    xids: tuple[XidEvent, ...] = ()
    sxids: tuple[SxidEvent, ...] = ()


def find(messages: Iterable[KernelMessage]) -> LoggedErrors:
    """Return the errors in the messages of the log."""
    relevant = [message for message in messages if "NV" in message.text or "SXid" in message.text]
    return LoggedErrors(tuple(_xids(relevant)), tuple(_sxids(relevant)))


def bus_id(address: str) -> str | None:
    """Return the address as `0000:3b:00`, from any spelling: with `PCI:`, `.0`, eight digits of domain, or capitals."""
    match = _PCI.fullmatch(address.strip())
    return f"{int(match[1] or '0', 16):04x}:{match[2]}:{match[3]}".lower() if match else None


def named_cause(event: XidEvent) -> int | None:
    """Return the number of the XID that an XID 45 names as its cause; None if it names no other XID.

    The kernel log is a ring: a storm of XIDs 45 may overwrite the record of their cause. Then the number is all that is
    left of it.
    """
    match = _NAMED_CAUSE.search(event.text) if event.code == PREEMPTIVE_REMOVAL else None
    return int(match[1]) if match and int(match[1]) != PREEMPTIVE_REMOVAL else None


def _xids(messages: list[KernelMessage]) -> Iterator[XidEvent]:
    """Yield the XIDs. A loss that the driver reports as XID 79 and in words, for one GPU, is one event."""
    numbered = list(_numbered_xids(messages))
    lost = {(number, event.pci_bus_id) for number, event, in_words in numbered if _is_loss(event) and not in_words}
    for number, event, in_words in numbered:
        near = range(number - MESSAGES_OF_ONE_LOSS, number + MESSAGES_OF_ONE_LOSS + 1)
        if not (in_words and any((at, event.pci_bus_id) in lost for at in near)):
            yield event


def _is_loss(event: XidEvent) -> bool:
    return event.code == FALLEN_OFF_THE_BUS


def _numbered_xids(messages: list[KernelMessage]) -> Iterator[tuple[int, XidEvent, bool]]:
    """Yield each XID with the number of its message, and whether the message has only words in place of the number."""
    loss: tuple[int, str] | None = None  # the first message of a loss, and its address
    for number, message in enumerate(messages):
        if match := _XID.search(message.text):
            address = bus_id(_MIG_INSTANCES.sub("", match[1]))
            yield number, XidEvent(int(match[2]), address, message.at, _line(match[3])), False
            continue
        if match := _LOST.search(message.text):
            yield number, _loss(match[1], message, "GPU has fallen off the bus"), True
            continue
        if event := _in_words(message):
            yield number, event, False
            continue
        if match := _LOST_BEGINS.search(message.text):
            loss = number, match[1]
        if loss and number - loss[0] <= MESSAGES_OF_ONE_LOSS and _LOST_ENDS in message.text:
            yield number, _loss(loss[1], message, f"GPU has {_LOST_ENDS}"), True
            loss = None


def _in_words(message: KernelMessage) -> XidEvent | None:
    """Return the event of a sentence that counts as an XID; None for every other message."""
    for sentence, code, action in _SENTENCES:
        if sentence.search(message.text):
            text = _line(message.text)[:SENTENCE_MAX]
            counts_as = f": counts as GPU recovery action changed to {action}" if action else f": counts as XID {code}"
            return XidEvent(code, None, message.at, text + counts_as)
    return None


def _loss(address: str, message: KernelMessage, text: str) -> XidEvent:
    return XidEvent(FALLEN_OFF_THE_BUS, bus_id(address), message.at, text)


def _sxids(messages: list[KernelMessage]) -> Iterator[SxidEvent]:
    for message in messages:
        if match := _SXID.search(message.text):
            yield SxidEvent(int(match[2]), match[3].casefold() == "fatal", message.at, _line(message.text))
        elif match := _FABRIC_MANAGER.search(message.text):
            yield SxidEvent(int(match[2]), match[1] is None, message.at, _line(message.text))


def _line(text: str) -> str:
    return " ".join(text.strip(" ,:\n").split())[:TEXT_MAX]
