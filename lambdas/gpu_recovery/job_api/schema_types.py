"""Schema types of openapi.json (OpenAPI 3.0.3): primitives, builders and shared parts."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from gpu_recovery.core.queue.priority import Priority

Schema = dict[str, Any]
"""A schema as a JSON object."""
TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
ANY_OBJECT: Schema = {"type": "object"}
COLUMN: Schema = {"type": "string", "format": "byte"}
"""A column of the fleet map: a typed array, little-endian, in base64 (`core/console_snapshots.py`)."""


def ref(name: str) -> Schema:
    """Return a reference to the named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def none_or(schema: Schema) -> Schema:
    """Return the schema of a value that may also be null."""
    return {"nullable": True, "allOf": [schema]} if "$ref" in schema else {**schema, "nullable": True}


def list_of(schema: Schema) -> Schema:
    """Return the schema of a list of `schema`."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """Return the schema of an object with arbitrary names and values of `schema`."""
    return {"type": "object", "additionalProperties": schema}


def one_of(enum: type[StrEnum]) -> Schema:
    """Return the schema of a value of `enum`."""
    return {"type": "string", "enum": [member.value for member in enum]}


def between(least: int, most: int, **more: Any) -> Schema:
    """Return the schema of an integer from `least` to `most`, with further keywords `more`."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def text_like(pattern: str) -> Schema:
    """Return the schema of a text that matches `pattern` as a whole."""
    return {"type": "string", "pattern": f"^({pattern})$"}


def response_object(**properties: Schema) -> Schema:
    """Return the schema of an object in a response.

    Every property is always present. Later releases may add properties.
    """
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def request_object(needed: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """Return the schema of an object in a request, which may have no other properties.

    Args:
        needed: names of the required properties.
        properties: schemas of the properties.
    """
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(needed)} if needed else schema


PRIORITY: Schema = {"type": "string", "enum": [priority.name for priority in Priority]}
"""A priority by its name."""
_LIMIT = none_or({"type": "integer", "minimum": 1})
LIMITS: dict[str, Schema] = {
    "instances": none_or(by_name({"type": "integer", "minimum": 0})),
    "max_running_jobs": _LIMIT,
    "max_running_jobs_per_user": _LIMIT,
}
"""Properties of the quotas: the limits of instances, of running jobs, and of the running jobs of a user."""
