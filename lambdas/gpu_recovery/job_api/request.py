"""What comes in, and what a route is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.job_api.authentication import Caller
from gpu_recovery.job_api.response import ApiError, ApiResponse

if TYPE_CHECKING:
    from gpu_recovery.job_api.dependencies import Dependencies

BODY_BYTES_MAX = 262_144


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. `named` are the parts of the path that a route names, `headers` have small letters.

    read: the body as text; ValueError if it is none.
    """

    method: str
    path: str
    named: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    read: Callable[[], str]
    caller: Caller

    def text(self) -> str:
        """The body. Refused if it is too large or no text."""
        try:
            text = self.read()
            size = len(text.encode())
        except ValueError as error:
            raise ApiError(400, "no_text", "Not text", f"the body is no text: {error}"[:200], "body") from error
        if size > BODY_BYTES_MAX:
            raise ApiError(413, "too_large", "Too large", f"a body may have {BODY_BYTES_MAX} bytes", "body")
        return text

    def choice(self, name: str, default: str, *allowed: str) -> str:
        """A parameter of the query that is one of `allowed`."""
        value = self.query.get(name, default)
        if value not in allowed:
            raise ApiError(400, "bad_query", f"Bad {name}", f"must be one of {', '.join(allowed)}", name)
        return value

    def flag(self, name: str) -> bool:
        """Whether a parameter of the query is 1; 0 or nothing is no."""
        value = self.query.get(name, "0")
        if value not in ("0", "1"):
            raise ApiError(400, "bad_query", f"Bad {name}", "must be 0 or 1", name)
        return value == "1"

    def number(self, name: str, default: int | None, least: int, most: int) -> int | None:
        """A whole number in the query."""
        value = self.query.get(name)
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


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query or of the headers, as openapi.json describes it; `kind` is its schema."""

    name: str
    description: str
    kind: Mapping[str, Any]
    where: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that can be asked.

    path:    with the parts that differ in angle brackets.
    needs:   the least role of a caller; None: anybody, without a token.
    answers: by status, the name of a schema of openapi.json.
    takes:   the name of the body's schema, "" for none; `needs_body`: there must be one.
    refuses: the statuses of its problem documents besides those that every route may answer with.
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


TEXT = {"type": "string"}
FLAG = {"type": "string", "enum": ["0", "1"]}
