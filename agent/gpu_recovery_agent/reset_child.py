"""The child process of a reset: it makes sure that no process uses the GPUs, and resets all of them.

The driver refuses to reset a GPU that is in use. Persistence mode counts as a use (NVIDIA/NVSentinel issue 1690), so it
is off during the reset. A service that holds a GPU, such as the host engine of DCGM, is named in the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
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


def reset(host_proc: Path, command: Sequence[str]) -> tuple[bool, str]:
    """Reset all GPUs. Return whether that was done, and a sentence.

    Args:
        host_proc: the process table of the instance.
        command: the program and its arguments.
    """
    persistent = _with_persistence_mode()
    try:
        for gpu in persistent:
            _run(("nvidia-smi", "-i", gpu, "-pm", "0"))
        users = list(users_of_gpus(host_proc))
        if users:
            return False, f"{len(users)} process(es) use the GPUs: {', '.join(users[:NAMES_MAX])}"
        status, text = _run(command)
        if status != 0:
            return False, f"{command[0]} ended with {status}: {text[-TEXT_MAX:]}"
        return True, "the GPUs were reset"
    finally:
        for gpu in persistent:
            _run(("nvidia-smi", "-i", gpu, "-pm", "1"))


def _with_persistence_mode() -> list[str]:
    """Return the PCI addresses of the GPUs with persistence mode; [] if nvidia-smi does not tell."""
    status, text = _run(("nvidia-smi", "--query-gpu=pci.bus_id,persistence_mode", "--format=csv,noheader"))
    rows = [row.split(",") for row in text.split(";")] if status == 0 else []
    return [row[0].strip() for row in rows if row[-1].strip() == "Enabled"]


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Run a program. Return its exit status and its output, the lines joined with `; `."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError as error:
        return 127, f"{error.strerror or error}"
    lines = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    return ended.returncode, "; ".join(line for line in lines if line)


def main() -> None:
    """Reset the GPUs with the command of the arguments, and print the answer as one line of JSON."""
    done, sentence = reset(Path(sys.argv[1]), sys.argv[2:])
    print(json.dumps({"done": done, "sentence": sentence}), flush=True)


if __name__ == "__main__":
    main()
