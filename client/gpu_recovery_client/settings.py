"""Finds the API address and how to authenticate there: options, environment, or a running sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.errors import SettingsMissing
from gpu_recovery_client.http_client import TIMEOUT_S, is_loopback
from gpu_recovery_client.iam import IamAuth

URL_VARIABLE = "GPU_RECOVERY_API_URL"
TOKEN_VARIABLE = "GPU_RECOVERY_TOKEN"
AUTH_VARIABLE = "GPU_RECOVERY_AUTH"
WITH_TOKEN, WITH_IAM = "token", "iam"
"""How a caller authenticates: with a token, or with the signature of IAM credentials."""
SANDBOX_STATE = Path(".sandbox", "state.json")
"""State file of a sandbox, below its folder."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The deployment to call, its token (never shown), and where both were found. With `signs` there is no token."""

    api_url: str
    token: str = field(repr=False)
    source: str
    signs: bool = False


def find_settings(
    api_url: str | None,
    token: str | None,
    environment: Mapping[str, str],
    directory: Path,
    auth: str | None = None,
) -> ClientSettings:
    """Return the settings to use.

    An option overrides its variable. The sandbox in `directory` or a parent is used only if neither address nor token
    is given, so that no deployment ever receives the token of another. A deployment for which requests are signed
    receives no token.

    Raises:
        SettingsMissing: a setting is missing; the message says which.
    """
    url = api_url or environment.get(URL_VARIABLE)
    how = auth or environment.get(AUTH_VARIABLE) or WITH_TOKEN
    if how not in (WITH_TOKEN, WITH_IAM):
        raise SettingsMissing(f"{AUTH_VARIABLE} or --auth must be {WITH_TOKEN} or {WITH_IAM}, not {how!r}")
    if how == WITH_IAM:
        if token:
            raise SettingsMissing("signed requests carry no token: leave --token out, or give --auth token")
        if not url:
            raise SettingsMissing(f"no API address: set {URL_VARIABLE} or give --api-url")
        return ClientSettings(url, "", "options and environment", signs=True)
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


def client_of(
    settings: ClientSettings,
    transport: httpx.BaseTransport | None,
    *,
    pause: Callable[[float], None],
    timeout_s: float = TIMEOUT_S,
) -> RecoveryClient:
    """Return a client of the deployment that authenticates as the settings say."""
    auth = IamAuth(settings.api_url) if settings.signs else None
    return RecoveryClient(settings.api_url, settings.token, transport, auth=auth, timeout_s=timeout_s, pause=pause)


def find_sandbox(directory: Path) -> Path | None:
    """Return the state file of the sandbox that runs in `directory` or the nearest parent; None if there is none."""
    for folder in (directory, *directory.parents):
        if (folder / SANDBOX_STATE).is_file():
            return folder / SANDBOX_STATE
    return None


def read_sandbox(path: Path) -> dict[str, Any]:
    """Return how to reach the sandbox of the state file `path`: what `sandbox up` prints, stored under `sandbox`.

    Raises:
        SettingsMissing: the file cannot be used, for example because its address is not on this host.
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
