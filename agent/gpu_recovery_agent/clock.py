"""The two clocks that nobody sets. The wall's clock is read nowhere: a jump of it changes nothing here."""

from __future__ import annotations

import time


def monotonic_s() -> float:
    """Seconds, for durations and deadlines within this process."""
    return time.monotonic()


def uptime_s() -> float:
    """Seconds since the machine booted, those of its sleep included; the same for every process of the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kernel_log_s() -> float:
    """Seconds as the kernel's log counts them: since the boot, without those of its sleep."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
