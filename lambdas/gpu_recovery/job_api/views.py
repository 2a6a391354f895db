"""Tokens and dead letters as clients of the API see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_recovery.auth.tokens import Token, TokenKind
from gpu_recovery.job_api.redrive import DeadLetterQueue, RedriveResult
from gpu_recovery.wire.json_body import time_text


def token_view(token: Token, now: datetime) -> dict[str, Any]:
    """Return a token as operators see it: by its id, without the secret and its digest."""
    named: dict[str, Any] = {"token_id": token.token_id, "instance_id": token.holder}
    if token.kind is TokenKind.USER:
        named = {"id": token.token_id, "user": token.holder, "role": token.role.value if token.role else None}
    return {
        **named,
        "live": token.is_valid(now),
        "issued_at": time_text(token.issued_at),
        "expires_at": time_text(token.expires_at),
        "revoked_at": time_text(token.revoked_at),
        "issued_by": token.issued_by,
        "note": token.note,
    }


def dead_letter_queue_view(grave: DeadLetterQueue, depth: int, shown: Iterable[RedriveResult]) -> dict[str, Any]:
    """A dead-letter queue: about how many letters it holds, and the first of them."""
    return {"queue": grave.value, "letters": depth, "shown": [redrive_result_view(fate) for fate in shown]}


def redrive_result_view(fate: RedriveResult) -> dict[str, Any]:
    """A dead letter: whom it is for, and why it stays, None if it goes."""
    return {
        "queue": fate.letter.queue.value,
        "message_id": fate.letter.message_id,
        "for": fate.target or None,
        "kept_because": fate.why or None,
    }
