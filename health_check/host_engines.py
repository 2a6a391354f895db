"""Host engines of DCGM that others run on the instance, such as that of the GPU-optimized AMIs since July 2026.

The task shares the network of the host, so the kernel lists the sockets of the host's processes to the check as well.
The check never uses such an engine, but the two may block each other:
docs/decisions/0039-host-engine-of-the-health-check.md.
"""

from __future__ import annotations

import re
from pathlib import Path

PORT = 5555
"""Port on which nv-hostengine listens by default."""
_UNIX = re.compile(r"^\S+ \S+ \S+ 00010000 \S+ \S+ +\d+ (?P<path>\S*nv-hostengine\S*)$", re.MULTILINE)
"""A listening socket with the program's name in its path, such as /run/nvidia-dcgm/nv-hostengine on Amazon's AMI."""
_TCP = re.compile(rf"^\s*\d+: [0-9A-F]+:{PORT:04X} [0-9A-F]+:0000 0A ", re.MULTILINE)
TABLE_BYTES_MAX = 16 * 1024 * 1024
PATH_MAX = 200


def other_host_engine(proc: Path) -> str:
    """Return where another host engine listens, or "" if none is found. Never raises.

    Args:
        proc: the kernel's /proc.
    """
    if found := _UNIX.search(_table(proc / "net" / "unix")):
        return found["path"][:PATH_MAX]
    listens = any(_TCP.search(_table(proc / "net" / name)) for name in ("tcp", "tcp6"))
    return f"port {PORT}" if listens else ""


def _table(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(TABLE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
