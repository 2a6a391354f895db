"""Settings of the reset of GPUs: the program, the services that hold the GPUs, and the instance types."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gpu_recovery_agent.rank.paths import AgentSettingsError

RESET_COMMAND = ("nvidia-smi", "--gpu-reset")
INSTANCE_TYPE = Path("devices/virtual/dmi/id/product_name")
"""File below `/sys` with the instance type. Instances of EC2 on Nitro have it, those on Xen do not."""
SERVICE = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,255}")
"""Pattern of the name of a systemd unit."""


@dataclass(frozen=True)
class ResetSettings:
    """What an agent needs to reset the GPUs of its instance.

    Attributes:
        command: the program that resets all GPUs, with its arguments; (): the agent resets none.
        services: units of systemd that hold the GPUs. They are stopped during a reset.
        root: root of the instance's file system, for an agent in a container; None: the agent runs on the instance.
        excluded: why the settings exclude this instance; "" if they do not.
    """

    command: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    root: Path | None = None
    excluded: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], host_sys: Path) -> ResetSettings:
        """Read the settings.

        Args:
            environment: variables of the agent.
            host_sys: `/sys` of the instance.

        Raises:
            AgentSettingsError: a variable has a value that it cannot have.
        """
        command = _command(environment)
        services = _words(environment, "GPU_RECOVERY_GPU_RESET_SERVICES")
        for service in services:
            if not SERVICE.fullmatch(service):
                raise AgentSettingsError(f"GPU_RECOVERY_GPU_RESET_SERVICES: {service!r} is no unit of systemd")
        patterns = _words(environment, "GPU_RECOVERY_GPU_RESET_INSTANCE_TYPES")
        excluded = _excluded(patterns, host_sys) if command else ""
        root = environment.get("HOST_ROOT")
        return cls(() if excluded else command, services, Path(root) if root else None, excluded)


def _command(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that resets all GPUs: that of nvidia-smi if the variable is `on`, or the value itself."""
    text = environment.get("GPU_RECOVERY_GPU_RESET", "").strip() or "off"
    if text in ("on", "off"):
        return RESET_COMMAND if text == "on" else ()
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise AgentSettingsError(f"GPU_RECOVERY_GPU_RESET is {text!r}, which is no command line: {error}") from None


def _words(environment: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """Return the parts of a variable, which commas or blanks separate."""
    return tuple(environment.get(variable, "").replace(",", " ").split())


def _excluded(patterns: tuple[str, ...], host_sys: Path) -> str:
    """Return why the patterns of instance types exclude this instance; "" if they do not, or if there are none."""
    if not patterns:
        return ""
    only = f"GPUs are reset only on {', '.join(patterns)}"
    try:
        kind = (host_sys / INSTANCE_TYPE).read_text(errors="replace").strip()
    except OSError as error:
        return f"{only}, and the instance type cannot be read: {error.strerror or error}"
    return "" if any(fnmatchcase(kind, pattern) for pattern in patterns) else f"{only}, and this is {kind!r}"
