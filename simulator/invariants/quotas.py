"""Invariant I9: no user gets more instances than the quota allows, and the stored counts are right.

The job records are the truth. A job uses its user's quota from its placement until it gives up its place. It also uses
the quota while it waits for healthy instances to continue. A gang that an operator started was never placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gpu_recovery.core.job.record import PLACED, ListedJob
from gpu_recovery.core.queue.quota import parse_key, parse_limits
from gpu_recovery.ports.store import Store

JOBS_MAX = 1000
"""Upper bound of the jobs that are read at once; no world with this check has more."""


def taken(job: ListedJob) -> int:
    """Return how many instances of its user's quota the job uses."""
    return job.width if job.status in PLACED and not job.started_by_person else 0


def miscounted(store: Store, jobs: Iterable[ListedJob]) -> Iterator[str]:
    """Yield a sentence for each stored quota count that is wrong (I9). `jobs`: all jobs."""
    truth: Counter[str] = Counter()
    for job in jobs:
        truth[job.quota_key] += taken(job)
    counted = store.quota_used(sorted(truth))
    for key, nodes in sorted(truth.items()):
        if counted[key] != nodes:
            yield f"I9: {nodes} instance(s) of {key} are in use, {counted[key]} are counted"


def exceeded(store: Store, placed: ListedJob) -> Iterator[str]:
    """Yield a sentence for each limit that the placement of `placed` exceeds (I9), the other placed jobs included."""
    limits = parse_limits(store.load_limits()[0])
    holders = [job for job in store.list_jobs(None, JOBS_MAX, None).jobs if taken(job)]
    limit = limits.of(parse_key(placed.quota_key))
    used = sum(taken(job) for job in holders if job.quota_key == placed.quota_key)
    if limit is not None and used > limit:
        yield f"I9: {used} instance(s) of {placed.quota_key} are in use, with {placed.job_id}, of {limit}"
    jobs_max, jobs_max_per_user = limits.max_running_jobs, limits.max_running_jobs_per_user
    if jobs_max is not None and len(holders) > jobs_max:
        yield f"I9: {len(holders)} jobs have a place, with {placed.job_id}, of {jobs_max}"
    of_user = sum(job.spec.user == placed.spec.user for job in holders)
    if jobs_max_per_user is not None and of_user > jobs_max_per_user:
        yield f"I9: {of_user} jobs of {placed.spec.user} have a place, with {placed.job_id}, of {jobs_max_per_user}"
