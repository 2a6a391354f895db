"""HTTP requests to the job API: where the credentials may go, retries, and checks of responses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from gpu_recovery_client.addresses import is_loopback
from gpu_recovery_client.errors import (
    AnswerUnreadable,
    ClientError,
    ListIncomplete,
    RequestRefused,
    ServiceUnreachable,
    SettingsMissing,
)
from gpu_recovery_client.iam import IamAuth

View = dict[str, Any]
TIMEOUT_S = 35.0
"""Seconds for a response: more than the API may take (29 s), so that the API's own error arrives first."""
CONNECT_TIMEOUT_S = 10.0
ATTEMPTS_MAX = 4
"""Largest number of attempts for a request that may be repeated: a read, or a submission with an idempotency key."""
WAIT_S, WAIT_S_MAX = 1.0, 30.0
"""First wait in seconds if the API names none (it doubles each time), and the longest wait that is accepted."""
BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses after which a request may be retried."""


class HttpClient:
    """A connection to one deployment, authenticated with a token or with signatures. Usable as a context manager.

    Every call raises RequestRefused, ServiceUnreachable or AnswerUnreadable. A read that is refused with 429 or 503 is
    retried after its Retry-After, with ATTEMPTS_MAX attempts in all.

    Args:
        api_url: the address below which `/api/v2/...` begins. It must be https, or http on this host, because each
            request carries the token.
        token: the secret token; "" with `auth`.
        transport: replaces the network, for tests.
        auth: signs the requests to a deployment that takes no tokens.
        timeout_s: seconds until a request is given up.
        pause: waits this many seconds before a retry.
    """

    def __init__(
        self,
        api_url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
        *,
        auth: IamAuth | None = None,
        timeout_s: float = TIMEOUT_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        base, self._local = _address(api_url)
        self.api_url = str(base).rstrip("/")
        if token and auth is not None:
            raise SettingsMissing("give a token or sign the requests, not both")
        self._auth, self._token = auth, "" if auth is not None else _checked_token(token)
        self._pause = pause
        self._http = httpx.Client(
            headers={"accept": "application/json"} | _bearer(self._token),
            auth=auth,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
            transport=transport,
            verify=base.scheme == "https",  # without TLS, reading the certificates is wasted time
            trust_env=not self._local,  # a proxy of the environment cannot reach the loopback of this host
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.api_url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _items(self, path: str, key: str, query: Mapping[str, Any], unreadable: list[str] | None) -> Iterator[View]:
        """Yield the items of all pages."""
        missed: list[str] = [] if unreadable is None else unreadable
        for page in self._pages(path, key, query):
            missed += map(str, page.get("unreadable") or ())
            yield from page[key]
        if unreadable is None and missed:
            raise ListIncomplete(f"GET {path}: the API cannot read {'; '.join(missed)}")

    def _pages(self, path: str, key: str, query: Mapping[str, Any]) -> Iterator[View]:
        """Yield all pages of a list."""
        cursor = query.get("cursor")
        seen = {cursor}
        while True:
            page = self._page(path, key, {**query, "cursor": cursor})
            yield page
            cursor = page.get("next_cursor")
            if cursor is None:
                return
            if cursor in seen:
                raise AnswerUnreadable(f"GET {path}: the API repeats a page, so the list has no end")
            seen.add(cursor)

    def _page(self, path: str, key: str, query: Mapping[str, Any]) -> View:
        """Return one page. Raises AnswerUnreadable if its field `key` is no list."""
        page = self._call("GET", path, query=query)
        if not isinstance(page.get(key), list):
            raise AnswerUnreadable(f"GET {path}: the answer has no list {key!r}; is {self.api_url} the API?")
        return page

    def _record(self, key: str, method: str, path: str, **request: Any) -> View:
        """Return the view of one record. Raises AnswerUnreadable if its field `key` is no string."""
        view = self._call(method, path, **request)
        if not isinstance(view.get(key), str):
            raise AnswerUnreadable(f"{method} {path}: the answer has no {key}; is {self.api_url} the API?")
        return view

    def _having(self, key: str, method: str, path: str, **request: Any) -> View:
        """Return a view. Raises AnswerUnreadable if it lacks the field `key`."""
        view = self._call(method, path, **request)
        if key not in view:
            raise AnswerUnreadable(f"{method} {path}: the answer has no {key}; is {self.api_url} the API?")
        return view

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        text: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> View:
        """Send a request and return the JSON object of the response.

        Args:
            method: HTTP method.
            path: the path below the version of the API.
            query: query parameters; None values are left out.
            body: sent as JSON.
            text: sent as it is; a header names its media type.
            headers: further headers.
            repeatable: a second delivery has no further effect, so the request may be retried after a lost response.
        """
        parameters = {key: value for key, value in (query or {}).items() if value is not None}
        # A blank is %20: SigV4 signs queries in this form only.
        search = f"?{urlencode(parameters, doseq=True, quote_via=quote)}" if parameters else ""
        url = f"{self.api_url}/api/v2{path}{search}"
        try:
            request = self._http.build_request(method, url, json=body, content=text, headers=dict(headers or {}))
        except ValueError as error:  # the body has a number or character without a form in JSON
            raise ClientError(f"{method} {path}: the request cannot be written as JSON") from error
        for number in range(1, ATTEMPTS_MAX + 1):
            response = self._send(request, again=repeatable and number < ATTEMPTS_MAX)
            if response is None:
                self._pause(_backoff_s(number))
                continue
            if response.is_success:
                return self._view(response, method, path)
            refusal = self._refusal(response, path)
            wait = _backoff_s(number) if refusal.retry_after_s is None else refusal.retry_after_s
            if response.status_code not in BUSY or number == ATTEMPTS_MAX or wait > WAIT_S_MAX:
                raise refusal
            if method != "GET" and not repeatable:
                raise refusal
            self._pause(wait)
        raise AssertionError("the last try answers or raises")

    def _send(self, request: httpx.Request, *, again: bool) -> httpx.Response | None:
        """Send the request. Return None if the response was lost and the request may be sent `again`."""
        try:
            return self._http.send(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # nothing was sent: no server listens there
            raise self._unreachable(error) from error
        except httpx.RequestError as error:
            if again:
                return None
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.RequestError) -> ServiceUnreachable:
        if isinstance(error, httpx.TimeoutException):
            text = f"{self.api_url} did not answer in time ({type(error).__name__})"
        else:
            text = f"cannot reach {self.api_url}: {self._safe(str(error))}"
        return ServiceUnreachable(text, local=self._local)

    def _view(self, response: httpx.Response, method: str, path: str) -> View:
        view = _decoded(response)
        if not isinstance(view, dict):
            raise AnswerUnreadable(f"{method} {path}: the answer is not a JSON object; is {self.api_url} the API?")
        return view

    def _refusal(self, response: httpx.Response, path: str) -> RequestRefused:
        """Return the problem document as an error.

        The gateway's own `{"message"}` and bare statuses are accepted too.
        """
        problem = _decoded(response)
        if not isinstance(problem, dict):
            problem = {}
        title = problem.get("title") or problem.get("message") or _phrase(response.status_code)
        field = problem.get("field")
        listed = problem.get("errors")
        wrong = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        more = [
            (self._safe(str(entry.get("field") or "")), self._safe(str(entry.get("detail") or ""))) for entry in wrong
        ]
        first = (None if field is None else str(field), str(problem.get("detail") or ""))
        return RequestRefused(
            response.status_code,
            self._safe(str(title)),
            self._safe(first[1]),
            None if first[0] is None else self._safe(first[0]),
            more=tuple(entry for entry in more if entry != first),
            code=self._safe(str(problem.get("code") or "")),
            retry_after_s=_seconds(response.headers.get("retry-after"), problem.get("retry_after_s")),
            path=self._safe(path),
            api_url=self.api_url,
            is_read=response.request.method == "GET",
            is_problem=isinstance(problem.get("title"), str),
        )

    def _safe(self, text: str) -> str:
        """Return a text of a server or library with the credentials replaced: the text might echo them."""
        return text.replace(self._token, "[token]") if self._auth is None else self._auth.signer.masked(text)


def segment(what: str, value: str) -> str:
    """Return `value` quoted as one path segment, so that it cannot change the path.

    Raises ClientError if it is empty.
    """
    if not value.strip(". "):
        raise ClientError(f"{value!r} is not a {what}")
    return quote(value, safe="", errors="replace")


def _address(api_url: str) -> tuple[httpx.URL, bool]:
    """Return the address, and whether it is on this host.

    Raises SettingsMissing if the token must not be sent there.
    """
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
        raise SettingsMissing(f"the token is not sent in clear to {url.host}: use https")
    return url, local


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _checked_token(token: str) -> str:
    """Return `token` without surrounding white space.

    Raises SettingsMissing for characters that a header cannot carry. A library would quote the token in its error.
    """
    bare = token.strip()
    if not bare:
        raise SettingsMissing("the token is empty")
    if not all("!" <= character <= "~" for character in bare):
        raise SettingsMissing("the token holds a character that a header cannot carry")
    return bare


def _backoff_s(number: int) -> float:
    """Return the seconds to wait after attempt `number` if the API names none."""
    return WAIT_S * 2.0 ** (number - 1)


def _seconds(*values: Any) -> float | None:
    """Return the first value that is a number of seconds; None if there is none.

    A date in Retry-After (RFC 9110) is ignored.
    """
    for value in values:
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def _decoded(response: httpx.Response) -> Any:
    """Return the JSON value of the body; None if it is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "unexpected answer"
