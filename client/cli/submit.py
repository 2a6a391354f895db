"""`gpu-recovery submit`: a job from options, from a document, or from a document with options on top."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli.options import priorities_like
from gpu_recovery_client.cli.output import FAILED, AsJson, now, pause, print_json, say, terminal_width
from gpu_recovery_client.cli.wait import progress_display, until_ended
from gpu_recovery_client.errors import ServiceUnreachable
from gpu_recovery_client.job_document import Document, read_document
from gpu_recovery_client.render import jobs, queue
from typer.core import TyperCommand

REQUIRED = {"workload": "--workload", "nnodes": "--nnodes", "n_gpus_per_node": "--gpus-per-node"}
BY_BACKEND = {
    "ecs": {"task_definition": "--task-definition"},
    "ray": {"entrypoint": "--entrypoint"},
}
COMMAND = "gpu_recovery.command"


class Submit(TyperCommand):
    """What stands behind the first `--` is the command of the ranks, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the command away before the options are read."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """For the first line of the help."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def submit(
    context: typer.Context,
    documents: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="The job as JSON or YAML; '-' reads stdin.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="The same as FILE.")] = None,
    workload: Annotated[str | None, typer.Option(help="What kind of work; the job's id begins with it.")] = None,
    nnodes: Annotated[int | None, typer.Option(help="How many instances.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="How many GPUs on each.")] = None,
    task_definition: Annotated[str | None, typer.Option(help="ECS family, or family:revision.")] = None,
    container: Annotated[str | None, typer.Option(help="The container whose exit decides.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="For every rank; may repeat.")] = None,
    user: Annotated[str | None, typer.Option(help="Who asks; an operator may name anybody.")] = None,
    priority: Annotated[
        str | None,
        typer.Option(help="LOW to EXTREME_HIGH; NORMAL if not given.", autocompletion=priorities_like),
    ] = None,
    group: Annotated[str | None, typer.Option(help="The group of instances it may run on.")] = None,
    attempts_max: Annotated[int | None, typer.Option(help="How many counted attempts it may have.")] = None,
    max_runtime_s: Annotated[
        int | None, typer.Option(help="Seconds one attempt may run; lets it be fitted in before larger jobs.")
    ] = None,
    suspend_grace_s: Annotated[
        int | None, typer.Option(help="Seconds rank 0 has to save its state when it must make room.")
    ] = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Where its ranks keep checkpoints, as they see it.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="ecs, or ray.")] = None,
    entrypoint: Annotated[str | None, typer.Option(help="On ray: the shell command of the driver.")] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="The same key never makes a second job, for a day; else one is made up for this call."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell whether it would start, where, and if not, why not.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it has ended; 0 only if it SUCCEEDED.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a training job in line. An option wins over the same field of FILE."""
    if wait and dry_run:
        _usage("a dry run makes no job to wait for", "--wait")
    read = _document(documents or [], file)
    given = {
        "workload": workload,
        "nnodes": nnodes,
        "n_gpus_per_node": gpus_per_node,
        "task_definition": task_definition,
        "container": container,
        "user": user,
        "priority": priority,
        "group": group,
        "attempts_max": attempts_max,
        "max_runtime_s": max_runtime_s,
        "suspend_grace_s": suspend_grace_s,
        "checkpoint_dir": checkpoint_dir,
        "backend": backend,
        "entrypoint": entrypoint,
        "command": context.meta.get(COMMAND) or None,
    }
    spec, kind = _asked(read, {key: value for key, value in given.items() if value is not None}, env)
    with context.obj.client() as client:
        if dry_run:
            view = client.dry_run(spec, kind=kind)
            _print(view, queue.placement_preview(view, now(), terminal_width()), as_json)
            return
        view = _submitted(client, spec, kind, idempotency_key or secrets.token_hex(16))
        if wait:
            say(f"submitted {view['job_id']}; Ctrl-C leaves it running")
            view = _waited(client, view)
        _print(view, jobs.job_line(view), as_json)
    if wait and view["status"] != JobStatus.SUCCEEDED:
        raise typer.Exit(FAILED)


def _asked(read: Document | None, given: dict[str, Any], env: list[str] | None) -> tuple[dict[str, Any] | str, str]:
    """The body and its media type: a document that no option changes goes as it was written."""
    spec = {**(read.fields if read else {}), **given}
    if env:
        base = spec.get("env") or {}
        if not isinstance(base, dict):
            _usage("its field env is not an object, so --env cannot add to it", "--file")
        spec["env"] = base | dict(map(_variable, env))
    backend = spec.get("backend") or "ecs"
    needed = REQUIRED | (BY_BACKEND.get(backend, {}) if isinstance(backend, str) else {})
    missing = [option for key, option in needed.items() if key not in spec]
    if missing:
        _usage(f"a job needs {', '.join(missing)}; give them, or their fields in FILE or --file")
    if read is not None and not given and not env:
        return read.text, read.kind
    return spec, ""


def _submitted(client: RecoveryClient, spec: dict[str, Any] | str, kind: str, key: str) -> dict[str, Any]:
    try:
        return client.submit(spec, kind=kind, key=key)
    except ServiceUnreachable:
        say(f"whether the job is in line is not known: --idempotency-key {key} asks again without making a second one")
        raise


def _waited(client: RecoveryClient, view: dict[str, Any]) -> dict[str, Any]:
    """The view of the job once it has ended; Exit when the user does not want to wait any longer."""
    job_id = view["job_id"]
    try:
        with progress_display() as teller:
            return until_ended(client, job_id, teller, now, pause)
    except KeyboardInterrupt as stop:
        say(f"{job_id} goes on: `gpu-recovery status {job_id}` shows it, `gpu-recovery cancel {job_id}` ends it")
        raise typer.Exit(FAILED) from stop


def _print(view: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        typer.echo(text, nl=False)


def _document(named: list[str], file: str | None) -> Document | None:
    """The document of FILE or --file. Whoever forgot the `--` before a command is told so."""
    if file is not None and not named:
        return read_document(file, "--file")
    if not named:
        return None
    if len(named) > 1 or (named[0] != "-" and not Path(named[0]).exists()):
        _usage(f"{named[0]!r} is no file here; a command of the ranks begins after --", "FILE")
    if file is not None:
        _usage("the job is in FILE or in --file, not in both", "--file")
    return read_document(named[0], "FILE")


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        _usage(f"{text!r} is not NAME=VALUE", "--env")
    return name, value


def _usage(message: str, hint: str | None = None) -> NoReturn:
    raise typer.BadParameter(message, param_hint=hint)
