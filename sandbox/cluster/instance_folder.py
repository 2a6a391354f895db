"""Folder of an instance: the files that a container with host access sees of its host.

- `bin/` is first on the PATH of the tasks and the node agent: dcgmi, nvidia-smi, python, python3, gpu-recovery-run.
- `proc/` is HOST_PROC: stat, sys/kernel/random/boot_id.
- `dev/kmsg` is HOST_KMSG: the kernel messages of this boot.
- `boot.json` describes this boot for the agent and its wrapper (see `run_on_instance`).
- `ranks/` is GPUTASKER_RUNNING_TASKS_DIR: the files of the ranks.
- `memory/` is XDG_RUNTIME_DIR: the suspension notices, which a real container has in /dev/shm.
- `gpus.json` is input of the stand-ins for dcgmi and nvidia-smi: {"gpus": [uuid…], "faults": {uuid: kind}}.
- `persistence-off.json` and `control.json` belong to the stand-in for nvidia-smi (see `nvidia_smi`).
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.nvidia_smi import CONTROL_FILE, PERSISTENCE_FILE, pci_address
from sandbox.processes import write_private

DCGMI, NVIDIA_SMI = (Path(__file__).with_name(name) for name in ("dcgmi.py", "nvidia_smi.py"))
INSTANCE = "SANDBOX_INSTANCE"
"""Environment variable with the path of the instance's folder, for `run_on_instance`."""
BOOT_FILE = "boot.json"
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock of the node agent. Systems without this clock run the cluster but no agent, and use the nearest clock."""
_XID_LINES = {
    "xid79": (
        "NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU {pci}.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    ),
    "xid119": (
        "NVRM: Xid (PCI:{pci}): 119, pid=4711, name=python, Timeout after 6s of waiting for RPC response from "
        "GPU{index} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
        "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ),
    "ecc": (
        "NVRM: Xid (PCI:{pci}): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error.",
        "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    ),
}


class InstanceFolder:
    """Writes the folder of one instance, at `folder`. `control` is the URL and the keys of the control API."""

    def __init__(self, folder: Path, instance: ModelInstance, control: Mapping[str, object]) -> None:
        self.folder = folder
        for part in ("bin", "proc/sys/kernel/random", "dev", "ranks", "memory"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        python = shlex.quote(sys.executable)  # in scripts, because a link would lose the virtual environment
        self._script("dcgmi", f'exec {python} -I -S {shlex.quote(str(DCGMI))} {shlex.quote(str(folder))} "$@"')
        self._script("nvidia-smi", f'exec {python} -I {shlex.quote(str(NVIDIA_SMI))} {shlex.quote(str(folder))} "$@"')
        write_private(folder / CONTROL_FILE, {**control, "instance": instance.instance_id})
        for name in ("python", "python3"):
            self._script(name, f'exec {python} "$@"')
        self._script("gpu-recovery-run", f'exec {python} -m sandbox.cluster.run_on_instance run "$@"')
        self.boot(instance, instance.booted_at)

    def _script(self, name: str, line: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def boot(self, instance: ModelInstance, now: datetime) -> None:
        """Write the files that a boot changes: boot id, boot time, an empty kernel log, and the GPUs' faults."""
        proc = self.folder / "proc"
        (proc / "sys/kernel/random/boot_id").write_text(f"{instance.boot_id}\n")
        (proc / "stat").write_text(f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {int(instance.booted_at.timestamp())}\n")
        (self.folder / "dev/kmsg").write_text("")
        (self.folder / PERSISTENCE_FILE).unlink(missing_ok=True)
        clocks = {"uptime_s": time.clock_gettime(BOOT_CLOCK), "log_s": time.clock_gettime(time.CLOCK_MONOTONIC)}
        (self.folder / BOOT_FILE).write_text(json.dumps({"boot_id": instance.boot_id, **clocks}))
        self.note_gpus(instance)
        self.kernel_message(instance, now, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.09", 6)

    def note_gpus(self, instance: ModelInstance) -> None:
        """Write `gpus.json` in one step, because a stand-in may be reading the file."""
        facts = {"gpus": list(instance.gpus), "faults": {gpu: f.kind for gpu, f in instance.faults.items()}}
        temporary = self.folder / "gpus.json.new"
        temporary.write_text(json.dumps(facts))
        os.replace(temporary, self.folder / "gpus.json")

    def kernel_message(self, instance: ModelInstance, now: datetime, text: str, priority: int = 4) -> None:
        """Append one record in the format of /dev/kmsg: priority,sequence,microseconds since boot,flags;text."""
        path = self.folder / "dev/kmsg"
        sequence = len(path.read_text().splitlines())
        since_boot_us = int((now - instance.booted_at).total_seconds() * 1e6)
        with path.open("a") as log:
            log.write(f"{priority},{sequence},{since_boot_us},-;{text}\n")

    def log_fault(self, instance: ModelInstance, gpu: str, kind: str, now: datetime) -> None:
        """Append the kernel messages of a GPU fault of `kind` (xid79, xid119 or ecc)."""
        index = instance.gpus.index(gpu)
        for line in _XID_LINES[kind]:
            self.kernel_message(instance, now, line.format(pci=pci_address(index), index=index))

    def environment(self) -> dict[str, str]:
        """Return the variables by which tasks find the files of this folder."""
        return {
            "HOST_PROC": str(self.folder / "proc"),
            "HOST_KMSG": str(self.folder / "dev/kmsg"),
            "GPUTASKER_RUNNING_TASKS_DIR": str(self.folder / "ranks"),
            INSTANCE: str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder / "memory"),
        }
