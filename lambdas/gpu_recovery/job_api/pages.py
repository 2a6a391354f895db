"""A list that is at hand whole, told page by page: an answer of a function may have six megabytes, and no more.

A page begins after the last one told. In a line everybody moves up when somebody leaves it: so the cursor names the
last few that were told, and the next page begins after the last of them that still stands in it, wherever that is by
then. Only if all of these have left meanwhile it begins where the last one stood.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpu_recovery.job_api.dependencies import Desk
from gpu_recovery.job_api.pagination import opened, sealed
from gpu_recovery.job_api.request import TEXT, Parameter, Request
from gpu_recovery.ports.errors import CursorInvalid

Item = TypeVar("Item")
PAGE_MAX = 1_000
"""At most some 600 bytes each."""
NAMED = 5
PAGING = (
    Parameter("limit", "how many a page has", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
    Parameter("cursor", "where the page before this one said to go on", TEXT),
)


def page_of(
    desk: Desk,
    request: Request,
    purpose: str,
    items: Iterable[Item],
    name: Callable[[Item], str],
    order: Callable[[Item], tuple[Any, ...]],
) -> tuple[list[Item], str | None]:
    """The page that is asked for, and the cursor of the next; None if it is the last. Raises Refused, CursorInvalid.

    name: which one it is; order: what the list is sorted by: plain values, different for every item.
    """
    limit = request.number("limit", PAGE_MAX, 1, PAGE_MAX) or PAGE_MAX
    given = request.query.get("cursor")
    line = sorted(items, key=order)
    if given is not None:
        names, stood = _place(opened(desk.operator_token(), purpose, given))
        standing = {name(one): order(one) for one in line}
        after = next((standing[one] for one in names if one in standing), stood)
        line = [one for one in line if order(one) > after]
    page = line[:limit]
    if len(line) <= limit:
        return page, None
    place = json.dumps([[name(one) for one in reversed(page[-NAMED:])], order(page[-1])])
    return page, sealed(desk.operator_token(), purpose, place)


def _place(place: str) -> tuple[list[str], tuple[Any, ...]]:
    try:
        names, stood = json.loads(place)
        return names, tuple(stood)
    except (ValueError, TypeError) as error:
        raise CursorInvalid("the cursor is of another release: begin without one") from error
