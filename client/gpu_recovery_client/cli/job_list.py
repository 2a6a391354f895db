"""`gpu-recovery list`: jobs in one of three orders, filtered by the API and by fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from gpu_recovery.core.job.status import LISTED_STATUSES, JobStatus

from gpu_recovery_client.cli.options import PAGE_MAX, Group, User, moment_of, statuses_like
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, is_wide, now, print_view, terminal_width
from gpu_recovery_client.cli.record_filter import Filters, filters_of
from gpu_recovery_client.errors import AnswerUnreadable
from gpu_recovery_client.render import jobs as render_jobs
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

PAGE = 50
"""Default number of jobs per page."""
FIELDS_OF_ROWS = "list"
"""Value of the parameter `fields` for what a table shows."""


class Order(StrEnum):
    """Orders of the list."""

    NEWEST = "newest"
    OLDEST = "oldest"
    STATUS = "status"


class State(StrEnum):
    """States of jobs: each status belongs to one."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


def list_jobs(
    context: typer.Context,
    status: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            help="Only jobs of this status, such as RUNNING. May repeat.",
            autocompletion=statuses_like,
        ),
    ] = None,
    state: Annotated[
        State | None, typer.Option(help="Only jobs that wait, that hold instances, or that have ended.")
    ] = None,
    user: User = None,
    group: Group = None,
    name: Annotated[str | None, typer.Option(help="Only jobs with this name.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only jobs submitted in the last 2h, or since a time in UTC.")
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Only jobs whose id begins with this text.")] = None,
    filters: Filters = None,
    sort: Annotated[
        Order | None,
        typer.Option(
            help="By time of submission, newest first if not given; status: the live jobs first. Page by page a job "
            "that changes its status meanwhile may then be missing or repeated: use --all."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="Jobs per page.")] = PAGE,
    cursor: Annotated[str | None, typer.Option(help="Continue after the page that showed this cursor.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All pages.")] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first.

    A page has at most --limit jobs. With --filter, the list is read until so many jobs match.
    """
    statuses = ",".join(one for text in status or () for one in _statuses(text))
    if statuses and state is not None:
        raise typer.BadParameter(tr("give either --status or --state"), param_hint="--state")
    order = sort or Order.NEWEST
    if order is Order.STATUS and (state is not None or "," in statuses or prefix):
        message = tr("status goes with one --status at most, and without --state and --prefix")
        raise typer.BadParameter(message, param_hint="--sort")
    query = {
        "state": None if state is None else state.value,
        "order": order.value,
        "user": user,
        "group": group,
        "name": name,
        "since": None if since is None else moment_of(since, now()),
        "q": prefix,
        "fields": None if as_json or is_wide() or filters else FIELDS_OF_ROWS,
    }
    accepts = filters_of(filters)
    # A list by status has no place for a job that changes its status between two pages. A list by time keeps its place.
    is_sorted_here = order is Order.STATUS and every and cursor is None
    if is_sorted_here:
        query["order"] = Order.OLDEST.value
    with context.obj.client() as client:
        page = (
            _read(client, statuses or None, None if every else limit, cursor, accepts, query)
            if every or filters
            else client.jobs_page(statuses or None, limit, cursor, **query)
        )
    if is_sorted_here:
        page["jobs"].sort(key=lambda job: _rank_of(str(job.get("status"))))
    print_view(page, lambda: render_jobs.job_list(page, now(), terminal_width(), wide=is_wide()), as_json)
    if not is_complete(page.get("unreadable") or ()):
        raise typer.Exit(FAILED)


def _read(
    client: RecoveryClient,
    status: str | None,
    limit: int | None,
    cursor: str | None,
    accepts: Callable[[Mapping[str, Any]], bool],
    query: dict[str, str | None],
) -> dict[str, Any]:
    """Return the jobs that are accepted, at most `limit`, and the cursor after the last; None: all jobs.

    If a page of the API has more of them, its beginning is read again, because only a whole page has a cursor.
    """
    jobs: list[Any] = []
    missed: list[str] = []
    seen = {cursor}
    while True:
        page = client.jobs_page(status, PAGE_MAX, cursor, **query)
        found = [number for number, job in enumerate(page["jobs"], start=1) if accepts(job)]
        left = None if limit is None else limit - len(jobs)
        if left is not None and len(found) > left:
            page = client.jobs_page(status, found[left - 1], cursor, **query)
        jobs += filter(accepts, page["jobs"])
        missed += map(str, page.get("unreadable") or ())
        cursor = page.get("next_cursor")
        if cursor is None or (limit is not None and len(jobs) >= limit):
            return {"jobs": jobs, "next_cursor": cursor, "unreadable": missed}
        if cursor in seen:
            raise AnswerUnreadable("GET /jobs: the API repeats a page, so the list has no end")
        seen.add(cursor)


def _rank_of(status: str) -> int:
    """Return the place of a status in a list by status. A status of a later release comes last."""
    return LISTED_STATUSES.index(JobStatus(status)) if status in JobStatus.__members__ else len(LISTED_STATUSES)


def _statuses(text: str) -> list[str]:
    """Return the statuses of an option, which may have commas and small letters.

    Raises:
        typer.BadParameter: there is no such status.
    """
    names = [name.strip().upper() for name in text.split(",")]
    unknown = [name for name in names if name not in JobStatus.__members__]
    if unknown:
        known = ", ".join(JobStatus)
        message = tr("{name} is no status; the statuses are {known}", name=repr(unknown[0]), known=known)
        raise typer.BadParameter(message, param_hint="--status")
    return names
