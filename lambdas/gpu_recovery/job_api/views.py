"""Tokens and dead letters as clients of the API see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_recovery.auth.tokens import Token, TokenKind
from gpu_recovery.job_api.redrive import Fate, Grave
from gpu_recovery.wire.json_body import time_text


def token_view(token: Token, now: datetime) -> dict[str, Any]:
    """Return a token as operators see it: by its id, without the secret and its digest."""
    named: dict[str, Any] = {"token_id": token.token_id, "instance_id": token.holder}
    if token.kind is TokenKind.USER:
        named = {"id": token.token_id, "user": token.holder, "role": token.role.value if token.role else None}
    return {
        **named,
        "live": token.lives(now),
        "issued_at": time_text(token.issued_at),
        "expires_at": time_text(token.expires_at),
        "revoked_at": time_text(token.revoked_at),
        "issued_by": token.issued_by,
        "note": token.note,
    }


def grave_view(grave: Grave, depth: int, shown: Iterable[Fate]) -> dict[str, Any]:
    """A dead-letter queue: about how many letters it holds, and the first of them."""
    return {"queue": grave.value, "letters": depth, "shown": [fate_view(fate) for fate in shown]}


def fate_view(fate: Fate) -> dict[str, Any]:
    """A dead letter: whom it is for, and why it stays, None if it goes."""
    return {
        "queue": fate.letter.grave.value,
        "message_id": fate.letter.message_id,
        "for": fate.to or None,
        "kept_because": fate.why or None,
    }
