"""Lists the files in the folder of the ranks, and reads them. One look costs a bounded time.

Every user of the instance may create files in this folder. So the number of the files, their size and the number of
the listed names are limited. The status of a file is checked before the file is opened.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from gpu_recovery_agent.files import read_object
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import EXIT_SUFFIXES, RUNNING_SUFFIX

FILES_MAX = 256
"""Largest number of files in one look: 8 ranks, and the exits of 31 attempts that wait for the API."""
BYTES_MAX = 4_096
"""Largest file of a rank, in bytes; the wrapper writes at most some 500."""
NAMES_MAX = 4_096
"""Largest number of names that one look reads from the folder."""


class FileSignature(NamedTuple):
    """What identifies one version of a file. `changed_ns` is its ctime, which its owner cannot set."""

    inode: int
    owner: int
    changed_ns: int
    size: int


class FileChanged(ValueError):
    """The file was replaced after it was listed."""


def list_files(folder: Path, log: AgentLog, running: Collection[str]) -> dict[str, FileSignature]:
    """Return the files of ranks by name, at most FILES_MAX.

    If there are more, the users take turns, so that no user displaces the files of another. Of each user the files in
    `running` come first, then the newest files.

    Args:
        folder: the folder of the ranks; it may be missing.
        log: receives a line for each file that is ignored.
        running: the names of files whose process ran at the last look.
    """
    names = dict.fromkeys(running)
    try:
        with os.scandir(folder) as entries:
            listed = [entry.name for entry in islice(entries, NAMES_MAX + 1)]
    except FileNotFoundError:
        return {}  # no rank ran here yet
    except OSError as error:
        log.once("running folder", f"{folder} cannot be read: {error.strerror}")
        return {}
    suffixes = (RUNNING_SUFFIX, *EXIT_SUFFIXES)
    names |= dict.fromkeys(name for name in listed[:NAMES_MAX] if name.endswith(suffixes) and not name.startswith("."))
    found = {name: listed_file for name in names if (listed_file := _file(folder / name, log))}
    chosen = _in_turn(found, running) if len(found) > FILES_MAX else found
    if len(chosen) < len(found) or len(listed) > NAMES_MAX:
        log.once(
            "many files",
            f"{folder} has more than {FILES_MAX} files of ranks or {NAMES_MAX} names: a look reads {FILES_MAX} files, "
            "of each user in turn, first those of running ranks, then the newest",
        )
    else:
        log.over("many files", f"{folder} is read completely again")
    return chosen


def read_file(path: Path, expected: FileSignature) -> dict[str, Any]:
    """Return the JSON object in a listed file.

    Raises:
        OSError: the file cannot be read.
        FileChanged: the file is no longer the listed file.
        ValueError: the content is no JSON object.
    """
    content, status = read_object(path, BYTES_MAX)
    if signature(status) != expected:
        raise FileChanged("it was replaced")
    return content


def is_unchanged(path: Path, expected: FileSignature) -> bool:
    """Return whether the file is still this version of it. Raises OSError, FileNotFoundError if it is gone."""
    return signature(os.stat(path, follow_symlinks=False)) == expected


def signature(status: os.stat_result) -> FileSignature:
    """Return the signature of a file from its status."""
    return FileSignature(status.st_ino, status.st_uid, status.st_ctime_ns, status.st_size)


def _file(path: Path, log: AgentLog) -> FileSignature | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None  # it was removed meanwhile
    if not stat.S_ISREG(status.st_mode):
        log.once(path.name, f"{path} is ignored: it is not a regular file")
    elif status.st_size > BYTES_MAX:
        log.once(path.name, f"{path} is ignored: it is larger than {BYTES_MAX} bytes")
    else:
        return signature(status)
    return None


def _in_turn(found: dict[str, FileSignature], running: Collection[str]) -> dict[str, FileSignature]:
    """Return FILES_MAX of the files: the first file of each user, then the second of each user, and so on."""
    turns: Counter[int] = Counter()
    order = []
    for name in sorted(found, key=lambda name: (name not in running, -found[name].changed_ns, name)):
        order.append((turns[found[name].owner], name))
        turns[found[name].owner] += 1
    return {name: found[name] for _, name in sorted(order)[:FILES_MAX]}
