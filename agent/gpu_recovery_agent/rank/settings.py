"""How long a command may stay that is to be suspended, and what else the wrapper is told from outside.

A wrong variable is said and the default taken: a slip of the pen must not keep a gang from starting. A wrong option is
refused, since whoever typed it sits in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpu_recovery_agent.settings import AgentSettingsError

GRACE_S, STOP_TIMEOUT_S = 5, 30
"""Seed 003's, and the container's own where its definition gives none."""
REST_S = 5.0
"""From SIGTERM to SIGKILL. HAI gives as much: five seconds to hear, five to save."""
REST_LEAST_S, MARGIN_S = 1.0, 2.0
"""Of a grace that all but fills the container's stopTimeout, this remains for SIGTERM, and for writing the exit."""
SECONDS_MAX = 86_400


@dataclass(frozen=True)
class RankTimeouts:
    """Seconds: what the command has after a notice, and what the container has after SIGTERM.

    forwards: the command has a handler of its own for SIGTERM and gets each one at once, as without us.
    """

    grace_s: float = GRACE_S
    stop_timeout_s: float = STOP_TIMEOUT_S
    forwards: bool = False

    @property
    def kill_s(self) -> float:
        """From the first SIGTERM to SIGKILL: before the container's own, after which nobody writes down the exit."""
        return max(min(self.grace_s + REST_S, self.stop_timeout_s - MARGIN_S), 0.0)

    @property
    def term_s(self) -> float:
        """From the first SIGTERM to the one that the command gets."""
        return max(min(self.grace_s, self.kill_s - REST_LEAST_S), 0.0)


def rank_timeouts(environment: Mapping[str, str], say: Callable[[str], None]) -> RankTimeouts:
    """What the environment gives; what is wrong in it is said."""
    forwards = environment.get("GPU_RECOVERY_FORWARD_SIGTERM") or "0"
    if forwards not in ("0", "1"):
        say(f"warning: GPU_RECOVERY_FORWARD_SIGTERM is {forwards!r}, not 0 or 1; taken as 0")
    grace_s = _seconds(environment, "SUSPEND_GRACE_S", GRACE_S, say)
    stop_s = _seconds(environment, "GPU_RECOVERY_STOP_TIMEOUT_S", STOP_TIMEOUT_S, say)
    found = RankTimeouts(grace_s, stop_s, forwards == "1")
    if found.term_s < grace_s and not found.forwards:
        say(f"warning: a grace of {grace_s} s does not fit into a stopTimeout of {stop_s} s: {found.term_s:g} s")
    return found


def rehearsal_and_command(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float | None, list[str]]:
    """After how many seconds a suspension is rehearsed, None for never, and the command. Raises SettingsError."""
    rest, seconds, name = list(arguments), environment.get("GPU_RECOVERY_SIMULATE") or "0", "GPU_RECOVERY_SIMULATE"
    if rest[:1] == ["--simulate"]:
        seconds, name, rest = rest[1] if len(rest) > 1 else "", "--simulate", rest[2:]
    elif rest and rest[0].startswith("--simulate="):
        seconds, name, rest = rest[0].partition("=")[2], "--simulate", rest[1:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    try:
        after_s = float(seconds)
    except ValueError:
        after_s = -1
    if not 0 <= after_s <= SECONDS_MAX:
        raise AgentSettingsError(f"{name} is {seconds!r}; it must be the seconds until the notice, such as 10")
    if not rest:
        raise AgentSettingsError("there is no command")
    return after_s if after_s or name == "--simulate" else None, rest


def _seconds(environment: Mapping[str, str], variable: str, default: int, say: Callable[[str], None]) -> int:
    text = environment.get(variable, "").strip() or str(default)
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= SECONDS_MAX:
        return int(text)
    say(f"warning: {variable} is {text!r}, no whole number of seconds; taken as {default}")
    return default
