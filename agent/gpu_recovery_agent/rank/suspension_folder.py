"""The suspension folder, through which wrapper and training program exchange marks.

Its path is in the environment.

    notice      by the wrapper, on rank 0: the scheduler needs these GPUs
    asked       by the command: it checks for the notice
    suspend     by the command: it has saved its state, and the rank may be ended (`go_suspend`)
    watchdog    by the command: {"seconds": longest time without progress}; 0 means no limit
    progress    by the command: touched after each progress
    waits       by the command: it has called `wait_for_start`
    start       to a standby process: {"set": {variable: value}}; it goes on as the next attempt

The folder is in memory where possible, so that a check for the notice in every step costs one `stat`. It ends with the
container. It holds no secret, and its content never leaves the instance.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..files import read_object, write_whole

VARIABLE = "GPU_RECOVERY_NOTICE"
"""Environment variable with the path of the folder."""
NOTICE, ASKED, SUSPEND, WATCHDOG, PROGRESS = "notice", "asked", "suspend", "watchdog", "progress"
WAITS, PREPARED, START = "waits", "start.prepared", "start"
SECONDS_MAX = 1e9
Sign = tuple[int, int]


class SuspensionFolder:
    """The folder of one rank, as the wrapper uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def give(self, grace_s: float) -> None:
        """Write the notice. Raises OSError."""
        write_whole(self.path / NOTICE, {"grace_s": grace_s})

    def prepare_start(self, changed: Mapping[str, str]) -> None:
        """Write the new variables of the standby process of this folder. Raises OSError, also without room."""
        write_whole(self.path / PREPARED, {"set": dict(changed)})

    def start(self) -> None:
        """Let the standby process run. The content is already there, so this needs no room. Raises OSError."""
        (self.path / PREPARED).replace(self.path / START)

    def has(self, name: str) -> bool:
        """Return whether the command has left the mark `name`."""
        return self._sign(name) is not None

    def progress(self) -> tuple[Sign | None, ...]:
        """Return a value that changes with every mark of progress. Its times are compared only with each other."""
        return self._sign(WATCHDOG), self._sign(PROGRESS)

    def watchdog_s(self) -> float | None:
        """Return the longest time without progress, in seconds; None if the command set no limit.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file holds no valid number of seconds.
        """
        try:
            seconds = read_object(self.path / WATCHDOG)[0].get("seconds")
        except FileNotFoundError:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < SECONDS_MAX:
            raise ValueError(f"{seconds!r} is not a number of seconds")
        return float(seconds) or None

    def _sign(self, name: str) -> Sign | None:
        try:
            status = os.stat(self.path / name, follow_symlinks=False)
        except OSError:  # treat an unreadable mark as missing: a broken folder must not end a training
            return None
        return status.st_ino, status.st_mtime_ns


@contextmanager
def suspension_folder(environment: Mapping[str, str]) -> Iterator[SuspensionFolder]:
    """Yield a new folder and remove it at the end of the block. Raises OSError if no folder can be made."""
    path = Path(tempfile.mkdtemp(prefix="gpu-recovery-", dir=_place(environment)))
    try:
        if os.geteuid() == 0:
            path.chmod(0o1777)  # the command may run as another user, and must read the folder and write marks too
        yield SuspensionFolder(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _place(environment: Mapping[str, str]) -> str:
    """Return a folder in memory: the user's own, or /dev/shm, which every container has; otherwise one on the disk."""
    for place in (environment.get("XDG_RUNTIME_DIR"), "/dev/shm", environment.get("TMPDIR")):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    return tempfile.gettempdir()
