"""`gpu-recovery submit`: submits a job, from options, from a document, or from both."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Any

import typer
from gpu_recovery.core.job.status import JobStatus

from gpu_recovery_client.cli import submit_options as options
from gpu_recovery_client.cli.command import VerbCommand
from gpu_recovery_client.cli.job_example import EXAMPLES
from gpu_recovery_client.cli.job_spec import job_document, job_spec, usage_error
from gpu_recovery_client.cli.logs import TAIL, Following
from gpu_recovery_client.cli.output import FAILED, AsJson, now, pause, print_view, say, terminal_width
from gpu_recovery_client.cli.wait import progress_display, until_ended
from gpu_recovery_client.errors import ServiceUnreachable
from gpu_recovery_client.render import jobs, queue, recovery
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

COMMAND = "gpu_recovery.command"
"""Key of click's context under which the command of the ranks is stored."""

OPTION_FIELDS = (
    *("workload", "name", "nnodes", "task_definition", "container", "user", "priority", "group", "attempts_max"),
    *("max_runtime_s", "progress_timeout_s", "max_down_minutes", "max_lost_minutes", "checkpoint_every_s"),
    *("reports_progress", "suspend_grace_s", "checkpoint_dir", "backend", "entrypoint"),
)
"""Fields of a specification that have an option of the same name."""


class Submit(VerbCommand):
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
    name: options.Name = None,
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
    progress_timeout_s: options.ProgressTimeoutS = None,
    max_down_minutes: options.MaxDownMinutes = None,
    max_lost_minutes: options.MaxLostMinutes = None,
    checkpoint_every_s: options.CheckpointEveryS = None,
    reports_progress: options.ReportsProgress = None,
    suspend_grace_s: options.SuspendGraceS = None,
    checkpoint_dir: options.CheckpointDir = None,
    backend: options.Backend = None,
    entrypoint: options.Entrypoint = None,
    idempotency_key: options.IdempotencyKey = None,
    dry_run: options.DryRun = False,
    wait: options.Wait = False,
    follow: options.Follow = False,
    example: options.Example = False,
    as_json: AsJson = False,
) -> None:
    """Submit a training job. An option overrides the same field of FILE.

    With --wait or --follow, the exit code is 0 only if the job SUCCEEDED. Ctrl-C leaves the job running.
    """
    if example:
        _print_example(backend)
        return
    if dry_run and (wait or follow):
        usage_error(tr("a dry run creates no job to wait for"), "--follow" if follow else "--wait")
    if follow and as_json:
        usage_error(tr("prints a log, so it does not go with a document; use --wait"), "--follow")
    document = job_document(documents or [], file)
    fields = _fields(context)
    spec, kind = job_spec(document, fields, env)
    key = options.checked_key(idempotency_key) or secrets.token_hex(16)
    with context.obj.client() as client:
        if dry_run:
            view = client.dry_run(spec, kind=kind)
            print_view(view, lambda: queue.placement_preview(view, now(), terminal_width()), as_json)
        elif follow:
            _follow(client, _submitted(client, spec, kind, key)["job_id"])
        else:
            _submit(client, spec, kind, key, wait, as_json)


def _fields(context: typer.Context) -> dict[str, Any]:
    """Return the fields of the specification that were given as options, and the command of the ranks."""
    given = {name: context.params.get(name) for name in OPTION_FIELDS}
    given["n_gpus_per_node"] = context.params.get("gpus_per_node")
    if given["priority"]:
        given["priority"] = given["priority"].upper()
    given["command"] = context.meta.get(COMMAND) or None
    return {name: value for name, value in given.items() if value is not None}


def _print_example(backend: str | None) -> None:
    if backend is not None and backend not in EXAMPLES:
        choices = ", ".join(EXAMPLES)
        usage_error(tr("must be one of {choices}, not {value}", choices=choices, value=repr(backend)), "--backend")
    typer.echo(EXAMPLES[backend or "ecs"], nl=False)


def _submit(client: RecoveryClient, spec: dict[str, Any] | str, kind: str, key: str, wait: bool, as_json: bool) -> None:
    """Submit the job and print it; with `wait`, once it has ended. Exit code 1 if it has ended without success."""
    view = _submitted(client, spec, kind, key)
    if wait:
        say(tr("submitted {job}; Ctrl-C leaves the job running", job=view["job_id"]))
        view = _waited(client, view)
    print_view(view, lambda: jobs.job_line(view), as_json)
    if wait and view["status"] != JobStatus.SUCCEEDED:
        raise typer.Exit(FAILED)
    if not wait and not as_json and sys.stdout.isatty():
        _name_next_commands(view["job_id"])


def _name_next_commands(job_id: str) -> None:
    """Print on a terminal what people do next with a new job. Scripts get the line of the job alone."""
    for command, what in (
        (f"gpu-recovery logs {job_id} --follow", tr("follow its log")),
        (f"gpu-recovery status {job_id}", tr("show its status")),
        (f"gpu-recovery explain {job_id}", tr("explain why it waits or was restarted")),
        (f"gpu-recovery cancel {job_id}", tr("end it")),
    ):
        say(f"{command}  # {what}")


def _follow(client: RecoveryClient, job_id: str) -> None:
    """Print the log of rank 0 until the job has ended. Exit code 1 if it has ended without success."""
    say(tr("submitted {job}; Ctrl-C leaves the job running", job=job_id))
    try:
        Following(client, job_id, 0, TAIL, pause).run(None, None)
    except KeyboardInterrupt as stop:
        _leave(job_id)
        raise typer.Exit(FAILED) from stop
    view = client.job(job_id)
    say(jobs.job_line(view))
    if view["status"] != JobStatus.SUCCEEDED:
        raise typer.Exit(FAILED)


def _submitted(client: RecoveryClient, spec: dict[str, Any] | str, kind: str, key: str) -> dict[str, Any]:
    try:
        view = client.submit(spec, kind=kind, key=key)
    except ServiceUnreachable:
        say(
            tr(
                "it is not known whether the job is queued: repeat with --idempotency-key {key},"
                " which creates no second job",
                key=key,
            )
        )
        raise
    for warning in jobs.timeout_warnings(view):
        say(tr("timeouts: {warning}", warning=warning))
    for name, value in recovery.expectation_rows(view):
        say(f"{name}: {value}")
    return view


def _waited(client: RecoveryClient, view: dict[str, Any]) -> dict[str, Any]:
    """Return the view of the job once it has ended. Raises typer.Exit if the user stops waiting."""
    job_id = view["job_id"]
    try:
        with progress_display() as display:
            return until_ended(client, job_id, display, now, pause)
    except KeyboardInterrupt as stop:
        _leave(job_id)
        raise typer.Exit(FAILED) from stop


def _leave(job_id: str) -> None:
    say(
        tr(
            "{job} continues: `gpu-recovery status {job}` shows the job, `gpu-recovery cancel {job}` ends it",
            job=job_id,
        )
    )
