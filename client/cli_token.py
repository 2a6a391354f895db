"""`gpu-recovery token`: the tokens with which the agents on instances report."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from . import render_token
from .output import AsJson, now, print_json, terminal_width

UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Issue, list and revoke the tokens of agents on instances."
)
Instance = Annotated[str, typer.Argument(metavar="INSTANCE", help="The instance's id.")]


def seconds(text: str) -> int:
    """`90d`, `12h`, `30m` or `3600` in seconds; BadParameter for anything else."""
    spelt = re.fullmatch(r"([1-9][0-9]{0,9})([smhd]?)", text)
    if spelt is None:
        raise typer.BadParameter("must be a time such as 90d, 12h, 30m or 3600s")
    return int(spelt[1]) * UNITS_S[spelt[2]]


@app.command()
def issue(
    context: typer.Context,
    instance: Instance,
    expires_in: Annotated[
        int | None, typer.Option(parser=seconds, metavar="TIME", help="How long it lives, such as 90d or 12h.")
    ] = None,
    note: Annotated[str, typer.Option(help="What it is for, shown in the list.")] = "",
    as_json: AsJson = False,
) -> None:
    """Issue a token for the agent of one instance and print it: it is shown this once.

    An instance may have two at a time, so that the next can be installed before the last ends.
    """
    with context.obj.client() as client:
        view = client.issue_token(instance, expires_in, note)
    if as_json:
        print_json(view)
        return
    typer.echo(view["token"])
    typer.echo(f"Token {render_token.line(view, now())}", err=True)


@app.command("list")
def list_tokens(context: typer.Context, instance: Instance, as_json: AsJson = False) -> None:
    """List the tokens of an instance, without what opens."""
    with context.obj.client() as client:
        view = client.tokens(instance)
    if as_json:
        print_json(view)
    else:
        typer.echo(render_token.tokens(view, now(), terminal_width()), nl=False)


@app.command()
def revoke(
    context: typer.Context,
    instance: Instance,
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id, as listed; not the token.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a token: within a minute it opens nothing."""
    with context.obj.client() as client:
        view = client.revoke_token(instance, token_id)
    if as_json:
        print_json(view)
    else:
        typer.echo(f"Token {render_token.line(view, now())}")
