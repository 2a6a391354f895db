"""Node agents of the instances: one process each, which starts with the boot of its instance and ends with it.

A shutdown of the instance ends its agent as systemd ends a service: SIGTERM, then SIGKILL after a grace.

No agent runs before the tokens exist. The deployment issues the tokens, and the cluster starts before the deployment.
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


def environment(folder: Path, home: Path, api_url: str, token_file: Path, *, gpu_reset: bool = False) -> dict[str, str]:
    """Return the environment of the node agent of one instance.

    The agent sees the ranks, the kernel log and nvidia-smi of its instance. It uses no NVML, because this host has no
    such GPUs.

    Args:
        folder: Folder of the instance.
        home: Folder of the agent's own files.
        api_url: URL of the API that receives the reports.
        token_file: File that holds the token of the instance.
        gpu_reset: Whether the agent may reset the GPUs of its instance.
    """
    return {
        "PATH": os.pathsep.join((str(folder / "bin"), os.environ.get("PATH", os.defpath))),
        "HOME": str(home),
        INSTANCE: str(folder),
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("", "agent")),
        "HOST_KMSG": str(folder / "dev/kmsg"),
        "GPUTASKER_RUNNING_TASKS_DIR": str(folder / "ranks"),
        "GPU_RECOVERY_STATE_DIR": str(home / "state"),
        "GPU_RECOVERY_REPAIR_LOG": str(folder / "var/log/gpu-recovery/repairs.log"),
        "GPU_RECOVERY_JOURNAL": "off",
        "GPU_RECOVERY_API_URL": api_url,
        "GPU_RECOVERY_TOKEN_FILE": str(token_file),
        "GPU_RECOVERY_GPU_RESET": "on" if gpu_reset else "off",
        "GPU_RECOVERY_NVML": "off",
        "GPU_RECOVERY_ECS_AGENT": "off",
    }


class NodeAgents:
    """The node agents of one cluster. An instance without a token has no agent."""

    def __init__(self) -> None:
        self._api_url = ""
        self._tokens: Mapping[str, str] = {}
        self._gpu_reset = False
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._suspended: set[str] = set()

    def enable(self, api_url: str, tokens: Mapping[str, str], gpu_reset: bool) -> None:
        """Set the tokens by instance id, and the API that the agents report to. `begin` then starts an agent.

        `gpu_reset`: the agents may reset the GPUs of their instances.
        """
        self._api_url, self._tokens, self._gpu_reset = api_url, dict(tokens), gpu_reset

    def begin(self, instance_id: str, folder: Path) -> None:
        """End the instance's agent if it runs, and start a new agent if the instance has a token."""
        self.end(instance_id)
        if instance_id not in self._tokens:
            return
        home = folder / "agent"
        home.mkdir(exist_ok=True)
        token_file = home / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(self._tokens[instance_id])
        with (home / "agent.log").open("ab") as log:
            self._running[instance_id] = subprocess.Popen(
                COMMAND,
                env=environment(folder, home, self._api_url, token_file, gpu_reset=self._gpu_reset),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def suspend(self, instance_id: str) -> None:
        """Stop the agent's process with SIGSTOP: it exists and sends no report until the instance boots again."""
        if instance_id in self._running:
            self._running[instance_id].send_signal(signal.SIGSTOP)
            self._suspended.add(instance_id)

    def shut_down(self, instance_id: str) -> bool:
        """Ask the agent to end, with SIGTERM. Return whether it can hear that: a suspended agent cannot."""
        if self.pid(instance_id) is None or instance_id in self._suspended:
            return False
        self._running[instance_id].send_signal(signal.SIGTERM)
        return True

    def end(self, instance_id: str) -> None:
        """Kill the agent, as a power loss of its instance does."""
        self._suspended.discard(instance_id)
        if process := self._running.pop(instance_id, None):
            process.kill()
            process.wait()

    def end_all(self) -> None:
        """Kill the agents of all instances."""
        for instance_id in list(self._running):
            self.end(instance_id)

    def pid(self, instance_id: str) -> int | None:
        """Return the process id of the instance's agent; None if no agent runs."""
        process = self._running.get(instance_id)
        return process.pid if process is not None and process.poll() is None else None
