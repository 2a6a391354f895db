"""Sends sd_notify(3) messages to systemd: ready, watchdog, stopping.

The environment variable NOTIFY_SOCKET names the socket; without it no message is sent. A loop that hangs sends no
watchdog message, and systemd restarts the unit after WatchdogSec.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

READY, WATCHDOG, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


class SystemdNotifier:
    """Sends one message at a time. A supervisor that does not accept it neither ends nor blocks the agent."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name

    def notify(self, message: str) -> None:
        """Send one message, such as READY."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(os.fsencode(message), os.fsencode(self._address))
        except OSError:
            return  # the next message says the same
