"""Profiles: named deployments in a configuration file of the user, with their tokens in the keyring or in a file.

    config.toml        the profiles and the name of the default profile; no secrets
    credentials.toml   the tokens of hosts without a keyring; readable for its owner only

A token is stored with the address that it belongs to, so that an edited address never receives the token of another.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from gpu_recovery_client.errors import SettingsMissing

CONFIG_VARIABLE = "GPU_RECOVERY_CONFIG"
"""Variable with the path of the configuration file."""
SERVICE = "gpu-recovery"
"""Name under which the keyring stores tokens."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Form of the name of a profile."""
KEYRING, FILE, NONE = "keyring", "file", ""
"""Where the token of a profile is stored; NONE for a profile that signs its requests."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""Permissions that no file with tokens may have."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A named deployment.

    name:        name of the profile.
    api_url:     address of the API.
    auth:        `token`, or `iam` for signed requests.
    token_store: KEYRING, FILE or NONE.
    """

    name: str
    api_url: str
    auth: str = "token"
    token_store: str = NONE


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the configuration file, which need not exist."""
    named = environment.get(CONFIG_VARIABLE)
    return Path(named) if named else Path(typer.get_app_dir(SERVICE)) / "config.toml"


def credentials_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file with the tokens, which need not exist."""
    return config_path(environment).with_name("credentials.toml")


def read_profiles(environment: Mapping[str, str]) -> tuple[dict[str, Profile], str]:
    """Return the profiles by name, and the name of the default profile ("" if there is none).

    Raises:
        SettingsMissing: the configuration file cannot be used.
    """
    path = config_path(environment)
    document = _read_toml(path)
    tables = document.get("profiles", {})
    profiles = {}
    for name, table in tables.items() if isinstance(tables, dict) else ():
        fields = table if isinstance(table, dict) else {}
        known = {key: fields.get(key, "") for key in ("api_url", "auth", "token_store")}
        if not NAME.fullmatch(name) or not known["api_url"] or not all(isinstance(one, str) for one in known.values()):
            raise SettingsMissing(f"{path}: the profile {name!r} has no usable api_url; run `gpu-recovery login` again")
        profiles[name] = Profile(name, known["api_url"], known["auth"] or "token", known["token_store"])
    default = document.get("default", "")
    return profiles, default if isinstance(default, str) else ""


def write_profiles(environment: Mapping[str, str], profiles: Mapping[str, Profile], default: str) -> None:
    """Replace the configuration file."""
    tables = {
        name: {key: value for key, value in asdict(profile).items() if key != "name" and value}
        for name, profile in sorted(profiles.items())
    }
    _write_toml(config_path(environment), {"default": default, "profiles": tables})


def token_of(profile: Profile, environment: Mapping[str, str]) -> str:
    """Return the token of a profile.

    Raises:
        SettingsMissing: there is no token for the address of the profile, or other users can read the file.
    """
    token: Any = None
    if profile.token_store == KEYRING:
        library = _keyring()
        if library is None:
            raise SettingsMissing(
                f"the token of the profile {profile.name} is in the keyring, and the Python package keyring is missing:"
                " pip install 'gpu-recovery[keyring]'"
            )
        try:
            token = library.get_password(SERVICE, _keyring_entry(profile))
        except _errors(library) as error:
            raise SettingsMissing(f"the keyring cannot be read ({type(error).__name__})") from error
    elif profile.token_store == FILE:
        path = credentials_path(environment)
        if path.exists() and os.name == "posix" and path.stat().st_mode & OTHERS:
            raise SettingsMissing(f"other users can read {path}: run `chmod 600 {path}`")
        table = _read_toml(path).get(profile.name)
        token = table.get("token") if isinstance(table, dict) and table.get("api_url") == profile.api_url else None
    if not isinstance(token, str) or not token:
        raise SettingsMissing(
            f"the profile {profile.name} has no token for {profile.api_url}:"
            f" run `gpu-recovery login {profile.name} --api-url {profile.api_url}`"
        )
    return token


def store_token(profile: Profile, token: str, environment: Mapping[str, str]) -> str:
    """Store the token of a profile in the keyring, or without a usable keyring in a file. Return KEYRING or FILE."""
    library = _keyring()
    if library is not None:
        entry = _keyring_entry(profile)
        try:
            library.set_password(SERVICE, entry, token)
            if library.get_password(SERVICE, entry) == token:  # a null backend stores nothing
                return KEYRING
        except _errors(library):
            pass  # the keyring is locked or has no backend, as on a server
    path = credentials_path(environment)
    table = {"api_url": profile.api_url, "token": token}
    _write_toml(path, {**_read_toml(path), profile.name: table})
    return FILE


def remove_token(profile: Profile, environment: Mapping[str, str]) -> str:
    """Remove the token of a profile from where it is stored.

    Returns:
        The entry that stays in the keyring because the Python package keyring is missing; "" if no token is left.

    Raises:
        SettingsMissing: the keyring cannot be changed now, so the token is still there.
    """
    left = _remove_from_keyring(_keyring_entry(profile)) if profile.token_store == KEYRING else ""
    if profile.token_store == FILE:
        path = credentials_path(environment)
        _write_toml(path, {name: table for name, table in _read_toml(path).items() if name != profile.name})
    return left


def is_in_another_place(before: Profile, after: Profile) -> bool:
    """Return whether storing the token of `after` has left that of `before`, a profile of the same name."""
    if before.token_store == KEYRING == after.token_store:
        return _keyring_entry(before) != _keyring_entry(after)
    return before.token_store != after.token_store


def _remove_from_keyring(entry: str) -> str:
    library = _keyring()
    if library is None:
        return entry
    try:
        try:
            library.delete_password(SERVICE, entry)
        except library.errors.PasswordDeleteError:
            if library.get_password(SERVICE, entry) is not None:
                raise
    except _errors(library) as error:
        message = f"the token {entry!r} is still in the keyring, which cannot be changed ({type(error).__name__})"
        raise SettingsMissing(message) from error
    return ""


def _keyring_entry(profile: Profile) -> str:
    return f"{profile.name} at {profile.api_url}"


def _keyring() -> Any:
    """Return the library `keyring`; None if it is not installed."""
    try:
        return import_module("keyring")
    except ImportError:
        return None


def _errors(library: Any) -> tuple[type[Exception], ...]:
    """Return the errors of the keyring and of the services that it calls."""
    return (RuntimeError, OSError) if library is None else (RuntimeError, OSError, library.errors.KeyringError)


def _read_toml(path: Path) -> dict[str, Any]:
    """Return the document; an empty one if there is no file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsMissing(f"{path} cannot be read as TOML ({type(error).__name__})") from error


def _write_toml(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a file in one step. It is readable for its owner only, from its first byte on."""
    text = import_module("tomli_w").dumps(document)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
