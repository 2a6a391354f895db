"""The command line `gpu-recovery`.

Exit codes: 0 success, 1 failure, 2 usage error, which includes missing settings.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from typer.core import TyperGroup

from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli import (
    console,
    diagnose,
    doctor,
    fleet,
    instances,
    jobs,
    logs,
    queue,
    sandbox,
    simulate,
    submit,
)
from gpu_recovery_client.cli import token as cli_token
from gpu_recovery_client.cli.error_hints import advice
from gpu_recovery_client.cli.options import examples
from gpu_recovery_client.cli.output import FAILED, USAGE, pause
from gpu_recovery_client.errors import ClientError, RequestRefused, SettingsMissing
from gpu_recovery_client.render.table import printable
from gpu_recovery_client.settings import AUTH_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, client_of, find_settings

SECTIONS = {
    "Jobs": ("submit", "status", "list", "logs", "explain", "diagnose", "queue", "cancel", "suspend", "resume"),
    "Machines": ("instances", "quarantine", "release", "fleet", "redrive", "doctor", "console"),
    "People and limits": ("token", "quota"),
    "On this machine": ("sandbox", "simulate"),
}
"""Sections of the help, with their verbs in the order of use."""
JOB, INSTANCE = "sft-20261121-101318-6eea", "i-0123456789abcdef0"
"""Ids in examples."""


@dataclass
class Connection:
    """The options that select the deployment. `transport` replaces the network, for tests."""

    api_url: str | None
    token: str | None = field(repr=False)
    transport: httpx.BaseTransport | None = None
    auth: str | None = None

    def client(self) -> RecoveryClient:
        """Return a client of the selected deployment. Raises SettingsMissing if none is selected."""
        found = find_settings(self.api_url, self.token, os.environ, Path.cwd(), self.auth)
        return client_of(found, self.transport, pause=pause)


class Verbs(TyperGroup):
    """Prints the client's own errors to stderr and sets the exit code. Other errors keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except ClientError as error:
            for line in _error_text(error):
                typer.echo(printable(line), err=True)
            raise typer.Exit(USAGE if isinstance(error, SettingsMissing) else FAILED) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs in sections."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            rows = [
                (name, command.get_short_help_str(formatter.width - width - 6))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", words) for name, words in rows])


def _error_text(error: ClientError) -> list[str]:
    """Return the lines of an error: what happened, what else is wrong, and what to do."""
    lines = [f"gpu-recovery: {error}"]
    if isinstance(error, RequestRefused):
        lines += [f"  {': '.join(part for part in problem if part)}" for problem in error.more]
    sentence = advice(error)
    return [*lines, f"  {sentence}"] if sentence else lines


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its panels would print local variables
    rich_markup_mode=None,
    help="Train on Amazon ECS and let GPU faults heal by themselves.",
    epilog=examples(
        "gpu-recovery submit job.yaml --wait",
        f"gpu-recovery explain {JOB}",
        "gpu-recovery VERB --help                   # what a verb does, with examples",
    ),
)


def _verb(name: str, function: Any, *shown: str, **more: Any) -> None:
    app.command(name, epilog=examples(*shown), **more)(function)


_verb(
    "submit",
    submit.submit,
    "gpu-recovery submit job.yaml",
    "gpu-recovery submit job.yaml --priority LOW --dry-run",
    "gpu-recovery submit --workload sft --nnodes 2 --gpus-per-node 8 \\",
    "    --task-definition gpu-training --wait -- python train.py",
    cls=submit.Submit,
)
_verb("status", jobs.status, f"gpu-recovery status {JOB}", f"gpu-recovery status {JOB} --json")
_verb(
    "list",
    jobs.list_jobs,
    "gpu-recovery list --status RUNNING --user ana",
    "gpu-recovery list --since 12h --all --json",
)
_verb(
    "logs",
    logs.logs,
    f"gpu-recovery logs {JOB} --follow",
    f"gpu-recovery logs {JOB} --attempt 1 --rank 3 --tail 50",
)
_verb("explain", jobs.explain_one, f"gpu-recovery explain {JOB}", f"gpu-recovery explain {INSTANCE}")
_verb(
    "diagnose",
    diagnose.diagnose,
    f"gpu-recovery diagnose {JOB}",
    "gpu-recovery diagnose --file reports.jsonl",
    "gpu-recovery diagnose --log rank-3.log",
    "gpu-recovery diagnose --log - --json       # what standard input brings",
)
_verb("queue", queue.queue, "gpu-recovery queue", "gpu-recovery queue --user ana --json")
_verb("cancel", jobs.cancel, f"gpu-recovery cancel {JOB}", f"gpu-recovery cancel {JOB} --force")
_verb("suspend", jobs.suspend, f'gpu-recovery suspend {JOB} --because "a demo needs the GPUs"')
_verb("resume", jobs.resume, f"gpu-recovery resume {JOB}")
_verb("instances", instances.instances, "gpu-recovery instances", f"gpu-recovery instances {INSTANCE} --json")
_verb("quarantine", instances.quarantine, f'gpu-recovery quarantine {INSTANCE} --because "its fan is loud"')
_verb("release", instances.release, f"gpu-recovery release {INSTANCE}")
_verb("redrive", fleet.redrive, "gpu-recovery redrive --dry-run", "gpu-recovery redrive --queue failed")
_verb("doctor", doctor.doctor, "gpu-recovery doctor", "gpu-recovery doctor --json")
_verb("console", console.console, "gpu-recovery console", "gpu-recovery console --role viewer --no-browser")
_verb("simulate", simulate.simulate, "gpu-recovery simulate goodput --help", context_settings=simulate.PASSED_ON)
app.add_typer(fleet.app, name="fleet")
app.add_typer(queue.app, name="quota")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(cli_token.app, name="token")


@app.callback()
def connect(
    context: typer.Context,
    api_url: Annotated[str | None, typer.Option(help=f"Where the API is; else {URL_VARIABLE}.")] = None,
    token: Annotated[
        str | None,
        typer.Option(help=f"Your token; better in {TOKEN_VARIABLE}, since other users can list options."),
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(help=f"`token`, or `iam` to sign requests with AWS credentials; else {AUTH_VARIABLE}."),
    ] = None,
) -> None:
    """Train on Amazon ECS and let GPU faults heal by themselves.

    Without --api-url and --token, and without their variables, a sandbox running in this folder or a parent is used.
    """
    context.obj = Connection(api_url, token, context.obj, auth)


def main() -> None:
    """Entry point of the `gpu-recovery` script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name outside the locale must not stop the output
    app()
