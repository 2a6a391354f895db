"""The child process of a reset: it makes sure that no process uses the GPUs, and resets all of them.

The driver refuses to reset a GPU that is in use. Persistence mode counts as a use (NVIDIA/NVSentinel issue 1690), so it
is off during the reset. Services that hold the GPUs, such as the host engine of DCGM, are stopped if the settings name
them. Any other process with an open GPU is named in the answer, and nothing is reset.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

GPU_DEVICE = re.compile(r"/dev/nvidia[0-9]+")
PERSISTENCE_DAEMON = "nvidia-persiste"
"""Name of the persistence daemon in `/proc/<pid>/comm`, which holds 15 characters. It lets go without the mode."""
NAMES_MAX = 5
TEXT_MAX = 200


def users_of_gpus(host_proc: Path) -> Iterator[str]:
    """Yield each process with an open GPU device, as `name (pid)`. The persistence daemon is left out.

    A process that may not be read is left out too, such as process 1 of some hosts. The driver refuses to reset a GPU
    that is in use in any case.
    """
    for folder in sorted(host_proc.glob("[0-9]*"), key=lambda each: int(each.name)):
        with contextlib.suppress(OSError):  # the process has ended, or may not be read
            name = (folder / "comm").read_text(errors="replace").strip()
            if name != PERSISTENCE_DAEMON and any(GPU_DEVICE.fullmatch(target) for target in _open_files(folder)):
                yield f"{name} ({folder.name})"


def _open_files(folder: Path) -> Iterator[str]:
    for entry in (folder / "fd").iterdir():
        with contextlib.suppress(OSError):  # the file was closed
            yield os.readlink(entry)


class Reset:
    """One reset of all GPUs of an instance.

    Args:
        host_proc: the process table of the instance.
        command: the program that resets the GPUs, and its arguments.
        services: units of systemd that are stopped during the reset.
        root: root of the instance's file system, in which all programs run; "": the root of this process.
    """

    def __init__(self, host_proc: Path, command: Sequence[str], services: Sequence[str] = (), root: str = "") -> None:
        self._proc, self._command, self._services = host_proc, tuple(command), tuple(services)
        self._prefix = ("chroot", root) if root else ()

    def run(self) -> tuple[bool, str]:
        """Reset the GPUs. Return whether that was done, and a sentence.

        A service that does not start again is a failure: the reboot that follows starts it.
        """
        stopped = [service for service in self._services if self._run(("systemctl", "is-active", service))[0] == 0]
        try:
            done, sentence = self._stop(stopped) or self._without_persistence_mode()
        finally:
            not_started = [
                service for service in reversed(stopped) if self._run(("systemctl", "start", service))[0] != 0
            ]
        if not_started:
            return False, f"{sentence}; {', '.join(not_started)} did not start again"
        return done, sentence

    def _stop(self, services: Sequence[str]) -> tuple[bool, str] | None:
        """Stop the services. Return the answer about one that cannot be stopped; None if all are stopped."""
        for service in services:
            status, text = self._run(("systemctl", "stop", service))
            if status != 0:
                return False, f"{service} cannot be stopped: {text[-TEXT_MAX:]}"
        return None

    def _without_persistence_mode(self) -> tuple[bool, str]:
        persistent = self._with_persistence_mode()
        try:
            for gpu in persistent:
                self._run(("nvidia-smi", "-i", gpu, "-pm", "0"))
            users = list(users_of_gpus(self._proc))
            if users:
                return False, f"{len(users)} process(es) use the GPUs: {', '.join(users[:NAMES_MAX])}"
            status, text = self._run(self._command)
            if status != 0:
                return False, f"{self._command[0]} ended with {status}: {text[-TEXT_MAX:]}"
            return True, "the GPUs were reset"
        finally:
            for gpu in persistent:
                self._run(("nvidia-smi", "-i", gpu, "-pm", "1"))

    def _with_persistence_mode(self) -> list[str]:
        """Return the PCI addresses of the GPUs with persistence mode; [] if nvidia-smi does not tell."""
        status, text = self._run(("nvidia-smi", "--query-gpu=pci.bus_id,persistence_mode", "--format=csv,noheader"))
        rows = [row.split(",") for row in text.split(";")] if status == 0 else []
        return [row[0].strip() for row in rows if row[-1].strip() == "Enabled"]

    def _run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run a program on the instance. Return its exit status and its output, the lines joined with `; `."""
        try:
            ended = subprocess.run(
                (*self._prefix, *command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except OSError as error:
            return 127, f"{error.strerror or error}"
        lines = [" ".join(line.split()) for line in ended.stdout.splitlines()]
        return ended.returncode, "; ".join(line for line in lines if line)


def main() -> None:
    """Reset the GPUs as the arguments say, and print the answer as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="")
    parser.add_argument("--service", action="append", default=[])
    parser.add_argument("proc", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    done, sentence = Reset(given.proc, given.command, given.service, given.root).run()
    print(json.dumps({"done": done, "sentence": sentence}), flush=True)


if __name__ == "__main__":
    main()
