"""Places in a list, as clients carry them: signed, so that they lead nowhere but where a list has led."""

from __future__ import annotations

import base64
import hashlib
import hmac

from gpu_recovery.ports.errors import CursorInvalid

MAC_BYTES = 16


def sealed(key: str, purpose: str, place: str) -> str:
    """`place` as a client carries it; `purpose` is the list that it belongs to."""
    return base64.urlsafe_b64encode(_mac(key, purpose, place) + place.encode()).decode()


def opened(key: str, purpose: str, cursor: str) -> str:
    """The place that was sealed for `purpose`. Raises CursorInvalid."""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        place = raw[MAC_BYTES:].decode()
    except ValueError as error:
        raise CursorInvalid("the cursor was not handed out by this service") from error
    if not hmac.compare_digest(raw[:MAC_BYTES], _mac(key, purpose, place)):
        raise CursorInvalid("the cursor was not handed out by this service, not for this list, or too long ago")
    return place


def _mac(key: str, purpose: str, place: str) -> bytes:
    said = f"cursor\n{purpose}\n{place}".encode(errors="replace")
    return hmac.new(key.encode(), said, hashlib.sha256).digest()[:MAC_BYTES]
