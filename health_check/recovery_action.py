"""The driver's recovery action: its names, its numbers, and XID 154. Pure.

The node agent parses the same messages with this module, and reports NVML's number of the action. `gpu-recovery-run`
reads the action in the containers of the ranks. Both have links to this module, which runs with Python 3.9.
"""

from __future__ import annotations

import re
from enum import Enum

TEXT_MAX = 64
IMEX_SINCE_DRIVER = 590
"""First driver branch in which number 5 is the IMEX domain. In branch 580 it was a reset of the GPU's bus, which newer
branches call 6 (`NVML_GPU_RECOVERY_ACTION_*` of nvidia-ml-py 13.580 and 13.615; `ctrl2080gpu.h` of driver 595).
"""
_NOT_READ = {"error", "supported", "permission", "permissions", "deprecated", "unknown", "found", "n"}
"""Words of NVML's error texts and of `N/A`, which nvidia-smi prints in place of an action that it could not read."""


class RecoveryAction(str, Enum):
    """The action that the driver asks for. The members in the order of NVML's numbers come first.

    UNKNOWN: the driver named no action, or it could not be read. OTHER: the driver named an action that is not known
    here, so that nothing is concluded from it, and it is no sign of health either.
    """

    NONE = "NONE"
    GPU_RESET = "GPU_RESET"
    NODE_REBOOT = "NODE_REBOOT"
    DRAIN_P2P = "DRAIN_P2P"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"
    RECOVER_IMEX_DOMAIN = "RECOVER_IMEX_DOMAIN"
    BUS_RESET = "BUS_RESET"
    SYSTEM_REBOOT = "SYSTEM_REBOOT"
    UNKNOWN = "UNKNOWN"
    OTHER = "OTHER"

    def __str__(self) -> str:
        """Return the name of the action, also in a formatted text."""
        return self.value

    @property
    def asks(self) -> bool:
        """Return whether it asks for an action."""
        return self not in (RecoveryAction.NONE, RecoveryAction.UNKNOWN)

    @property
    def needs_reboot(self) -> bool:
        """Return whether a reboot carries it out. A container cannot reset a GPU, so a reset means a reboot as well.

        DRAIN_P2P needs none at first: the processes with peer-to-peer traffic must end, and then the driver must be
        asked again. It "will return one of the other actions" (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt,
        "Error Recovery and Response Flags"). RECOVER_IMEX_DOMAIN concerns a service, and no GPU.
        """
        return self.asks and self not in _NO_REBOOT


_NO_REBOOT = (RecoveryAction.DRAIN_P2P, RecoveryAction.RECOVER_IMEX_DOMAIN, RecoveryAction.OTHER)
BY_NUMBER = dict(enumerate(tuple(RecoveryAction)[: tuple(RecoveryAction).index(RecoveryAction.UNKNOWN)]))
"""Actions by NVML's number, as in `nvml.h` of driver 615."""
_NUMBERS = {action: number for number, action in BY_NUMBER.items()}


def action_in(text: str | None) -> RecoveryAction:
    """Return the action that the words of nvidia-smi or of the kernel log name.

    "PF FLR", the reset of the GPU's physical function, is a newer name of action 1.
    """
    words = set(re.findall(r"[a-z0-9]+", (text or "").casefold()[:TEXT_MAX]))
    if "reboot" in words:
        return RecoveryAction.SYSTEM_REBOOT if "system" in words else RecoveryAction.NODE_REBOOT
    if "drain" in words:
        return RecoveryAction.DRAIN_AND_RESET if "reset" in words else RecoveryAction.DRAIN_P2P
    if "imex" in words:
        return RecoveryAction.RECOVER_IMEX_DOMAIN
    if "reset" in words:
        return RecoveryAction.BUS_RESET if "bus" in words else RecoveryAction.GPU_RESET
    if "flr" in words:
        return RecoveryAction.GPU_RESET
    if words == {"none"}:
        return RecoveryAction.NONE
    return RecoveryAction.OTHER if words - _NOT_READ and not words & _NOT_READ else RecoveryAction.UNKNOWN


def action_of(number: int, driver: str | None = None) -> RecoveryAction:
    """Return the action of NVML's number.

    Args:
        number: the number.
        driver: release of the driver that gave it, such as `580.82.09`; None if it is not known.
    """
    branch = (driver or "").partition(".")[0]
    if number == _NUMBERS[RecoveryAction.RECOVER_IMEX_DOMAIN] and branch.isdigit() and int(branch) < IMEX_SINCE_DRIVER:
        return RecoveryAction.BUS_RESET
    return BY_NUMBER.get(number, RecoveryAction.OTHER)


def changed_to(text: str) -> RecoveryAction:
    """Return the action that an XID 154 changed to. The text before ` to ` is the earlier action, and is ignored.

    The words count before the number, because number 5 had another meaning in driver 580.
    """
    _, separator, new = text.rpartition(" to ")
    words = re.findall(r"\(([^()]{1,60})\)", new)
    action = action_in(words[-1]) if separator and words else RecoveryAction.UNKNOWN
    number = number_after_to(text)
    if action in (RecoveryAction.UNKNOWN, RecoveryAction.OTHER) and number is not None:
        return action_of(number)
    return action


def number_after_to(text: str) -> int | None:
    """Return the number that the message gives after ` to `; None if there is none."""
    _, separator, new = text.rpartition(" to ")
    number = re.match(r"\s{0,4}0x([0-9a-fA-F]{1,8})\b", new)
    return int(number[1], 16) if separator and number else None


def number_changed_to(text: str) -> int | None:
    """Return the action of an XID 154 as NVML's number; None if the message does not name it.

    The number of an unknown action is that of the message.
    """
    return _NUMBERS.get(changed_to(text), number_after_to(text))
