"""Issuer tag of a token: an HMAC that shows, without a read of the table, that this deployment issued the token."""

from __future__ import annotations

import base64
import hashlib
import hmac

TAG_BYTES = 16
"""Bytes of a tag: a truncated HMAC-SHA256. A guess is right once in 2^128."""
TAG_CHARACTERS = 22
"""Characters of a tag in base64url."""


def add_tag(key: bytes, text: str) -> str:
    """Return the token: `text` and its tag.

    Args:
        key: the issuer key of the token's kind.
        text: prefix, token id and secret. The tag covers all three.
    """
    return f"{text}_{_tag(key, text)}"


def has_valid_tag(key: bytes, token: str) -> bool:
    """Return whether a token was issued under `key`. The tags are compared in constant time."""
    text, tag = token[: -TAG_CHARACTERS - 1], token[-TAG_CHARACTERS:]
    return hmac.compare_digest(tag.encode(errors="replace"), _tag(key, text).encode())


def _tag(key: bytes, text: str) -> str:
    mac = hmac.new(key, text.encode(errors="replace"), hashlib.sha256).digest()[:TAG_BYTES]
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
