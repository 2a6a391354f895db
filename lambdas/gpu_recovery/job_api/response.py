"""HTTP responses of the job API: an answer, or an error as a problem document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.wire.json_body import problem

JSON, PROBLEM = "application/json", "application/problem+json"


class ApiError(RecoveryError):
    """A response with a status other than 2xx.

    Args:
        status: HTTP status.
        code: stable word for programs. It does not change between releases.
        title: short title of the problem.
        detail: what is wrong, in a sentence.
        field: name of the field, parameter or header that is wrong.
        headers: headers of the response.
        more: further fields of the body.
    """

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
        """Return the problem document."""
        body = {**problem(self.status, self.title, self.detail, self.field), "code": self.code, **self.more}
        return ApiResponse(self.status, body, self.headers, PROBLEM)


@frozen_dataclass()
class ApiResponse:
    """A response. `body` is a value that is sent as JSON, `kind` is the media type."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = JSON

    @property
    def text(self) -> str:
        """The body as JSON text."""
        return json.dumps(self.body)
