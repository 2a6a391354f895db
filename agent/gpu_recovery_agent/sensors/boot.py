"""Which boot of the machine this is, and how old it is."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_recovery_agent import clock
from health_check.boot import read_boot

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class BootUnknown(RuntimeError):
    """/proc does not say which boot this is, and nothing can be reported without it."""


def boot_id(host_proc: Path) -> str:
    """The kernel's id of this boot, a UUID in small letters. Raises BootUnknown."""
    found = read_boot(host_proc).id
    if found is None or not _UUID.fullmatch(found):
        raise BootUnknown(f"{host_proc}/sys/kernel/random/boot_id holds no boot id: {found!r}")
    return found.lower()


def uptime_s() -> float:
    """Seconds since the machine booted, to the millisecond."""
    return round(clock.uptime_s(), 3)
