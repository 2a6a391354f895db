"""Files of dumps in a folder, by the rank at the end of their names, as PyTorch writes them: `<prefix><rank>`."""

from __future__ import annotations

import os
import re
import stat
from itertools import islice
from pathlib import Path

from .pickled import BYTES_MAX, Unreadable

NAMES_MAX = 100_000
"""Names of a folder that are looked at."""
_NAME = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(?:\.json|\.pickle|\.pkl)?", re.ASCII | re.DOTALL)


def dump_files(folder: Path, prefix: str = "") -> dict[int, list[Path]]:
    """Return the files by rank whose names begin with the prefix and end with a rank, in order of their names.

    With a prefix only a rank and one of the endings may follow it. Raises OSError if the folder cannot be read.
    """
    found: dict[int, list[Path]] = {}
    with os.scandir(folder) as entries:
        for entry in islice(entries, NAMES_MAX):
            match = _NAME.fullmatch(entry.name)
            if match is None or entry.name.startswith(".") or entry.is_dir(follow_symlinks=False):
                continue
            if not prefix or match["prefix"] == prefix:
                found.setdefault(int(match["rank"]), []).append(Path(entry.path))
    return {rank: sorted(paths) for rank, paths in sorted(found.items())}


def read_file(path: Path, bytes_max: int = BYTES_MAX) -> bytes:
    """Return the content of a file.

    Another user may own the folder, so links are not followed and a pipe does not block.

    Raises:
        OSError: the file cannot be read.
        Unreadable: it is no file, or it is too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable("it is no file")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise Unreadable(f"it is larger than {bytes_max} bytes")
    return data
