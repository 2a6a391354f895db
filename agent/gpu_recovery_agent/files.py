"""Files that are written whole or not at all, even if the instance loses power."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BYTES_MAX = 65_536
"""Largest file that is read unless the caller says less, in bytes."""
ADDRESS_BYTES_MAX = 107
"""Longest path of a UNIX socket on Linux, in bytes."""


def write_whole(path: Path, content: dict[str, Any], mode: int = 0o644) -> None:
    """Write JSON to a temporary file beside `path`, sync it to the disk and rename it.

    The name of the temporary file is random and the file must be new. So no other user of the folder can create it
    first and stay its owner.

    Raises OSError and then leaves no file.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(content, file, separators=(",", ":"))
            file.flush()
            os.fchmod(file.fileno(), mode)  # ignore the umask: the agent runs as another user than the rank
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk: after a power failure a rename is lost unless its folder was synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_object(path: Path, bytes_max: int = BYTES_MAX) -> tuple[dict[str, Any], os.stat_result]:
    """Return the JSON object in a file of at most `bytes_max` bytes, and the status of the file that was read.

    Raises:
        OSError: the file cannot be read.
        ValueError: the content is too large or is no JSON object; the message says which.
    """
    # Another user may own the folder: do not follow a link, and do not block on a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        file = os.fdopen(descriptor, "rb")
    except OSError:  # open() succeeds for a folder, fdopen() does not
        os.close(descriptor)
        raise
    with file:
        raw, status = file.read(bytes_max + 1) or b"", os.fstat(file.fileno())
    if len(raw) > bytes_max:
        raise ValueError(f"it is larger than {bytes_max} bytes")
    try:
        content = json.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content, status


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Yield an address of the socket at `path` that is short enough, by the folder's file descriptor.

    Raises OSError.
    """
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
