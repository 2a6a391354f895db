"""Whether a folder may be shared by several instances: by the type of its file system."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
LOCAL_TYPES = frozenset(
    {"aufs", "btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
)
"""Types of file systems that one instance has alone. Every other type counts as shared, such as nfs4, lustre, fuse."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def is_shared(folder: Path) -> bool:
    """Return whether the folder is on a file system that other instances may have, too. May block as the folder does.

    Without a list of mounts no folder counts as shared.
    """
    path = os.path.realpath(folder)
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    longest, kind = -1, ""
    for line in lines:
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]) if len(fields) > 4 else ""
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= longest:  # of two mounts at one place the later counts
            longest, kind = len(point), source.split(" ")[0]
    return kind != "" and kind not in LOCAL_TYPES
