"""A node in a folder: the agent and wrappers as real processes, with a kernel log and an NVML of the test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.agent.api import WITHIN_S

ROOT = Path(__file__).parents[2]
FAKE_NVML = Path(__file__).parent / "fake_nvml"
TOKEN = "grn_abcdefghijkl_" + "s3cret" * 7 + "x"
GPU = {"index": 0, "uuid": "GPU-0", "pci": "00000000:10:00.0"}


def wait_until(condition: Callable[[], Any], why: str = "") -> Any:
    """What a condition gives, as soon as it gives anything; AssertionError if it never does."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(why or "it never came to be")


class Node:
    """One node; `environment` is what its agents begin with."""

    def __init__(self, folder: Path, api_url: str) -> None:
        self.running, self.state = folder / "running", folder / "state"
        self.kmsg, self.nvml, self.log = folder / "kmsg", folder / "nvml.json", folder / "agent.log"
        self.kmsg.touch()
        self.set_nvml()
        self.processes: list[subprocess.Popen[bytes]] = []
        paths = [FAKE_NVML, ROOT, ROOT / "agent", *(Path(one) for one in sys.path if one.endswith("site-packages"))]
        inherited = os.environ.get("PYTHONPATH", "")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GPU_RECOVERY_API_URL": api_url,
            "PYTHONPATH": ":".join([*map(str, paths), inherited]),
            "GPU_RECOVERY_TOKEN": TOKEN,
            "GPUTASKER_RUNNING_TASKS_DIR": str(self.running),
            "GPU_RECOVERY_STATE_DIR": str(self.state),
            "HOST_KMSG": str(self.kmsg),
            "GPU_RECOVERY_ECS_GPU_METRICS": str(folder / "gpu-metrics.json"),
            "FAKE_NVML": str(self.nvml),
            "GPU_RECOVERY_ECS_AGENT": "off",
            "GPU_RECOVERY_INTERVAL_MS": "200",
            "GPU_RECOVERY_LOOK_MS": "20",
            "XDG_RUNTIME_DIR": str(folder),
            "GPU_RECOVERY_REPAIR_LOG": str(folder / "log" / "repairs.log"),
            "GPU_RECOVERY_JOURNAL": str(folder / "journal"),
        }

    def set_nvml(self, **behaviour: Any) -> None:
        """What NVML says from its next question on; `gpus` are what differs from healthy ones."""
        temporary = self.nvml.with_suffix(".new")
        temporary.write_text(json.dumps({"gpus": [{}], **behaviour}))
        temporary.replace(self.nvml)

    def kernel_says(self, text: str, at_s: float = 100.0) -> None:
        with self.kmsg.open("a") as file:
            file.write(f"4,1,{int(at_s * 1e6)},-;{text}\n")

    def agent(self, **more: str) -> subprocess.Popen[bytes]:
        """An agent, with further variables; its journal goes to `log`."""
        with self.log.open("ab") as log:
            return self._start([sys.executable, "-m", "gpu_recovery_agent"], more, stderr=log)

    def rank(self, *command: str, job: str = "run-1", attempt: int = 1, rank: int = 0, **more: str) -> Any:
        """A rank in its wrapper."""
        variables = {
            "JOB_ID": job,
            "ATTEMPT": str(attempt),
            "RANK": str(rank),
            "RUNNING_LOG_ID": str(100 + rank),
            "SUSPEND_GRACE_S": "0",
            **more,
        }
        program = "from gpu_recovery_agent.rank.wrapper import main; main()"
        return self._start([sys.executable, "-c", program, "--", *command], variables, stderr=subprocess.PIPE)

    def _start(self, command: Sequence[str], more: dict[str, str], **streams: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, env={**self.environment, **more}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **streams
        )
        self.processes.append(process)
        return process

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def files(self) -> list[str]:
        """The files of ranks; those that are being written have other names."""
        found = self.running.iterdir() if self.running.exists() else []
        return sorted(path.name for path in found if not path.name.startswith("."))

    def end(self) -> None:
        """Ends what this test began, and nothing else."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.communicate(timeout=WITHIN_S)
