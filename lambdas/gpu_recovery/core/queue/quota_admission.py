"""Phase 2: quotas. What each user may still start in this pass, by instances and by jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, never_runs
from gpu_recovery.core.queue.snapshot import RejectionKind, RunningJob, Snapshot, WaitingJob

ANY_NUMBER = 1 << 62
"""What is left where there is no limit."""


class QuotaAdmission:
    """Counts instances by quota key and jobs by user, those that run and those that this pass promises a place.

    Who leaves counts until it has left: nobody starts in its stead before. But room may be made for another meanwhile.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._limits = snapshot.limits
        self._used = snapshot.used
        self._left: dict[tuple[str, Priority, str], int] = {}
        holders: list[RunningJob | WaitingJob] = [
            *snapshot.running,
            *(job for job in snapshot.waiting if job.holds_quota),
        ]
        self._jobs = len(holders)
        self._jobs_of: dict[str, int] = {}
        for one in holders:
            self._jobs_of[one.user] = self._jobs_of.get(one.user, 0) + 1
        self._leave = 0
        self._leave_of: dict[str, int] = {}
        self.vacated(job for job in snapshot.running if job.leaving and job.for_job)
        self._counts_jobs = (self._limits.max_running_jobs, self._limits.max_running_jobs_per_user) != (None, None)

    def left(self, key: tuple[str, Priority, str]) -> int:
        """How many instances of a quota key may still be promised, below 0 where too many are."""
        left = self._left.get(key)
        if left is None:
            limit = self._limits.of(QuotaKey(*key)) if self._limits.instances else None
            left = ANY_NUMBER if limit is None else limit - self._used.get(QuotaKey(*key), 0)
            self._left[key] = left
        return left

    def is_over(self, job: RunningJob) -> bool:
        """Whether more is in use than the job's quota allows: limits can be lowered while jobs run."""
        return self.left((job.user, job.asked, job.group)) < 0

    def refusal(self, job: WaitingJob) -> tuple[RejectionKind, str] | None:
        """What stands against the job's start, and the sentence for it; None if nothing does."""
        if job.holds_quota or job.recovering:
            return None  # it goes on with its place; one that had none, a person's, is not given up for that
        left = self.left((job.user, job.asked, job.group))
        if job.nodes > left:
            return RejectionKind.QUOTA, self._over(job, left)
        return self._too_many(job) if self._counts_jobs else None

    def vacated(self, leaving: Iterable[RunningJob]) -> None:
        """These leave for others, or are told to; whoever is stopped for a failure has its place still."""
        for one in leaving:
            self._leave += 1
            self._leave_of[one.user] = self._leave_of.get(one.user, 0) + 1

    def replaces(self, job: WaitingJob, victims: Sequence[RunningJob]) -> bool:
        """Whether no more jobs than may would run, had `job` its place and had everybody left who leaves.

        victims: those who would be told to leave for it.
        """
        if not self._counts_jobs or job.holds_quota or job.recovering:
            return True
        most, each = self._limits.max_running_jobs, self._limits.max_running_jobs_per_user
        of_user = self._jobs_of.get(job.user, 0) - self._leave_of.get(job.user, 0)
        of_user -= sum(one.user == job.user for one in victims)
        left = self._jobs - self._leave - len(victims)
        return (most is None or left < most) and (each is None or of_user < each)

    def charge(self, job: WaitingJob) -> None:
        """Count the job: it starts, or a place is being kept for it."""
        if job.holds_quota:
            return
        key = (job.user, job.asked, job.group)
        self._left[key] = self.left(key) - job.nodes
        if self._counts_jobs:
            self._jobs += 1
            self._jobs_of[job.user] = self._jobs_of.get(job.user, 0) + 1

    def _over(self, job: WaitingJob, left: int) -> str:
        key = QuotaKey(job.user, job.asked, job.group)
        limit = self._limits.of(key) or 0
        never = never_runs(self._limits, key, job.nodes)
        return never or f"needs {job.nodes} instance(s); {limit - left} of the quota of {limit} of {key.text} are taken"

    def _too_many(self, job: WaitingJob) -> tuple[RejectionKind, str] | None:
        most, each = self._limits.max_running_jobs, self._limits.max_running_jobs_per_user
        if most is not None and self._jobs >= most:
            return RejectionKind.JOBS, f"{self._jobs} jobs run, and {most} may run at once"
        of_user = self._jobs_of.get(job.user, 0)
        if each is not None and of_user >= each:
            return (
                RejectionKind.JOBS,
                f"{of_user} jobs of {job.user or 'nobody'} run, and {each} of one user may run at once",
            )
        return None
