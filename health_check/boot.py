"""The boot of the examined instance. It proves later that a reboot happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

BOOT_ID_MAX = 64
"""Largest number of characters of a boot id."""


@dataclass(frozen=True)
class Boot:
    """A boot; None for what /proc does not say. `at` is an aware time in whole seconds."""

    id: str | None
    at: datetime | None


def read_boot(host_proc: Path) -> Boot:
    """Return the kernel's `boot_id` and `btime` from the host's /proc. A missing file gives None."""
    boot_id = _contents(host_proc / "sys/kernel/random/boot_id").strip()
    seconds = next(
        (
            line.split()[1]
            for line in _contents(host_proc / "stat").splitlines()
            if line.startswith("btime ") and len(line.split()) == 2
        ),
        "",
    )
    is_time = seconds.isascii() and seconds.isdigit() and len(seconds) <= 11
    return Boot(boot_id[:BOOT_ID_MAX] or None, datetime.fromtimestamp(int(seconds), UTC) if is_time else None)


def _contents(path: Path) -> str:
    """Return the text of a file of /proc, or "" if the container cannot see it."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
