"""Pagination: pages of a list, and the signed cursors between them.

The response of a Lambda function has at most six megabytes, so a long list is served page by page. A cursor is signed:
a client can only send a position that an earlier response contained. Its key is independent of the operator token: a
viewer cannot test guesses of that token with a cursor.

A page begins after the last item of the page before. Waiting jobs move up in the queue when another job leaves, so a
cursor names the last few items of its page. The next page begins after the last of these items that is still in the
list, at the item's present position. If all of them have left the list, the page begins at the former position of the
last item.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import TEXT, Parameter, Request, between
from gpu_recovery.ports.errors import CursorInvalid

Item = TypeVar("Item")
CURSOR_KEY_LABEL = "cursor"
"""Label under which the key of cursors is derived."""
MAC_BYTES = 16
"""Bytes of a cursor's signature: a truncated HMAC-SHA256."""
PAGE_MAX = 1_000
"""Upper bound of the items of a page. An item has at most about 600 bytes."""
NAMED = 5
"""Number of items of its page that a cursor names."""
PAGING = (
    Parameter("limit", "Upper bound of the entries of a page.", between(1, PAGE_MAX)),
    Parameter("cursor", "`next_cursor` of the page before.", TEXT),
)


def asked_page(
    dependencies: Dependencies, request: Request, purpose: str, most: int = PAGE_MAX
) -> tuple[int, str | None]:
    """Return the number of items that the request asks for, and the position after which its page begins.

    Args:
        dependencies: gives the key that signs cursors.
        request: its query may hold `limit` and `cursor`.
        purpose: name of the list. A cursor of another list is rejected.
        most: upper bound of the items of a page, if the request asks for more.

    Raises:
        ApiError: 400, the limit is malformed.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    limit = min(most, request.number("limit", PAGE_MAX))
    cursor = request.query.get("cursor")
    return limit, None if cursor is None else verified_position(dependencies.cursor_key(), purpose, cursor)


def page_of(
    dependencies: Dependencies,
    request: Request,
    purpose: str,
    items: Iterable[Item],
    name: Callable[[Item], str],
    order: Callable[[Item], tuple[Any, ...]],
    most: int = PAGE_MAX,
) -> tuple[list[Item], str | None]:
    """Return the requested page, and the cursor of the next page; None if this page is the last.

    Args:
        dependencies: gives the key that signs cursors.
        request: its query may hold `limit` and `cursor`.
        purpose: name of the list. A cursor of another list is rejected.
        items: all items of the list, in any order.
        name: returns the name of an item, which cursors contain.
        order: returns the sort key of an item: JSON values, different for every item.
        most: upper bound of the items of a page, if the request asks for more.

    Raises:
        ApiError: 400, the limit is malformed.
        CursorInvalid: the cursor was issued for another list or by another release, or was not issued at all.
    """
    limit, after_place = asked_page(dependencies, request, purpose, most)
    ordered = sorted(items, key=order)
    if after_place is not None:
        last_names, last_order = _read_place(after_place)
        orders = {name(item): order(item) for item in ordered}
        after = next((orders[item] for item in last_names if item in orders), last_order)
        ordered = [item for item in ordered if order(item) > after]
    page = ordered[:limit]
    if len(ordered) <= limit:
        return page, None
    place = json.dumps([[name(item) for item in reversed(page[-NAMED:])], order(page[-1])])
    return page, signed_cursor(dependencies.cursor_key(), purpose, place)


def _read_place(place: str) -> tuple[list[str], tuple[Any, ...]]:
    try:
        names, last_order = json.loads(place)
        return names, tuple(last_order)
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor is from another release: begin without a cursor") from error


def signed_cursor(key: bytes, purpose: str, place: str) -> str:
    """Return the signed cursor for the position `place` in the list `purpose`."""
    return base64.urlsafe_b64encode(_mac(key, purpose, place) + place.encode()).decode()


def verified_position(key: bytes, purpose: str, cursor: str) -> str:
    """Return the position in a cursor of the list `purpose`.

    Raises:
        CursorInvalid: the cursor is malformed, or its signature is not for this key and list.
    """
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        place = raw[MAC_BYTES:].decode()
    except ValueError as error:
        raise CursorInvalid("the cursor was not issued by this service") from error
    if not hmac.compare_digest(raw[:MAC_BYTES], _mac(key, purpose, place)):
        raise CursorInvalid("the cursor was not issued by this service, not for this list, or too long ago")
    return place


def _mac(key: bytes, purpose: str, place: str) -> bytes:
    message = f"cursor\n{purpose}\n{place}".encode(errors="replace")
    return hmac.new(key, message, hashlib.sha256).digest()[:MAC_BYTES]
