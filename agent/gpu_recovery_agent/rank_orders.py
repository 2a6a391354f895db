"""Writes orders for the wrappers of ranks: end the command and hold the container, or start the next attempt in it.

The agent and the wrapper share only the folder of the ranks. The wrapper looks for its order several times a second
(`rank.hold`). While a rank can be held, the agent reports more often, because the response brings the commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpu_recovery_agent import clock
from gpu_recovery_agent.files import write_whole
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import RankIdentity, stem_of
from gpu_recovery_agent.rank.hold import AGENT_FILE, HOLD, order_path
from gpu_recovery_agent.responses import ServerCommand
from gpu_recovery_agent.sensors.ranks import LiveRank

HOLDABLE_PACE_S, HELD_PACE_S = 3.0, 1.0
"""Longest time in seconds between two reports while a rank can be held, and while a rank is held."""
HELD_PACE_FOR_S = 60.0
"""Seconds for which an agent reports every HELD_PACE_S after a rank was held. The API accepts 300 reports in 300 s."""
TOUCH_EVERY_S = 10.0
"""Seconds between two writes of AGENT_FILE."""


class RankOrders:
    """The orders for the wrappers of this instance.

    Args:
        folder: the folder of the ranks; None: orders are not carried out.
        log: the agent's log.
    """

    def __init__(self, folder: Path | None, log: AgentLog) -> None:
        self._folder, self._log = folder, log
        self._written: dict[Path, tuple[RankIdentity, str]] = {}
        self._held_since: float | None = None
        self._known: frozenset[tuple[RankIdentity | None, bool]] = frozenset()
        self._touched_at = float("-inf")

    def touch_agent_file(self) -> None:
        """Show the wrappers that this agent can start the next attempt in a container. An error is logged once."""
        now = clock.uptime_s()
        if self._folder is None or now - self._touched_at < TOUCH_EVERY_S or not self._folder.is_dir():
            return
        self._touched_at, path = now, self._folder / AGENT_FILE
        try:
            write_whole(path, {"uptime_s": round(now, 1)})
        except OSError as error:
            self._log.once("agent file", f"{path} cannot be written, so no rank is held: {error.strerror}")

    def write(self, command: ServerCommand, live: LiveRank, rank: RankIdentity) -> None:
        """Write the order for the wrapper of a rank: only a held rank can be started, and only another rank be held."""
        if self._folder is None or not live.holds or live.held == (command.kind == HOLD):
            return
        path = order_path(self._folder, stem_of(rank))
        if self._written.get(path) == (rank, command.kind) and path.exists():
            return
        content = {"kind": command.kind, "attempt": rank.attempt, "grace_s": round(command.grace_s)}
        try:
            write_whole(path, {**content, "environment": dict(command.environment)})
        except OSError as error:
            self._log.once(path.name, f"{path} cannot be written: {error.strerror}")
            return
        self._written[path] = rank, command.kind
        self._log.write(f"order {command.id} to {command.kind} job {command.job}, attempt {command.attempt}")

    def pace_s(self, live: Sequence[LiveRank], now: float) -> float | None:
        """Return the longest time in seconds until the next report; None without ranks that can be held."""
        if not any(rank.held for rank in live):
            self._held_since = None
            return HOLDABLE_PACE_S if any(rank.holds for rank in live) else None
        self._held_since = now if self._held_since is None else self._held_since
        return HELD_PACE_S if now - self._held_since < HELD_PACE_FOR_S else HOLDABLE_PACE_S

    def has_news(self, live: Iterable[LiveRank]) -> bool:
        """Return whether a rank that can be held has started or was held since the last call. Remove old orders."""
        ranks = frozenset((rank.rank, rank.held) for rank in live if rank.holds)
        is_new, self._known = bool(ranks - self._known), ranks
        alive = {rank for rank, _ in ranks}
        for path in [path for path, (rank, _) in self._written.items() if rank not in alive]:
            del self._written[path]
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._log.once(path.name, f"{path} cannot be removed: {error.strerror}")
        return is_new
