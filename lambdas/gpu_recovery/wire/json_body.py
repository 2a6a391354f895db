"""JSON of requests and responses: bodies, problem documents, and values that several records share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.state_machine import HistoryEntry


def read_json(text: str) -> Any:
    """Parse JSON text more strictly than `json`.

    NaN, repeated keys and lone surrogates are rejected: neither a table nor ECS can store them.

    Raises:
        ValueError: `text` is not JSON, or ambiguous.
        RecursionError: `text` is nested too deeply.
    """
    document = json.loads(text, object_pairs_hook=_without_repeated_keys, parse_constant=_reject_constant)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {key[:80]!r} is given twice")
        document[key] = value
    return document


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


def object_of(text: str | None) -> dict[str, Any]:
    """Return the JSON object in a request's body; an empty object without a body.

    Raises:
        SpecInvalid: the body is not a JSON object.
    """
    try:
        document = read_json(text) if text and text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise SpecInvalid("body", f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise SpecInvalid("body", "must be a JSON object")
    return document


def problem(status: int, title: str, detail: str, field: str | None = None) -> Mapping[str, Any]:
    """Return an error body of RFC 9457 (application/problem+json).

    Args:
        field: the malformed field of the request.
    """
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return body if field is None else {**body, "field": field}


def time_text(time: datetime | None) -> str | None:
    """Return a time as clients see it: RFC 3339, UTC, milliseconds."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def history_view(entry: HistoryEntry) -> dict[str, Any]:
    """Return one decision of a record's history."""
    return {
        "at": time_text(entry.at),
        "from": entry.before or None,
        "to": entry.after,
        "event": entry.event,
        "attempt": entry.attempt,
        "reason": entry.reason,
    }
