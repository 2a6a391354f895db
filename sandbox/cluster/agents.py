"""The node agents of the instances, each a process of its own: it begins with its machine's boot and ends with it.

None runs until somebody has tokens: they are issued by a deployment, which comes after the cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox.cluster.instance_folder import INSTANCE

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "sandbox.cluster.run_on_instance", "agent")


def environment(machine: Path, home: Path, api_url: str, token_file: Path) -> dict[str, str]:
    """What the agent of the instance begins with whose folder is `machine`. What it keeps is in `home`.

    It sees the ranks and the kernel's log of that instance, and no NVML: this machine has no such GPUs.
    """
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        INSTANCE: str(machine),
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("", "agent")),
        "HOST_KMSG": str(machine / "dev/kmsg"),
        "GPUTASKER_RUNNING_TASKS_DIR": str(machine / "ranks"),
        "GPU_RECOVERY_STATE_DIR": str(home / "state"),
        "GPU_RECOVERY_API_URL": api_url,
        "GPU_RECOVERY_TOKEN_FILE": str(token_file),
        "GPU_RECOVERY_NVML": "off",
        "GPU_RECOVERY_ECS_AGENT": "off",
    }


class NodeAgents:
    """Those of one cluster. An instance without a token has none."""

    def __init__(self) -> None:
        self._api_url = ""
        self._tokens: Mapping[str, str] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def enable(self, api_url: str, tokens: Mapping[str, str]) -> None:
        """From now on an instance of `tokens` has an agent that reports to `api_url`."""
        self._api_url, self._tokens = api_url, dict(tokens)

    def begin(self, instance_id: str, machine: Path) -> None:
        """Start the instance's agent, in place of the one that runs."""
        self.end(instance_id)
        if instance_id not in self._tokens:
            return
        home = machine / "agent"
        home.mkdir(exist_ok=True)
        token_file = home / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(self._tokens[instance_id])
        with (home / "agent.log").open("ab") as log:
            self._running[instance_id] = subprocess.Popen(
                COMMAND,
                env=environment(machine, home, self._api_url, token_file),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def suspend(self, instance_id: str) -> None:
        """It says nothing more, and is not gone: until the machine boots again."""
        if instance_id in self._running:
            self._running[instance_id].send_signal(signal.SIGSTOP)

    def end(self, instance_id: str) -> None:
        """As a machine without power ends it."""
        if process := self._running.pop(instance_id, None):
            process.kill()
            process.wait()

    def end_all(self) -> None:
        for instance_id in list(self._running):
            self.end(instance_id)

    def pid(self, instance_id: str) -> int | None:
        """The process of the instance's agent; None where none runs."""
        process = self._running.get(instance_id)
        return process.pid if process is not None and process.poll() is None else None
