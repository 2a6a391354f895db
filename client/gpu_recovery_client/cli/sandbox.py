"""`gpu-recovery sandbox`: a whole deployment on this host.

Its code is imported when a verb needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.options import examples
from gpu_recovery_client.cli.output import AsJson, print_json, print_view
from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.render import sandbox as render_sandbox
from gpu_recovery_client.settings import find_sandbox

FAILED = 1
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a whole deployment on this machine.")

Directory = Annotated[
    Path | None, typer.Option(help="Where the sandbox keeps its files; else the one found here, or the repository's.")
]


class FaultKind(StrEnum):
    """Faults that a sandbox can inject into an instance."""

    XID79 = "xid79"
    ECC = "ecc"
    HANG = "hang"
    AGENT_LOST = "agent_lost"
    SPOT = "spot"
    KILL = "kill"


@app.command(epilog=examples("gpu-recovery sandbox up --instances 4 --agents"))
def up(
    instances: Annotated[int, typer.Option(min=1, help="How many GPU instances.")] = 2,
    gpus: Annotated[int, typer.Option(min=1, max=16, help="How many GPUs on each.")] = 8,
    preset: Annotated[str, typer.Option(help="The recovery policy: adaptive or classic.")] = "adaptive",
    agents: Annotated[bool, typer.Option("--agents", help="Run a node agent on each instance.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Run a Ray head too, for jobs with `--backend ray`.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Start a sandbox, deploy into it and leave it running. A sandbox that already
    runs there is ended first.
    """
    with _sandbox() as sandbox:
        place = directory or sandbox.DEFAULT_DIRECTORY
        options = {"instances": instances, "gpus": gpus, "preset": preset, "agents": agents, "ray": ray}
        state = sandbox.up(place, **options, progress=_progress)
    if as_json:
        print_json(state)
        return
    typer.echo(f"The sandbox is up: {state['api_url']}")
    typer.echo(f"The web console is {state['console_url']}; `gpu-recovery console` opens it")
    if "ray_dashboard" in state:
        typer.echo(f"The Ray dashboard is {state['ray_dashboard']}")
    typer.echo(f"In {place.parent} and below, gpu-recovery finds it; the tokens are in {place / 'state.json'}")


@app.command(epilog=examples("gpu-recovery sandbox down"))
def down(directory: Directory = None) -> None:
    """End the sandbox."""
    with _sandbox() as sandbox:
        ended = sandbox.down(_place(directory, sandbox))
    typer.echo("The sandbox has ended." if ended else "There was no sandbox.")


@app.command(epilog=examples("gpu-recovery sandbox fault --instance i-0123456789abcdef0 --kind xid79"))
def fault(
    instance: Annotated[str, typer.Option(help="The instance's id.")],
    kind: Annotated[FaultKind, typer.Option(help="What goes wrong.")],
    cured_by: Annotated[str | None, typer.Option(help="What ends a GPU fault: reboot, replace or never.")] = None,
    reboot: Annotated[str | None, typer.Option(help="How it takes a reboot: normal, silent or ignored.")] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Make an instance of the sandbox fail."""
    with _sandbox() as sandbox:
        answer = sandbox.fault(_place(directory, sandbox), instance, kind.value, cured_by, reboot)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{kind.value} on {instance}")


@app.command(epilog=examples("gpu-recovery sandbox status --json"))
def status(directory: Directory = None, as_json: AsJson = False) -> None:
    """Say whether the sandbox runs; exit code 1 when it does not."""
    with _sandbox() as sandbox:
        view = sandbox.status(_place(directory, sandbox))
    print_view(view, lambda: render_sandbox.sandbox_status(view), as_json)
    if not view["running"]:
        raise typer.Exit(FAILED)


@app.command(epilog=examples("gpu-recovery sandbox mail"))
def mail(directory: Directory = None, as_json: AsJson = False) -> None:
    """Show every message that the operators were sent so far."""
    with _sandbox() as sandbox:
        mails = sandbox.read_mailbox(_place(directory, sandbox))
    print_view(mails, lambda: render_sandbox.mailbox(mails), as_json)


@contextmanager
def _sandbox() -> Iterator[Any]:
    """Yield the sandbox's module; its errors become ClientError."""
    try:
        sandbox, processes = import_module("sandbox.sandbox"), import_module("sandbox.processes")
    except ImportError as error:
        raise ClientError(f"the sandbox needs the repository, set up with `make setup` ({error})") from error
    try:
        yield sandbox
    except (processes.SandboxError, OSError) as error:
        raise ClientError(f"sandbox: {error}") from error


def _place(directory: Path | None, sandbox: Any) -> Path:
    """Return the given directory, otherwise that of the sandbox found from here, otherwise the repository's."""
    if directory is not None:
        return directory
    state = find_sandbox(Path.cwd())
    return state.parent if state else Path(sandbox.DEFAULT_DIRECTORY)


def _progress(line: str) -> None:
    typer.echo(line, err=True)
