"""`python -m sandbox.cluster.run_on_instance agent|run [argument...]`: run a program of `agent/` on an instance.

All instances share the kernel of this host, which has booted once for all of them. A boot changes two things: the boot
id and the clocks that count from the boot. Both come from the folder of the instance ($SANDBOX_INSTANCE). All other
facts, such as the processes, are those of this host. The program is the installed program, imported by its name: the
sandbox starts it and uses no other part of it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from sandbox.cluster.instance_folder import BOOT_FILE, INSTANCE

AGENT = "gpu_recovery_agent"
PROGRAMS = {"agent": f"{AGENT}.__main__", "run": f"{AGENT}.rank.wrapper"}


def enter_instance(folder: Path) -> None:
    """Make this process see the present boot of the instance with the folder `folder`."""
    facts = json.loads((folder / BOOT_FILE).read_text())
    boot, clock = import_module(f"{AGENT}.sensors.boot"), import_module(f"{AGENT}.clock")
    host_uptime_s, host_log_s = clock.uptime_s, clock.kernel_log_s
    boot.boot_id = lambda host_proc: str(facts["boot_id"])  # type: ignore[attr-defined]
    clock.uptime_s = lambda: host_uptime_s() - facts["uptime_s"]  # type: ignore[attr-defined]
    clock.kernel_log_s = lambda: host_log_s() - facts["log_s"]  # type: ignore[attr-defined]


def main() -> None:
    """Run the program to its end, with the arguments that follow its name."""
    program = PROGRAMS[sys.argv.pop(1)]
    enter_instance(Path(os.environ[INSTANCE]))
    import_module(program).main()


if __name__ == "__main__":
    main()
