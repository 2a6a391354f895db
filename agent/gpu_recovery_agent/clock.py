"""Monotonic clocks: no change of the wall clock affects them.

The agent never reads the wall clock, so a jump of the wall clock changes nothing.
"""

from __future__ import annotations

import time


def monotonic_s() -> float:
    """Return seconds for durations and deadlines within this process."""
    return time.monotonic()


def uptime_s() -> float:
    """Return seconds since the boot, including suspended time.

    The value is the same for every process of the instance.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kernel_log_s() -> float:
    """Return the time of the kernel log in seconds: the time since the boot without suspended time."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
