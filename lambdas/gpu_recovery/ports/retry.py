"""Optimistic locking: retries a conditional write. Load the record again, decide again, save again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpu_recovery.ports.errors import StaleRecord, TooManyConflicts

SAVE_ATTEMPTS_MAX = 20
"""Attempts to save one record of the loop. Each refusal means that another writer has made progress."""

Record = TypeVar("Record")
Saved = TypeVar("Saved")


def retry_stale(attempt: Callable[[], Saved], attempts_max: int, contended: str) -> Saved:
    """Call `attempt` until it raises no StaleRecord.

    Args:
        attempt: loads a record, changes it and saves it.
        attempts_max: number of calls.
        contended: text of the error after the last call.

    Returns:
        What `attempt` returns.

    Raises:
        TooManyConflicts: every call raised StaleRecord.
    """
    for _ in range(attempts_max):
        try:
            return attempt()
        except StaleRecord:
            continue
    raise TooManyConflicts(contended)


def save_with_retry(
    load: Callable[[], Record],
    change: Callable[[Record], Record],
    save: Callable[[Record], Record],
    attempts_max: int,
    contended: str,
) -> Record:
    """Load a record, change it and save it. Repeat all three if another writer saved it in between.

    Args:
        load: reads the record.
        change: returns the changed record, or an equal record if nothing must be saved.
        save: writes the record conditionally and returns it as it is stored. Raises StaleRecord.
        attempts_max: number of tries.
        contended: text of the error after the last try.

    Returns:
        The record as it is stored.

    Raises:
        TooManyConflicts: each try was refused because another writer saved the record.
    """

    def attempt() -> Record:
        before = load()
        after = change(before)
        return before if after == before else save(after)

    return retry_stale(attempt, attempts_max, contended)
