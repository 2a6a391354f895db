"""`gpu-recovery login` and `logout`: named deployments of the user, with their tokens."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from gpu_recovery_client import profiles
from gpu_recovery_client.cli.confirmation import is_interactive
from gpu_recovery_client.cli.output import FAILED, AsJson, print_document, print_view, say, terminal_width
from gpu_recovery_client.errors import SettingsMissing
from gpu_recovery_client.profiles import NAME, Profile
from gpu_recovery_client.render.profiles import profile_list
from gpu_recovery_client.settings import (
    AUTH_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    WITH_IAM,
    WITH_TOKEN,
    ClientSettings,
)
from gpu_recovery_client.texts import tr

DEFAULT_NAME = "default"
"""Name of a profile if none is given."""


class Auth(StrEnum):
    """Ways to authenticate."""

    TOKEN = WITH_TOKEN
    IAM = WITH_IAM


def login(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the deployment.")] = DEFAULT_NAME,
    api_url: Annotated[str | None, typer.Option(help=f"Address of the API; else {URL_VARIABLE}, else asked.")] = None,
    auth: Annotated[Auth | None, typer.Option(help="iam: sign requests with AWS credentials, without a token.")] = None,
    make_default: Annotated[
        bool, typer.Option("--default", help="Use this deployment if no other is selected. The first one is.")
    ] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Only list the saved deployments.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save a deployment and its token under a name.

    The token comes from --token or its variable, else from the terminal, or in a script from standard input. One
    request checks it. It is stored in the keyring if the Python package `keyring` is installed, otherwise in a file
    that only you can read.
    """
    if list_all:
        _list(context.obj, as_json)
        return
    if not NAME.fullmatch(name):
        message = tr("has 1 to 64 letters, digits, dots, dashes and underscores")
        raise typer.BadParameter(message, param_hint="NAME")
    connection = context.obj
    how = auth.value if auth else connection.auth or os.environ.get(AUTH_VARIABLE) or WITH_TOKEN
    if how not in (WITH_TOKEN, WITH_IAM):
        raise typer.BadParameter(tr("must be token or iam"), param_hint="--auth")
    url = _address(api_url or connection.api_url or os.environ.get(URL_VARIABLE))
    token = "" if how == WITH_IAM else _token(connection.token or os.environ.get(TOKEN_VARIABLE))
    with connection.client(ClientSettings(url, token, "login", signs=how == WITH_IAM)) as client:
        me, url = client.me(), client.api_url
    profile = _save(Profile(name, url, how), token, make_default)
    view = {"profile": name, "api_url": url, "user": me.get("user"), "role": me.get("role")}
    if as_json:
        print_document({**view, "auth": how, "token_store": profile.token_store or None})
        return
    typer.echo(tr("Saved {profile}: {api_url}. You are {user} ({role}).", **view))
    if profile.token_store == profiles.FILE:
        path = profiles.credentials_path(os.environ)
        typer.echo(tr("The token is in {path}, which only you can read.", path=path))
    elif profile.token_store == profiles.KEYRING:
        typer.echo(tr("The token is in the keyring."))


def logout(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the deployment.")] = DEFAULT_NAME,
) -> None:
    """Remove a saved deployment and its token. The token itself stays valid: `gpu-recovery token revoke` ends it."""
    known, default = profiles.read_profiles(os.environ)
    if name not in known:
        names = ", ".join(sorted(known)) or "-"
        message = tr("there is no deployment {name}; saved are: {names}", name=repr(name), names=names)
        raise typer.BadParameter(message, param_hint="NAME")
    left = profiles.remove_token(known.pop(name), os.environ)
    profiles.write_profiles(os.environ, known, default if default in known else "")
    typer.echo(tr("Removed {name}.", name=name))
    if left:
        _say_left(left)
        raise typer.Exit(FAILED)


def _list(connection: Any, as_json: bool) -> None:
    known, default = profiles.read_profiles(os.environ)
    view: dict[str, Any] = {
        "profiles": [
            {
                "name": one.name,
                "api_url": one.api_url,
                "auth": one.auth,
                "token_store": one.token_store or None,
                "default": one.name == default,
            }
            for _, one in sorted(known.items())
        ],
        "used": _used(connection),
    }
    print_view(view, lambda: profile_list(view, terminal_width()), as_json)


def _used(connection: Any) -> dict[str, str] | None:
    """Return the deployment that a call from here reaches, and where it was found; None if none is selected."""
    try:
        settings: ClientSettings = connection.settings()
    except SettingsMissing:
        return None
    return {"api_url": settings.api_url, "source": settings.source}


def _address(url: str | None) -> str:
    if url:
        return url
    if not is_interactive():
        raise typer.BadParameter(tr("is needed"), param_hint="--api-url")
    return str(typer.prompt(tr("Address of the API"), err=True))


def _token(token: str | None) -> str:
    if token:
        return token
    if is_interactive():
        return str(typer.prompt(tr("Token"), hide_input=True, err=True))
    return sys.stdin.readline().strip()


def _save(profile: Profile, token: str, make_default: bool) -> Profile:
    """Store the token, then the profile. Return the profile with the place of its token."""
    known, default = profiles.read_profiles(os.environ)
    before = known.get(profile.name)
    if token:
        profile = replace(profile, token_store=profiles.store_token(profile, token, os.environ))
    known[profile.name] = profile
    is_default = make_default or default not in known
    profiles.write_profiles(os.environ, known, profile.name if is_default else default)
    if before is not None and profiles.is_in_another_place(before, profile):
        _forget(before)
    return profile


def _forget(before: Profile) -> None:
    """Remove the token of the former login. If it cannot be removed, say so: the new login is saved."""
    try:
        left = profiles.remove_token(before, os.environ)
    except SettingsMissing as error:
        say(f"gpu-recovery: {error}")
    else:
        if left:
            _say_left(left)


def _say_left(entry: str) -> None:
    """Print which entry of the keyring is left, and how it is removed."""
    say(
        tr(
            "gpu-recovery: the token {entry} is still in the keyring, because the Python package keyring is missing."
            " Remove it there (service {service}), or revoke it: `gpu-recovery token revoke`",
            entry=repr(entry),
            service=profiles.SERVICE,
        )
    )
