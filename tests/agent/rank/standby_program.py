"""A program for the tests of standby processes: it imports, waits for its start, and trains until it is ended.

Arguments: a folder, and how the program behaves.

- `waits` calls `wait_for_start` after its imports. `never` does not call it.
- `dies` ends with 9 before the call, and `trains` reports progress before it, in every copy but the first.
- `child` starts a child before the call, in a session of its own.
- `stuck` never reaches the call, in every copy but the first.

The file `imported` has the pid of each copy that has done its imports. The file `trains` has a line of JSON for each
copy that trains: its pid, and its variables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER, BEHAVIOUR = Path(sys.argv[1]), sys.argv[2]


def _add(name: str, line: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(line + "\n")


def main() -> None:
    """Run as the second argument says."""
    from gpu_recovery_client import training  # noqa: PLC0415  # stands for the imports of a training

    _add("imported", str(os.getpid()))
    is_copy = (FOLDER / "imported").read_text().count("\n") > 1
    print(f"imported by {os.getpid()}", flush=True)
    if BEHAVIOUR == "dies" and is_copy:
        sys.exit(9)
    if BEHAVIOUR == "trains" and is_copy:
        training.progress()
    if BEHAVIOUR in ("trains", "stuck") and is_copy:
        time.sleep(600)
    if BEHAVIOUR == "child":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        _add("children", str(child.pid))
    if BEHAVIOUR != "never":
        training.wait_for_start()
    _add("trains", json.dumps({"pid": os.getpid(), "environment": dict(os.environ)}))
    print(f"attempt {os.environ.get('ATTEMPT')} trains", flush=True)
    while not (FOLDER / f"end-{os.getpid()}").exists():
        time.sleep(0.02)
    sys.exit(7)


if __name__ == "__main__":
    main()
