"""Independent pieces of work: one failure does not stop the others. All failures are raised together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gpu_recovery.ports.errors import StaleRecord

Item = TypeVar("Item")


def run_each(
    work: Callable[[Item], object], items: Iterable[Item], fatal: tuple[type[Exception], ...] | type[Exception] = ()
) -> list[Exception]:
    """Do `work` for each of `items` and return the failures, which the caller raises when all other work is done.

    StaleRecord is not a failure: another function is changing that record at this moment.

    Args:
        fatal: exceptions of these types are raised immediately.
    """
    failures: list[Exception] = []
    for item in items:
        try:
            work(item)
        except StaleRecord:
            continue
        except fatal:
            raise
        except Exception as failure:  # noqa: BLE001 - collected, and raised all together when the rest is done
            failures.append(failure)
    return failures


def raise_all(what: str, failures: list[Exception]) -> None:
    """Raise `failures` as one ExceptionGroup, if there are any. `what` is its message."""
    if failures:
        raise ExceptionGroup(what, failures)
