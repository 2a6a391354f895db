"""Interface of the lists of jobs, a part of the store."""

from __future__ import annotations

from typing import Protocol

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.values import JobPage, JobQuery


class JobLists(Protocol):
    """Pages of jobs. `unreadable` means what it does in `ports.store`."""

    def list_jobs(
        self, status: JobStatus | None, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Return a page of at most `limit` jobs, without their commands and histories.

        Args:
            status: the status of the jobs; None for all jobs, in the order of LISTED_STATUSES.
            cursor: the `cursor` of the page before; None for the first page.

        Raises:
            CursorInvalid: the cursor does not come from this store, or belongs to another listing.
        """

    def list_jobs_by_time(
        self, query: JobQuery, limit: int, cursor: str | None, unreadable: list[Exception] | None = None
    ) -> JobPage:
        """Return a page of at most `limit` jobs in the order of their submission, without commands and histories.

        One call reads a bounded part of the list, so a page may be short, or even empty, although more jobs follow.

        Args:
            query: the listing.
            limit: upper bound of the jobs.
            cursor: the `cursor` of the page before; None for the first page. It names a time and a job, so jobs that
                changed their status since are neither repeated nor skipped.

        Raises:
            CursorInvalid: the cursor does not come from this method.
        """
