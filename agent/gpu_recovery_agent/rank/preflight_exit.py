"""The preflight of a rank and its files: whether the command starts, and what the agent is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from .delivery import DELIVERED_WITHIN_S, Delivery
from .files import RankIdentity
from .hold import HOLD, Order, attempt_of
from .preflight import PREFLIGHT_FAILED, Preflight, run_preflight
from .preflight_program import Interrupted
from .process import Ended
from .settings import rank_timeouts


class Files(Protocol):
    """The files of a rank, as `wrapper.RankFiles` writes them."""

    rank: RankIdentity | None

    def begin(self, command_pid: int) -> None:
        """Write which processes run."""

    def order(self) -> Order | None:
        """Return the agent's order for this rank; None if there is none."""

    def end(self, ended: Ended, more: Mapping[str, Any]) -> None:
        """Write how the rank ended."""

    def remove(self) -> None:
        """Remove the running file."""

    def socket(self) -> Path | None:
        """Return the path of the agent's socket; None if no socket is configured."""


def status_before_start(
    environment: Mapping[str, str], files: Files, is_first: bool, say: Callable[[str], None]
) -> int:
    """Test the container before the command starts. Return 0, or the exit status of a rank that does not start.

    The agent reports the rank as running meanwhile. A rank that does not start is not held: its instance is faulty.

    Args:
        environment: the environment of the rank.
        files: the files of the rank.
        is_first: whether this is the first attempt in this container.
        say: prints a line.
    """
    attempt = attempt_of(files.rank)

    def is_over() -> bool:
        order = files.order()
        return order is not None and order.kind == HOLD and order.attempt == attempt

    files.begin(os.getpid())
    try:
        found = run_preflight(environment, say, is_first, is_over)
    except Interrupted as interrupted:
        say("the preflight was ended by a signal; the command was not started")
        files.end(Ended(signal=interrupted.number), {})
        files.remove()
        return 128 + interrupted.number
    failure = found.failure
    if failure is None:
        _report(files, found, 0.0)
        return 0
    say(f"preflight failed: {failure.name}: {failure.finding.sentence}; the command is not started")
    files.end(Ended(code=PREFLIGHT_FAILED), {})
    files.remove()
    if not _report(files, found, min(DELIVERED_WITHIN_S, rank_timeouts(environment, say).kill_s)):
        say("warning: the agent has not passed on the results of the preflight")
    return PREFLIGHT_FAILED


def _report(files: Files, found: Preflight, within_s: float) -> bool:
    """Send the results to the agent. Return whether the server had them within `within_s` seconds."""
    rank, path = files.rank, files.socket()
    if rank is None or path is None:
        return False
    delivery = Delivery(path)
    delivery.send([found.report(rank)])
    return delivery.end(within_s)
