"""The report of the timeouts in the environment of rank 0. The agent passes it on to the server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .delivery import Delivery
from .files import RankIdentity
from .timeout_variables import SET_AT_LAUNCH, stated_timeouts


def report_timeouts(
    rank: RankIdentity | None, path: Path | None, environment: Mapping[str, str], arguments: Sequence[str]
) -> None:
    """Send the known timeouts of a rank to the agent. Nothing waits for them, and no other value is sent.

    Args:
        rank: the rank; None if the environment names none.
        path: the socket of the agent; None if there is none.
        environment: the environment of the rank.
        arguments: the command line.
    """
    found = stated_timeouts(environment, arguments)
    if rank is None or path is None or found.keys() <= set(SET_AT_LAUNCH):
        return
    report = {
        "type": "timeouts",
        "id": f"timeouts-{rank.rank}-{rank.attempt}-{os.getpid()}",
        "job": rank.job,
        "attempt": rank.attempt,
        "rank": rank.rank,
        "variables": [{"name": name, "value": value} for name, value in found.items()],
    }
    delivery = Delivery(path)
    delivery.send([report])
    delivery.end(0.0)
