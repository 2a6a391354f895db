"""Tokens and dead letters in the form that API clients receive."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_recovery.auth.tokens import Token, TokenKind
from gpu_recovery.job_api.redrive import DeadLetterQueue, RedriveResult
from gpu_recovery.wire.json_body import time_text


def token_view(token: Token, now: datetime) -> dict[str, Any]:
    """Return a token as operators see it: by its id, without the secret and its digest."""
    identity: dict[str, Any] = {"token_id": token.token_id, "instance_id": token.holder}
    if token.kind is TokenKind.USER:
        identity = {"id": token.token_id, "user": token.holder, "role": token.role.value if token.role else None}
    return {
        **identity,
        "live": token.is_valid(now),
        "issued_at": time_text(token.issued_at),
        "expires_at": time_text(token.expires_at),
        "revoked_at": time_text(token.revoked_at),
        "issued_by": token.issued_by,
        "note": token.note,
    }


def dead_letter_queue_view(queue: DeadLetterQueue, depth: int, first: Iterable[RedriveResult]) -> dict[str, Any]:
    """Return a dead-letter queue: its approximate number of dead letters, and the first of them."""
    return {"queue": queue.value, "letters": depth, "shown": [redrive_result_view(result) for result in first]}


def redrive_result_view(result: RedriveResult) -> dict[str, Any]:
    """Return a dead letter: source and account of its event, its target, and why it stays (None if it leaves)."""
    return {
        "queue": result.dead_letter.queue.value,
        "message_id": result.dead_letter.message_id,
        "source": result.source or None,
        "account": result.account or None,
        "for": result.target or None,
        "kept_because": result.why or None,
    }
