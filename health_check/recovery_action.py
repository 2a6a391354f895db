"""The driver's recovery action: its names, and what a message of XID 154 says that it has become. Pure, and total.

The node agent reads the same messages with the same words; it tells the action by NVML's number.
"""

from __future__ import annotations

import re
from enum import StrEnum

TEXT_MAX = 64
NUMBER_MAX = 5
"""NVML's field 230 has six values; the sixth, the reset of a GPU's bus, has no name in `nvidia-smi` yet."""


class RecoveryAction(StrEnum):
    """What the driver wants done with a GPU. UNKNOWN: it did not say, or in words we do not know."""

    NONE = "NONE"
    GPU_RESET = "GPU_RESET"
    NODE_REBOOT = "NODE_REBOOT"
    DRAIN_P2P = "DRAIN_P2P"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"
    UNKNOWN = "UNKNOWN"

    @property
    def asks(self) -> bool:
        """Whether it asks for anything: no GPU can be reset from a container, so all of them mean a reboot."""
        return self not in (RecoveryAction.NONE, RecoveryAction.UNKNOWN)


BY_NUMBER = dict(enumerate(tuple(RecoveryAction)[:5]))


def action_in(text: str | None) -> RecoveryAction:
    """The action that a few words name, as nvidia-smi or the kernel's log writes it."""
    words = set(re.findall(r"[a-z0-9]+", (text or "").casefold()[:TEXT_MAX]))
    if "reboot" in words:
        return RecoveryAction.NODE_REBOOT
    if "drain" in words:
        return RecoveryAction.DRAIN_AND_RESET if "reset" in words else RecoveryAction.DRAIN_P2P
    if "reset" in words:
        return RecoveryAction.GPU_RESET
    return RecoveryAction.NONE if words == {"none"} else RecoveryAction.UNKNOWN


def changed_to(text: str) -> RecoveryAction:
    """The action that the text of an XID 154 changed to. What stands before ` to ` is what it was, and says nothing."""
    _, separator, new = text.rpartition(" to ")
    words = re.findall(r"\(([^()]{1,60})\)", new)
    action = action_in(words[-1]) if separator and words else RecoveryAction.UNKNOWN
    number = number_after_to(text)
    if action is RecoveryAction.UNKNOWN and number is not None:
        return BY_NUMBER.get(number, RecoveryAction.UNKNOWN)
    return action


def number_after_to(text: str) -> int | None:
    """The number as the message writes it after ` to `, None where it writes none."""
    _, separator, new = text.rpartition(" to ")
    number = re.match(r"\s{0,4}0x([0-9a-fA-F]{1,8})\b", new)
    return int(number[1], 16) if separator and number else None


def number_changed_to(text: str) -> int | None:
    """The action of an XID 154 as NVML's number, 0 to NUMBER_MAX; None where neither word nor number tells it."""
    told = number_after_to(text)
    if told is not None and told <= NUMBER_MAX:
        return told
    return {action: number for number, action in BY_NUMBER.items()}.get(changed_to(text))
