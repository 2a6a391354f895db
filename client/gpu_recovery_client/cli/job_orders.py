"""The verbs that change jobs: cancel, suspend, resume. Each takes several ids, or --all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from gpu_recovery.core.job.status import WAITING, JobStatus

from gpu_recovery_client.cli.confirmation import confirm, confirm_all
from gpu_recovery_client.cli.job_names import NOT_ENDED, jobs_of_statuses, own_job_ids_of
from gpu_recovery_client.cli.options import Because, JobIds, User, Yes
from gpu_recovery_client.cli.output import AsJson, say
from gpu_recovery_client.cli.several import for_each
from gpu_recovery_client.render.jobs import job_line
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

OPERATOR = "operator"
"""Role that may change the jobs of every user."""
RUNNING = tuple(status for status in NOT_ENDED if status not in WAITING)
"""Statuses of jobs that hold instances."""
SHOWN_MAX = 5
"""Number of ids that a question shows."""
All = Annotated[
    bool, typer.Option("--all", help="Every such job: your own, or as an operator of every user or of --user.")
]


def cancel(
    context: typer.Context,
    jobs: JobIds = None,
    every: All = False,
    user: User = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also have the agents of its instances end its ranks.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs: their ranks are stopped, and the jobs end.

    A terminal asks for confirmation. A script is asked nothing; with --all it must give --yes.
    """
    with context.obj.client() as client:
        names = _names(client, jobs, every, user, NOT_ENDED)
        _confirm(tr("Cancel {jobs}?", jobs=_shown(names)), every, yes)
        for_each(names, lambda name: client.cancel(name, force=force), job_line, "jobs", as_json)


def suspend(
    context: typer.Context,
    jobs: JobIds = None,
    every: All = False,
    user: User = None,
    because: Because = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Have jobs save their state and release their instances.

    A job waits until it is resumed, and keeps its position in the queue. A terminal asks for confirmation only for
    --all or several jobs.
    """
    with context.obj.client() as client:
        names = _names(client, jobs, every, user, RUNNING)
        if every or len(names) > 1:
            _confirm(tr("Suspend {jobs}?", jobs=_shown(names)), every, yes)
        for_each(names, lambda name: client.suspend(name, because), job_line, "jobs", as_json)


def resume(
    context: typer.Context,
    jobs: JobIds = None,
    every: All = False,
    user: User = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Queue suspended jobs again at their former positions. A command runs from its start, on its last checkpoint."""
    with context.obj.client() as client:
        names = _names(client, jobs, every, user, (JobStatus.SUSPENDED,))
        if every:
            _confirm(tr("Resume {jobs}?", jobs=_shown(names)), every, yes)
        for_each(names, client.resume, job_line, "jobs", as_json)


def _names(
    client: RecoveryClient,
    jobs: list[str] | None,
    every: bool,
    user: str | None,
    statuses: Sequence[JobStatus],
) -> list[str]:
    """Return the ids of the jobs that are given, or with --all those of the caller's jobs of these statuses.

    Raises:
        typer.BadParameter: neither ids nor --all are given, or both.
        typer.Exit: no job is left.
    """
    if bool(jobs) == every:
        raise typer.BadParameter(tr("give ids of jobs, or --all"), param_hint="JOB")
    if user is not None and not every:
        raise typer.BadParameter(tr("goes with --all"), param_hint="--user")
    if jobs:
        return own_job_ids_of(client, jobs)
    caller = client.me()
    owner = user if user is not None or caller.get("role") == OPERATOR else str(caller.get("user"))
    found = jobs_of_statuses(client, statuses, user=owner, fields="list")
    if not found:
        say(tr("there is no such job"))
        raise typer.Exit
    return found


def _confirm(question: str, every: bool, yes: bool) -> None:
    if every:
        confirm_all(question, yes)
    else:
        confirm(question, yes)


def _shown(names: list[str]) -> str:
    """Return the first ids, and how many there are."""
    shown = ", ".join(names[:SHOWN_MAX])
    more = len(names) - SHOWN_MAX
    return tr("{jobs} and {more} more jobs", jobs=shown, more=more) if more > 0 else shown
