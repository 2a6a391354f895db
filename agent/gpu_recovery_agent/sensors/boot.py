"""The id of the current boot of the instance, and the uptime."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_recovery_agent import clock
from health_check.boot import read_boot

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class BootUnknown(RuntimeError):
    """/proc does not name the boot. The agent cannot report anything without it."""


def boot_id(host_proc: Path) -> str:
    """Return the kernel's id of this boot, a UUID in lower case. Raises BootUnknown."""
    value = read_boot(host_proc).id
    if value is None or not _UUID.fullmatch(value):
        raise BootUnknown(f"{host_proc}/sys/kernel/random/boot_id holds no boot id: {value!r}")
    return value.lower()


def uptime_s() -> float:
    """Return seconds since the boot, to the millisecond."""
    return round(clock.uptime_s(), 3)
