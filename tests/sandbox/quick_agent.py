"""`python -m tests.sandbox.quick_agent`: the node agent of an instance, for which the seconds of a rank pass quicker.

What a rank has trained, and how long it is quiet, is counted in seconds of the agent's clock. Here that clock turns
`SPEED` times as fast, and only for the samples of ranks. The processor time of a rank is still compared with the time
that has really passed. The adapters and disks are those of an instance that moves no bytes, because the counters of
this host belong to whatever else runs here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.sensors import host_counters, rank_activity

from sandbox.cluster import run_on_instance

SPEED = 10.0


class QuickActivitySensor(rank_activity.ActivitySensor):
    """The sensor of the agent, with a quicker clock."""

    def __init__(
        self, running_folder: Path, host_proc: Path, counters: Callable[[], host_counters.HostCounters]
    ) -> None:
        super().__init__(running_folder, host_proc, counters, now=lambda: SPEED * clock.monotonic_s())
        self._ticks_per_s /= SPEED  # type: ignore[assignment]  # a rate of the sensor's own clock


def main() -> None:
    """Run the agent to its end."""
    rank_activity.ActivitySensor = QuickActivitySensor  # type: ignore[misc]
    host_counters.read_counters = lambda host_sys, host_proc: host_counters.HostCounters(None, 0)
    sys.argv[1:] = ["agent"]
    run_on_instance.main()


if __name__ == "__main__":
    main()
