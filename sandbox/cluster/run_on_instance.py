"""`python -m sandbox.cluster.run_on_instance agent|run [argument...]`: run a program of `agent/` on an instance.

All instances share this machine's kernel, which has booted once and for all of them. So the two things that a boot
changes, its id and the clocks that count from it, are taken from the folder of the instance ($SANDBOX_INSTANCE);
everything else, processes above all, is this machine's own. The program itself is the one that is installed, and found
by its name: the sandbox starts it and needs nothing of it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from sandbox.cluster.instance_folder import BOOT_FILE, INSTANCE

AGENT = "gpu_recovery_agent"
PROGRAMS = {"agent": f"{AGENT}.__main__", "run": f"{AGENT}.wrapper"}


def enter_instance(folder: Path) -> None:
    """From here on this process sees the boot that the instance of `folder` has now."""
    facts = json.loads((folder / BOOT_FILE).read_text())
    boot, clock = import_module(f"{AGENT}.sensors.boot"), import_module(f"{AGENT}.clock")
    machine_uptime_s, machine_log_s = clock.uptime_s, clock.kernel_log_s
    boot.boot_id = lambda host_proc: str(facts["boot_id"])  # type: ignore[attr-defined]
    clock.uptime_s = lambda: machine_uptime_s() - facts["uptime_s"]  # type: ignore[attr-defined]
    clock.kernel_log_s = lambda: machine_log_s() - facts["log_s"]  # type: ignore[attr-defined]


def main() -> None:
    """Runs the program to its end, with the arguments that follow its name."""
    program = PROGRAMS[sys.argv.pop(1)]
    enter_instance(Path(os.environ[INSTANCE]))
    import_module(program).main()


if __name__ == "__main__":
    main()
