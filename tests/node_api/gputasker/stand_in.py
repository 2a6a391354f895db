"""Stand-in of GPUTasker's node agent, written from its observed behaviour (README.md beside this file).

    python stand_in.py ROUNDS

A round makes both calls, first of the GPUs, then of the tasks. The stand-in keeps nothing from one round to the next.
It ends after ROUNDS rounds without a pause. The agent itself goes on for ever, with a pause between two rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

GPU_FIELDS = ("uuid", "index", "gpu_name", "utilization.gpu", "memory.total", "memory.used")
REJECTED = (401, 403)


def main(rounds: int, environment: dict[str, str]) -> int:
    """Report so often. Return the exit status: 0 also after a rejected token."""
    gpus_url, token = environment["GPUTASKER_SERVER_URL"], environment["GPUTASKER_AGENT_TOKEN"]
    tasks_url = environment.get("GPUTASKER_TASKS_API_URL") or gpus_url.replace("/report_gpu/", "/report_tasks/")
    folder = Path(environment.get("GPUTASKER_RUNNING_TASKS_DIR", "~/.gputasker/running_tasks")).expanduser()
    for _ in range(rounds):
        if post(gpus_url, {"token": token, "gpus": gpus(), "timestamp": int(time.time())}) in REJECTED:
            return 0
        if post(tasks_url, {"token": token, "tasks": tasks(folder), "timestamp": int(time.time())}) in REJECTED:
            return 0
    return 0


def tasks(folder: Path) -> list[dict[str, int]]:
    """Return a task for each name that ends with `.json`, unless its process has ended: then the file is removed.

    The number comes from the content, or from the name. A file without a process counts as a running task. A process
    of another user counts as ended, unless this process is root.
    """
    found: list[dict[str, int]] = []
    for path in [folder / name for name in os.listdir(folder) if name.endswith(".json")] if folder.is_dir() else []:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            task = {"running_log_id": int(content.get("running_log_id") or path.stem)}
        except (OSError, ValueError, TypeError, AttributeError):
            continue
        for name in ("remote_pid", "remote_pgid"):
            with suppress(ValueError, TypeError):
                task |= {name: int(content[name])} if content.get(name) is not None else {}
        if task.get("remote_pid", 0) > 0 and not is_signalable(task["remote_pid"]):
            with suppress(OSError):
                path.unlink()
            continue
        found.append(task)
    return found


def is_signalable(pid: int) -> bool:
    """Return whether a signal could be sent: False for an ended process, and for a refusal (EPERM)."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def gpus() -> list[dict[str, Any]]:
    """Return the GPUs that nvidia-smi lists; an empty list without nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    found = []
    for line in lines:
        uuid, index, name, utilization, total, used = (part.strip() for part in line.split(","))
        numbers = {"utilization": int(utilization), "memory_total": int(total), "memory_used": int(used)}
        found.append({"uuid": uuid, "index": int(index), "name": name, **numbers, "processes": []})
    return found


def post(url: str, body: dict[str, Any]) -> int:
    """Send a body and return the status of the answer; 0 if there is none."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), dict(os.environ)))
