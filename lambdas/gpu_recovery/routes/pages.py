"""A list that is at hand whole, told page by page: an answer of a function may have six megabytes, and no more.

A page begins after the last one told, by the order of the list and not by number: what comes and goes meanwhile leaves
nothing out that was there all the time and stands where it stood.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..ports import CursorInvalid
from .cursors import opened, sealed
from .desk import Desk
from .exchange import TEXT, Parameter, Request

Item = TypeVar("Item")
PAGE_MAX = 1_000
"""At most some 600 bytes each."""
PAGING = (
    Parameter("limit", "how many a page has", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
    Parameter("cursor", "where the page before this one said to go on", TEXT),
)


def page_of(
    desk: Desk, request: Request, purpose: str, items: Iterable[Item], order: Callable[[Item], tuple[Any, ...]]
) -> tuple[list[Item], str | None]:
    """The page that is asked for, and the cursor of the next; None if it is the last. Raises Refused, CursorInvalid.

    order: what the list is sorted by: plain values, different for every item.
    """
    limit = request.number("limit", PAGE_MAX, 1, PAGE_MAX) or PAGE_MAX
    given = request.query.get("cursor")
    after = None if given is None else _place(opened(desk.operator_token(), purpose, given))
    left = sorted((one for one in items if after is None or order(one) > after), key=order)
    page = left[:limit]
    place = json.dumps(order(page[-1])) if len(left) > limit else None
    return page, None if place is None else sealed(desk.operator_token(), purpose, place)


def _place(sealed_place: str) -> tuple[Any, ...]:
    try:
        return tuple(json.loads(sealed_place))
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor is of another release: begin without one") from error
