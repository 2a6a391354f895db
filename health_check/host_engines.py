"""Host engines of DCGM that others run on the instance, such as that of the GPU-optimized AMIs since July 2026.

The task shares the network of the host, so the kernel lists the sockets of the host's processes to the check as well.
Two engines may block each other: docs/decisions/0039-host-engine-of-the-health-check.md. With the setting HOST_ENGINE =
`host` the check uses the engine of the host, if that engine answers and has a release that fits to dcgmi. Otherwise it
starts its own engine, and a finding says why: docs/decisions/0071-evidence-of-aws-and-nvidia.md.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PORT = 5555
"""Port on which nv-hostengine listens by default."""
_UNIX = re.compile(r"^\S+ \S+ \S+ 00010000 \S+ \S+ +\d+ (?P<path>\S*nv-hostengine\S*)$", re.MULTILINE)
"""A listening socket with the program's name in its path, such as /run/nvidia-dcgm/nv-hostengine on Amazon's AMI."""
_TCP = re.compile(rf"^\s*\d+: [0-9A-F]+:{PORT:04X} [0-9A-F]+:0000 0A ", re.MULTILINE)
TABLE_BYTES_MAX = 16 * 1024 * 1024
PATH_MAX = 200
CONNECTS_AT_ONCE_S = 1.0
"""Seconds of one attempt to connect. An engine that hangs accepts no connection once its backlog is full."""
SAYS_ITS_RELEASE_WITHIN_S = 15.0
"""Seconds for `dcgmi -v`. dcgmi itself gives an engine 100 ms to answer this question (dcgmi/Version.cpp of DCGM)."""
_ENGINE_PART = "Hostengine build info:"
"""Line of `dcgmi -v` after which the release is that of the engine (dcgmi/Version.cpp of NVIDIA/DCGM 4.6.0)."""
_VERSION = re.compile(r"^\s*Version\s*:\s*(\d{1,5}(?:\.\d{1,5}){1,3})", re.MULTILINE)


@dataclass(frozen=True)
class HostEngineChoice:
    """The engine of the host that the check uses.

    `address` is its socket, None if the check starts its own engine. `note` says why in that case; it is "" if the host
    has no engine there.
    """

    address: Path | None = None
    note: str = ""


def usable_engine(address: Path, output_of: Callable[[list[str], float], str]) -> HostEngineChoice:
    """Return whether the check may use the engine of the host. Never raises.

    The error table of the check is that of its dcgmi. An engine that is older, or of another major release, gives
    results that the check may read wrongly.

    Args:
        address: the Unix socket of the engine.
        output_of: returns the output of a command that may take so many seconds.
    """
    if not address.exists():
        return HostEngineChoice()
    if not accepts_connection(address):
        return HostEngineChoice(None, f"{address} does not accept a connection")
    said = output_of(["dcgmi", "-v", "--host", f"unix://{address}"], SAYS_ITS_RELEASE_WITHIN_S)
    client, _, engine = said.partition(_ENGINE_PART)
    ours, theirs = _version(client), _version(engine)
    if ours is None or theirs is None:
        return HostEngineChoice(None, f"dcgmi does not say the release of {'itself' if ours is None else address}")
    if theirs < ours or theirs[0] != ours[0]:
        older = "older" if theirs < ours else "newer"
        return HostEngineChoice(None, f"DCGM {_text(theirs)} at {address} is {older} than {_text(ours)} of the check")
    return HostEngineChoice(address)


def accepts_connection(address: Path) -> bool:
    """Return whether a program accepts a connection on a Unix socket. An engine that hangs does not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECTS_AT_ONCE_S)
        try:
            return probe.connect_ex(str(address)) == 0
        except OSError:  # the path is too long for a socket, or the connection timed out
            return False


def _version(text: str) -> tuple[int, ...] | None:
    match = _VERSION.search(text)
    return tuple(map(int, match[1].split("."))) if match else None


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


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
