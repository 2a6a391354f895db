"""The driver's recovery action: its names, its numbers, and XID 154. Pure.

The node agent parses the same messages with this module, and reports NVML's number of the action.
"""

from __future__ import annotations

import re
from enum import StrEnum

TEXT_MAX = 64
NUMBER_MAX = 5
"""Largest value of NVML's field 230. It has six values; the sixth, a reset of the GPU's bus, has no name in
`nvidia-smi` yet.
"""


class RecoveryAction(StrEnum):
    """The action that the driver asks for. UNKNOWN: the driver named none, or an unknown action."""

    NONE = "NONE"
    GPU_RESET = "GPU_RESET"
    NODE_REBOOT = "NODE_REBOOT"
    DRAIN_P2P = "DRAIN_P2P"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"
    UNKNOWN = "UNKNOWN"

    @property
    def asks(self) -> bool:
        """Return whether it asks for an action."""
        return self not in (RecoveryAction.NONE, RecoveryAction.UNKNOWN)

    @property
    def needs_reboot(self) -> bool:
        """Return whether a reboot carries it out. A container cannot reset a GPU, so a reset means a reboot as well.

        DRAIN_P2P needs none: the processes with peer-to-peer traffic must end, and then the driver must be asked again.
        It "will return one of the other actions" (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt,
        "Error Recovery and Response Flags").
        """
        return self.asks and self is not RecoveryAction.DRAIN_P2P


BY_NUMBER = dict(enumerate(tuple(RecoveryAction)[:5]))
"""Actions by NVML's number."""


def action_in(text: str | None) -> RecoveryAction:
    """Return the action that the words of nvidia-smi or of the kernel log name.

    "PF FLR", the reset of the GPU's physical function, is a newer name of action 1.
    """
    words = set(re.findall(r"[a-z0-9]+", (text or "").casefold()[:TEXT_MAX]))
    if "reboot" in words:
        return RecoveryAction.NODE_REBOOT
    if "drain" in words:
        return RecoveryAction.DRAIN_AND_RESET if "reset" in words else RecoveryAction.DRAIN_P2P
    if "reset" in words or "flr" in words:
        return RecoveryAction.GPU_RESET
    return RecoveryAction.NONE if words == {"none"} else RecoveryAction.UNKNOWN


def changed_to(text: str) -> RecoveryAction:
    """Return the action that an XID 154 changed to. The text before ` to ` is the earlier action, and is ignored."""
    _, separator, new = text.rpartition(" to ")
    words = re.findall(r"\(([^()]{1,60})\)", new)
    action = action_in(words[-1]) if separator and words else RecoveryAction.UNKNOWN
    number = number_after_to(text)
    if action is RecoveryAction.UNKNOWN and number is not None:
        return BY_NUMBER.get(number, RecoveryAction.UNKNOWN)
    return action


def number_after_to(text: str) -> int | None:
    """Return the number that the message gives after ` to `; None if there is none."""
    _, separator, new = text.rpartition(" to ")
    number = re.match(r"\s{0,4}0x([0-9a-fA-F]{1,8})\b", new)
    return int(number[1], 16) if separator and number else None


def number_changed_to(text: str) -> int | None:
    """Return the action of an XID 154 as NVML's number, 0 to NUMBER_MAX; None if the message does not give it."""
    number = number_after_to(text)
    if number is not None and number <= NUMBER_MAX:
        return number
    return {action: value for value, action in BY_NUMBER.items()}.get(changed_to(text))
