"""GPU locks between the processes of one instance, or of a job.

Rows 47-50 of the fault catalogue, docs/diagnosis.md.

On one instance it is a lock of the kernel (flock), so the crash of its holder releases the lock. A holder that hangs
keeps the lock; `holder` returns its name. An owner is a role, such as "train": on one instance, processes of one role
hold the lock together. Between instances the lock is a lease of the API (`leases`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
import time
import weakref
from collections.abc import Callable
from types import TracebackType

from .leases import POLL_S as LEASE_POLL_S
from .leases import Lease, of_process
from .reporter import reporter
from .sender import log

TIMEOUT_S, POLL_S = 60.0, 0.1
"""Default timeout of `acquire`, and the time between two attempts, in seconds."""
OWNER = re.compile(r"[A-Za-z0-9_-]{1,32}")
_held: weakref.WeakSet[GpuLock] = weakref.WeakSet()


class GpuLock:
    """The lock of one GPU for one owner; also a context manager. All processes that share it must use the same folder.

    Args:
        owner: the role of this process.
        gpu: the number of the GPU, or a name. The same name of a distributed lock means the same lock in the whole
            job.
        distributed: the lock belongs to the job, wherever its processes run. `token` is then the fencing token while
            it is held. Raises ValueError if the environment names no job, no API or no way to authenticate.
        folder: by default the folder that agent and ranks of an instance share, if it exists, otherwise the host's
            folder for temporary files.
        lease: replaces the lease of the API, for tests.
        now: monotonic time in seconds.
        sleep: waits this many seconds.
    """

    def __init__(
        self,
        owner: str,
        gpu: int | str = 0,
        *,
        distributed: bool = False,
        folder: str | None = None,
        lease: Lease | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not OWNER.fullmatch(owner):
            raise ValueError(f"{owner!r} is not a valid owner: letters, digits, _ and -, at most 32")
        if not OWNER.fullmatch(str(gpu)):
            raise ValueError(f"{gpu!r} is not a valid GPU name: letters, digits, _ and -, at most 32")
        self.owner, self.name = owner, f".gpu_{gpu}_lock"
        self._folder, self._now, self._sleep = folder or shared_folder(), now, sleep
        self._file: int | None = None
        self._times = 0
        identity = reporter().identity
        self._lease = of_process(f"gpu_{gpu}", owner, identity.process, identity.rank, now) if distributed else lease

    def acquire(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Wait until no other owner holds the lock, and take it. A holder may acquire it again.

        Raises TimeoutError after `timeout_s`.
        """
        began, reported = self._now(), ""
        while True:
            holder = self._try()
            if not holder:
                if self._times == 1:
                    log.info("GPU locked by %s", self.owner)
                    self._report("held", self.owner, self._now() - began)
                return True
            waited = self._now() - began
            if waited >= timeout_s:
                self._report("timed out", holder, waited)
                raise TimeoutError(f"Failed to acquire GPU for {self.owner}")
            if holder != reported:
                reported = holder
                log.warning("GPU locked by %s, waiting...", holder)
                self._report("waiting", holder, waited)
            self._sleep(POLL_S if self._lease is None else LEASE_POLL_S)

    def release(self) -> bool:
        """Release the lock once; it is free after as many releases as acquisitions.

        Returns False if this owner does not hold it.
        """
        if self._file is None and self.token is None:
            return self._refused(self.holder())
        self._times -= 1
        if self._times == 0:
            other = self._release()
            if other:
                return self._refused(other)  # the lease expired meanwhile, and another owner holds it now
            log.info("GPU released by %s", self.owner)
            self._report("released", "", None)
        return True

    @property
    def token(self) -> int | None:
        """Return the fencing token of a distributed lock while it is held: send it with every write."""
        return None if self._lease is None else self._lease.token

    def _has_it(self) -> bool:
        return self._file is not None if self._lease is None else self._lease.is_held

    def _release(self) -> str:
        """Release the lock. Return the holder if it is another owner by now."""
        if self._lease is not None:
            return self._lease.release()
        if self._file is not None:
            # Unlock first: a child that was just forked may still have the file open, and with it the lock.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
        self._file = None
        _held.discard(self)
        return ""

    def _refused(self, holder: str | None) -> bool:
        log.warning("GPU owned by %s, cannot release", holder)
        self._report("release refused", holder or "", None)
        return False

    def holder(self) -> str | None:
        """Return the owner that holds the GPU now; None if no owner does."""
        if self._has_it():
            return self.owner
        if self._lease is not None:
            return self._lease.who()
        mutex = self._open(f"{self.name}.mutex")
        try:
            _locked(
                mutex, fcntl.LOCK_EX
            )  # without the mutex, the test of a lock would look like a holder to another process
            return next((owner for owner in self._owners() if self._is_held(owner)), None)
        finally:
            os.close(mutex)

    def __enter__(self) -> GpuLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    # -- files -------------------------------------------------------------------------------------------------------

    def _try(self) -> str:
        """Try to take the lock. Return "" on success, otherwise the holder ("?" while another process is taking it)."""
        if self._has_it():
            self._times += 1
            return ""
        if self._lease is not None:
            holder = self._lease.acquire()
            self._times = 0 if holder else 1
            return holder
        mutex = self._open(f"{self.name}.mutex")
        try:
            if not _locked(mutex, fcntl.LOCK_EX):
                return "?"  # another process is taking it, or stopped while taking it
            others = [owner for owner in self._owners() if owner != self.owner and self._is_held(owner)]
            if others:
                return others[0]
            mine = self._open(f"{self.name}.{self.owner}")
            if not _locked(mine, fcntl.LOCK_SH):
                os.close(mine)
                return "?"
            self._file, self._times = mine, 1
            _held.add(self)
            return ""
        finally:
            os.close(mutex)

    def _owners(self) -> list[str]:
        """Return every owner that ever held the lock."""
        with contextlib.suppress(FileNotFoundError):
            names = sorted(os.listdir(self._folder))
            begin = f"{self.name}."
            return [name[len(begin) :] for name in names if name.startswith(begin) and name != f"{self.name}.mutex"]
        return []

    def _is_held(self, owner: str) -> bool:
        try:
            file = os.open(os.path.join(self._folder, f"{self.name}.{owner}"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _locked(file, fcntl.LOCK_EX)
        finally:
            os.close(file)

    def _open(self, name: str) -> int:
        """Open a file that every user may lock.

        A file of another user is opened without O_CREAT: a sticky folder requires that.
        """
        path = os.path.join(self._folder, name)
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(FileExistsError):
            made = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(made, 0o666)
            return made
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _report(self, state: str, holder: str, waited_s: float | None) -> None:
        waited = None if waited_s is None else round(waited_s, 1)
        reporter().send(
            "lock",
            urgent=state not in ("held", "released"),
            lock=self.name[1:],
            owner=self.owner,
            state=state,
            holder=holder,
            waited_s=waited,
            token=self.token,
        )


def _locked(file: int, operation: int) -> bool:
    """Lock the file at once. Return False if another process holds the lock."""
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def shared_folder() -> str:
    """Return a folder that all processes of an instance share, also across containers."""
    for place in (os.environ.get("GPUTASKER_RUNNING_TASKS_DIR"), "/dev/shm"):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    return tempfile.gettempdir()


def _forked() -> None:
    """In a forked child, drop all locks.

    Otherwise a worker that only loads data would hold them longer than its parent.
    """
    for lock in list(_held):
        if lock._file is not None:
            os.close(lock._file)
            lock._file, lock._times = None, 0
    _held.clear()


os.register_at_fork(after_in_child=_forked)
