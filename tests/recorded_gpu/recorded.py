"""What one NVIDIA H200 showed on 27 November 2026, under a Linux VM with driver 580.159.04 and PyTorch 2.11.

Serial numbers, UUIDs and paths are replaced. NVLink was switched off in the driver, and there was no dcgmi.

- `nvml.json`: the output of `gpu-recovery-record` on the idle GPU.
- `calls.json`: the result of each call of NVML by its name and arguments, and of each field.
- `kmsg.txt`: the records of the driver in `/dev/kmsg`, from its start over all the faults.
- `faults.json`: programs that fail, each in a process of its own: output, exit code, kernel log, XIDs by the events of
  NVML, and the recovery action after it.
- `last_lines.json`: the last lines of a rank as the wrapper reported them, for a crash and for a hang.
- `flight_dump_0.pickle`: the dump of NCCL's flight recorder in that hang, of a job with one rank.
- `nvidia_smi.xml`: `nvidia-smi -q -x` on the idle GPU.
- `course.csv`: NVML and the processes of the ranks five times a second, while a training of 227 million parameters
  trains, saves, evaluates, crashes, spins and sleeps. `cpu_s` counts the processor time of a rank.
- `course_activity.csv`: the performance counters of the GPU (GPM) once a second, over the same time.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "h200_580"
BUS = "0000:00:06"


def content(name: str) -> Any:
    """The content of a JSON file."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def driver_lines() -> list[str]:
    """The texts of the records in the kernel log."""
    return [line.partition(";")[2] for line in (FOLDER / "kmsg.txt").read_text(encoding="utf-8").splitlines()]
