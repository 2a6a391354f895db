"""States of a health check in the list of an instance's checks."""

from enum import StrEnum


class CheckState(StrEnum):
    """State of a health check, as far as its document and the record of its instance tell."""

    WAITING = "WAITING"  # for ECS to start it
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    UNREADABLE = "UNREADABLE"  # its document is malformed
    NO_DOCUMENT = "NO_DOCUMENT"  # it never started, or its document has expired
