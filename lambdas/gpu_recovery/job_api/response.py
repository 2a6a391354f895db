"""What goes out: an answer, or a refusal with its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.wire.json_body import problem

JSON, PROBLEM = "application/json", "application/problem+json"


class ApiError(RecoveryError):
    """An answer that is none of 2xx. `code` is a word that stays, `more` goes into the body, `headers` beside it."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.title, self.detail, self.field = status, code, title, detail, field
        self.headers, self.more = dict(headers or {}), more

    def response(self) -> ApiResponse:
        """The problem document."""
        body = {**problem(self.status, self.title, self.detail, self.field), "code": self.code, **self.more}
        return ApiResponse(self.status, body, self.headers, PROBLEM)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """What goes out; `body` is written as JSON."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = JSON

    @property
    def text(self) -> str:
        """The body as it is sent."""
        return json.dumps(self.body)
