"""Settings of the wrapper: the time limits of a suspension, and the command line.

A wrong variable is reported and the default used: a typing error must not prevent a gang from starting. A wrong
command line option is refused, because the user sees the error at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .paths import AgentSettingsError

GRACE_S, STOP_TIMEOUT_S = 5, 30
"""Default suspend grace, and the default stopTimeout of a container, in seconds."""
REST_S = 5.0
"""Seconds from SIGTERM to SIGKILL after the grace.

With the default grace a rank has ten seconds, as in the system of seed 003 (HAI): five seconds until the training
notices, five seconds to save.
"""
REST_LEAST_S, MARGIN_S = 1.0, 2.0
"""Seconds that remain for SIGTERM, and for writing the exit, if the grace almost fills the container's stopTimeout."""
SECONDS_MAX = 86_400
STANDBY_VARIABLE = "GPU_RECOVERY_STANDBY"
"""Whether the container has a standby process. In a standby process that has not started, it has another value."""
STANDBY_ON, STANDBY_ON_SPARES = "1", "spares"
STANDBY_AFTER_VARIABLE, STANDBY_AFTER_S = "GPU_RECOVERY_STANDBY_AFTER_S", 60
"""Default seconds: the standby process then does not slow down the start of the training itself."""


@dataclass(frozen=True)
class RankTimeouts:
    """Time limits in seconds: of the command after a notice, and of the container after SIGTERM.

    `forwards` says that the command handles SIGTERM itself and gets each SIGTERM at once, as without the wrapper.
    """

    grace_s: float = GRACE_S
    stop_timeout_s: float = STOP_TIMEOUT_S
    forwards: bool = False

    @property
    def kill_s(self) -> float:
        """Seconds from the first SIGTERM to SIGKILL.

        This is before the container's own SIGKILL, so that the wrapper can write the exit.
        """
        return max(min(self.grace_s + REST_S, self.stop_timeout_s - MARGIN_S), 0.0)

    @property
    def term_s(self) -> float:
        """Seconds from the first SIGTERM to the SIGTERM that the command gets."""
        return max(min(self.grace_s, self.kill_s - REST_LEAST_S), 0.0)


def rank_timeouts(environment: Mapping[str, str], say: Callable[[str], None]) -> RankTimeouts:
    """Return the time limits of the environment. Calls `say` with each invalid value."""
    forwards = environment.get("GPU_RECOVERY_FORWARD_SIGTERM") or "0"
    if forwards not in ("0", "1"):
        say(f"warning: GPU_RECOVERY_FORWARD_SIGTERM is {forwards!r}, not 0 or 1; taken as 0")
    grace_s = _seconds(environment, "SUSPEND_GRACE_S", GRACE_S, say)
    stop_s = _seconds(environment, "GPU_RECOVERY_STOP_TIMEOUT_S", STOP_TIMEOUT_S, say)
    timeouts = RankTimeouts(grace_s, stop_s, forwards == "1")
    if timeouts.term_s < grace_s and not timeouts.forwards:
        say(f"warning: a grace of {grace_s} s does not fit into a stopTimeout of {stop_s} s: {timeouts.term_s:g} s")
    return timeouts


def standby_mode(environment: Mapping[str, str], say: Callable[[str], None]) -> str:
    """Return STANDBY_ON, STANDBY_ON_SPARES, or "" without standby processes. Calls `say` with an invalid value."""
    value = environment.get(STANDBY_VARIABLE) or "0"
    if value not in ("0", STANDBY_ON, STANDBY_ON_SPARES):
        say(f"warning: {STANDBY_VARIABLE} is {value!r}, not 0, {STANDBY_ON} or {STANDBY_ON_SPARES}; taken as 0")
    return value if value in (STANDBY_ON, STANDBY_ON_SPARES) else ""


def standby_after_s(environment: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Return the seconds from the mark of the command to the start of its standby process."""
    return _seconds(environment, STANDBY_AFTER_VARIABLE, STANDBY_AFTER_S, say)


def rehearsal_and_command(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float | None, list[str]]:
    """Parse the command line.

    Returns:
        The seconds until the rehearsal of a suspension, None without a rehearsal; and the command.

    Raises:
        AgentSettingsError: the seconds are invalid, an option is unknown, or there is no command.
    """
    rest, seconds, name = list(arguments), environment.get("GPU_RECOVERY_SIMULATE") or "0", "GPU_RECOVERY_SIMULATE"
    if rest[:1] == ["--simulate"]:
        seconds, name, rest = rest[1] if len(rest) > 1 else "", "--simulate", rest[2:]
    elif rest and rest[0].startswith("--simulate="):
        seconds, name, rest = rest[0].partition("=")[2], "--simulate", rest[1:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    elif rest and rest[0].startswith("-"):
        raise AgentSettingsError(f"there is no option {rest[0]}")
    try:
        after_s = float(seconds)
    except ValueError:
        after_s = -1
    if not 0 <= after_s <= SECONDS_MAX:
        raise AgentSettingsError(
            f"{name} is {seconds!r}; it must be the number of seconds until the notice, such as 10"
        )
    if not rest:
        raise AgentSettingsError("there is no command")
    return after_s if after_s or name == "--simulate" else None, rest


def _seconds(environment: Mapping[str, str], variable: str, default: int, say: Callable[[str], None]) -> int:
    text = environment.get(variable, "").strip() or str(default)
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= SECONDS_MAX:
        return int(text)
    say(f"warning: {variable} is {text!r}, no whole number of seconds; taken as {default}")
    return default
