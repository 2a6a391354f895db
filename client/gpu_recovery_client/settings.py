"""Finds the API address and how to authenticate there: options, environment, a profile, or a running sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpu_recovery_client.addresses import is_loopback
from gpu_recovery_client.errors import SettingsMissing
from gpu_recovery_client.profiles import Profile, read_profiles, token_of

URL_VARIABLE = "GPU_RECOVERY_API_URL"
TOKEN_VARIABLE = "GPU_RECOVERY_TOKEN"
AUTH_VARIABLE = "GPU_RECOVERY_AUTH"
PROFILE_VARIABLE = "GPU_RECOVERY_PROFILE"
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
    profile: str | None = None,
) -> ClientSettings:
    """Return the settings to use.

    An option overrides its variable. In this order: the profile of an option; options and variables with address and
    token; the profile of a variable; the sandbox in `directory` or a parent; the default profile. Address and token
    always come from the same of these, so that no deployment ever receives the token of another. A deployment for which
    requests are signed receives no token.

    Raises:
        SettingsMissing: a setting is missing; the message says which.
    """
    if profile:
        if api_url or token or auth:
            raise SettingsMissing("--profile names a deployment: leave --api-url, --token and --auth out")
        return _of_profile(profile, environment)
    url = api_url or environment.get(URL_VARIABLE)
    secret = token or environment.get(TOKEN_VARIABLE)
    by_variable = environment.get(PROFILE_VARIABLE)
    if by_variable and not url and not secret:
        return _of_profile(by_variable, environment)
    how = auth or environment.get(AUTH_VARIABLE) or WITH_TOKEN
    if how not in (WITH_TOKEN, WITH_IAM):
        raise SettingsMissing(f"{AUTH_VARIABLE} or --auth must be {WITH_TOKEN} or {WITH_IAM}, not {how!r}")
    if how == WITH_IAM:
        if token:
            raise SettingsMissing("signed requests carry no token: leave --token out, or give --auth token")
        if not url:
            raise SettingsMissing(f"no API address: set {URL_VARIABLE} or give --api-url")
        return ClientSettings(url, "", "options and environment", signs=True)
    if url and secret:
        return ClientSettings(url, secret, "options and environment")
    if url:
        raise SettingsMissing(f"no token for the API address {url}: set {TOKEN_VARIABLE} or give --token")
    path = find_sandbox(directory)
    if secret:
        unused = f"; the sandbox of {path} is not used, because it has a token of its own" if path else ""
        raise SettingsMissing(f"no API address for the given token: set {URL_VARIABLE} or give --api-url{unused}")
    if path is not None:
        state = read_sandbox(path)
        return ClientSettings(state["api_url"], state["operator_token"], str(path))
    default = read_profiles(environment)[1]
    if default:
        return _of_profile(default, environment)
    raise SettingsMissing(
        "no deployment is selected and no sandbox runs here: run `gpu-recovery login`, set"
        f" {URL_VARIABLE} and {TOKEN_VARIABLE}, or start a sandbox with `gpu-recovery sandbox up`"
    )


def _of_profile(name: str, environment: Mapping[str, str]) -> ClientSettings:
    profiles, _ = read_profiles(environment)
    profile: Profile | None = profiles.get(name)
    if profile is None:
        known = ", ".join(sorted(profiles)) or "none"
        raise SettingsMissing(f"there is no profile {name!r} (profiles: {known}); `gpu-recovery login {name}` makes it")
    if profile.auth == WITH_IAM:
        return ClientSettings(profile.api_url, "", f"profile {name}", signs=True)
    return ClientSettings(profile.api_url, token_of(profile, environment), f"profile {name}")


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
