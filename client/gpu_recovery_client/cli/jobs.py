"""The verbs that show one job: status, explain."""

from __future__ import annotations

from typing import Annotated

import typer

from gpu_recovery_client.cli.job_names import job_id_of
from gpu_recovery_client.cli.options import JobId, instances_like, jobs_like
from gpu_recovery_client.cli.output import AsJson, now, print_view, terminal_width
from gpu_recovery_client.render import instances as render_instances
from gpu_recovery_client.render import jobs as render_jobs
from gpu_recovery_client.render import timeline


def status(context: typer.Context, job: JobId, as_json: AsJson = False) -> None:
    """Show one job: its status, the reason, and its attempts."""
    with context.obj.client() as client:
        view = client.job(job_id_of(client, job))
    print_view(view, lambda: render_jobs.job_details(view, now(), terminal_width()), as_json)


def _anything_like(context: typer.Context, incomplete: str) -> list[str]:
    like = instances_like if incomplete.startswith("i-") else jobs_like
    return like(context, incomplete)


def explain_one(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="JOB|INSTANCE", help="Id or name of a job, or id of an instance.", autocompletion=_anything_like
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Explain the status of a job or an instance.

    For a queued job: the wait reason, the position, the jobs before it, the earliest start. For every job: each
    decision on it and on its instances, with its reason. For an instance: its decisions, with their reasons.

    The JSON of a job has its view, `pending`, the views of its instances, and the ids that were left out.
    """
    with context.obj.client() as client:
        if timeline.INSTANCE_ID.fullmatch(name):
            story = client.instance(name)
            text = render_instances.instance_details(story, now(), terminal_width())
        else:
            story = timeline.gather(client, job_id_of(client, name))
            text = timeline.explanation(story, now(), terminal_width())
    print_view(story, lambda: text, as_json)
