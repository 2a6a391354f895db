"""Doing independent pieces of work so that one that fails keeps none of the others from being done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gpu_recovery.ports.errors import StaleRecord

Item = TypeVar("Item")


def run_each(
    work: Callable[[Item], object], items: Iterable[Item], fatal: tuple[type[Exception], ...] | type[Exception] = ()
) -> list[Exception]:
    """Do `work` for each of `items`; what failed, to be raised by the caller once everything has been tried.

    A stale record is no failure: somebody else is moving it at this moment, so nothing is left to do. What is of the
    kind `fatal` ends it all and is raised at once.
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
    """Raise `failures` together, if there are any; `what` says what could not be done."""
    if failures:
        raise ExceptionGroup(what, failures)
