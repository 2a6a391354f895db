"""Words to systemd, over the socket that NOTIFY_SOCKET names (sd_notify(3)): ready, and still turning.

A loop that hangs in spite of everything stops saying so, and after WatchdogSec the unit is started anew. Without a
socket nobody listens, and nothing is said.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

READY, TURNING, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


class SystemdNotifier:
    """Says one word at a time. A supervisor that does not take it is no reason to end, nor to wait."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name

    def notify(self, word: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to:
                to.sendto(os.fsencode(word), os.fsencode(self._address))
        except OSError:
            return  # the next word says the same
