"""Parts that the models of responses share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from gpu_recovery.core.queue.priority import Priority


class ResponseModel(BaseModel):
    """Object in a response. Every property without a default is always present. Later releases may add properties."""


class OneOf:
    """Marks a text that has one of some values.

    Args:
        values: the values.
    """

    def __init__(self, *values: str) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return the schema of the values."""
        return core_schema.literal_schema(list(self.values))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Return the schema in openapi.json."""
        return {"type": "string", "enum": list(self.values)}


Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time: RFC 3339, UTC, milliseconds."""
Column = Annotated[str, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]
"""A column of the fleet map: a typed array, little-endian, in base64 (`core/console_snapshots.py`)."""
Percent = Annotated[int, Field(ge=0, le=100)]
"""A whole number of percent."""
PriorityName = Annotated[str, OneOf(*Priority.__members__)]
"""A priority by its name."""
Limit = Annotated[int, Field(ge=1)]
"""A limit of running jobs."""


class Problem(ResponseModel):
    """An error: RFC 9457, with a code for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: Annotated[str, Field(description="Stable code for programs. It does not change between releases.")]
    field: Annotated[str, Field(default_factory=str, description="Field, parameter or header that is wrong.")]
    job_id: Annotated[str, Field(default_factory=str)]
    retry_after_s: Annotated[int, Field(default_factory=int)]
    lock: Annotated[dict[str, Any], Field(default_factory=dict)]
    errors: Annotated[list[FieldProblem], Field(default_factory=list, description="All errors of the request.")]


class FieldProblem(ResponseModel):
    """A field of a request that is wrong."""

    field: str
    detail: str


class GatewayMessage(ResponseModel):
    """An error that API Gateway answers with by itself, such as a rate limit. It does not reach the function."""

    message: str
