"""Distributed GPU lock with a lease (TTL) and a fencing token, for processes on several instances of a job.

The lock is stored by the job API, which this module calls.

The lease expires unless a thread renews it. So a crashed holder releases it without an action: when the heartbeat of
its instance times out, or after some time. A holder that was only paused finds that it has lost the lease. The fencing
token distinguishes its writes from those of the next holder.
"""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Optional

from ..errors import SettingsMissing
from ..request_signer import RequestSigner
from .sender import log

LEASE_S, POLL_S, CALL_S = 60, 1.0, 5.0
"""Seconds of a lease, between two attempts, and until a call is given up."""
OK, CONFLICT = 200, 409
AGAIN = (429, 500, 502, 503, 504)
"""HTTP statuses after which a call may be repeated."""
Call = Callable[[str, str, Optional[Mapping[str, Any]]], tuple[int, Mapping[str, Any]]]
_held: weakref.WeakSet[Lease] = weakref.WeakSet()


class Api:
    """The API at GPU_RECOVERY_API_URL, called with GPU_RECOVERY_TOKEN or with signatures (GPU_RECOVERY_AUTH=iam).

    Raises:
        ValueError: the environment names no API, or no way to authenticate.
        SettingsMissing: botocore is missing, or nothing names the region of the API.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._url = environment.get("GPU_RECOVERY_API_URL", "").rstrip("/")
        self._token = environment.get("GPU_RECOVERY_TOKEN", "")
        signs = environment.get("GPU_RECOVERY_AUTH") == "iam"
        host = urllib.parse.urlsplit(self._url).hostname or ""
        is_safe = self._url.startswith("https://") or host in ("127.0.0.1", "localhost", "::1")
        if not is_safe or not (self._token or signs):
            raise ValueError(
                "a distributed lock needs GPU_RECOVERY_API_URL (https), "
                "and GPU_RECOVERY_TOKEN of a user or GPU_RECOVERY_AUTH=iam"
            )
        self._signer = RequestSigner(self._url, environment) if signs else None

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        url, headers = f"{self._url}/api/v2{path}", {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        if self._signer is None:
            headers["Authorization"] = f"Bearer {self._token}"
        else:
            headers = self._signer.sign(method, url, headers, content)
        request = urllib.request.Request(url, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CALL_S) as answer:
                return answer.status, _object(answer.read(65_536))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _object(error.read(65_536))


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(raw)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


class Lease:
    """One lock of a job, for one owner.

    `holder` distinguishes this process from others of the same owner. `token` is the fencing token while the lease is
    held, otherwise None. `now` is monotonic time in seconds. With `renews`, a thread renews the lease.
    """

    def __init__(
        self,
        call: Call,
        job_id: str,
        name: str,
        owner: str,
        holder: str,
        rank: int | None,
        *,
        now: Callable[[], float],
        lease_s: int = LEASE_S,
        renews: bool = True,
    ) -> None:
        self._call, self._name, self._now, self._lease_s, self._renews = call, name, now, lease_s, renews
        self._who = {"job_id": job_id, "owner": owner}
        self._request = {**self._who, "holder": holder, "lease_s": lease_s} | ({} if rank is None else {"rank": rank})
        self._until = 0.0
        self._stop = threading.Event()
        self.token: int | None = None

    @property
    def is_held(self) -> bool:
        """Return whether the lease is certainly held.

        Its time counts from before the request, so it ends here no later than there.
        """
        return self.token is not None and self._now() < self._until

    def acquire(self) -> str:
        """Ask for the lease once. Return "" on success, otherwise the holder ("?" if unknown).

        Raises RuntimeError if a retry cannot help.
        """
        began = self._now()
        status, body = self._asked("POST", "acquire", self._request)
        if status == OK and type(body.get("token")) is int:
            self.token, self._until = body["token"], began + self._lease_s
            self._start_renewing()
            return ""
        if status == CONFLICT:
            return str((body.get("lock") or {}).get("owner") or "?")
        if status in AGAIN or status == 0:
            return "?"
        raise RuntimeError(f"the lock {self._name} cannot be requested: {status} {body.get('detail', '')}".strip())

    def renew(self) -> bool:
        """Renew the lease.

        Return False if it is lost. After a call without a response it is not lost: the next renewal decides.
        """
        if self.token is None:
            return False
        began = self._now()
        status, body = self._asked("POST", "renew", {**self._who, "token": self.token, "lease_s": self._lease_s})
        if status == OK:
            self._until = began + self._lease_s
        elif status not in AGAIN and status != 0:
            log.error("the lock %s is lost: %s", self._name, body.get("detail", status))
            self._lose()
            return False
        return True

    def release(self) -> str:
        """Release the lease, which is not held afterwards. Return the holder if it is another owner, otherwise ""."""
        token = self.token
        self._lose()
        if token is None:
            return self.who() or "nobody"
        status, body = self._asked("POST", "release", {**self._who, "token": token})
        return str((body.get("lock") or {}).get("owner") or "nobody") if status == CONFLICT else ""

    def who(self) -> str | None:
        """Return the owner that holds the lease; None if no owner does."""
        query = urllib.parse.urlencode({"job_id": self._who["job_id"]})
        status, body = self._asked("GET", f"?{query}", None)
        return str(body["owner"]) if status == OK and body.get("owner") and not body.get("has_ended") else None

    def _asked(self, method: str, what: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """Return status and body of a call; status 0 without a response."""
        path = f"/locks/{self._name}" + (what if what.startswith("?") else f"/{what}")
        try:
            return self._call(method, path, body)
        except OSError as error:
            log.warning("the lock %s: the API does not answer: %s", self._name, type(error).__name__)
        except SettingsMissing as error:
            log.warning("the lock %s: the request cannot be signed: %s", self._name, error)
        return 0, {}

    def _start_renewing(self) -> None:
        _held.add(self)
        if self._renews:
            self._stop = threading.Event()
            threading.Thread(
                target=self._renew_until, args=(self._stop,), name="gpu-recovery-lease", daemon=True
            ).start()

    def _renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(self._lease_s / 3):
            if not self.renew():
                return

    def _lose(self) -> None:
        self.token = None
        self._stop.set()
        _held.discard(self)


def of_process(name: str, owner: str, process: str, rank: int | None, now: Callable[[], float]) -> Lease:
    """Return the lease of this process. Raises ValueError if its environment names no job, API or token."""
    job_id = os.environ.get("JOB_ID", "")
    if not job_id:
        raise ValueError("a distributed lock belongs to a job: JOB_ID is not set")
    return Lease(Api(os.environ), job_id, name, owner, process, rank, now=now)


def _forked() -> None:
    """In a forked child, drop all leases: it has no thread that renews them."""
    for lease in list(_held):
        lease.token = None
    _held.clear()


os.register_at_fork(after_in_child=_forked)
