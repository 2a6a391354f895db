"""The id of the current boot of the instance, and the uptime."""

from __future__ import annotations

import re
from pathlib import Path

from .. import clock

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class BootUnknown(RuntimeError):
    """/proc does not name the boot. The agent cannot report anything without it."""


def boot_id(host_proc: Path) -> str:
    """Return the kernel's id of this boot, a UUID in lower case. Raises BootUnknown."""
    path = host_proc / "sys/kernel/random/boot_id"
    try:
        value = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise BootUnknown(f"{path} cannot be read: {error.strerror}") from error
    if not _UUID.fullmatch(value):
        raise BootUnknown(f"{path} holds no boot id: {value[:64]!r}")
    return value.lower()


def uptime_s() -> float:
    """Return seconds since the boot, to the millisecond."""
    return round(clock.uptime_s(), 3)
