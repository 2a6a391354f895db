"""`gpu-recovery console`: open the web console of the deployment in a browser."""

from __future__ import annotations

import webbrowser
from enum import StrEnum
from typing import Annotated

import typer

from gpu_recovery_client.cli.output import AsJson, print_document
from gpu_recovery_client.texts import tr


class SessionRole(StrEnum):
    """Roles of a session."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"


def console(
    context: typer.Context,
    role: Annotated[
        SessionRole | None, typer.Option(help="Role of the session, at most that of your token, which is the default.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    as_json: AsJson = False,
) -> None:
    """Open the web console, and print a session to paste there.

    The session lives for at most 12 hours. It is never a part of the address, which histories keep.
    """
    with context.obj.client() as client:
        session = client.open_session(None if role is None else role.value)
        address = f"{client.api_url}/console"
    if as_json:
        print_document({"console_url": address, **session})
    else:
        typer.echo(tr("Console:  {address}", address=address))
        typer.echo(tr("Session:  {session}", session=session["session"]))
        who = {name: session[name] for name in ("user", "role")}
        typer.echo(tr("Paste the session as the token. You are {user} ({role}).", **who))
    if browser and not as_json:
        webbrowser.open(address)
