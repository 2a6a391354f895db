"""The main loop of every child process.

It answers until its input ends, and does not outlive the agent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def answer_each(reply: Callable[[str], object]) -> None:
    """For each input line, write what `reply` returns as one line of JSON."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for question in sys.stdin:
        sys.stdout.write(json.dumps(reply(question), separators=(",", ":")) + "\n")
        sys.stdout.flush()
