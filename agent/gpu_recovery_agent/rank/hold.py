"""Holds a rank: after its command has ended, the wrapper waits for the start of the next attempt in this container.

The agent writes an order beside the files of the rank, `<base name>.order`. The order `hold` ends the command of the
attempt that it names. The order `start` starts a later attempt, with the variables of VARIABLES. Any process that can
write to the folder may have written an order. So an order counts only from root, from the user of this process or from
the owner of the folder, it sets no other variable, and its values are numbers, apart from the master's address.

The agent writes the file AGENT_FILE in the same folder again and again. Without a fresh file no agent would start the
next attempt, so the wrapper ends as before.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import clock
from ..files import read_object
from .files import ATTEMPT_MAX, SAFE_MAX, RankIdentity, whole
from .process import FORWARDED, SignalPolicy
from .suspension_folder import VARIABLE

HOLD_VARIABLE = "GPU_RECOVERY_HOLD_S"
"""Seconds for which the container of a failed rank waits for the next attempt. Without it the wrapper never waits."""
HOLD_MAX_S = 86_400
WARM_VARIABLE = "GPU_RECOVERY_WARM"
"""With 1 the wrapper is a warm spare: it waits for the start of a rank before it runs its command at all."""
AGENT_FILE = ".agent"
"""Name of the file with the uptime at which a running agent wrote it, if it can start an attempt in a container."""
AGENT_FRESH_S = 60.0
"""Age in seconds up to which AGENT_FILE shows that the agent runs."""
ORDER_SUFFIX = ".order"
ORDER_BYTES_MAX = 4_096
HOLD, START = "hold", "start"
NUMBERS = ("ATTEMPT", "RANK", "WORLD_SIZE", "NODE_RANK", "NNODES", "MASTER_PORT", "RUNNING_LOG_ID", "EPOCH")
ADDRESSES = ("MASTER_IP", "MASTER_ADDR")
VARIABLES = (*NUMBERS, *ADDRESSES)
"""Variables that an order to start may set."""
_ADDRESS = re.compile(r"[A-Za-z0-9.:-]{1,253}")
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end a container whose rank is held."""
AGENT_LOST_S = 60.0
"""Seconds without a fresh AGENT_FILE after which a warm spare ends: no agent would start a rank there."""
POLL_S = 0.2
"""Seconds between two looks for an order while no command runs."""


@dataclass(frozen=True)
class Order:
    """An order of the agent: its kind, the attempt that it is about, and for `start` the new variables."""

    kind: str
    attempt: int
    grace_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def next_attempt(self) -> int:
        """The attempt to start; 0 if the order starts none."""
        return whole(self.environment.get("ATTEMPT"), most=ATTEMPT_MAX) or 0


def order_path(folder: Path, stem: str) -> Path:
    """Return the path of the orders for a rank with files of this base name."""
    return folder / f"{stem}{ORDER_SUFFIX}"


def read_order(folder: Path, stem: str) -> Order | None:
    """Return the order for a rank; None if there is none, or if it is invalid or of another user."""
    try:
        content, status = read_object(order_path(folder, stem), ORDER_BYTES_MAX)
        if status.st_uid not in (0, os.geteuid(), os.stat(folder).st_uid):
            return None
    except (OSError, ValueError):
        return None
    return order_in(content)


def order_in(content: Mapping[str, Any]) -> Order | None:
    """Return the order that a JSON object holds; None if it is invalid."""
    kind, attempt = content.get("kind"), whole(content.get("attempt"), most=ATTEMPT_MAX)
    grace_s = whole(content.get("grace_s") or 0, most=HOLD_MAX_S)
    if kind not in (HOLD, START) or attempt is None or grace_s is None:
        return None
    given = content.get("environment") or {}
    environment = {name: given[name] for name in VARIABLES if name in given} if isinstance(given, dict) else {}
    is_valid = all(whole(environment[name], most=SAFE_MAX) is not None for name in NUMBERS if name in environment)
    is_valid = is_valid and all(_is_address(environment[name]) for name in ADDRESSES if name in environment)
    order = Order(kind, attempt, float(grace_s), {name: str(value) for name, value in environment.items()})
    if not is_valid or (kind == START and not order.next_attempt):
        return None
    return order


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def hold_s(environment: Mapping[str, str]) -> int:
    """Return the seconds for which a failed rank is held; 0 if it is not held."""
    return whole(environment.get(HOLD_VARIABLE, "0"), most=HOLD_MAX_S) or 0


def is_warm(environment: Mapping[str, str]) -> bool:
    """Return whether the wrapper waits for the start of a rank before it runs its command for the first time."""
    return environment.get(WARM_VARIABLE) == "1" and hold_s(environment) > 0


def has_agent(folder: Path) -> bool:
    """Return whether an agent runs that can start the next attempt in this container."""
    try:
        content, _ = read_object(folder / AGENT_FILE, ORDER_BYTES_MAX)
    except (OSError, ValueError):
        return False
    written_s = content.get("uptime_s")
    return isinstance(written_s, (int, float)) and abs(clock.uptime_s() - written_s) <= AGENT_FRESH_S


class AgentWatch:
    """Tells a warm spare whether its agent has been missing for AGENT_LOST_S.

    Args:
        has_agent: returns whether an agent runs that can start a rank.
        now: monotonic time in seconds.
    """

    def __init__(self, has_agent: Callable[[], bool], now: Callable[[], float] = clock.monotonic_s) -> None:
        self._has_agent, self._now = has_agent, now
        self._seen_at = self._asked_at = now()

    def is_lost(self) -> bool:
        """Return whether the agent is lost. The file is read once a second."""
        at = self._now()
        if at - self._asked_at < 1.0:
            return False
        self._asked_at = at
        if self._has_agent():
            self._seen_at = at
        return at - self._seen_at >= AGENT_LOST_S


class EndedByOrder:
    """A signal policy that ends the command on the order `hold`, and leaves every other signal to `inner`.

    Args:
        inner: decides the other signals.
        look: returns the present order for the rank.
        attempt: the attempt that runs; an order about another attempt changes nothing.
        log: writes one line to the log of the rank.
        now: monotonic time in seconds.
    """

    def __init__(
        self,
        inner: SignalPolicy,
        look: Callable[[], Order | None],
        attempt: int,
        log: Callable[[str], None],
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._inner, self._look, self._attempt, self._log, self._now = inner, look, attempt, log, now
        self._kill_at: float | None = None
        self.is_ordered = False

    def on_signal(self, number: int) -> int:
        """Return the signal for the command after the wrapper received `number`."""
        return self._inner.on_signal(number)

    def due(self) -> int:
        """Return the signal that is due now: first SIGTERM, and SIGKILL after the grace of the order."""
        number = self._inner.due()
        if number:
            return number
        if self._kill_at is not None:
            return int(signal.SIGKILL) if self._now() >= self._kill_at else 0
        order = self._look()
        if order is None or order.kind != HOLD or order.attempt != self._attempt:
            return 0
        self.is_ordered, self._kill_at = True, self._now() + order.grace_s
        self._log(f"attempt {self._attempt} is ended; the container waits for the next attempt")
        return int(signal.SIGTERM)


def wait_for_start(
    look: Callable[[], Order | None],
    attempt: int,
    seconds: float | None,
    now: Callable[[], float] = clock.monotonic_s,
    is_in_vain: Callable[[], bool] = lambda: False,
) -> Order | None:
    """Wait for the order to start an attempt after `attempt`.

    The signals of FORWARDED must be blocked. The last look is after the time is over, so an order that came in time is
    never missed.

    Args:
        look: returns the present order for the rank.
        attempt: the attempt of the container.
        seconds: the time to wait; None: until a signal asks the container to end.
        now: monotonic time in seconds.
        is_in_vain: returns whether no order can come any more.

    Returns:
        The order; None if no order can come, after `seconds`, or if a signal asks the container to end.
    """
    until = None if seconds is None else now() + seconds
    while True:
        is_over = is_in_vain() or (until is not None and now() >= until)
        order = look()
        if order is not None and order.kind == START and order.next_attempt > attempt and order.attempt == attempt:
            return order
        received = None if is_over else signal.sigtimedwait(FORWARDED, POLL_S)
        if is_over or (received is not None and received.si_signo in ENDS):
            return None


def next_environment(environment: Mapping[str, str], order: Order) -> dict[str, str]:
    """Return the environment of the next attempt: only the variables of the order change."""
    left_out = (*VARIABLES, VARIABLE, WARM_VARIABLE)
    kept = {name: value for name, value in environment.items() if name not in left_out}
    return {**kept, **order.environment}


def remove_order(folder: Path, stem: str) -> None:
    """Remove the order for a rank, after it was carried out. An order of another user stays."""
    with suppress(OSError):
        order_path(folder, stem).unlink(missing_ok=True)


def attempt_of(rank: RankIdentity | None) -> int:
    """Return the attempt of a rank; 0 for a rank without a job."""
    return rank.attempt if rank is not None else 0
