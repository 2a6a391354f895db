"""Reports lines of NCCL's own log (NCCL_DEBUG_FILE) that may say why a collective fails."""

from __future__ import annotations

import os
import re
import socket
from collections import deque
from collections.abc import Callable

from .reporter import ObservationReporter, one_line, reporter
from .sender import log

EVERY_S = 10.0
"""Seconds between two polls of the log."""
LINES_MAX, BYTES_MAX = 100, 65_536
"""Largest number of lines and bytes that are read from the end of the log."""
REPORTED_MAX, REMEMBERED_MAX = 16, 1_000
"""Largest number of lines per poll that are reported, and of reported lines that are remembered."""
REPORTED_LINES = re.compile(
    r"timeout|timed out|error|fail|warn|abort|got completion|async event|retry|mismatch|disconnect|refused",
    re.IGNORECASE,
)
"""Pattern of the reported lines. It is wide on purpose: the rules of the diagnosis know which lines are benign."""


class NcclLog:
    """One log file. In its path `%h` and `%p` stand for the host name and the process id, as in NCCL."""

    def __init__(self, path: str, process_reporter: ObservationReporter) -> None:
        self._path = path.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
        self._reporter = process_reporter
        self._reported: deque[str] = deque(maxlen=REMEMBERED_MAX)

    def poll(self) -> None:
        """Report those of the last 100 lines that match and were not reported before."""
        new = [line for line in self._last() if REPORTED_LINES.search(line) and line not in self._reported]
        for line in new[-REPORTED_MAX:]:
            self._report(line)
            self._reporter.send("nccl", line=line, urgent=True)
        self._reported.extend(new)

    def _last(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - BYTES_MAX))
                text = file.read(BYTES_MAX).decode("utf-8", errors="replace")
        except OSError:
            return []  # NCCL has not written yet, or has no such file
        return [one_line(line) for line in text.splitlines()[-LINES_MAX:]]

    @staticmethod
    def _report(line: str) -> None:
        """Log the three findings that the fault catalogue (docs/diagnosis.md) specifies."""
        small = line.lower()
        if "timeout" in small:
            log.error("NCCL timeout detected: %s", line)
        if "error" in small:
            log.error("NCCL error detected: %s", line)
        if "ib" in small and "fail" in small:
            log.error("RDMA failure detected: %s", line)


def nccl_log_monitor(path: str | None = None, every_s: float = EVERY_S) -> Callable[[], None]:
    """Poll NCCL's log every `every_s` seconds. Return a function that ends the polling.

    Without `path` it polls the file that NCCL_DEBUG_FILE names.
    """
    process_reporter = reporter()
    log_path = path or os.environ.get("NCCL_DEBUG_FILE", "")
    if not log_path:
        log.warning("NCCL_DEBUG_FILE is not set: there is no log of NCCL to look at")
        return lambda: None
    return process_reporter.sender.every(every_s, NcclLog(log_path, process_reporter).poll)
