"""The JSON of requests and of answers: bodies, problem documents, and values that several records share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.state_machine import HistoryEntry

BECAUSE_CHARACTERS_MAX = 500


def read_json(text: str) -> Any:
    """The value that `text` spells; ValueError or RecursionError if it is none, or one that means two things.

    Stricter than `json`: no NaN, no key given twice, no half characters, which neither a table nor ECS can hold.
    """
    document = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} is given twice")
        found[key] = value
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def object_of(text: str | None) -> dict[str, Any]:
    """The JSON object of a request's body, an empty one without a body. SpecInvalid if it is none."""
    try:
        document = read_json(text) if text and text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise SpecInvalid("body", f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise SpecInvalid("body", "must be a JSON object")
    return document


def because_of(text: str | None, *, required: bool = False) -> str:
    """A person's reason in a request's body, `{"because": text}`; "" without a body. SpecInvalid if it is no reason."""
    document = object_of(text)
    if set(document) - {"because"}:
        raise SpecInvalid("body", "must be a JSON object with the one field because")
    because = document.get("because") or ""
    if not isinstance(because, str) or len(because) > BECAUSE_CHARACTERS_MAX or not because.isprintable():
        raise SpecInvalid("because", f"must be a line of at most {BECAUSE_CHARACTERS_MAX} characters")
    if required and not because.strip():
        raise SpecInvalid("because", "must say why, for whoever finds it so at night")
    return because.strip()


def problem(status: int, title: str, detail: str, field: str | None = None) -> Mapping[str, Any]:
    """An error body as RFC 9457 has it (application/problem+json); `field` names the culprit in a request."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return body if field is None else {**body, "field": field}


def time_text(time: datetime | None) -> str | None:
    """A time as clients see it: RFC 3339, UTC, milliseconds."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def history_view(entry: HistoryEntry) -> dict[str, Any]:
    """One decision as it was taken."""
    return {
        "at": time_text(entry.at),
        "from": entry.before or None,
        "to": entry.after,
        "event": entry.event,
        "attempt": entry.attempt,
        "reason": entry.reason,
    }
