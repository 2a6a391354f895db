"""The job API as Python methods. Views are the JSON objects of the API, unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpu_recovery_client.addresses import is_loopback
from gpu_recovery_client.http_client import HttpClient, View, segment

__all__ = ["RecoveryClient", "View", "is_loopback"]


class RecoveryClient(HttpClient):
    """Every request of the job API, one method each. See `HttpClient` for retries and errors."""

    def __enter__(self) -> RecoveryClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any] | str, *, kind: str = "", key: str | None = None) -> View:
        """Submit a job and return its view.

        Args:
            spec: the body of POST /api/v2/jobs, or its text.
            kind: the media type of the text; JSON by default.
            key: idempotency key, 1 to 255 printable ASCII characters. For at least 24 hours the same key returns the
                same job and never creates a second one. So a lost response or a busy API is retried. Without a key
                there is no retry.
        """
        headers = {} if key is None else {"idempotency-key": key}
        return self._record("job_id", "POST", "/jobs", **_written(spec, kind, headers), repeatable=key is not None)

    def dry_run(self, spec: Mapping[str, Any] | str, *, kind: str = "") -> View:
        """Return whether the job would start now, where, why not, and which jobs it would suspend. Stores nothing."""
        body = _written(spec, kind, {})
        return self._having("would_start", "POST", "/jobs", query={"dry_run": 1}, **body, repeatable=True)

    def job(self, job_id: str) -> View:
        """Return the view of one job, with its history and attempts."""
        return self._record("job_id", "GET", f"/jobs/{segment('job id', job_id)}")

    def jobs_page(
        self, status: str | None = None, limit: int | None = None, cursor: str | None = None, **filters: str | None
    ) -> View:
        """Return one page, `{"jobs": [view without history], "next_cursor": text or None, "unreadable": [text]}`.

        Args:
            status: only jobs of this status.
            limit: jobs per page.
            cursor: `next_cursor` of the page before.
            filters: `user`; `group`; `name`; `since`, a time of RFC 3339; `state` (`waiting`, `running`, `ended`);
                `order` (`newest`, `oldest`, `status`); a job that changes its status between two pages of `status`, the
                default, may be missing or repeated; `q`, the first characters of ids; `fields` (`list` for short
                views).
        """
        return self._page("/jobs", "jobs", {"status": status, "limit": limit, "cursor": cursor, **filters})

    def jobs_pages(
        self, status: str | None = None, limit: int | None = None, cursor: str | None = None, **filters: str | None
    ) -> Iterator[View]:
        """Yield every page from `cursor` on, with the arguments of `jobs_page`."""
        return self._pages("/jobs", "jobs", {"status": status, "limit": limit, "cursor": cursor, **filters})

    def jobs(
        self,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        unreadable: list[str] | None = None,
        **filters: str | None,
    ) -> Iterator[View]:
        """Yield every job from `cursor` on, page by page. `limit` is the page size, `filters` as in `jobs_page`.

        Records that the API cannot read are appended to `unreadable`. Without such a list, ListIncomplete is raised at
        the end.
        """
        query = {"status": status, "limit": limit, "cursor": cursor, **filters}
        return self._items("/jobs", "jobs", query, unreadable)

    def cancel(self, job_id: str, *, force: bool = False) -> View:
        """Ask the service to end a job and return its view. Its status says whether the job has ended already.

        Args:
            job_id: the job.
            force: for ranks that ECS cannot stop or does not know: the agents of the job's instances also end them.
        """
        by_force = "?force=1" if force else ""
        return self._record("job_id", "POST", f"/jobs/{segment('job id', job_id)}/cancel{by_force}")

    def suspend(self, job_id: str, because: str = "") -> View:
        """Ask a job to save its state and release its GPUs until `resume`; return its view."""
        return self._record("job_id", "POST", f"/jobs/{segment('job id', job_id)}/suspend", body={"because": because})

    def resume(self, job_id: str) -> View:
        """Queue a suspended job again at its old place; return its view."""
        return self._record("job_id", "POST", f"/jobs/{segment('job id', job_id)}/resume")

    def logs(
        self,
        job_id: str,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> View:
        """Return log lines of a rank: `{"job_id", "attempt", "rank", "lines": [{"at", "text"}], "next_cursor"}`.

        These are the last `tail` lines, or the lines after `cursor`. Without rank and attempt: rank 0 of the latest
        attempt.
        """
        query = {"rank": rank, "attempt": attempt, "tail": tail, "cursor": cursor}
        return self._page(f"/jobs/{segment('job id', job_id)}/logs", "lines", query)

    def explain(self, job_id: str) -> View:
        """Return why a job is in its status: every decision on it, and while it waits `pending`, as in `dry_run`."""
        return self._having("decisions", "GET", f"/jobs/{segment('job id', job_id)}/explain")

    def diagnose(self, job_id: str, attempt: int | None = None) -> View:
        """Return what failed in an attempt of a job (by default the latest), where, and how certain that is."""
        body: dict[str, Any] = {"job_id": job_id} | ({} if attempt is None else {"attempt": attempt})
        return self._having("page", "POST", "/diagnoses", body=body)

    def queue(self) -> View:
        """Return the queue: waiting jobs with reasons, running jobs, quotas with usage, reservations; of all pages."""
        first, *further = pages = [*self._pages("/queue", "waiting", {})]
        if not further:
            return first
        # A job that moved between two pages is in both: keep its later entry.
        line = {str(job.get("job_id")): job for page in pages for job in page["waiting"]}
        running = {str(job.get("job_id")): job for page in pages for job in page.get("running") or ()}
        return {**first, "waiting": [*line.values()], "running": [*running.values()], "next_cursor": None}

    def quotas(self) -> View:
        """Return the limits, `{"limits": {...}, "revision": number}`."""
        return self._having("limits", "GET", "/quotas")

    def put_quotas(self, limits: Mapping[str, Any], revision: int | str) -> View:
        """Replace the limits of `revision` by these limits. Refused if they have changed since."""
        return self._having("limits", "PUT", "/quotas", body={"limits": limits}, headers={"if-match": str(revision)})

    # -- instances -----------------------------------------------------------------------------------------------------

    def instances(self, unreadable: list[str] | None = None, **filters: str | None) -> Iterator[View]:
        """Yield every instance of the deployment without its history, page by page; `unreadable` as in `jobs`.

        Args:
            unreadable: receives the records that the API cannot read.
            filters: `status`, with commas; `job`, an id; `q`, the first characters of ids; `order` (`id`, `since`,
                `lemon`).
        """
        return self._items("/instances", "instances", filters, unreadable)

    def instance(self, instance_id: str) -> View:
        """Return the view of one instance, with its history."""
        return self._record("instance_id", "GET", f"/instances/{segment('instance id', instance_id)}")

    def release(self, instance_id: str) -> View:
        """Release a quarantined instance; return its view.

        A health check must pass first, unless a job works on the instance and it was quarantined without evidence.
        """
        return self._record("instance_id", "POST", f"/instances/{segment('instance id', instance_id)}/release")

    def quarantine(self, instance_id: str, because: str = "") -> View:
        """Take an instance out of use until it is released; return its view."""
        path = f"/instances/{segment('instance id', instance_id)}/quarantine"
        return self._record("instance_id", "POST", path, body={"because": because})

    # -- tokens --------------------------------------------------------------------------------------------------------

    def issue_token(self, instance_id: str, expires_in_s: int | None = None, note: str = "") -> View:
        """Issue a token for the agent of an instance. The view has the secret `token`, which is never shown again."""
        path = f"/instances/{segment('instance id', instance_id)}/tokens"
        return self._record("token", "POST", path, body=_token(expires_in_s, note))

    def tokens(self, instance_id: str) -> View:
        """Return the tokens of an instance without their secrets, the newest last: `{"instance_id": ..., "tokens":
        [view]}`.
        """
        return self._page(f"/instances/{segment('instance id', instance_id)}/tokens", "tokens", {})

    def revoke_token(self, instance_id: str, token_id: str) -> View:
        """Revoke a token by its id; return its view."""
        path = f"/instances/{segment('instance id', instance_id)}/tokens/{segment('token id', token_id)}"
        return self._record("token_id", "DELETE", path)

    def issue_user_token(self, user: str, role: str, expires_in_s: int | None = None, note: str = "") -> View:
        """Issue a token for a user. The view has the secret `token`, which is never shown again.

        Args:
            user: the user.
            role: `viewer` reads; `user` also submits, and controls the user's own jobs; `operator` may do everything.
            expires_in_s: seconds until the token expires; the default of the API if None.
            note: a comment, shown in the list.
        """
        path = f"/users/{segment('user', user)}/tokens"
        return self._record("token", "POST", path, body={"role": role, **_token(expires_in_s, note)})

    def user_tokens(self, user: str) -> View:
        """Return the tokens of a user without their secrets, the newest last: `{"user": ..., "tokens": [view]}`."""
        return self._page(f"/users/{segment('user', user)}/tokens", "tokens", {})

    def revoke_user_token(self, user: str, token_id: str) -> View:
        """Revoke a user's token by its id; return its view."""
        path = f"/users/{segment('user', user)}/tokens/{segment('token id', token_id)}"
        return self._having("user", "DELETE", path)

    def me(self) -> View:
        """Return who the caller is: `{"user", "role", "expires_at", "is_session", "deployment": {...}}`."""
        return self._having("role", "GET", "/me")

    def open_session(self, role: str | None = None) -> View:
        """Exchange the token for a session of the web console, of at most 12 hours.

        Args:
            role: role of the session, at most that of the token; None: that of the token.
        """
        return self._record("session", "POST", "/sessions", body={} if role is None else {"role": role})

    # -- the fleet -----------------------------------------------------------------------------------------------------

    def fleet(self) -> View:
        """Return the fleet limits of recovery, and the repairs that they block."""
        return self._having("breaker", "GET", "/fleet")

    def pause(self, because: str) -> View:
        """Let no repair begin until `unpause`; return the fleet limits."""
        return self._having("breaker", "POST", "/fleet/pause", body={"because": because})

    def unpause(self) -> View:
        """Let repairs begin again; return the fleet limits."""
        return self._having("breaker", "POST", "/fleet/unpause")

    def reset_breaker(self) -> View:
        """Close the circuit breaker by hand; return the fleet limits."""
        return self._having("breaker", "POST", "/fleet/reset-breaker")

    def event_records(self, since: str) -> Iterator[View]:
        """Yield the stored events of the account since a time of RFC 3339, the oldest first, page by page."""
        return self._items("/events/records", "records", {"since": since}, None)

    def dead_letters(self) -> View:
        """Return how many messages each dead-letter queue holds, and its first messages. Removes none."""
        return self._having("queues", "GET", "/dead-letters")

    def redrive(self, queue: str | None = None, limit: int | None = None) -> View:
        """Send dead letters to their original targets again; return the result of each, and how many are left."""
        query = {"queue": queue, "limit": limit}
        return self._having("letters", "POST", "/dead-letters/redrive", query=query)


def _written(spec: Mapping[str, Any] | str, kind: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of a request with a document, or the text of a document, as its body."""
    if isinstance(spec, str):
        return {"text": spec, "headers": {**headers, "content-type": kind or "application/json"}}
    return {"body": spec, "headers": headers}


def _token(expires_in_s: int | None, note: str) -> dict[str, Any]:
    fields = {"expires_in_s": expires_in_s, "note": note or None}
    return {name: value for name, value in fields.items() if value is not None}
