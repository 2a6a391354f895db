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

EXITS_KEPT_MAX = 256
"""Exits of one user that are kept: as many files as the agent reads in one look."""
NAMES_MAX = 4_096
"""Names that are read from the folder at most."""


def remove_old_exits(folder: Path) -> None:
    """Remove the oldest exits of this user above `EXITS_KEPT_MAX`.

    Never raises: a rank runs whether or not the folder can be cleaned. There is no limit of age, because a clock that
    is set forward would remove exits that the server has not received.
    """
    own: list[tuple[int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, NAMES_MAX):
            if entry.name.endswith((*EXIT_SUFFIXES, REFUSED_SUFFIX)):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    own += [(status.st_mtime_ns, entry.path)] if status.st_uid == os.geteuid() else []
    for _, path in sorted(own, reverse=True)[EXITS_KEPT_MAX:]:
        with suppress(OSError):
            os.unlink(path)
