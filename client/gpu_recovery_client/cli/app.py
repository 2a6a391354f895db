"""The command line `gpu-recovery`.

Exit codes: 0 success, 1 failure, 2 usage error, which includes missing settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gpu_recovery_client.cli.command import LoadedWhenNeeded, WithHelp
from gpu_recovery_client.cli.error_hints import error_lines
from gpu_recovery_client.cli.options import examples
from gpu_recovery_client.cli.output import FAILED, USAGE, pause
from gpu_recovery_client.cli.usage_errors import plain_usage_errors
from gpu_recovery_client.cli.verbs import EXAMPLES, SECTIONS, VERBS
from gpu_recovery_client.errors import ClientError, SettingsMissing
from gpu_recovery_client.settings import (
    AUTH_VARIABLE,
    PROFILE_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    ClientSettings,
    find_settings,
)
from gpu_recovery_client.texts import LANGUAGE_VARIABLE, Language, tr, use_language

if TYPE_CHECKING:
    import httpx

    from gpu_recovery_client.api import RecoveryClient


@dataclass
class Connection:
    """The options that select the deployment. `transport` replaces the network, for tests."""

    api_url: str | None
    token: str | None = field(repr=False)
    transport: httpx.BaseTransport | None = None
    auth: str | None = None
    profile: str | None = None
    used: ClientSettings | None = None
    """The settings of the last client."""

    def settings(self) -> ClientSettings:
        """Return the settings of the selected deployment. Raises SettingsMissing if none is selected."""
        return find_settings(self.api_url, self.token, os.environ, Path.cwd(), self.auth, self.profile)

    def client(self, settings: ClientSettings | None = None) -> RecoveryClient:
        """Return a client of the selected deployment, or of the one that `settings` name."""
        connection: Any = import_module("gpu_recovery_client.connection")
        self.used = settings or self.settings()
        client: RecoveryClient = connection.client_of(self.used, self.transport, pause=pause)
        return client


class Verbs(WithHelp, TyperGroup):
    """Prints errors of the client and of usage to stderr and sets the exit code. Other errors keep their traceback."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.commands = LoadedWhenNeeded(VERBS)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        """Read the options before the verb. The language is read first, for errors in the other options."""
        use_language(_named_language(args))
        with plain_usage_errors():
            return super().make_context(info_name, args, *rest, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            with plain_usage_errors():
                return super().invoke(ctx)
        except ClientError as error:
            for line in error_lines(error, getattr(ctx.obj, "used", None)):
                typer.echo(line, err=True)
            raise typer.Exit(USAGE if isinstance(error, SettingsMissing) else FAILED) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs in sections. No verb is imported."""
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{verb.name:{width}}", verb.summary) for verb in verbs])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the verbs and options that begin so. No verb is imported."""
        outline: dict[str, Any] = {
            verb.name: TyperCommand(verb.name, short_help=tr(verb.summary)) for verb in VERBS.values()
        }
        return TyperGroup(name=self.name, params=self.params, commands=outline).shell_complete(ctx, incomplete)


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its panels would print local variables
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train on Amazon ECS, with automatic recovery from GPU faults.",
    epilog=examples(*EXAMPLES),
)


def _named_language(args: Sequence[str]) -> Language:
    """Return the language that the options before the verb, or the variable, name. English for any other name."""
    name = os.environ.get(LANGUAGE_VARIABLE, "")
    for at, word in enumerate(args):
        if word in VERBS:
            break
        if word.startswith("--language"):
            name = word.partition("=")[2] or "".join(args[at + 1 : at + 2])
    return Language(name) if name in tuple(Language) else Language.ENGLISH


def _print_version(wanted: bool) -> None:
    if wanted:
        release = import_module("importlib.metadata").version("gpu-recovery")
        typer.echo(f"gpu-recovery {release} (Python {sys.version.split()[0]})")
        raise typer.Exit


def _use(language: Language) -> Language:
    use_language(Language(language))
    return language


@app.callback()
def connect(
    context: typer.Context,
    api_url: Annotated[str | None, typer.Option(help=f"Address of the API; else {URL_VARIABLE}.")] = None,
    token: Annotated[
        str | None,
        typer.Option(help=f"Your token; better in {TOKEN_VARIABLE}, because other users can see options."),
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(help=f"`token`, or `iam` to sign requests with AWS credentials; else {AUTH_VARIABLE}."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"A deployment saved by `gpu-recovery login`; else {PROFILE_VARIABLE}."),
    ] = None,
    language: Annotated[
        Language,
        typer.Option(
            help=f"Language of the output; else {LANGUAGE_VARIABLE}.",
            envvar=LANGUAGE_VARIABLE,
            show_envvar=False,
            callback=_use,
            is_eager=True,
        ),
    ] = Language.ENGLISH,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train on Amazon ECS, with automatic recovery from GPU faults.

    The deployment is the one of --profile, of --api-url and --token, or of their variables. Without these it is the
    sandbox that runs in this folder or a parent, or else the default of `gpu-recovery login`.
    """
    context.obj = Connection(api_url, token, context.obj, auth, profile)


def main() -> None:
    """Entry point of the `gpu-recovery` script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name outside the locale must not stop the output
    app()
