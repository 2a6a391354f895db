"""Paths that the wrapper of a rank shares with the agent: the ranks' folder and the socket for observations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SOCKET = ".diagnosis.sock"
"""File name of the socket for observations. It begins with a dot; file names of ranks do not."""


OUTPUT_SUFFIX = ".output"
"""End of the name of the empty file whose modification time is that of the last line of a rank."""


class AgentSettingsError(ValueError):
    """An environment variable is missing or unusable. The message names the variable and never holds a secret."""


def running_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the rank files, which agent and wrapper share, by GPUTasker's variable.

    Raises AgentSettingsError.
    """
    return at_home(environment.get("GPUTASKER_RUNNING_TASKS_DIR") or "~/.gputasker/running_tasks")


def socket_path(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the socket for observations, in the folder that ranks and agent share.

    Raises AgentSettingsError.
    """
    return path_or_off(environment, "GPU_RECOVERY_SOCKET", str(running_folder(environment) / SOCKET))


def output_path(folder: Path, stem: str) -> Path:
    """Return the path of the file that the wrapper of a rank touches when the rank writes a line."""
    return folder / f".{stem}{OUTPUT_SUFFIX}"


def at_home(text: str) -> Path:
    """Return the path, `~` expanded. Raises AgentSettingsError."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise AgentSettingsError(f"there is no home directory for {text}: give the folder by its variable") from None


def path_or_off(environment: Mapping[str, str], variable: str, default: str) -> Path | None:
    """Return the path that a variable names; None if its value is `off`."""
    text = environment.get(variable) or default
    return None if text == "off" else Path(text)
