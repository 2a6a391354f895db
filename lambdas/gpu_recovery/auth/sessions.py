"""Sessions: short-lived credentials of a browser, exchanged for a token and signed by the deployment.

A session is not stored. Its text holds the caller, the role, the parent token and the end, with an HMAC. A session is
valid only while its parent is valid: an operator token that was rotated, or a user token that was revoked, ends it.
docs/decisions/0049-sessions-of-the-console.md says why the console does not use cookies.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpu_recovery.auth.authenticator import TokenInvalid
from gpu_recovery.auth.roles import Role

PREFIX = "grs_"
SESSION_KEY_LABEL = "session"
"""Label under which the key of sessions is derived."""
LIFETIME_S, LIFETIME_S_MIN, LIFETIME_S_MAX = 12 * 3_600, 60, 12 * 3_600
"""The lifetime of a session in seconds: the default, the shortest and the longest."""
SESSION_CHARACTERS_MAX = 600
"""Upper bound of the characters of a session. Longer text is refused before its signature is computed."""
MAC_BYTES = 16
"""Bytes of a session's signature: a truncated HMAC-SHA256."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session.

    user:       name of the user, "" for a session of the operator token.
    role:       role of the session. It never exceeds the role of the parent token.
    parent:     id of the user's token, or `operator_mark` of the operator token if `user` is "".
    expires_at: end of the session.
    """

    user: str
    role: Role
    parent: str
    expires_at: datetime


def operator_mark(key: bytes, operator_token: str) -> str:
    """Return a mark of the operator token that changes with the token, and that does not reveal the token.

    Args:
        key: the key of sessions.
        operator_token: the operator token.
    """
    return hmac.new(key, b"operator " + operator_token.encode(), hashlib.sha256).hexdigest()[:24]


def sign_session(key: bytes, session: Session) -> str:
    """Return the text of a session."""
    fields = {
        "u": session.user,
        "r": session.role.value,
        "p": session.parent,
        "e": int(session.expires_at.timestamp()),
    }
    payload = _encoded(json.dumps(fields, separators=(",", ":")).encode())
    return f"{PREFIX}{payload}.{_mac(key, payload)}"


def verified_session(key: Callable[[], bytes], text: str, now: datetime) -> Session:
    """Return the session of a text that this deployment signed and that has not ended.

    The parent is not checked here.

    Raises:
        TokenInvalid: the text is malformed, was not signed by this deployment, or has ended.
    """
    payload, dot, mac = text.removeprefix(PREFIX).partition(".")
    if len(text) > SESSION_CHARACTERS_MAX or not text.startswith(PREFIX) or not dot:
        raise TokenInvalid("this is not a session")
    if not hmac.compare_digest(mac.encode(errors="replace"), _mac(key(), payload).encode()):
        raise TokenInvalid("the session was not issued by this deployment")
    fields = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    expires_at = datetime.fromtimestamp(fields["e"], UTC)
    if now >= expires_at:
        raise TokenInvalid("the session has expired: sign in again")
    return Session(fields["u"], Role(fields["r"]), fields["p"], expires_at)


def new_session(
    user: str, role: Role, parent: str, parent_ends: datetime | None, now: datetime, lifetime_s: int
) -> Session:
    """Return a session that ends after `lifetime_s`, or with its parent token if that is earlier."""
    ends = now + timedelta(seconds=lifetime_s)
    # The text of a session holds whole seconds.
    ends = (ends if parent_ends is None else min(ends, parent_ends)).replace(microsecond=0)
    return Session(user, role, parent, ends)


def _mac(key: bytes, payload: str) -> str:
    mac = hmac.new(key, payload.encode(errors="replace"), hashlib.sha256).digest()[:MAC_BYTES]
    return _encoded(mac)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
