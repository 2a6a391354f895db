"""Phase 2, quota admission: what each user may still start, by instances and by jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, never_runs
from gpu_recovery.core.queue.snapshot import RejectionKind, RunningJob, Snapshot, WaitingJob

ANY_NUMBER = 1 << 62
"""Number of instances that are left where no limit is set."""


class QuotaAdmission:
    """Counts instances by quota key and jobs by user: running jobs, and jobs that this pass promises a place.

    A job that leaves counts until it has left, so no job starts in its place before. But preemption for another job may
    begin meanwhile.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._limits = snapshot.limits
        self._used = snapshot.used
        self._left: dict[tuple[str, Priority, str], int] = {}
        self._kept: dict[tuple[str, Priority, str], list[WaitingJob]] = {}
        holders: list[RunningJob | WaitingJob] = [
            *snapshot.running,
            *(job for job in snapshot.waiting if job.holds_quota),
        ]
        self._jobs = len(holders) + sum(snapshot.elsewhere.values())
        self._jobs_of: dict[str, int] = dict(snapshot.elsewhere)
        for holder in holders:
            self._jobs_of[holder.user] = self._jobs_of.get(holder.user, 0) + 1
        self._leave = 0
        self._leave_of: dict[str, int] = {}
        self.count_leaving(job for job in snapshot.running if job.leaving and job.for_job)
        self._counts_jobs = self._limits.counts_jobs
        self._elsewhere = sorted(snapshot.waiting_elsewhere, key=_precedence) if self._counts_jobs else []
        self.left_places = False

    def left(self, key: tuple[str, Priority, str]) -> int:
        """Return how many instances of a quota key may still be promised; negative if the quota is exceeded."""
        left = self._left.get(key)
        if left is None:
            limit = self._limits.of(QuotaKey(*key)) if self._limits.instances else None
            left = ANY_NUMBER if limit is None else limit - self._used.get(QuotaKey(*key), 0)
            self._left[key] = left
        return left

    def room(self, job: WaitingJob) -> int:
        """Return on how many instances the quota lets the job run. A job that holds quota may always keep its width."""
        left = self.left((job.user, job.asked, job.group))
        return len(job.last) + max(0, left) if job.holds_quota or job.recovering else left

    def is_over(self, job: RunningJob) -> bool:
        """Return whether the quota of the job is exceeded. Limits can be lowered while jobs run."""
        key = (job.user, job.asked, job.group)
        return self.left(key) + sum(kept.nodes for kept in self._kept.get(key, ())) < 0

    def refusal(self, job: WaitingJob, before: WaitingJob | None = None) -> tuple[RejectionKind, str] | None:
        """Return the kind and sentence of the quota that blocks the job; None if the job may start.

        Args:
            job: the job.
            before: the head of its queue if the job ends before the head starts. What is kept for the head is free
                until then.
        """
        if job.holds_quota or job.recovering:
            # The job continues with its place. An adopted gang without quota may continue too.
            return None
        if before is not None and before.holds_quota:
            before = None  # nothing is kept for the head
        left = self.left((job.user, job.asked, job.group))
        if before is not None and (before.user, before.asked, before.group) == (job.user, job.asked, job.group):
            left += before.nodes
        if job.nodes > left:
            return RejectionKind.QUOTA, self._over(job, left)
        return self._too_many(job, before) if self._counts_jobs else None

    def count_leaving(self, leaving: Iterable[RunningJob]) -> None:
        """Count jobs that leave for others, or are ordered to. A job that stops after a failure keeps its place."""
        for running in leaving:
            self._leave += 1
            self._leave_of[running.user] = self._leave_of.get(running.user, 0) + 1

    def replaces(self, job: WaitingJob, victims: Sequence[RunningJob]) -> bool:
        """Return whether the limits of running jobs allow `job` once all leaving jobs have left.

        Args:
            victims: the jobs that would be suspended for it.
        """
        if not self._counts_jobs or job.holds_quota or job.recovering:
            return True
        most, each = self._limits.max_running_jobs, self._limits.max_running_jobs_per_user
        of_user = self._jobs_of.get(job.user, 0) - self._leave_of.get(job.user, 0)
        of_user -= sum(victim.user == job.user for victim in victims)
        left = self._jobs - self._leave - len(victims)
        return (most is None or left < most) and (each is None or of_user < each)

    def charge(self, job: WaitingJob, *, is_kept: bool = False) -> None:
        """Count the job, because it starts, or because its place is kept for it (`is_kept`)."""
        key = (job.user, job.asked, job.group)
        if job.holds_quota:
            if job.widths is not None:
                self._left[key] = self.left(key) - max(0, job.nodes - len(job.last))
            return
        if is_kept:
            self._kept.setdefault(key, []).append(job)
        self._left[key] = self.left(key) - job.nodes
        if self._counts_jobs:
            self._jobs += 1
            self._jobs_of[job.user] = self._jobs_of.get(job.user, 0) + 1

    def _over(self, job: WaitingJob, left: int) -> str:
        key = QuotaKey(job.user, job.asked, job.group)
        limit = self._limits.of(key) or 0
        never = never_runs(self._limits, key, job.nodes)
        kept = ", ".join(other.job_id for other in self._kept.get((job.user, job.asked, job.group), ()))
        taken = f"taken or kept for {kept}" if kept else "taken"
        return (
            never or f"needs {job.nodes} instance(s); {limit - left} of the quota of {limit} of {key.text} are {taken}"
        )

    def _too_many(self, job: WaitingJob, before: WaitingJob | None) -> tuple[RejectionKind, str] | None:
        most, each = self._limits.max_running_jobs, self._limits.max_running_jobs_per_user
        if before is not None:
            # The place that is kept for the head is free until the head starts.
            most = most + 1 if most is not None else None
            each = each + 1 if each is not None and before.user == job.user else each
        run = "run or have a place kept" if self._kept else "run"
        if most is not None and self._jobs >= most:
            return RejectionKind.JOBS, f"{self._jobs} jobs {run}, and {most} may run at once"
        of_user = self._jobs_of.get(job.user, 0)
        user = job.user or "nobody"
        if each is not None and of_user >= each:
            return RejectionKind.JOBS, f"{of_user} jobs of {user} {run}, and {each} of one user may run at once"
        ahead = self._before(job)
        if most is not None and self._jobs + sum(ahead.values()) >= most:
            which, allowed = f"{self._jobs} jobs {run}, {sum(ahead.values())}", f"{most} may run at once"
        elif each is not None and of_user + ahead[job.user] >= each:
            which, allowed = (
                f"{of_user} jobs of {user} {run}, {ahead[job.user]}",
                f"{each} of one user may run at once",
            )
        else:
            return None
        self.left_places = True
        return RejectionKind.JOBS, f"{which} before it on the other backend, and {allowed}"

    def _before(self, job: WaitingJob) -> Counter[str]:
        """Return the number of jobs by user to which `job` leaves a place: of the other backend, and before it."""
        most, each = self._limits.max_running_jobs, self._limits.max_running_jobs_per_user
        before: Counter[str] = Counter()
        left = ANY_NUMBER if most is None else most - self._jobs
        for other in self._elsewhere:
            if left <= 0 or _precedence(other) > _precedence(job):
                break
            if each is None or self._jobs_of.get(other.user, 0) + before[other.user] < each:
                before[other.user] += 1
                left -= 1
        return before


def _precedence(job: WaitingJob) -> tuple[int, datetime, str]:
    """Return the sort key by which jobs of two backends are compared. They share no other order than this."""
    return -job.priority, job.queued_at, job.job_id
