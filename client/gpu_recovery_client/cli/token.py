"""`gpu-recovery token`: the tokens of instances, for their agents, and the tokens of users."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

from gpu_recovery_client.cli.confirmation import confirm
from gpu_recovery_client.cli.options import Yes, examples, instances_like, seconds
from gpu_recovery_client.cli.output import AsJson, now, print_document, print_view, terminal_width
from gpu_recovery_client.render import tokens
from gpu_recovery_client.texts import tr

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Issue, list and revoke the tokens of instances and of users."
)
NODE = "i-0123456789abcdef0"
Instance = Annotated[
    str | None,
    typer.Argument(metavar="[INSTANCE]", help="Id of the instance.", autocompletion=instances_like),
]
User = Annotated[str | None, typer.Option(metavar="NAME", help="The user, for a token of a user.")]


class TokenRole(StrEnum):
    """What a user's token permits."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"


@app.command(
    epilog=examples(
        f"gpu-recovery token issue {NODE} --expires-in 90d",
        "gpu-recovery token issue --user ana --role user",
    )
)
def issue(
    context: typer.Context,
    instance: Instance = None,
    user: User = None,
    role: Annotated[
        TokenRole | None,
        typer.Option(help="viewer reads; user also submits, and controls own jobs; operator does everything."),
    ] = None,
    expires_in: Annotated[
        int | None, typer.Option(parser=seconds, metavar="TIME", help="Lifetime of the token, such as 90d or 12h.")
    ] = None,
    note: Annotated[str, typer.Option(help="A comment, shown in the list.")] = "",
    as_json: AsJson = False,
) -> None:
    """Issue a token for an instance or a user. The token is shown only once.

    An instance or a user may have two tokens at a time, so that the next can be installed before the last ends.
    """
    _require_one(instance, user)
    if user is None and role is not None:
        _usage(tr("is for the token of a user"), "--role")
    with context.obj.client() as client:
        if user is None:
            view = client.issue_token(instance, expires_in, note)
        else:
            view = client.issue_user_token(user, (role or TokenRole.USER).value, expires_in, note)
    if as_json:
        print_document(view)
        return
    typer.echo(view["token"])
    typer.echo(tr("Token {token}", token=tokens.line(view, now())), err=True)


@app.command("list", epilog=examples(f"gpu-recovery token list {NODE}", "gpu-recovery token list --user ana"))
def list_tokens(context: typer.Context, instance: Instance = None, user: User = None, as_json: AsJson = False) -> None:
    """List the tokens of an instance or of a user, without the secrets."""
    _require_one(instance, user)
    with context.obj.client() as client:
        view = client.tokens(instance) if user is None else client.user_tokens(user)
    print_view(view, lambda: tokens.tokens(view, now(), terminal_width()), as_json)


@app.command(
    epilog=examples(
        f"gpu-recovery token revoke {NODE} 3f9c1b2a7d40", "gpu-recovery token revoke --user ana 3f9c1b2a7d40"
    )
)
def revoke(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(metavar="[INSTANCE] TOKEN_ID", help="Id of the token, as listed; not the token itself."),
    ],
    user: User = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Revoke a token: within a minute every API rejects it.

    A terminal asks for confirmation, a script does not.
    """
    *instances, token_id = names
    if len(instances) != (1 if user is None else 0):
        _usage(tr("give an instance and the id of the token, or --user and the id of the token"))
    holder = instances[0] if user is None else user
    confirm(tr("Revoke the token {token} of {holder}?", token=token_id, holder=holder), yes)
    with context.obj.client() as client:
        if user is None:
            view: dict[str, Any] = client.revoke_token(instances[0], token_id)
        else:
            view = client.revoke_user_token(user, token_id)
    if as_json:
        print_document(view)
    else:
        typer.echo(tr("Token {token}", token=tokens.line(view, now())))


def _require_one(instance: str | None, user: str | None) -> None:
    if (instance is None) == (user is None):
        _usage(tr("give an instance, or --user and a name"))


def _usage(message: str, hint: str | None = None) -> NoReturn:
    raise typer.BadParameter(message, param_hint=hint)
