"""The child process that reads what may block in /proc.

A question comes in as a line of JSON, an answer goes out as a line of JSON. The environment of a process lies in the
memory of that process. A read waits for the lock of that memory, which a thread that sleeps in the driver may hold for
ever. The control group of a process needs a lock of the whole host. `stat` needs neither lock, so the agent reads it
itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpu_recovery_agent.sensors.child.serve import answer_each
from gpu_recovery_agent.sensors.processes import Direct


def main() -> None:
    """Answer until the input ends."""
    answer_each(_answer)


def _answer(question: str) -> Any:
    asked = json.loads(question)
    direct = Direct(Path(asked["proc"]))
    if "pid" in asked:
        return direct.environment(asked["pid"])
    return direct.first_processes(asked["containers"])


if __name__ == "__main__":
    main()
