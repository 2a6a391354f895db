"""Measurement of a restart in place with and without a standby process: `python -m benchmarks.standby_restart`.

A wrapper runs a program that imports modules and writes a line. The program is killed, and the next attempt starts at
once. The time is that from the kill to the first line of the next attempt. Both ways are measured in turn. The memory
and the processor time are those of a standby process while it waits.

Arguments: the Python of the program, and its imports. `--times` is the number of repetitions.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.rank.hold import AGENT_FILE

REPOSITORY = Path(__file__).parents[1]
PROGRAM = """
import os, time
import {imports}
from gpu_recovery_client import training
training.wait_for_start()
print(f"attempt {{os.environ['ATTEMPT']}} at {{time.monotonic()}}", flush=True)
time.sleep(600)
"""
WITHIN_S, WAITS_S = 300.0, 3.0
"""Seconds within which a line must come, and seconds over which a standby process is observed while it waits."""


@dataclass(frozen=True)
class Restart:
    """A restart: its seconds. Of a standby process that waits: MiB of its own, and share of a processor."""

    seconds: float
    own_mib: float = 0.0
    processor_share: float = 0.0


def restart(python: str, imports: str, *, stands_by: bool) -> Restart:
    """Measure one restart. Raises RuntimeError if a line does not come."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running, log = folder / "running", folder / "log"
        running.mkdir()
        (folder / "program.py").write_text(PROGRAM.format(imports=imports))
        (running / AGENT_FILE).write_text(json.dumps({"uptime_s": clock.uptime_s()}))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("agent", "client")),
            "GPUTASKER_RUNNING_TASKS_DIR": str(running),
            "JOB_ID": "job",
            "ATTEMPT": "1",
            "RANK": "0",
            "RUNNING_LOG_ID": "1",
            "GPU_RECOVERY_HOLD_S": "300",
            "GPU_RECOVERY_STANDBY": "1" if stands_by else "0",
            "GPU_RECOVERY_STANDBY_AFTER_S": "0",
        }
        wrapper = [sys.executable, "-c", "from gpu_recovery_agent.rank.wrapper import main; main()", "--"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*wrapper, python, str(folder / "program.py")],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            return _restarted(log, running, stands_by)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _restarted(log: Path, running: Path, stands_by: bool) -> Restart:
    _line(log, r"attempt 1 at ([\d.]+)")
    own_mib = share = 0.0
    if stands_by:
        pid = int(_line(log, r"waits for the next attempt: process (\d+)"))
        before_s = _processor_s(pid)
        time.sleep(WAITS_S)
        own_mib, share = _own_mib(pid), (_processor_s(pid) - before_s) / WAITS_S
    else:
        time.sleep(WAITS_S)
    killed_at = time.monotonic()
    os.killpg(json.loads((running / "1.json").read_text())["remote_pgid"], signal.SIGKILL)
    _until((running / "1.exit").exists, "no exit")
    variables = {"ATTEMPT": "2", "RANK": "0", "RUNNING_LOG_ID": "2"}
    (running / "1.order").write_text(json.dumps({"kind": "start", "attempt": 1, "environment": variables}))
    return Restart(float(_line(log, r"attempt 2 at ([\d.]+)")) - killed_at, own_mib, share)


def _line(log: Path, pattern: str) -> str:
    found = _until(lambda: re.search(pattern + "\n", log.read_text()), f"no line {pattern}")
    return str(found[1])


def _until(condition: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.005)
    raise RuntimeError(why)


def _own_mib(pid: int) -> float:
    """Return the memory that only this process has, in MiB. Other processes share the pages of libraries."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(found) for found in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE)) / 1024


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print each pair of restarts and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("imports")
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    ratios = []
    for _ in range(given.times):
        plain, standby = (restart(given.python, given.imports, stands_by=on) for on in (False, True))
        ratios.append(plain.seconds / standby.seconds)
        print(
            f"{plain.seconds:.2f} s without, {standby.seconds:.2f} s with a standby process: ratio {ratios[-1]:.1f}; "
            f"it had {standby.own_mib:.0f} MiB of its own and used {standby.processor_share:.2%} of a processor",
            flush=True,
        )
    print(f"ratio: median {statistics.median(ratios):.1f}, from {min(ratios):.1f} to {max(ratios):.1f}")


if __name__ == "__main__":
    main()
