"""The job side of the HTTP API as Python calls. Views are the API's JSON objects, unchanged."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from .errors import (
    AnswerUnreadable,
    ClientError,
    ListIncomplete,
    RequestRefused,
    ServiceUnreachable,
    SettingsMissing,
)

View = dict[str, Any]
TIMEOUT_S = 35.0
"""Longer than the API may take (29 s), so that its own error arrives instead of our giving up."""
CONNECT_TIMEOUT_S = 10.0


class RecoveryClient:
    """A connection to one deployment, authenticated with an operator token. Usable as a context manager.

    api_url:   where `/api/v2/...` begins; https, or http on this machine only, since the token goes with each request.
    transport: replaces the network, for tests.

    Every call raises RequestRefused, ServiceUnreachable or AnswerUnreadable.
    """

    def __init__(self, api_url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        base, local = _address(api_url)
        self.api_url = str(base).rstrip("/")
        self._token = _usable(token)
        self._http = httpx.Client(
            headers={"authorization": f"Bearer {self._token}", "accept": "application/json"},
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            trust_env=not local,  # a proxy of the environment cannot reach this machine's loopback
        )

    def __repr__(self) -> str:
        return f"RecoveryClient({self.api_url!r})"

    def __enter__(self) -> RecoveryClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def submit(self, spec: Mapping[str, Any]) -> View:
        """Put a job in line; its view. `spec` is the body of POST /api/v2/jobs."""
        return self._one("job_id", "POST", "/jobs", body=spec)

    def job(self, job_id: str) -> View:
        """The view of one job, with its history."""
        return self._one("job_id", "GET", f"/jobs/{_segment('job id', job_id)}")

    def jobs_page(self, status: str | None = None, limit: int | None = None, cursor: str | None = None) -> View:
        """One page, `{"jobs": [view without history], "next_cursor": text or None, "unreadable": [text]}`."""
        return self._page("/jobs", "jobs", {"status": status, "limit": limit, "cursor": cursor})

    def jobs(
        self,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        unreadable: list[str] | None = None,
    ) -> Iterator[View]:
        """Every job from `cursor` on, page after page; `limit` is the size of a page.

        What the API cannot read is added to `unreadable`; without such a list it raises ListIncomplete at the end.
        """
        return self._items("/jobs", "jobs", {"status": status, "limit": limit, "cursor": cursor}, unreadable)

    def cancel(self, job_id: str, *, force: bool = False) -> View:
        """Ask for the end of a job; its view. Whether it has ended already is in the view's status.

        force: for ranks that ECS cannot stop or does not know: the agents of its instances are told to end them.
        """
        by_force = "?force=1" if force else ""
        return self._one("job_id", "POST", f"/jobs/{_segment('job id', job_id)}/cancel{by_force}")

    def instances(self, unreadable: list[str] | None = None) -> Iterator[View]:
        """Every instance that the deployment knows, without histories, page after page; `unreadable` as for `jobs`."""
        return self._items("/instances", "instances", {}, unreadable)

    def instance(self, instance_id: str) -> View:
        """The view of one instance, with its history."""
        return self._one("instance_id", "GET", f"/instances/{_segment('instance id', instance_id)}")

    def release(self, instance_id: str) -> View:
        """Vouch for a quarantined instance; its view, on its way through a health check."""
        return self._one("instance_id", "POST", f"/instances/{_segment('instance id', instance_id)}/release")

    def quarantine(self, instance_id: str, because: str = "") -> View:
        """Take an instance out of use until it is released; its view."""
        path = f"/instances/{_segment('instance id', instance_id)}/quarantine"
        return self._one("instance_id", "POST", path, body={"because": because})

    def issue_token(self, instance_id: str, expires_in_s: int | None = None, note: str = "") -> View:
        """A new token for the agent of an instance: `token`, which is shown this once, and what is known of it."""
        given = {"expires_in_s": expires_in_s, "note": note or None}
        body = {name: value for name, value in given.items() if value is not None}
        return self._one("token", "POST", f"/instances/{_segment('instance id', instance_id)}/tokens", body=body)

    def tokens(self, instance_id: str) -> View:
        """The tokens of an instance without what opens, the newest last: `{"instance_id": ..., "tokens": [view]}`."""
        return self._page(f"/instances/{_segment('instance id', instance_id)}/tokens", "tokens", {})

    def revoke_token(self, instance_id: str, token_id: str) -> View:
        """Revoke a token by its id; its view."""
        path = f"/instances/{_segment('instance id', instance_id)}/tokens/{_segment('token id', token_id)}"
        return self._one("token_id", "DELETE", path)

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

    def _items(self, path: str, key: str, query: Mapping[str, Any], unreadable: list[str] | None) -> Iterator[View]:
        cursor = query.get("cursor")
        seen = {cursor}
        missed: list[str] = [] if unreadable is None else unreadable
        while True:
            page = self._page(path, key, {**query, "cursor": cursor})
            missed += map(str, page.get("unreadable") or ())
            yield from page[key]
            cursor = page.get("next_cursor")
            if cursor is None:
                if unreadable is None and missed:
                    raise ListIncomplete(f"GET {path}: the API cannot read {'; '.join(missed)}")
                return
            if cursor in seen:
                raise AnswerUnreadable(f"GET {path}: the API repeats a page, so the list has no end")
            seen.add(cursor)

    def _page(self, path: str, key: str, query: Mapping[str, Any]) -> View:
        page = self._call("GET", path, query=query)
        if not isinstance(page.get(key), list):
            raise AnswerUnreadable(f"GET {path}: the answer has no list {key!r}; is {self.api_url} the API?")
        return page

    def _one(self, key: str, method: str, path: str, body: Any = None) -> View:
        view = self._call(method, path, body=body)
        if not isinstance(view.get(key), str):
            raise AnswerUnreadable(f"{method} {path}: the answer has no {key}; is {self.api_url} the API?")
        return view

    def _having(
        self, key: str, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None
    ) -> View:
        view = self._call(method, path, query, body)
        if key not in view:
            raise AnswerUnreadable(f"{method} {path}: the answer has no {key}; is {self.api_url} the API?")
        return view

    def _call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> View:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        url = f"{self.api_url}/api/v2{path}"
        try:
            response = self._http.request(method, url, params=given or None, json=body)
        except httpx.TimeoutException as error:
            raise ServiceUnreachable(f"{self.api_url} did not answer in time ({type(error).__name__})") from error
        except httpx.RequestError as error:
            raise ServiceUnreachable(f"cannot reach {self.api_url}: {self._safe(str(error))}") from error
        except ValueError as error:  # a number or character of the body that JSON has no form for
            raise ClientError(f"{method} {path}: the request cannot be written as JSON") from error
        if not response.is_success:
            raise self._refusal(response)
        view = _decoded(response)
        if not isinstance(view, dict):
            raise AnswerUnreadable(f"{method} {path}: the answer is not a JSON object; is {self.api_url} the API?")
        return view

    def _refusal(self, response: httpx.Response) -> ClientError:
        """The problem document as an error; the gateway's own `{"message"}` and bare statuses count as well."""
        problem = _decoded(response)
        if not isinstance(problem, dict):
            problem = {}
        title = problem.get("title") or problem.get("message") or _phrase(response.status_code)
        field = problem.get("field")
        return RequestRefused(
            response.status_code,
            self._safe(str(title)),
            self._safe(str(problem.get("detail") or "")),
            None if field is None else self._safe(str(field)),
        )

    def _safe(self, text: str) -> str:
        """`text` of a server or library, which might echo the token, without it."""
        return text.replace(self._token, "[token]")


def is_loopback(host: str) -> bool:
    """Whether `host` can only be this machine: 127.0.0.0/8, ::1, localhost and the names under it (RFC 6761)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _address(api_url: str) -> tuple[httpx.URL, bool]:
    """The address and whether it is on this machine; SettingsMissing if a token must not be sent there."""
    try:
        url = httpx.URL(api_url.strip())
    except httpx.InvalidURL as error:
        raise SettingsMissing("the API address is not a URL") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsMissing("the API address must begin with https:// and name a host")
    if url.userinfo or url.query or url.fragment:
        raise SettingsMissing("the API address must hold no user, password, query or fragment")
    local = is_loopback(url.host)
    if url.scheme == "http" and not local:
        raise SettingsMissing(f"the operator token is not sent in clear to {url.host}: use https")
    return url, local


def _usable(token: str) -> str:
    """`token` without white space around it. Odd characters are refused here, as libraries quote what they refuse."""
    bare = token.strip()
    if not bare:
        raise SettingsMissing("the operator token is empty")
    if not all("!" <= character <= "~" for character in bare):
        raise SettingsMissing("the operator token holds a character that a header cannot carry")
    return bare


def _segment(what: str, value: str) -> str:
    """`value` as one path segment: no slash leads elsewhere, and no dots climb."""
    if not value.strip(". "):
        raise ClientError(f"{value!r} is not a {what}")
    return quote(value, safe="", errors="replace")


def _decoded(response: httpx.Response) -> Any:
    """The body's JSON value; None when it is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "unexpected answer"
