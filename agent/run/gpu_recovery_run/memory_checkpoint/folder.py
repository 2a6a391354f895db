"""The memory folder of one job on one instance: shards of generations, complete or absent.

    <root>/<job id>/<generation>/rank-<n>/manifest.json     sizes and SHA-256 of the files beside it
    <root>/<job id>/<generation>/.draft-...                  a shard that is being written

All processes of the job on the instance share the folder. A shard is renamed into its place when it is whole, so a kill
at any point leaves a draft or a whole shard. The folder is memory (tmpfs): nothing is synced to a disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from .errors import MemoryCheckpointError
from .generations import Generation, generation_of

MANIFEST, LOCK, SHARD, DRAFT = "manifest.json", ".lock", "rank-", ".draft-"
BLOCK = 1024 * 1024
"""Bytes that are read at once."""
THREADS = 4
"""Files of a shard that are verified at the same time."""
KEEP_OTHERS_S = 24 * 3600.0
"""Seconds that the folder of a job without a process on this instance is kept. Its next attempt may still come."""
JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def checked_name(name: object) -> str:
    """Return the name of a file of a shard. Raises ValueError for a name that leads out of its folder."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name) or name in (".", "..", MANIFEST):
        raise ValueError(f"{name!r} is no name of a file of a shard")
    return name


class MemoryFolder:
    """The folder of one job. It holds a lock while the process lives, so that no other job removes the folder.

    Raises MemoryCheckpointError if the folder belongs to another user or others can read it.
    """

    def __init__(self, root: Path, job: str) -> None:
        if not JOB.fullmatch(job):
            raise MemoryCheckpointError(f"{job!r} cannot be the name of a folder")
        self.root, self.path = root, root / job
        with suppress(FileExistsError):
            root.mkdir(parents=True)
            root.chmod(0o1777)  # jobs of other users have folders beside this one, as in /dev/shm
        self._lock = self._locked()

    def _locked(self) -> int:
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            status = self.path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise MemoryCheckpointError(f"{self.path} must be a folder of this user alone, with mode 700")
            with suppress(FileNotFoundError):  # another job removes the folder just now
                lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_SH)
                with suppress(FileNotFoundError):
                    if os.stat(self.path / LOCK).st_ino == os.fstat(lock).st_ino:
                        return lock
                os.close(lock)

    def remove_abandoned(self, now_s: float) -> list[str]:
        """Remove the folders of other jobs without a process here, unchanged for KEEP_OTHERS_S. Return their names."""
        removed = []
        for other in self.root.iterdir():
            lock = other / LOCK
            with suppress(OSError):  # the folder of another user, or just removed
                if other == self.path or other.is_symlink() or now_s - other.stat().st_mtime < KEEP_OTHERS_S:
                    continue
                descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(other)
                    removed.append(other.name)
                finally:
                    os.close(descriptor)
        return removed

    def draft(self, generation: Generation, shard: int) -> Path:
        """Return the path of a new folder for a shard. The caller creates it, with its parents."""
        return self.path / generation.name / f"{DRAFT}{shard}-{os.getpid()}-{time.monotonic_ns()}"

    def seal(self, draft: Path, generation: Generation, shard: int) -> None:
        """Write the manifest of a draft whose files are whole, and move the draft into its place."""
        places = sorted(draft.iterdir())
        digests = _digests(places)
        files = {file.name: (file.stat().st_size, digests[file]) for file in places}
        (draft / MANIFEST).write_text(json.dumps({"files": files}), encoding="ascii")
        place = self.shard(generation, shard)
        if place.exists():  # a corrupt shard that a copy replaces
            old = self.draft(generation, shard)
            place.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        draft.rename(place)

    def shard(self, generation: Generation, shard: int) -> Path:
        """Return the folder of a shard that is whole."""
        return self.path / generation.name / f"{SHARD}{shard}"

    def files(self, generation: Generation, shard: int) -> dict[str, tuple[int, str]]:
        """Return the files of a shard by its manifest. Raises ValueError or OSError if there is none."""
        with open(self.shard(generation, shard) / MANIFEST, encoding="ascii") as file:
            return read_files(json.load(file))

    def is_intact(self, generation: Generation, shard: int) -> bool:
        """Read a whole shard, and return whether it is what was saved."""
        try:
            place = self.shard(generation, shard)
            expected = {place / name: entry for name, entry in self.files(generation, shard).items()}
            if any(path.stat().st_size != size for path, (size, _) in expected.items()):
                return False
            return _digests(expected) == {path: digest for path, (_, digest) in expected.items()}
        except (OSError, ValueError):
            return False

    def inventory(self) -> list[tuple[str, int]]:
        """Return the shards that are whole: the name of the generation and the rank of each."""
        return [
            (place.parent.name, int(place.name[len(SHARD) :]))
            for place in self.path.glob(f"*/{SHARD}*")
            if place.name[len(SHARD) :].isdecimal() and generation_of(place.parent.name)
        ]

    def size(self, generation: Generation, shard: int) -> int:
        """Return the bytes of a shard; 0 if it is not there."""
        with suppress(OSError, ValueError):
            return sum(size for size, _ in self.files(generation, shard).values())
        return 0

    def keep_only(self, kept: Generation | None) -> None:
        """Remove all generations but one, and the drafts of that one."""
        for generation in self._generations():
            if generation != kept:
                self.remove(generation)
        if kept:
            for draft in (self.path / kept.name).glob(f"{DRAFT}*"):
                shutil.rmtree(draft, ignore_errors=True)

    def remove_older(self, than: Generation) -> None:
        """Remove the generations that are older."""
        for generation in self._generations():
            if generation < than:
                self.remove(generation)

    def remove(self, generation: Generation) -> None:
        """Remove one generation."""
        shutil.rmtree(self.path / generation.name, ignore_errors=True)

    def remove_all(self) -> None:
        """Remove the folder of the job. Other processes of the job may do it at the same time."""
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Release the lock. The generations stay for the next attempt."""
        os.close(self._lock)

    def free_bytes(self) -> int:
        """Return the room that is left in the memory."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def _generations(self) -> list[Generation]:
        return [each for each in map(generation_of, os.listdir(self.path)) if each]


def read_files(manifest: object) -> dict[str, tuple[int, str]]:
    """Return the files of a manifest. Raises ValueError for anything that is no manifest."""
    listed = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise ValueError("no manifest of a shard")
    files = {}
    for name, entry in listed.items():
        if not isinstance(entry, (list, tuple)) or [type(each) for each in entry] != [int, str] or entry[0] < 0:
            raise ValueError("no manifest of a shard")
        files[checked_name(name)] = (entry[0], entry[1])
    return files


def _digests(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the SHA-256 of files, several at a time."""
    listed = list(paths)
    with ThreadPoolExecutor(THREADS, "memory-checkpoint-digest") as threads:
        return dict(zip(listed, threads.map(_digest, listed)))


def _digest(path: Path) -> str:
    digest, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()
