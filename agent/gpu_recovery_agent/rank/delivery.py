"""Delivers the evidence of a failed rank to the agent, and waits until the server has it.

ECS reports the end of a task soon after its last process has ended, and the server then collects the evidence of the
attempt. Evidence that arrives later is not used. So the wrapper ends only after its evidence has arrived, or after
DELIVERED_WITHIN_S.

Each delivery carries the write end of a pipe. The agent closes it once the server has accepted the observations. An
agent of an older release does not take the descriptor, and an agent that ends loses it: in both cases the kernel closes
the pipe, and the wait is over.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import socket_address
from .output_tail import encoded

DATAGRAM_BYTES_MAX, LINE_BYTES_MAX = 32_768, 4_096
"""What the socket of the agent accepts, in bytes (docs/protocol.md)."""
SENT_WITHIN_S = 2.0
"""Seconds that a datagram waits for room. Linux keeps ten for a socket, and the agent reads them once a second."""
DELIVERED_WITHIN_S = 10.0
"""Seconds that the end of a rank waits for the server. An agent looks at its socket once a second, and has 3 s between
two urgent reports. The observations of a rank need two reports at most."""


class Delivery:
    """One delivery of observations to the agent that listens at `path`. Call `end` after the last `send`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waits, self._open = os.pipe()

    def send(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Send observations. They are dropped without an agent, or if its socket has no room for SENT_WITHIN_S."""
        lines = [line for line in map(encoded, found) if len(line) <= LINE_BYTES_MAX]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self._open))]
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SENT_WITHIN_S)
            with socket_address(self._path) as address:
                sender.connect(address)
            while lines:
                count, room = 0, DATAGRAM_BYTES_MAX
                while count < len(lines) and (room := room - len(lines[count]) - 1) >= 0:
                    count += 1
                sender.sendmsg([b"\n".join(lines[:count])], ancillary)
                lines = lines[count:]

    def end(self, within_s: float = DELIVERED_WITHIN_S) -> bool:
        """Wait until the server has the observations, or they are dropped. Return False after `within_s` seconds."""
        os.close(self._open)
        closed = select.poll()
        closed.register(self._waits, 0)  # poll() reports a hang-up without a request
        try:
            return bool(closed.poll(max(within_s, 0.0) * 1_000))
        finally:
            os.close(self._waits)
