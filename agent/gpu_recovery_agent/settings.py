"""Settings from the environment, read once. The token is not stored here and never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gpu_recovery_agent.rank.paths import AgentSettingsError, at_home, path_or_off, running_folder, socket_path
from gpu_recovery_agent.reset_settings import ResetSettings

GPU_EVENTS = "GPU_RECOVERY_GPU_EVENTS"
"""Variable of the preview of GPU Operational Events. The child process that reads NVML reads it as well."""
REPORTS, SIGNED_REPORTS = "/api/v1/reports", "/api/v1/signed/reports"
REGION_IN_HOST = re.compile(r"[^.]+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?")
REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")
TOKEN_MAX = 256
ECS_GPU_METRICS = "run/ecs/gpu/gpu-metrics.json"
"""Path below the root of the machine of the file that `dcgm-init` of the ECS agent writes (/var/run is /run)."""
REPAIR_LOG, JOURNAL = "var/log/gpu-recovery/repairs.log", "run/systemd/journal/socket"
"""Paths below the root of the machine: the file of the lines about repairs, and the socket of the journal."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class CredentialsMissing(AgentSettingsError):
    """There is no usable token."""


@dataclass(frozen=True)
class AgentSettings:
    """Settings of one agent on one instance.

    Durations are in seconds. `token_file` is None if the token is in the environment. If `signs` is true, the reports
    are signed for `region` with the role of the instance, and there is no token. `socket` receives the observations of
    training processes; None disables it. The agent touches `alive_file` at each turn of its loop; None: no file.
    `reset` says whether and how the agent resets GPUs. The lines about repairs of the machine go to `repair_log` and to
    the socket `journal`; None: not there. `ecs_gpu_metrics` is the file of the ECS agent's DCGM watch; None: it is
    not read. `gpu_events` says whether GPU Operational Events are read.
    """

    reports_url: str
    token_file: Path | None
    running_folder: Path
    state_folder: Path
    host_proc: Path
    host_kmsg: Path | None
    ecs_agent_url: str | None
    nvml: bool
    interval_s: float
    poll_s: float
    nvml_deadline_s: float
    inventory_s: float
    signs: bool = False
    region: str = ""
    socket: Path | None = None
    alive_file: Path | None = None
    reset: ResetSettings = field(default_factory=ResetSettings)
    repair_log: Path | None = None
    journal: Path | None = None
    ecs_gpu_metrics: Path | None = None
    gpu_events: bool = False
    host_sys: Path = Path("/sys")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> AgentSettings:
        """Read the settings. Raises AgentSettingsError at the first variable that is missing or out of range."""
        signs = _choice(environment, "GPU_RECOVERY_AUTH", ("token", "sigv4")) == "sigv4"
        address = _url(environment)
        host_root = Path(environment.get("HOST_ROOT") or "/")
        host_sys = Path(environment.get("HOST_SYS") or host_root / "sys")
        return cls(
            reports_url=address + (SIGNED_REPORTS if signs else REPORTS),
            token_file=None if signs else _token_file(environment),
            signs=signs,
            region=_region(environment, address) if signs else "",
            running_folder=running_folder(environment),
            socket=socket_path(environment),
            alive_file=path_or_off(environment, "GPU_RECOVERY_ALIVE_FILE", "off"),
            state_folder=state_folder(environment),
            repair_log=path_or_off(environment, "GPU_RECOVERY_REPAIR_LOG", str(host_root / REPAIR_LOG)),
            journal=path_or_off(environment, "GPU_RECOVERY_JOURNAL", str(host_root / JOURNAL)),
            ecs_gpu_metrics=path_or_off(environment, "GPU_RECOVERY_ECS_GPU_METRICS", str(host_root / ECS_GPU_METRICS)),
            host_proc=Path(environment.get("HOST_PROC") or "/proc"),
            host_sys=host_sys,
            host_kmsg=path_or_off(environment, "HOST_KMSG", "/dev/kmsg"),
            ecs_agent_url=_ecs_agent(environment),
            nvml=_switch(environment, "GPU_RECOVERY_NVML"),
            gpu_events=_choice(environment, GPU_EVENTS, ("off", "on")) == "on",
            interval_s=_milliseconds(environment, "GPU_RECOVERY_INTERVAL_MS", 15_000, least=10),
            poll_s=_milliseconds(environment, "GPU_RECOVERY_LOOK_MS", 1_000, least=1),
            nvml_deadline_s=_milliseconds(environment, "GPU_RECOVERY_NVML_DEADLINE_MS", 30_000, least=10),
            reset=ResetSettings.from_environment(environment, host_sys),
            inventory_s=_milliseconds(environment, "GPU_RECOVERY_INVENTORY_MS", 300_000, least=10),
        )

    def token(self, environment: Mapping[str, str]) -> str:
        """Return the current token: the file may have been replaced. Raises CredentialsMissing."""
        text = environment.get("GPU_RECOVERY_TOKEN", "")
        if self.token_file is not None:
            try:
                with self.token_file.open(encoding="ascii") as file:
                    text = file.read(TOKEN_MAX + 2)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
                raise CredentialsMissing(f"the token file {self.token_file} cannot be read: {why}") from None
        text = text.strip()
        if not text or len(text) > TOKEN_MAX or not all("!" <= character <= "~" for character in text):
            raise CredentialsMissing("the token is empty, too long, or has characters that no token has")
        return text


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the state folder: of the variable, or what systemd made (STATE_DIRECTORY). Raises AgentSettingsError."""
    folder = environment.get("GPU_RECOVERY_STATE_DIR") or environment.get("STATE_DIRECTORY")
    return at_home(folder or "~/.gputasker/agent")


def _url(environment: Mapping[str, str]) -> str:
    text = environment.get("GPU_RECOVERY_API_URL", "").strip().rstrip("/")
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    local = host in LOOPBACK or host.endswith(".localhost")
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise AgentSettingsError("GPU_RECOVERY_API_URL must be the address of the API, such as https://host/stage")
    if parts.scheme == "http" and not local:
        raise AgentSettingsError("GPU_RECOVERY_API_URL must begin with https: the token would be sent unencrypted")
    return text


def _region(environment: Mapping[str, str], address: str) -> str:
    """Return the region to sign for: from the variables, or from the address of the API."""
    named = (environment.get(name, "").strip() for name in ("GPU_RECOVERY_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"))
    in_host = REGION_IN_HOST.fullmatch(urlsplit(address).hostname or "")
    text = next(filter(None, named), in_host[1] if in_host else "")
    if not REGION.fullmatch(text):
        raise AgentSettingsError("GPU_RECOVERY_REGION must name the region of the API: its address does not")
    return text


def _token_file(environment: Mapping[str, str]) -> Path | None:
    """Return GPU_RECOVERY_TOKEN_FILE, or the systemd credential `token`; None if the token is in the environment."""
    if path := environment.get("GPU_RECOVERY_TOKEN_FILE"):
        return Path(path)
    if folder := environment.get("CREDENTIALS_DIRECTORY"):
        return Path(folder) / "token"
    if not environment.get("GPU_RECOVERY_TOKEN"):
        raise CredentialsMissing("no token: set GPU_RECOVERY_TOKEN_FILE or GPU_RECOVERY_TOKEN")
    return None


def _ecs_agent(environment: Mapping[str, str]) -> str | None:
    text = environment.get("GPU_RECOVERY_ECS_AGENT", "").strip() or "http://127.0.0.1:51678"
    if text == "off":
        return None
    parts = urlsplit(text)
    if parts.scheme != "http" or (parts.hostname or "") not in LOOPBACK:
        raise AgentSettingsError("GPU_RECOVERY_ECS_AGENT must be http on this machine, or `off`")
    return text.rstrip("/")


def _switch(environment: Mapping[str, str], variable: str) -> bool:
    return _choice(environment, variable, ("on", "off")) == "on"


def _choice(environment: Mapping[str, str], variable: str, choices: tuple[str, str]) -> str:
    """Return one of two values; the first is the default."""
    text = environment.get(variable) or choices[0]
    if text not in choices:
        raise AgentSettingsError(f"{variable} is {text!r}; it must be {choices[0]} or {choices[1]}")
    return text


def _milliseconds(environment: Mapping[str, str], variable: str, default: int, *, least: int) -> float:
    text = environment.get(variable, "").strip() or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text)):
        raise AgentSettingsError(f"{variable} is {text!r}; it must be a whole number of milliseconds, {least} or more")
    return int(text) / 1_000
