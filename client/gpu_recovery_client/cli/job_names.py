"""Names of jobs: a command takes the name of a job in place of its id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any

from gpu_recovery.core.job.status import TERMINAL, JobStatus

from gpu_recovery_client.cli.options import PAGE_MAX
from gpu_recovery_client.errors import ClientError, RequestRefused
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

GENERATED_ID = re.compile(r".*-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
"""Form of the ids that the API gives to jobs. Adopted jobs have ids of any form."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Form of a name that a job can have."""
PAGES_MAX = 20
"""Largest number of pages of ended jobs that are read for a name."""
READS_MAX = 3
"""Largest number of times that a list of jobs is read in which jobs may change their status."""
SHOWN_MAX = 5
"""Largest number of ids in an error."""
NOT_ENDED = tuple(status for status in JobStatus if status not in TERMINAL)
ENDED = tuple(status for status in JobStatus if status in TERMINAL)


def own_job_ids_of(client: RecoveryClient, texts: Iterable[str]) -> list[str]:
    """Return the ids of jobs that are given by their ids, or by their names if they are jobs of the caller.

    Commands that change a job use this function: a name must not mean the job of a stranger.

    Raises:
        ClientError: only other users have jobs with this name, or several jobs with this name have not ended.
    """
    return [job_id_of(client, text, own_only=True) for text in texts]


def job_id_of(client: RecoveryClient, text: str, own_only: bool = False) -> str:
    """Return the id of the job that an id or a name means.

    An id has precedence. A name means the job of the caller that has not ended, else that of another user, else the
    newest ended job of the caller, else of another user. Any other text is returned, so that the API refuses it.

    Args:
        own_only: a name means no job of another user.

    Raises:
        ClientError: several jobs with this name have not ended, or with `own_only` only other users have such jobs.
    """
    if GENERATED_ID.fullmatch(text) or not NAME.fullmatch(text) or _is_id(client, text):
        return text
    own = str(client.me().get("user"))
    mine = _not_ended(client, text, own)
    others = [] if mine else _not_ended(client, text, None)
    if own_only:
        found = mine or _newest_ended(client, text, own)
        if others and not found:
            ids = ", ".join(others[:SHOWN_MAX])
            raise ClientError(
                tr("only other users have jobs with the name {name}; give an id: {ids}", name=text, ids=ids)
            )
    else:
        found = mine or others or _newest_ended(client, text, own) or _newest_ended(client, text, None)
    if len(found) > 1:
        ids = ", ".join(found[:SHOWN_MAX])
        raise ClientError(tr("several jobs with the name {name} have not ended; give an id: {ids}", name=text, ids=ids))
    return found[0] if found else text


def jobs_of_statuses(
    client: RecoveryClient,
    statuses: Sequence[JobStatus],
    unreadable: list[str] | None = None,
    **filters: str | None,
) -> list[str]:
    """Return the ids of the jobs of these statuses, the newest first.

    A job that changes its status while the list is read may be left out of the list. So the list is read until it shows
    no further job, at most READS_MAX times.
    """
    found: dict[str, None] = {}
    for number in range(READS_MAX):
        before = len(found)
        for job in client.jobs(",".join(statuses), PAGE_MAX, None, unreadable, order="newest", **filters):
            if "name" not in filters or job.get("name") == filters["name"]:  # an older API knows no names
                found[str(job["job_id"])] = None
        if number and before == len(found):
            break
    return [*found]


def _is_id(client: RecoveryClient, text: str) -> bool:
    try:
        client.job(text)
    except RequestRefused as refusal:
        if refusal.status == HTTPStatus.NOT_FOUND:
            return False
        raise
    return True


def _not_ended(client: RecoveryClient, name: str, user: str | None) -> list[str]:
    return jobs_of_statuses(client, NOT_ENDED, [], name=name, user=user, fields="list")


def _newest_ended(client: RecoveryClient, name: str, user: str | None) -> list[str]:
    """Return the id of the newest ended job with this name, as a list of at most one id."""
    pages = client.jobs_pages(",".join(ENDED), PAGE_MAX, order="newest", name=name, user=user, fields="list")
    jobs: Iterable[dict[str, Any]] = (job for page in islice(pages, PAGES_MAX) for job in page["jobs"])
    return [str(job["job_id"]) for job in jobs if job.get("name") == name][:1]
