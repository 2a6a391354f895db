"""The folder in which a rank is told of its suspension and tells of itself. Its path is in the command's environment.

    notice      by the wrapper, on rank 0: the scheduler wants these GPUs
    asked       by the command: somebody looks for the notice
    suspend     by the command: it has saved what it needs, and the rank may be ended (`go_suspend`)
    watchdog    by the command: {"seconds": how long there may be no progress}; 0 for ever
    progress    by the command: touched whenever there is some

It lies in memory where there is a place for that, so that looking for the notice in every step costs one `stat`, and it
is gone with the container. No secret is in it, and nothing of it leaves the machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpu_recovery_agent.files import read_object, write_whole

VARIABLE = "GPU_RECOVERY_NOTICE"
NOTICE, ASKED, SUSPEND, WATCHDOG, PROGRESS = "notice", "asked", "suspend", "watchdog", "progress"
SECONDS_MAX = 1e9
Sign = tuple[int, int]


class SuspensionFolder:
    """The folder of one rank, from the wrapper's side."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def give(self, grace_s: float) -> None:
        """Writes the notice. Raises OSError."""
        write_whole(self.path / NOTICE, {"grace_s": grace_s})

    def has(self, name: str) -> bool:
        """Whether the command has left the mark `name`."""
        return self._sign(name) is not None

    def progress(self) -> tuple[Sign | None, ...]:
        """Something that is another after every mark of progress. The times in it are compared with each other only."""
        return self._sign(WATCHDOG), self._sign(PROGRESS)

    def watchdog_s(self) -> float | None:
        """How long there may be no progress; None where the command set no such time. Raises OSError, ValueError."""
        try:
            seconds = read_object(self.path / WATCHDOG).get("seconds")
        except FileNotFoundError:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < SECONDS_MAX:
            raise ValueError(f"{seconds!r} is no number of seconds")
        return float(seconds) or None

    def _sign(self, name: str) -> Sign | None:
        try:
            found = os.stat(self.path / name, follow_symlinks=False)
        except OSError:  # what cannot be seen is not there: a broken folder must not end a training
            return None
        return found.st_ino, found.st_mtime_ns


@contextmanager
def suspension_folder(environment: Mapping[str, str]) -> Iterator[SuspensionFolder]:
    """A new folder, removed at the end of the block. Raises OSError where none can be made."""
    path = Path(tempfile.mkdtemp(prefix="gpu-recovery-", dir=_place(environment)))
    try:
        if os.geteuid() == 0:
            path.chmod(0o1777)  # the command may go on as another user, and has to read and to mark all the same
        yield SuspensionFolder(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _place(environment: Mapping[str, str]) -> str:
    """A file system in memory: the user's own, or the one that every container has; else a folder on the disk."""
    for place in (environment.get("XDG_RUNTIME_DIR"), "/dev/shm", environment.get("TMPDIR")):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    return tempfile.gettempdir()
