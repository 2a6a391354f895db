"""The command line `gpu-recovery`. Exit codes: 0 ok, 1 failed, 2 usage (settings that are missing included)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from typer.core import TyperGroup

from . import cli_fleet, cli_sandbox, cli_simulate, cli_submit, cli_token, explain, render
from .api import RecoveryClient
from .errors import ClientError, SettingsMissing
from .output import FAILED, USAGE, AsJson, is_complete, now, print_json, terminal_width
from .settings import TOKEN_VARIABLE, URL_VARIABLE, find_settings
from .table import printable

PAGE = 50

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


@dataclass
class Connection:
    """The options that say which deployment is meant. `transport` replaces the network, for tests."""

    api_url: str | None
    token: str | None = field(repr=False)
    transport: httpx.BaseTransport | None = None

    def client(self) -> RecoveryClient:
        """A client of the deployment meant; SettingsMissing when that is not known."""
        found = find_settings(self.api_url, self.token, os.environ, Path.cwd())
        return RecoveryClient(found.api_url, found.token, self.transport)


class Verbs(TyperGroup):
    """Turns our own errors into a line on stderr and an exit code; any other error keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except ClientError as error:
            typer.echo(f"gpu-recovery: {printable(str(error))}", err=True)
            raise typer.Exit(USAGE if isinstance(error, SettingsMissing) else FAILED) from error


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its panels would quote local variables
    rich_markup_mode=None,
    help="Train on Amazon ECS and let GPU faults heal by themselves.",
)
app.command("submit", context_settings={"allow_interspersed_args": False})(cli_submit.submit)
app.add_typer(cli_fleet.app, name="fleet")
app.add_typer(cli_sandbox.app, name="sandbox")
app.add_typer(cli_token.app, name="token")
app.command("redrive")(cli_fleet.redrive)
app.command("simulate", context_settings=cli_simulate.PASSED_ON)(cli_simulate.simulate)


@app.callback()
def connect(
    context: typer.Context,
    api_url: Annotated[str | None, typer.Option(help=f"Where the API is; else {URL_VARIABLE}.")] = None,
    token: Annotated[
        str | None,
        typer.Option(help=f"The operator token; better in {TOKEN_VARIABLE}, since other users can list options."),
    ] = None,
) -> None:
    """Train on Amazon ECS and let GPU faults heal by themselves.

    Without --api-url and --token, and without their variables, a sandbox running in this folder or a parent is used.
    """
    context.obj = Connection(api_url, token, context.obj)


@app.command()
def status(context: typer.Context, job: JobId, as_json: AsJson = False) -> None:
    """Show one job: where it stands, why, and what it waits for."""
    with context.obj.client() as client:
        view = client.job(job)
    if as_json:
        print_json(view)
    else:
        typer.echo(render.job_details(view, now(), terminal_width()), nl=False)


@app.command("list")
def list_jobs(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="Only jobs of this status, such as RUNNING.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many jobs a page has.")] = PAGE,
    cursor: Annotated[str | None, typer.Option(help="Where the page before this one said to go on.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every page.")] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs."""
    with context.obj.client() as client:
        if every:
            missed: list[str] = []
            jobs = list(client.jobs(status, limit, cursor, missed))
            page = {"jobs": jobs, "next_cursor": None, "unreadable": missed}
        else:
            page = client.jobs_page(status, limit, cursor)
    if as_json:
        print_json(page)
    else:
        typer.echo(render.job_list(page, now(), terminal_width()), nl=False)
    if not is_complete(page.get("unreadable") or ()):
        raise typer.Exit(FAILED)


@app.command("explain")
def explain_one(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="JOB|INSTANCE", help="The job's id, or an instance's.")],
    as_json: AsJson = False,
) -> None:
    """Tell what happened to a job and its instances, or to one instance: when, why, and what it waits for now."""
    with context.obj.client() as client:
        if explain.INSTANCE_ID.fullmatch(name):
            story = client.instance(name)
            text = render.instance_details(story, now(), terminal_width())
        else:
            story = explain.gather(client, name)
            text = explain.explanation(story, now(), terminal_width())
    if as_json:
        print_json(story)
    else:
        typer.echo(text, nl=False)


@app.command()
def cancel(
    context: typer.Context,
    job: JobId,
    force: Annotated[
        bool, typer.Option("--force", help="Also have the agents of its instances end its ranks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End a job: its ranks are stopped first."""
    with context.obj.client() as client:
        view = client.cancel(job, force=force)
    if as_json:
        print_json(view)
    else:
        typer.echo(render.job_line(view), nl=False)


@app.command()
def instances(
    context: typer.Context,
    instance: Annotated[str | None, typer.Argument(metavar="[ID]", help="One instance, with its history.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the instances, or show one."""
    with context.obj.client() as client:
        if instance is None:
            missed: list[str] = []
            found = list(client.instances(missed))
            listed: dict[str, Any] = {"instances": found, "next_cursor": None, "unreadable": missed}
            text = render.instance_list(listed["instances"], terminal_width())
        else:
            listed = client.instance(instance)
            text = render.instance_details(listed, now(), terminal_width())
    if as_json:
        print_json(listed)
    else:
        typer.echo(text, nl=False)
    if not is_complete(listed.get("unreadable") or ()):
        raise typer.Exit(FAILED)


@app.command()
def release(
    context: typer.Context,
    instance: Annotated[
        str, typer.Argument(metavar="ID", help="A quarantined instance that was repaired or replaced.")
    ],
    as_json: AsJson = False,
) -> None:
    """Give a quarantined instance back: it works again once it passes a health check."""
    with context.obj.client() as client:
        view = client.release(instance)
    if as_json:
        print_json(view)
    else:
        typer.echo(render.instance_details(view, now(), terminal_width()), nl=False)


@app.command()
def quarantine(
    context: typer.Context,
    instance: Annotated[str, typer.Argument(metavar="ID", help="The instance.")],
    because: Annotated[str, typer.Option(help="Why, for whoever finds it so.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take an instance out of use: nothing new is placed on it, what runs on it goes on, until it is released."""
    with context.obj.client() as client:
        view = client.quarantine(instance, because)
    if as_json:
        print_json(view)
    else:
        typer.echo(render.instance_details(view, now(), terminal_width()), nl=False)


def main() -> None:
    """The entry of the `gpu-recovery` script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a user's name must not stop a report on a narrow locale
    app()
