"""`gpu-recovery submit`: submits a job, from options, from a document, or from both."""

from __future__ import annotations

import secrets
from typing import Any

import typer
from gpu_recovery.core.job.record import JobStatus
from typer.core import TyperCommand

from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli import submit_options as options
from gpu_recovery_client.cli.job_spec import job_document, job_spec, usage_error
from gpu_recovery_client.cli.output import FAILED, AsJson, now, pause, print_view, say, terminal_width
from gpu_recovery_client.cli.wait import progress_display, until_ended
from gpu_recovery_client.errors import ServiceUnreachable
from gpu_recovery_client.render import jobs, queue

COMMAND = "gpu_recovery.command"
"""Key of click's context under which the command of the ranks is stored."""


class Submit(TyperCommand):
    """The verb's command. All arguments after the first `--` are the command of the ranks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remove the command from the arguments before click reads the options."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the pieces of the usage line, with the command at its end."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def submit(
    context: typer.Context,
    documents: options.Documents = None,
    file: options.File = None,
    workload: options.Workload = None,
    nnodes: options.Nnodes = None,
    gpus_per_node: options.GpusPerNode = None,
    task_definition: options.TaskDefinition = None,
    container: options.Container = None,
    env: options.Env = None,
    user: options.JobUser = None,
    priority: options.JobPriority = None,
    group: options.JobGroup = None,
    attempts_max: options.AttemptsMax = None,
    max_runtime_s: options.MaxRuntimeS = None,
    suspend_grace_s: options.SuspendGraceS = None,
    checkpoint_dir: options.CheckpointDir = None,
    backend: options.Backend = None,
    entrypoint: options.Entrypoint = None,
    idempotency_key: options.IdempotencyKey = None,
    dry_run: options.DryRun = False,
    wait: options.Wait = False,
    as_json: AsJson = False,
) -> None:
    """Submit a training job. An option wins over the same field of FILE."""
    if wait and dry_run:
        usage_error("a dry run makes no job to wait for", "--wait")
    document = job_document(documents or [], file)
    options_given = {
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
    fields = {name: value for name, value in options_given.items() if value is not None}
    spec, kind = job_spec(document, fields, env)
    with context.obj.client() as client:
        if dry_run:
            _print_dry_run(client, spec, kind, as_json)
        else:
            _submit(client, spec, kind, idempotency_key or secrets.token_hex(16), wait, as_json)


def _print_dry_run(client: RecoveryClient, spec: dict[str, Any] | str, kind: str, as_json: bool) -> None:
    view = client.dry_run(spec, kind=kind)
    print_view(view, lambda: queue.placement_preview(view, now(), terminal_width()), as_json)


def _submit(client: RecoveryClient, spec: dict[str, Any] | str, kind: str, key: str, wait: bool, as_json: bool) -> None:
    """Submit the job and print it; with `wait`, once it has ended. Exit code 1 if it has ended without success."""
    view = _submitted(client, spec, kind, key)
    if wait:
        say(f"submitted {view['job_id']}; Ctrl-C leaves it running")
        view = _waited(client, view)
    print_view(view, lambda: jobs.job_line(view), as_json)
    if wait and view["status"] != JobStatus.SUCCEEDED:
        raise typer.Exit(FAILED)


def _submitted(client: RecoveryClient, spec: dict[str, Any] | str, kind: str, key: str) -> dict[str, Any]:
    try:
        return client.submit(spec, kind=kind, key=key)
    except ServiceUnreachable:
        say(f"whether the job is in line is not known: --idempotency-key {key} asks again without making a second one")
        raise


def _waited(client: RecoveryClient, view: dict[str, Any]) -> dict[str, Any]:
    """Return the view of the job once it has ended. Raises typer.Exit if the user stops waiting."""
    job_id = view["job_id"]
    try:
        with progress_display() as display:
            return until_ended(client, job_id, display, now, pause)
    except KeyboardInterrupt as stop:
        say(f"{job_id} goes on: `gpu-recovery status {job_id}` shows it, `gpu-recovery cancel {job_id}` ends it")
        raise typer.Exit(FAILED) from stop
