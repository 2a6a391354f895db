"""Which boot of the instance was examined: proof, later, that a reboot happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

BOOT_ID_MAX = 64


@dataclass(frozen=True)
class Boot:
    """None where /proc does not say. `at` is aware, in whole seconds."""

    id: str | None
    at: datetime | None


def read_boot(host_proc: Path) -> Boot:
    """`boot_id` and `btime` of the kernel, from the host's /proc. A file that is missing gives None."""
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
    """The text of a file of /proc, or nothing: a container may see only part of it."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
