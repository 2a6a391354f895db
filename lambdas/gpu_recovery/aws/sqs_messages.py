"""What the messages of a queue say. Whoever reads them works each one: what says nothing is gone, and blocks nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_recovery.aws.wiring import logger


def bodies(event: Any) -> Iterator[Mapping[str, Any]]:
    """The document in each message of an SQS event; an empty one for a message without any."""
    records = event.get("Records") if isinstance(event, dict) else None
    for record in records if isinstance(records, list) else ():
        try:
            body = json.loads(record["body"])
        except (ValueError, KeyError, TypeError, RecursionError):
            body = None
        if not isinstance(body, dict):
            logger.warning("a message without a document")
        yield body if isinstance(body, dict) else {}
