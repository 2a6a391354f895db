"""NCCL's own log (NCCL_DEBUG_FILE), looked at every ten seconds: the lines that may say why a collective fails."""

from __future__ import annotations

import os
import re
import socket
from collections import deque
from collections.abc import Callable

from gpu_recovery_client.diagnosis.reporter import ObservationReporter, one_line, reporter
from gpu_recovery_client.diagnosis.sender import log

EVERY_S = 10.0
LINES_MAX, BYTES_MAX = 100, 65_536
REPORTED_MAX, REMEMBERED_MAX = 16, 1_000
REPORTED_LINES = re.compile(
    r"timeout|timed out|error|fail|warn|abort|got completion|async event|retry|mismatch|disconnect|refused",
    re.IGNORECASE,
)
"""Wide on purpose: what a line means is decided by the rules of the diagnosis, which know the benign ones."""


class NcclLog:
    """One log file. `%h` and `%p` in its path are the host's name and the process, as NCCL has them."""

    def __init__(self, path: str, of: ObservationReporter) -> None:
        self._path = path.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
        self._of = of
        self._reported: deque[str] = deque(maxlen=REMEMBERED_MAX)

    def poll(self) -> None:
        """Tell those of the last 100 lines that are worth it and were not told yet."""
        new = [line for line in self._last() if REPORTED_LINES.search(line) and line not in self._reported]
        for line in new[-REPORTED_MAX:]:
            self._report(line)
            self._of.send("nccl", line=line, urgent=True)
        self._reported.extend(new)

    def _last(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - BYTES_MAX))
                text = file.read(BYTES_MAX).decode("utf-8", errors="replace")
        except OSError:
            return []  # NCCL has not begun to write, or has no such file
        return [one_line(line) for line in text.splitlines()[-LINES_MAX:]]

    @staticmethod
    def _report(line: str) -> None:
        """The three findings as seed 002 specifies them."""
        small = line.lower()
        if "timeout" in small:
            log.error("NCCL timeout detected: %s", line)
        if "error" in small:
            log.error("NCCL error detected: %s", line)
        if "ib" in small and "fail" in small:
            log.error("RDMA failure detected: %s", line)


def nccl_log_monitor(path: str | None = None, every_s: float = EVERY_S) -> Callable[[], None]:
    """Look at NCCL's log every so often, from now on; what is returned ends it. Default: what NCCL_DEBUG_FILE names."""
    of = reporter()
    given = path or os.environ.get("NCCL_DEBUG_FILE", "")
    if not given:
        log.warning("NCCL_DEBUG_FILE is not set: there is no log of NCCL to look at")
        return lambda: None
    return of.sender.every(every_s, NcclLog(given, of).poll)
