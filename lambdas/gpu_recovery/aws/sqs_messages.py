"""Parser of SQS events. A message without a document counts as an empty document, so it never blocks its queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpu_recovery.aws.wiring import logger


def bodies(event: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON document of each message in an SQS event; an empty document if a message has none."""
    records = event.get("Records") if isinstance(event, dict) else None
    for record in records if isinstance(records, list) else ():
        try:
            body = json.loads(record["body"])
        except (ValueError, KeyError, TypeError, RecursionError):
            body = None
        if not isinstance(body, dict):
            logger.warning("a message without a document")
        yield body if isinstance(body, dict) else {}


def hops_of(documents: Iterable[Mapping[str, Any]]) -> int:
    """Return the length of the longest chain that a message of this invocation ends.

    A message of another function ends a chain of 1, the clock's message a chain of 0.
    """
    return max((hops for each in documents if isinstance(hops := each.get("hops"), int)), default=0)
