"""The job side of the HTTP API as Python calls. Views are the API's JSON objects, unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpu_recovery_client.http_client import HttpClient, View, is_loopback, segment

__all__ = ["RecoveryClient", "View", "is_loopback"]


class RecoveryClient(HttpClient):
    """Every request of the job API, one method each. See `HttpClient` for how it is made and what it raises."""

    def __enter__(self) -> RecoveryClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any] | str, *, kind: str = "", key: str | None = None) -> View:
        """Put a job in line; its view. `spec` is the body of POST /api/v2/jobs, or its text with the media type `kind`.

        key: 1 to 255 printable ASCII characters. Under the same key the same job is answered, never a second one made,
        for at least 24 hours, so a lost answer or a busy API is tried again; without a key nothing is.
        """
        headers = {} if key is None else {"idempotency-key": key}
        return self._one("job_id", "POST", "/jobs", **_written(spec, kind, headers), repeatable=key is not None)

    def dry_run(self, spec: Mapping[str, Any] | str, *, kind: str = "") -> View:
        """Whether that job would start now, where, why not, and whom it would suspend. Nothing is kept."""
        body = _written(spec, kind, {})
        return self._having("would_start", "POST", "/jobs", query={"dry_run": 1}, **body, repeatable=True)

    def job(self, job_id: str) -> View:
        """The view of one job, with its history and attempts."""
        return self._one("job_id", "GET", f"/jobs/{segment('job id', job_id)}")

    def jobs_page(
        self, status: str | None = None, limit: int | None = None, cursor: str | None = None, **filters: str | None
    ) -> View:
        """One page, `{"jobs": [view without history], "next_cursor": text or None, "unreadable": [text]}`.

        filters: `user`, `group`, and `since`, a time as RFC 3339 has it.
        """
        return self._page("/jobs", "jobs", {"status": status, "limit": limit, "cursor": cursor, **filters})

    def jobs(
        self,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        unreadable: list[str] | None = None,
        **filters: str | None,
    ) -> Iterator[View]:
        """Every job from `cursor` on, page after page; `limit` is the size of a page, `filters` as for `jobs_page`.

        What the API cannot read is added to `unreadable`; without such a list it raises ListIncomplete at the end.
        """
        query = {"status": status, "limit": limit, "cursor": cursor, **filters}
        return self._items("/jobs", "jobs", query, unreadable)

    def cancel(self, job_id: str, *, force: bool = False) -> View:
        """Ask for the end of a job; its view. Whether it has ended already is in the view's status.

        force: for ranks that ECS cannot stop or does not know: the agents of its instances are told to end them.
        """
        by_force = "?force=1" if force else ""
        return self._one("job_id", "POST", f"/jobs/{segment('job id', job_id)}/cancel{by_force}")

    def suspend(self, job_id: str, because: str = "") -> View:
        """Have a job save its state and give its GPUs back until `resume`; its view."""
        return self._one("job_id", "POST", f"/jobs/{segment('job id', job_id)}/suspend", body={"because": because})

    def resume(self, job_id: str) -> View:
        """Put a suspended job in line again, where it stood; its view."""
        return self._one("job_id", "POST", f"/jobs/{segment('job id', job_id)}/resume")

    def logs(
        self,
        job_id: str,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> View:
        """What a rank wrote: `{"job_id", "attempt", "rank", "lines": [{"at", "text"}], "next_cursor"}`.

        The last `tail` lines, or what came after `cursor`. Without rank and attempt, rank 0 of the latest attempt.
        """
        query = {"rank": rank, "attempt": attempt, "tail": tail, "cursor": cursor}
        return self._page(f"/jobs/{segment('job id', job_id)}/logs", "lines", query)

    def explain(self, job_id: str) -> View:
        """Why a job is where it is: `pending`, as `dry_run` tells it, while it waits, and every decision on it."""
        return self._having("decisions", "GET", f"/jobs/{segment('job id', job_id)}/explain")

    def diagnose(self, job_id: str, attempt: int | None = None) -> View:
        """What failed in an attempt of a job (the latest unless told), where, and how sure that is."""
        body: dict[str, Any] = {"job_id": job_id} | ({} if attempt is None else {"attempt": attempt})
        return self._having("page", "POST", "/diagnoses", body=body)

    def queue(self) -> View:
        """The line: who waits and why, who runs, quotas with what is used of them, reservations; page after page."""
        first = self._page("/queue", "waiting", {})
        if first.get("next_cursor") is None:
            return first
        more = self._items("/queue", "waiting", {"cursor": first["next_cursor"]}, None)
        line = {
            str(job.get("job_id")): job for job in (*first["waiting"], *more)
        }  # who was told twice stands at the later
        return {**first, "waiting": [*line.values()], "next_cursor": None}

    def quotas(self) -> View:
        """The limits, `{"limits": {...}, "revision": number}`."""
        return self._having("limits", "GET", "/quotas")

    def put_quotas(self, limits: Mapping[str, Any], revision: int | str) -> View:
        """Put these limits in place of those of `revision`; refused if they were changed since."""
        return self._having("limits", "PUT", "/quotas", body={"limits": limits}, headers={"if-match": str(revision)})

    # -- instances -----------------------------------------------------------------------------------------------------

    def instances(self, unreadable: list[str] | None = None) -> Iterator[View]:
        """Every instance that the deployment knows, without histories, page after page; `unreadable` as for `jobs`."""
        return self._items("/instances", "instances", {}, unreadable)

    def instance(self, instance_id: str) -> View:
        """The view of one instance, with its history."""
        return self._one("instance_id", "GET", f"/instances/{segment('instance id', instance_id)}")

    def release(self, instance_id: str) -> View:
        """Vouch for a quarantined instance; its view, on its way through a health check."""
        return self._one("instance_id", "POST", f"/instances/{segment('instance id', instance_id)}/release")

    def quarantine(self, instance_id: str, because: str = "") -> View:
        """Take an instance out of use until it is released; its view."""
        path = f"/instances/{segment('instance id', instance_id)}/quarantine"
        return self._one("instance_id", "POST", path, body={"because": because})

    # -- tokens --------------------------------------------------------------------------------------------------------

    def issue_token(self, instance_id: str, expires_in_s: int | None = None, note: str = "") -> View:
        """A new token for the agent of an instance: `token`, which is shown this once, and what is known of it."""
        path = f"/instances/{segment('instance id', instance_id)}/tokens"
        return self._one("token", "POST", path, body=_token(expires_in_s, note))

    def tokens(self, instance_id: str) -> View:
        """The tokens of an instance without what opens, the newest last: `{"instance_id": ..., "tokens": [view]}`."""
        return self._page(f"/instances/{segment('instance id', instance_id)}/tokens", "tokens", {})

    def revoke_token(self, instance_id: str, token_id: str) -> View:
        """Revoke a token by its id; its view."""
        path = f"/instances/{segment('instance id', instance_id)}/tokens/{segment('token id', token_id)}"
        return self._one("token_id", "DELETE", path)

    def issue_user_token(self, user: str, role: str, expires_in_s: int | None = None, note: str = "") -> View:
        """A new token that speaks for a user: `token`, which is shown this once, and what is known of it.

        role: viewer reads, user submits and orders about jobs of its own, operator does everything.
        """
        path = f"/users/{segment('user', user)}/tokens"
        return self._one("token", "POST", path, body={"role": role, **_token(expires_in_s, note)})

    def user_tokens(self, user: str) -> View:
        """The tokens of a user without what opens, the newest last: `{"user": ..., "tokens": [view]}`."""
        return self._page(f"/users/{segment('user', user)}/tokens", "tokens", {})

    def revoke_user_token(self, user: str, token_id: str) -> View:
        """Revoke a user's token by its id; its view."""
        path = f"/users/{segment('user', user)}/tokens/{segment('token id', token_id)}"
        return self._having("user", "DELETE", path)

    # -- the fleet -----------------------------------------------------------------------------------------------------

    def fleet(self) -> View:
        """The brakes of recovery, and whom they hold."""
        return self._having("breaker", "GET", "/fleet")

    def pause(self, because: str) -> View:
        """Let no repair begin until `unpause`; the brakes."""
        return self._having("breaker", "POST", "/fleet/pause", body={"because": because})

    def unpause(self) -> View:
        """Let repairs begin again; the brakes."""
        return self._having("breaker", "POST", "/fleet/unpause")

    def reset_breaker(self) -> View:
        """Close the breaker by hand; the brakes."""
        return self._having("breaker", "POST", "/fleet/reset-breaker")

    def dead_letters(self) -> View:
        """How many messages each dead-letter queue holds, and what the first of them are; takes nothing."""
        return self._having("queues", "GET", "/dead-letters")

    def redrive(self, queue: str | None = None, limit: int | None = None) -> View:
        """Give dead letters again to whom they were for; what became of each, and how many are left."""
        query = {"queue": queue, "limit": limit}
        return self._having("letters", "POST", "/dead-letters/redrive", query=query)


def _written(spec: Mapping[str, Any] | str, kind: str, headers: dict[str, str]) -> dict[str, Any]:
    """The arguments of a request whose body is a document or its text."""
    if isinstance(spec, str):
        return {"text": spec, "headers": {**headers, "content-type": kind or "application/json"}}
    return {"body": spec, "headers": headers}


def _token(expires_in_s: int | None, note: str) -> dict[str, Any]:
    given = {"expires_in_s": expires_in_s, "note": note or None}
    return {name: value for name, value in given.items() if value is not None}
