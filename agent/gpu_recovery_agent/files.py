"""A file that is there whole or not at all, whatever ends the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BYTES_MAX = 65_536
ADDRESS_BYTES_MAX = 107
"""Of a UNIX socket on Linux."""


def write_whole(path: Path, content: dict[str, Any], mode: int = 0o644) -> None:
    """Writes JSON beside `path`, brings it to the disk and renames it into place. Raises OSError, leaving nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(content, file, separators=(",", ":"))
            file.flush()
            os.fchmod(file.fileno(), mode)  # whatever the umask: the agent is another user than the rank
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Brings names to the disk: a rename is not there after a power cut until its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a small file. Raises OSError, or ValueError that says what is wrong with it."""
    # Another user may own the folder: no link is followed, and a pipe in the file's place is not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        file = os.fdopen(descriptor, "rb")
    except OSError:  # a folder can be opened, but is no file
        os.close(descriptor)
        raise
    with file:
        raw = file.read(BYTES_MAX + 1) or b""
    if len(raw) > BYTES_MAX:
        raise ValueError(f"it is larger than {BYTES_MAX} bytes")
    try:
        found = json.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """The address of the socket at `path`, however long: the number of its folder is short. Raises OSError."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
