"""Archives and checksums of the files of a release: the same bytes for the same files."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

CHECKSUMS = "SHA256SUMS"
"""Name of the list of checksums, in the format of sha256sum."""
FILE_TIME = (1980, 1, 2, 0, 0, 0)
"""Time of each file of an archive, so that two archives of the same files have the same bytes."""


def archive(source: Path, target: Path) -> None:
    """Write the files of a folder into a ZIP archive, the same bytes for the same files."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archived:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(source).as_posix(), FILE_TIME)
                entry.external_attr = (0o100755 if path.stat().st_mode & 0o100 else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archived.writestr(entry, path.read_bytes())


def write_checksums(folder: Path) -> None:
    """Write the checksum of each file of a folder into the list beside them."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines))
