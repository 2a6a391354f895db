"""Who has a GPU: a lock between the processes of one instance, or of a job (rows 47-50).

On one instance it is the kernel's (flock), so the crash of whoever holds it gives it back; one that hangs keeps it, and
its name is there to be asked for. An owner is a role, such as "train": on one instance processes of one role hold the
lock together. Between instances it is a lease of the API (`leases`).
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

from gpu_recovery_client.diagnosis.leases import POLL_S as LEASE_POLL_S
from gpu_recovery_client.diagnosis.leases import Lease, of_process
from gpu_recovery_client.diagnosis.reporter import reporter
from gpu_recovery_client.diagnosis.sender import log

TIMEOUT_S, POLL_S = 60.0, 0.1
OWNER = re.compile(r"[A-Za-z0-9_-]{1,32}")
_held: weakref.WeakSet[GpuLock] = weakref.WeakSet()


class GpuLock:
    """The lock of one GPU for one owner; also a context. Every process that is to meet here names the same folder.

    gpu: its number, or a name; of a distributed lock the same name means the same lock in the whole job.
    distributed: it is one of the job, wherever its processes are.
    `token` is then the fencing token while it is had. Raises ValueError where the environment names no job or API.
    folder: by default the one that the agent and the ranks of an instance share, where there is one, else the
    machine's for temporary files. `now` and `sleep` are the clock's.
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
            raise ValueError(f"{owner!r} is no owner: letters, digits, _ and -, at most 32")
        if not OWNER.fullmatch(str(gpu)):
            raise ValueError(f"{gpu!r} names no GPU: letters, digits, _ and -, at most 32")
        self.owner, self.name = owner, f".gpu_{gpu}_lock"
        self._folder, self._now, self._sleep = folder or shared_folder(), now, sleep
        self._file: int | None = None
        self._times = 0
        me = reporter().identity
        self._lease = of_process(f"gpu_{gpu}", owner, me.process, me.rank, now) if distributed else lease

    def acquire(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Wait until no other owner has it. Raises TimeoutError after `timeout_s`; who has it may have it twice."""
        began, told = self._now(), ""
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
            if holder != told:
                told = holder
                log.warning("GPU locked by %s, waiting...", holder)
                self._report("waiting", holder, waited)
            self._sleep(POLL_S if self._lease is None else LEASE_POLL_S)

    def release(self) -> bool:
        """Give it back, as often as it was acquired. False if it is somebody else's, or nobody's."""
        if self._file is None and self.token is None:
            return self._refused(self.holder())
        self._times -= 1
        if self._times == 0:
            other = self._release()
            if other:
                return self._refused(other)  # the lease was over meanwhile, and is another's now
            log.info("GPU released by %s", self.owner)
            self._report("released", "", None)
        return True

    @property
    def token(self) -> int | None:
        """The fencing token of a distributed lock while it is had: whatever is written goes with it."""
        return None if self._lease is None else self._lease.token

    def _has_it(self) -> bool:
        return self._file is not None if self._lease is None else self._lease.is_held

    def _release(self) -> str:
        """Give it back; who has it if that was somebody else."""
        if self._lease is not None:
            return self._lease.release()
        if self._file is not None:
            # Unlocked first: a child that was forked just now may still have the file open, and with it the lock.
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
        """Who has the GPU now, None if nobody."""
        if self._has_it():
            return self.owner
        if self._lease is not None:
            return self._lease.who()
        mutex = self._open(f"{self.name}.mutex")
        try:
            _locked(mutex, fcntl.LOCK_EX)  # whoever looks at the same moment would take us for a holder
            return next((one for one in self._owners() if self._is_held(one)), None)
        finally:
            os.close(mutex)

    def __enter__(self) -> GpuLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    # -- files -------------------------------------------------------------------------------------------------------

    def _try(self) -> str:
        """Take it: "" if it is ours now, else who has it ("?" while somebody is just taking it)."""
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
                return "?"  # for a moment, unless it was stopped in the middle
            others = [one for one in self._owners() if one != self.owner and self._is_held(one)]
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
        """Everybody who ever had it."""
        with contextlib.suppress(FileNotFoundError):
            names = sorted(os.listdir(self._folder))
            begin = f"{self.name}."
            return [one[len(begin) :] for one in names if one.startswith(begin) and one != f"{self.name}.mutex"]
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
        """A file that everybody may lock. One that is another user's is opened as it is: a sticky folder wants that."""
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


def _locked(file: int, how: int) -> bool:
    """Lock it at once; False if somebody else has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def shared_folder() -> str:
    """Where processes of one instance can meet, in different containers too."""
    for place in (os.environ.get("GPUTASKER_RUNNING_TASKS_DIR"), "/dev/shm"):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    return tempfile.gettempdir()


def _forked() -> None:
    """A child of a holder holds nothing: else its lock would outlive it in a worker that only loads data."""
    for lock in list(_held):
        if lock._file is not None:
            os.close(lock._file)
            lock._file, lock._times = None, 0
    _held.clear()


os.register_at_fork(after_in_child=_forked)
