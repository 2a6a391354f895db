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

from gpu_recovery_client.cli.confirmation import confirm
from gpu_recovery_client.cli.options import Yes, examples
from gpu_recovery_client.cli.output import FAILED, AsJson, print_document, print_view
from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.render import sandbox as render_sandbox
from gpu_recovery_client.settings import SANDBOX_STATE, TOKEN_VARIABLE, URL_VARIABLE, find_sandbox
from gpu_recovery_client.texts import tr

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a whole deployment on this machine.")

Directory = Annotated[
    Path | None,
    typer.Option(help="Folder of the sandbox; else the sandbox found from here, or that of the repository."),
]


class Preset(StrEnum):
    """Presets of the recovery policy."""

    ADAPTIVE = "adaptive"
    CLASSIC = "classic"


class CuredBy(StrEnum):
    """Repairs that can end a GPU fault of the sandbox."""

    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"
    NEVER = "never"


class RebootKind(StrEnum):
    """How an instance of the sandbox reacts to a reboot."""

    NORMAL = "normal"
    SILENT = "silent"
    IGNORED = "ignored"


class FaultKind(StrEnum):
    """Faults that a sandbox can inject into an instance."""

    XID79 = "xid79"
    XID119 = "xid119"
    ECC = "ecc"
    HANG = "hang"
    AGENT_LOST = "agent_lost"
    SPOT = "spot"
    KILL = "kill"


@app.command(epilog=examples("gpu-recovery sandbox up --instances 4 --agents"))
def up(
    instances: Annotated[int, typer.Option(min=1, help="Number of GPU instances.")] = 2,
    gpus: Annotated[int, typer.Option(min=1, max=16, help="Number of GPUs on each instance.")] = 8,
    preset: Annotated[Preset, typer.Option(help="Preset of the recovery policy.")] = Preset.ADAPTIVE,
    agents: Annotated[bool, typer.Option("--agents", help="Run a node agent on each instance.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Run a Ray head too, for jobs with `--backend ray`.")] = False,
    directory: Directory = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Start a sandbox, deploy into it and leave it running. A sandbox that already runs there is ended first.

    A terminal asks for confirmation before a sandbox is ended, a script does not.
    """
    with _sandbox() as sandbox:
        place = directory or sandbox.DEFAULT_DIRECTORY
        if (place / SANDBOX_STATE.name).exists():
            confirm(tr("A sandbox runs in {place}. End it, with its jobs?", place=place), yes)
        options = {"instances": instances, "gpus": gpus, "preset": preset.value, "agents": agents, "ray": ray}
        state = sandbox.up(place, **options, progress=_progress)
    if as_json:
        print_document(state)
        return
    typer.echo(tr("The sandbox is running: {url}", url=state["api_url"]))
    typer.echo(tr("The web console is {url}; `gpu-recovery console` opens it", url=state["console_url"]))
    if "ray_dashboard" in state:
        typer.echo(tr("The Ray dashboard is {url}", url=state["ray_dashboard"]))
    for sentence in _how_to_reach(place, state["api_url"]):
        typer.echo(sentence)


def _how_to_reach(place: Path, api_url: str) -> list[str]:
    """Return where gpu-recovery finds the sandbox by itself. Only a folder with the usual name is looked for."""
    file = place.resolve() / SANDBOX_STATE.name
    if place.resolve().name == SANDBOX_STATE.parent.name:
        folder = place.resolve().parent
        return [tr("In {folder} and below, gpu-recovery finds it; the tokens are in {file}", folder=folder, file=file)]
    return [
        tr("The tokens are in {file}. To use this sandbox:", file=file),
        f"  export {URL_VARIABLE}='{api_url}'",
        f"  export {TOKEN_VARIABLE}=...  # operator_token",
    ]


@app.command(epilog=examples("gpu-recovery sandbox down"))
def down(directory: Directory = None) -> None:
    """End the sandbox."""
    with _sandbox() as sandbox:
        ended = sandbox.down(_place(directory, sandbox))
    typer.echo(tr("The sandbox has ended.") if ended else tr("There was no sandbox."))


@app.command(epilog=examples("gpu-recovery sandbox fault --instance i-0123456789abcdef0 --kind xid79"))
def fault(
    instance: Annotated[str, typer.Option(help="Id of the instance.")],
    kind: Annotated[FaultKind, typer.Option(help="Kind of the fault.")],
    cured_by: Annotated[CuredBy | None, typer.Option(help="Repair that ends a GPU fault.")] = None,
    reboot: Annotated[RebootKind | None, typer.Option(help="Reaction of the instance to a reboot.")] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Make an instance of the sandbox fail."""
    with _sandbox() as sandbox:
        answer = sandbox.fault(_place(directory, sandbox), instance, kind.value, _value(cured_by), _value(reboot))
    if as_json:
        print_document(answer)
    else:
        typer.echo(tr("{fault} on {instance}", fault=kind.value, instance=instance))


def _value(choice: StrEnum | None) -> str | None:
    return None if choice is None else choice.value


@app.command(epilog=examples("gpu-recovery sandbox status --json"))
def status(directory: Directory = None, as_json: AsJson = False) -> None:
    """Show whether the sandbox runs; the exit code is 1 if it does not."""
    with _sandbox() as sandbox:
        view = sandbox.status(_place(directory, sandbox))
    print_view(view, lambda: render_sandbox.sandbox_status(view), as_json)
    if not view["running"]:
        raise typer.Exit(FAILED)


@app.command(epilog=examples("gpu-recovery sandbox mail"))
def mail(directory: Directory = None, as_json: AsJson = False) -> None:
    """Show every e-mail that the operators have received."""
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
