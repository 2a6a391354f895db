"""HTTP request of the job API, and the description of a route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.job_api.authentication import Caller
from gpu_recovery.job_api.response import ApiError, ApiResponse

if TYPE_CHECKING:
    from gpu_recovery.job_api.dependencies import Dependencies

Kind = Mapping[str, Any]
"""Kind of a parameter: the JSON Schema by which `Request` reads it and openapi.json describes it."""
TEXT: Kind = {"type": "string"}
FLAG: Kind = {"type": "string", "enum": ["0", "1"]}
TIME: Kind = {"type": "string", "format": "date-time"}
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Bounds of the times of a request. A computation with a time between them cannot leave the range of `datetime`."""
BODY_BYTES_MAX = 262_144
"""Upper bound of a request body in bytes."""


def between(least: int, most: int) -> Kind:
    """Return the kind of a parameter that is a whole number from `least` to `most`."""
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*values: str) -> Kind:
    """Return the kind of a parameter that has one of the `values`."""
    return {"type": "string", "enum": list(values)}


@frozen_dataclass()
class Request:
    """A request of a caller.

    named:   parts of the path that the route names, without percent-encoding.
    headers: headers by their names in lower case.
    kinds:   kinds of the query parameters that the route has.
    read:    returns the body as text, or raises ValueError if the body is not text.
    """

    method: str
    path: str
    named: Mapping[str, str]
    query: Mapping[str, str]
    kinds: Mapping[str, Kind]
    headers: Mapping[str, str]
    read: Callable[[], str]
    caller: Caller

    def text(self) -> str:
        """Return the body.

        Raises:
            ApiError: 400, the body is not text; 413, the body is too large.
        """
        try:
            text = self.read()
            size = len(text.encode())
        except ValueError as error:
            raise ApiError(400, "no_text", "Not text", f"the body is not text: {error}"[:200], "body") from error
        if size > BODY_BYTES_MAX:
            raise ApiError(413, "too_large", "Too large", f"the body has more than {BODY_BYTES_MAX} bytes", "body")
        return text

    def choice(self, name: str, default: str) -> str:
        """Return a query parameter of the kind `one_of`; `default` if it is missing.

        Raises:
            ApiError: 400, the parameter has a value that its kind does not have.
        """
        value, allowed = self.query.get(name), self.kinds[name]["enum"]
        if value is not None and value not in allowed:
            raise ApiError(400, "bad_query", f"Bad {name}", f"must be one of {', '.join(allowed)}", name)
        return default if value is None else value

    def flag(self, name: str) -> bool:
        """Return whether a query parameter is 1. The parameter may also be 0 or missing.

        Raises:
            ApiError: 400, the parameter has another value.
        """
        return self.choice(name, "0") == "1"

    def number(self, name: str, default: int) -> int:
        """Return a query parameter of the kind `between` as an integer; `default` if it is missing.

        Raises:
            ApiError: 400, the parameter is not an integer within the bounds of its kind.
        """
        value, least, most = self.query.get(name), self.kinds[name]["minimum"], self.kinds[name]["maximum"]
        if value is None:
            return default
        if (
            not (value.isascii() and value.isdecimal())
            or len(value) > len(str(most))
            or not least <= int(value) <= most
        ):
            detail = f"must be a whole number from {least} to {most}"
            raise ApiError(400, "bad_query", f"Bad {name}", detail, name)
        return int(value)

    def time(self, name: str) -> datetime | None:
        """Return a query parameter as a time in UTC; None if it is missing.

        A time before `EARLIEST` or after `LATEST` counts as that time: no record has a time beyond them.

        Raises:
            ApiError: 400, the parameter is not a time.
        """
        text = self.query.get(name)
        if text is None:
            return None
        try:
            # A + in a query is decoded as a space.
            at = datetime.fromisoformat(text.replace(" ", "+")).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            detail = "must be a time such as 2026-11-21T09:00:00Z"
            raise ApiError(400, "bad_query", f"Bad {name}", detail, name) from error
        return min(max(at, EARLIEST), LATEST)


@frozen_dataclass()
class Parameter:
    """A parameter of the query or the headers, as openapi.json describes it.

    kind:  JSON Schema of the value.
    where: `query` or `header`.
    """

    name: str
    description: str
    kind: Kind
    where: str = "query"
    required: bool = False


@frozen_dataclass()
class Route:
    """A route: method, path and function, and its description in openapi.json.

    path:       path with its variable parts in angle brackets.
    serve:      function that answers the request.
    summary:    summary in openapi.json.
    answers:    name of the model of the answer by status (`models/responses.py`).
    needs:      lowest role of a caller; None for a route without a token.
    query:      parameters of the query and the headers.
    takes:      name of the model of the body, "" if the route has no body.
    needs_body: whether the body is required.
    also_yaml:  whether the body may be YAML.
    refuses:    statuses of problem documents, in addition to those that `openapi` derives.
    """

    method: str
    path: str
    serve: Callable[[Dependencies, Request], ApiResponse]
    summary: str
    answers: Mapping[int, str]
    needs: Role | None = Role.VIEWER
    query: tuple[Parameter, ...] = ()
    takes: str = ""
    needs_body: bool = False
    also_yaml: bool = False
    refuses: tuple[int, ...] = ()

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kinds of the query parameters."""
        return {parameter.name: parameter.kind for parameter in self.query if parameter.where == "query"}
