"""`python -m sandbox.cluster.aboard agent|run [argument...]`: a program of `agent/`, on an instance of the cluster.

All instances share this machine's kernel, which has booted once and for all of them. So the two things that a boot
changes, its id and the clock that counts from it, are taken from the folder of the instance ($SANDBOX_INSTANCE);
everything else, processes above all, is this machine's own. The program itself is the one that is installed.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.sensors import boot

from sandbox.cluster.host import BOOT_FILE, INSTANCE

PROGRAMS = {"agent": "gpu_recovery_agent.__main__", "run": "gpu_recovery_agent.wrapper"}


def go_aboard(folder: Path) -> None:
    """From here on this process sees the boot that the instance of `folder` has now."""
    facts = json.loads((folder / BOOT_FILE).read_text())
    machine_uptime_s, machine_log_s = clock.uptime_s, clock.kernel_log_s
    boot.boot_id = lambda host_proc: str(facts["boot_id"])
    clock.uptime_s = lambda: machine_uptime_s() - facts["uptime_s"]
    clock.kernel_log_s = lambda: machine_log_s() - facts["log_s"]


def main() -> None:
    """The entry point of the package's script of that name."""
    program = PROGRAMS[sys.argv.pop(1)]
    go_aboard(Path(os.environ[INSTANCE]))
    import_module(program).main()


if __name__ == "__main__":
    main()
