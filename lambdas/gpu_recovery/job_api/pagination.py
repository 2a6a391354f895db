"""Pages of a list, and the cursors between them.

An answer of a Lambda function may have six megabytes at most, so a long list is served page by page. A cursor is
signed: a client can only present a place that an earlier answer has named.

A page begins after the last item of the page before. The waiting jobs of a queue move up when a job leaves, so a cursor
names the last few items of its page. The next page begins after the last of them that is still in the list, wherever it
stands by then. If all of them have left, the page begins where the last one stood.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import TEXT, Parameter, Request
from gpu_recovery.ports.errors import CursorInvalid

Item = TypeVar("Item")
MAC_BYTES = 16
PAGE_MAX = 1_000
"""The most items of a page. An item has some 600 bytes at most."""
NAMED = 5
"""How many items of its page a cursor names."""
PAGING = (
    Parameter("limit", "how many a page has", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
    Parameter("cursor", "where the page before this one said to go on", TEXT),
)


def page_of(
    desk: Dependencies,
    request: Request,
    purpose: str,
    items: Iterable[Item],
    name: Callable[[Item], str],
    order: Callable[[Item], tuple[Any, ...]],
) -> tuple[list[Item], str | None]:
    """Return the requested page, and the cursor of the next page; None if this page is the last.

    Args:
        purpose: the name of the list. A cursor of another list is refused.
        name: the name of an item, which a cursor carries.
        order: what the list is sorted by: plain values, different for every item.

    Raises:
        Refused: the limit is malformed.
        CursorInvalid: the cursor was not handed out for this list, or by another release.
    """
    limit = request.number("limit", PAGE_MAX, 1, PAGE_MAX) or PAGE_MAX
    given = request.query.get("cursor")
    line = sorted(items, key=order)
    if given is not None:
        names, stood = _place(opened_cursor(desk.operator_token(), purpose, given))
        standing = {name(one): order(one) for one in line}
        after = next((standing[one] for one in names if one in standing), stood)
        line = [one for one in line if order(one) > after]
    page = line[:limit]
    if len(line) <= limit:
        return page, None
    place = json.dumps([[name(one) for one in reversed(page[-NAMED:])], order(page[-1])])
    return page, sealed_cursor(desk.operator_token(), purpose, place)


def _place(place: str) -> tuple[list[str], tuple[Any, ...]]:
    try:
        names, stood = json.loads(place)
        return names, tuple(stood)
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor is of another release: begin without one") from error


def sealed_cursor(key: str, purpose: str, place: str) -> str:
    """Return the cursor for `place` in the list `purpose`."""
    return base64.urlsafe_b64encode(_mac(key, purpose, place) + place.encode()).decode()


def opened_cursor(key: str, purpose: str, cursor: str) -> str:
    """Return the place of a cursor that was sealed for `purpose`. Raises CursorInvalid."""
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
