"""Jobs in the order of their submission, merged from the index `by_status`, which has a list for each status.

The lists are read one after another. A job that changes its status meanwhile may leave a list before it is read, for a
list that has been read. So `all_places` reads the part of the lists that a page covers a second time.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import from_iso, to_iso
from gpu_recovery.core.job.record import TERMINAL, JobStatus
from gpu_recovery.ports.errors import CursorInvalid
from gpu_recovery.ports.values import JobQuery

ENTRIES_READ_MAX = 2_000
"""Upper bound of the index entries that one page looks at. An entry has about 1 KB, so this costs
about 250 units, and as much again for the second read."""
ENTRIES_AT_ONCE = 100
"""Index entries of a status that one call reads."""
_NAMES = {"#s": "status", "#q": "queued_at"}
Place = tuple[str, str]
"""The time of submission, as the index has it, and the id of a job."""


def all_places(table: Table, query: JobQuery, limit: int, after: Place | None) -> tuple[list[Place], Place | None]:
    """Return the places of the next jobs that match, and the last place that was looked at; None if it is the end.

    A job that changes its status once while the lists are read is found, because the second read finds it in its new
    status. Statuses between which no job moves are read once.

    Args:
        table: the table of jobs.
        query: the listing.
        limit: upper bound of the places. At most ENTRIES_READ_MAX entries are looked at.
        after: the place after which the list begins; None for its beginning.
    """
    matching: list[Place] = []
    read, last = 0, None
    for last, matches in islice(_places(table, query, after), ENTRIES_READ_MAX):
        read += 1
        if matches:
            matching.append(last)
        if len(matching) >= limit:
            break
    end = last if len(matching) >= limit or read == ENTRIES_READ_MAX else None
    if len(query.statuses) > 1 and not TERMINAL.issuperset(query.statuses):
        again = (place for place, matches in _places(table, query, after, end) if matches)
        matching = sorted({*matching, *again}, reverse=query.newest)
        if len(matching) > limit:
            matching = matching[:limit]
            end = matching[-1]
    return list(dict.fromkeys(matching)), end


def _places(
    table: Table, query: JobQuery, after: Place | None, until: Place | None = None
) -> Iterator[tuple[Place, bool]]:
    """Yield the place of each job of the listing, in its order, and whether the job matches the query.

    Args:
        table: the table of jobs.
        query: the listing.
        after: the place after which the list begins; None for its beginning.
        until: the last place of the list; None for its end.
    """
    lists = (_of_status(table, query, status, after, until) for status in query.statuses)
    return heapq.merge(*lists, reverse=query.newest)


def _of_status(
    table: Table, query: JobQuery, status: JobStatus, after: Place | None, until: Place | None
) -> Iterator[tuple[Place, bool]]:
    oldest, newest = (until, after) if query.newest else (after, until)
    since = None if query.since is None else to_iso(query.since)
    begins = [time for time in (since, oldest and oldest[0]) if time is not None]
    bounds = {":from": max(begins, default=None), ":to": newest and newest[0]}
    values = {":s": status.value, **{name: time for name, time in bounds.items() if time is not None}}
    condition = {
        (False, False): "#s = :s",
        (True, False): "#s = :s AND #q >= :from",
        (False, True): "#s = :s AND #q <= :to",
        (True, True): "#s = :s AND #q BETWEEN :from AND :to",
    }[":from" in values, ":to" in values]
    if values.get(":from", "") > values.get(":to", "~"):
        return  # DynamoDB refuses an empty range
    shown = "job_id_rank, #q" if query.user is query.group is query.name is None else "job_id_rank, #q, spec"
    entries = table.query(
        "by_status", condition, _NAMES, values, page=ENTRIES_AT_ONCE, shown=shown, forward=not query.newest
    )
    # The index has no order among jobs of the same microsecond.
    for queued_at, together in groupby(entries, key=lambda entry: str(entry["queued_at"])):
        found = [((queued_at, str(entry["job_id_rank"])), _matches(entry, query)) for entry in together]
        for place, matches in sorted(found, reverse=query.newest):
            is_after = after is None or (place != after and (place < after) is query.newest)
            if is_after and (until is None or place == until or (place > until) is query.newest):
                yield place, matches


def _matches(entry: Mapping[str, Any], query: JobQuery) -> bool:
    spec = entry.get("spec", {})
    return (
        str(entry["job_id_rank"]).startswith(query.prefix)
        and query.user in (None, spec.get("user"))
        and query.group in (None, spec.get("group"))
        and query.name in (None, spec.get("name"))
    )


def cursor_at(place: Place) -> str:
    """Return the cursor of the page that begins after `place`."""
    return json.dumps(place)


def place_of(cursor: str) -> Place:
    """Return the place in a cursor.

    Raises:
        CursorInvalid: the text is no such cursor.
    """
    try:
        queued_at, job_id = json.loads(cursor)
        time: datetime = from_iso(queued_at)
        return to_iso(time), str(job_id)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CursorInvalid("the cursor was not handed out by this service") from error
