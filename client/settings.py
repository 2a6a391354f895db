"""Where the API address and the operator token come from: options, else the environment, else a running sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpu_recovery_client.errors import SettingsMissing
from gpu_recovery_client.http_client import is_loopback

URL_VARIABLE = "GPU_RECOVERY_API_URL"
TOKEN_VARIABLE = "GPU_RECOVERY_TOKEN"
SANDBOX_STATE = Path(".sandbox", "state.json")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Which deployment to speak to, with what token (never shown), and where that was found."""

    api_url: str
    token: str = field(repr=False)
    source: str


def find_settings(
    api_url: str | None, token: str | None, environment: Mapping[str, str], directory: Path
) -> ClientSettings:
    """The settings that count; SettingsMissing says what to give.

    An option wins over its variable. The sandbox in `directory` or a parent is used only when neither address nor
    token is given, so that no deployment ever receives another one's token.
    """
    url = api_url or environment.get(URL_VARIABLE)
    secret = token or environment.get(TOKEN_VARIABLE)
    if url and secret:
        return ClientSettings(url, secret, "options and environment")
    if url:
        raise SettingsMissing(f"no operator token: set {TOKEN_VARIABLE} or give --token")
    if secret:
        raise SettingsMissing(f"no API address: set {URL_VARIABLE} or give --api-url")
    path = find_sandbox(directory)
    if path is None:
        raise SettingsMissing(
            f"no API address and no running sandbox: set {URL_VARIABLE} and {TOKEN_VARIABLE},"
            " or start one with `gpu-recovery sandbox up`"
        )
    state = read_sandbox(path)
    return ClientSettings(state["api_url"], state["operator_token"], str(path))


def find_sandbox(directory: Path) -> Path | None:
    """The state file of the sandbox that runs in `directory` or the nearest parent; None when there is none."""
    for folder in (directory, *directory.parents):
        if (folder / SANDBOX_STATE).is_file():
            return folder / SANDBOX_STATE
    return None


def read_sandbox(path: Path) -> dict[str, Any]:
    """How the sandbox described in `path` is reached: what `sandbox up` prints, kept under `sandbox`.

    SettingsMissing if it cannot be used, such as an address beyond this machine.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsMissing(f"{path} cannot be read as JSON ({type(error).__name__})") from error
    if isinstance(state, dict):
        state = state.get("sandbox", state)
    if not isinstance(state, dict):
        raise SettingsMissing(f"{path} does not hold a sandbox's state")
    for key in ("api_url", "operator_token"):
        if not isinstance(state.get(key), str) or not state[key]:
            raise SettingsMissing(f"{path} has no {key}: the sandbox is not up")
    if not is_loopback(urlsplit(state["api_url"]).hostname or ""):
        raise SettingsMissing(f"{path} names an address that is not on this machine")
    return state
