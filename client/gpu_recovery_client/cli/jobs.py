"""The verbs about existing jobs: status, list, explain, cancel, suspend, resume."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.options import Group, JobId, User, instances_like, jobs_like, moment_of, statuses_like
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, now, print_view, terminal_width
from gpu_recovery_client.render import instances as render_instances
from gpu_recovery_client.render import jobs as render_jobs
from gpu_recovery_client.render import timeline

PAGE = 50
"""Jobs per page of `list`."""


def status(context: typer.Context, job: JobId, as_json: AsJson = False) -> None:
    """Show one job: where it stands, why, and its attempts."""
    with context.obj.client() as client:
        view = client.job(job)
    print_view(view, lambda: render_jobs.job_details(view, now(), terminal_width()), as_json)


def list_jobs(
    context: typer.Context,
    status: Annotated[
        str | None,
        typer.Option(help="Only jobs of this status, such as RUNNING.", autocompletion=statuses_like),
    ] = None,
    user: User = None,
    group: Group = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only jobs submitted since: 2h ago, or a date and time in UTC.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many jobs a page has.")] = PAGE,
    cursor: Annotated[str | None, typer.Option(help="Where the page before this one said to go on.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every page.")] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs, those under way first."""
    filters = {"user": user, "group": group, "since": None if since is None else moment_of(since, now())}
    with context.obj.client() as client:
        if every:
            missed: list[str] = []
            jobs = list(client.jobs(status, limit, cursor, missed, **filters))
            page: dict[str, Any] = {"jobs": jobs, "next_cursor": None, "unreadable": missed}
        else:
            page = client.jobs_page(status, limit, cursor, **filters)
    print_view(page, lambda: render_jobs.job_list(page, now(), terminal_width()), as_json)
    if not is_complete(page.get("unreadable") or ()):
        raise typer.Exit(FAILED)


def _anything_like(context: typer.Context, incomplete: str) -> list[str]:
    like = instances_like if incomplete.startswith("i-") else jobs_like
    return like(context, incomplete)


def explain_one(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="JOB|INSTANCE", help="The job's id, or an instance's.", autocompletion=_anything_like),
    ],
    as_json: AsJson = False,
) -> None:
    """Tell why a job or an instance is where it is.

    For a queued job: the wait reason, the position, the jobs before it, the earliest start. For every job: each
    decision on it and on its instances, with its reason. For an instance: its decisions, with their reasons.
    """
    with context.obj.client() as client:
        if timeline.INSTANCE_ID.fullmatch(name):
            story = client.instance(name)
            text = render_instances.instance_details(story, now(), terminal_width())
        else:
            story = timeline.gather(client, name)
            text = timeline.explanation(story, now(), terminal_width())
    print_view(story, lambda: text, as_json)


def cancel(
    context: typer.Context,
    job: JobId,
    force: Annotated[
        bool, typer.Option("--force", help="Also have the agents of its instances end its ranks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End a job for good: its ranks are stopped first."""
    with context.obj.client() as client:
        _print_job(client.cancel(job, force=force), as_json)


def suspend(
    context: typer.Context,
    job: JobId,
    because: Annotated[str, typer.Option(help="Why, for whoever finds it so.")] = "",
    as_json: AsJson = False,
) -> None:
    """Have a job save its state and release its instances.

    The job waits until it is resumed, and keeps its place in the queue.
    """
    with context.obj.client() as client:
        _print_job(client.suspend(job, because), as_json)


def resume(context: typer.Context, job: JobId, as_json: AsJson = False) -> None:
    """Queue a suspended job again at its former place. Its command runs from the start, on its last checkpoint."""
    with context.obj.client() as client:
        _print_job(client.resume(job), as_json)


def _print_job(view: dict[str, Any], as_json: bool) -> None:
    print_view(view, lambda: render_jobs.job_line(view), as_json)
