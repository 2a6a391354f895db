"""The child that reads of processes what may block: a question comes in as a line of JSON, an answer goes out as one.

The environment of a process lies in its own memory, and whoever reads it waits for the lock of that memory, which a
thread that sleeps in the driver may hold for ever. Its control group waits for a lock of the whole machine. `stat`
takes neither, and is read by the agent itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpu_recovery_agent.sensors.child.serve import answer_each
from gpu_recovery_agent.sensors.processes import Direct


def main() -> None:
    """Answers until the input ends."""
    answer_each(_answer)


def _answer(question: str) -> Any:
    asked = json.loads(question)
    direct = Direct(Path(asked["proc"]))
    if "pid" in asked:
        return direct.environment(asked["pid"])
    return direct.first_processes(asked["containers"])


if __name__ == "__main__":
    main()
