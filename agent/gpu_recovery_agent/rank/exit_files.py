"""Removes old exit files.

The agent removes an exit when the server has acknowledged it. An agent of GPUTasker does not read exits, and without an
agent nobody does. So each wrapper removes the old exits of its own user before it begins.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from .files import EXIT_SUFFIXES, REFUSED_SUFFIX

AGE_MAX_S = 7 * 86_400
"""Age in seconds above which an exit is removed. ECS has told the end of that rank long before."""
EXITS_KEPT_MAX = 256
"""Exits of one user that are kept: as many files as the agent reads in one look."""
NAMES_MAX = 4_096
"""Names that are read from the folder at most."""


def remove_old_exits(folder: Path, now: float) -> None:
    """Remove the exits of this user that are older than `AGE_MAX_S`, and the oldest above `EXITS_KEPT_MAX`.

    Never raises: a rank runs whether or not the folder can be cleaned.

    Args:
        folder: the folder of the ranks; it may be missing.
        now: Unix time in seconds.
    """
    own: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, NAMES_MAX):
            if entry.name.endswith((*EXIT_SUFFIXES, REFUSED_SUFFIX)):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    own += [(status.st_mtime, entry.path)] if status.st_uid == os.geteuid() else []
    for number, (changed, path) in enumerate(sorted(own, reverse=True)):
        if number >= EXITS_KEPT_MAX or now - changed > AGE_MAX_S:
            with suppress(OSError):
                os.unlink(path)
