"""XIDs and SXids in log lines: kind and role by their number, or by the driver's text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.xid import RECOVERY_ACTION, XidClass, class_of

_METRIC = re.compile(r"dcgm_fi_dev_xid_errors\{[^}]{0,800}?err_code=\"(\d{1,3})\"")
_DRIVERS = re.compile(r"\bxid\b ?\(pci:[^)]{0,40}\): ?(\d{1,3})\b")
"""The driver's own form, which a monitor may quote after words and numbers of its own."""
_CONDITION = re.compile(r"\bxidcriticalerror\b.{0,200}\{\"(\d{1,3})\": ?true")
"""Condition of a Kubernetes node by the event of NVML, with the numbers."""
_XID = re.compile(
    r"\bxid\b ?(?:\([^)]{0,60}\))?(?:(?!\.[a-z]{1,4}[:\",(])[^\d\n]){0,24}(\d{1,3})\b"
    r"(?! ?(?:s|sec|min|minutes?|hours?|days?)\b)"
)
"""The number may not be that of a line in a source file, as in `xid.cu:10` or `"xid.py", line 79`."""
_FORMS = (_METRIC, _DRIVERS, _CONDITION, _XID)
_SXID = re.compile(r"\bsxid\b")
_NOT_FATAL = re.compile(r"\bnon-fatal\b|\bseverity 0\b")
_FOLLOWS = re.compile(
    r"(?:due to|because of|caused by|following|follows|after) .{0,24}(?:previous|prior|earlier)|previous (?:xid"
    r"|error)"
)
_ACTION = re.compile(r"recovery action changed.{0,60}?to 0x([0-9a-f]{1,2})")
_IMEX_DOMAIN = re.compile(r"recovery action changed.{0,60}? to .{0,12}\(recover imex domain\)")
_NOTHING_WRONG = re.compile(
    r"\bxids? (?:errors?|events?|codes?)\b|\bno xid|xid (?:monitor|watch|check|poll|ignor)|xid[ =:]+0\b|xid: none"
)

_ECC = (48, 63, 64, 92, 94, 95, 140, 156, 157, 160, 161, 168)
_NVLINK = (74, 136, 144, 145, 146, 147, 148, 149, 150, 155, 166, 170)
_LOST = (54, 79)
_BY_NUMBER: Mapping[int, tuple[LineKind, LineRole]] = {
    **dict.fromkeys(_ECC, (LineKind.HARDWARE_GPU_ECC, LineRole.ROOT)),
    **dict.fromkeys(_NVLINK, (LineKind.HARDWARE_NVLINK, LineRole.ROOT)),
    **dict.fromkeys(_LOST, (LineKind.HARDWARE_GPU_LOST, LineRole.ROOT)),
}
_BY_CLASS: Mapping[XidClass, tuple[LineKind, LineRole]] = {
    XidClass.IGNORE: (LineKind.XID_APPLICATION, LineRole.CASCADE),
    XidClass.FOLLOW_OTHER: (LineKind.XID_CASCADE, LineRole.CASCADE),
    XidClass.APP: (LineKind.XID_APPLICATION, LineRole.ROOT),
    XidClass.WATCH: (LineKind.HARDWARE_GPU_RESET, LineRole.ROOT),
    XidClass.CONFIG: (LineKind.DRIVER_ENVIRONMENT, LineRole.ROOT),
    XidClass.DIAG: (LineKind.HARDWARE_GPU_RESET, LineRole.ROOT),
    XidClass.REBOOT: (LineKind.HARDWARE_GPU_RESET, LineRole.ROOT),
    XidClass.REPLACE: (LineKind.HARDWARE_GPU_LOST, LineRole.ROOT),
}


def of_xid(text: str) -> tuple[LineKind, LineRole] | None:
    """Return the kind and role of a line that reports an XID or SXid; None for other lines.

    Args:
        text: the line in lower case.
    """
    if "xid" not in text:
        return None
    if _SXID.search(text) is not None:
        goes_on = _NOT_FATAL.search(text) is not None
        return LineKind.HARDWARE_NVLINK, LineRole.WARNING if goes_on else LineRole.ROOT
    match = next((found for form in _FORMS if (found := form.search(text))), None)
    if match is None or (_NOTHING_WRONG.search(text) is not None and "nvrm" not in text):
        return None
    if _FOLLOWS.search(text) is not None:
        return LineKind.XID_CASCADE, LineRole.CASCADE
    code = int(match[1])
    if code == RECOVERY_ACTION:
        if _IMEX_DOMAIN.search(text) is not None:
            return LineKind.DRIVER_ENVIRONMENT, LineRole.CONFIRMATION
        action = _ACTION.search(text)
        needs_reset = action is None or int(action[1], 16) > 0
        return (
            (LineKind.HARDWARE_GPU_RESET, LineRole.CONFIRMATION) if needs_reset else (LineKind.BENIGN, LineRole.ADVICE)
        )
    return _BY_NUMBER.get(code, _BY_CLASS[class_of(code)])
