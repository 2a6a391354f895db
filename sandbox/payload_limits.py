"""Size limits of PutEvents requests and of Lambda invocations, which neither MiniStack nor moto has.

AWS raised both limits from 256 KB to 1 MB: Lambda in October 2025, EventBridge in January 2026 (AWS Compute Blog, "More
room to build"). The EventBridge API reference of the China regions still says 256 KB (November 2026). The templates are
the same in every partition, so the smaller limit counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PAYLOAD_BYTES_MAX = 256 * 1024
SYNCHRONOUS_BYTES_MAX = 6 * 1024 * 1024
"""Limit of the payload of a synchronous invocation: Lambda Developer Guide, quotas."""
TIME_BYTES = 14
"""Size that EventBridge counts for the time of an entry."""


def entry_bytes(entry: Mapping[str, Any]) -> int:
    """Return the size of a PutEvents entry in bytes.

    Source: EventBridge User Guide, "Calculating PutEvents event entry size".
    """
    texts = [entry.get("Source", ""), entry.get("DetailType", ""), entry.get("Detail", ""), *entry.get("Resources", ())]
    return sum(len(text.encode()) for text in texts) + (TIME_BYTES if "Time" in entry else 0)


def entries_refusal(entries: Iterable[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return error code and message if EventBridge refuses a PutEvents request for its size, else None."""
    if sum(map(entry_bytes, entries)) < PAYLOAD_BYTES_MAX:
        return None
    return "ValidationException", "Total size of the entries in the request is over the limit."


def invocation_refusal(invocation_type: str, payload: bytes) -> tuple[str, str] | None:
    """Return error code and message if Lambda refuses an invocation for its size, else None.

    Lambda's model names another code, `RequestTooLargeException`. The code here is the code that callers have met
    (ASFHyP3/hyp3 issue 2241).
    """
    invocation_type = invocation_type or "RequestResponse"
    limit = PAYLOAD_BYTES_MAX if invocation_type == "Event" else SYNCHRONOUS_BYTES_MAX
    if len(payload) <= limit:
        return None
    message = (
        f"{len(payload)} byte payload is too large for the {invocation_type} invocation type (limit {limit} bytes)"
    )
    return "RequestEntityTooLargeException", message
