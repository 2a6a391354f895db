"""Who has a GPU, between the processes of a job on different instances: a lease of the API, with a fencing token.

The lease ends unless it is renewed, which a thread does; so a holder that crashed gives it back by itself, as soon as
its instance is not heard of any more or some time has passed. One that only slept finds that it has lost it: by `token`
its writes are told apart from those of the next.
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
from typing import Any

from gpu_recovery_client.diagnosis.sender import log

LEASE_S, POLL_S, CALL_S = 60, 1.0, 5.0
OK, CONFLICT = 200, 409
AGAIN = (429, 500, 502, 503, 504)
Call = Callable[[str, str, Mapping[str, Any] | None], tuple[int, Mapping[str, Any]]]
_held: weakref.WeakSet[Lease] = weakref.WeakSet()


class Api:
    """The API at GPU_RECOVERY_API_URL, with the token of GPU_RECOVERY_TOKEN, which is never shown."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._url = environment.get("GPU_RECOVERY_API_URL", "").rstrip("/")
        self._token = environment.get("GPU_RECOVERY_TOKEN", "")
        host = urllib.parse.urlsplit(self._url).hostname or ""
        if not self._token or not (self._url.startswith("https://") or host in ("127.0.0.1", "localhost", "::1")):
            raise ValueError("a distributed lock needs GPU_RECOVERY_API_URL (https) and GPU_RECOVERY_TOKEN, a user's")

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/api/v2{path}", content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CALL_S) as answer:
                return answer.status, _object(answer.read(65_536))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _object(error.read(65_536))


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Lease:
    """One lock of a job, for one owner. `holder` tells this process from others of the same owner.

    token: the fencing token while it is had, None else. now, sleep: the clock's. renews: a thread keeps it.
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
        """Whether it is had for certain: reckoned from before the answer, so that it ends here no later than there."""
        return self.token is not None and self._now() < self._until

    def acquire(self) -> str:
        """Ask for it once: "" if it is had now, else who has it ("?" if nobody says). RuntimeError if it never will."""
        began = self._now()
        status, body = self._asked("POST", "acquire", self._request)
        if status == OK and type(body.get("token")) is int:
            self.token, self._until = body["token"], began + self._lease_s
            self._keep()
            return ""
        if status == CONFLICT:
            return str((body.get("lock") or {}).get("owner") or "?")
        if status in AGAIN or status == 0:
            return "?"
        raise RuntimeError(f"the lock {self._name} cannot be asked for: {status} {body.get('detail', '')}".strip())

    def renew(self) -> bool:
        """Make the lease longer. False if it is lost; an API that does not answer is asked again the next time."""
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
        """Give it back: "" if that was heard or nobody could hear it, else who has it. It is not had afterwards."""
        token = self.token
        self._lose()
        if token is None:
            return self.who() or "nobody"
        status, body = self._asked("POST", "release", {**self._who, "token": token})
        return str((body.get("lock") or {}).get("owner") or "nobody") if status == CONFLICT else ""

    def who(self) -> str | None:
        """Who has it, None if nobody."""
        query = urllib.parse.urlencode({"job_id": self._who["job_id"]})
        status, body = self._asked("GET", f"?{query}", None)
        return str(body["owner"]) if status == OK and body.get("owner") and not body.get("has_ended") else None

    def _asked(self, method: str, what: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """The answer; 0 where there is none."""
        path = f"/locks/{self._name}" + (what if what.startswith("?") else f"/{what}")
        try:
            return self._call(method, path, body)
        except OSError as error:
            log.warning("the lock %s: the API does not answer: %s", self._name, type(error).__name__)
            return 0, {}

    def _keep(self) -> None:
        _held.add(self)
        if self._renews:
            self._stop = threading.Event()
            threading.Thread(target=self._renewing, args=(self._stop,), name="gpu-recovery-lease", daemon=True).start()

    def _renewing(self, stop: threading.Event) -> None:
        while not stop.wait(self._lease_s / 3):
            if not self.renew():
                return

    def _lose(self) -> None:
        self.token = None
        self._stop.set()
        _held.discard(self)


def of_process(name: str, owner: str, process: str, rank: int | None, now: Callable[[], float]) -> Lease:
    """The lease of this process. Raises ValueError where its environment names no job, API or token."""
    job_id = os.environ.get("JOB_ID", "")
    if not job_id:
        raise ValueError("a distributed lock is one of a job: JOB_ID is not set")
    return Lease(Api(os.environ), job_id, name, owner, process, rank, now=now)


def _forked() -> None:
    """A child of the holder has no lease: nobody there would renew it."""
    for lease in list(_held):
        lease.token = None
    _held.clear()


os.register_at_fork(after_in_child=_forked)
