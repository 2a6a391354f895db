"""I9: nobody gets more instances than may be, and what is counted is what is so.

The truth is in the records: a job takes up its user's quota from when it is given a place until it has none any more,
also while it waits for healthy instances to go on with. What a person has started was never given a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gpu_recovery.core.job.record import PLACED, Job
from gpu_recovery.core.queue.quota import parse_key, parse_limits
from gpu_recovery.ports.store import Store

JOBS_MAX = 1000
"""More than any world has in which this is asked."""


def taken(job: Job) -> int:
    """How many instances the job really takes up of its user's quota."""
    return job.spec.nnodes if job.status in PLACED and not job.started_by_person else 0


def miscounted(store: Store, jobs: Iterable[Job]) -> Iterator[str]:
    """I9: the counts that a pass reads are the truth. `jobs` are all that there are."""
    truth: Counter[str] = Counter()
    for job in jobs:
        truth[job.quota_key] += taken(job)
    counted = store.quota_used(sorted(truth))
    for key, nodes in sorted(truth.items()):
        if counted[key] != nodes:
            yield f"I9: {nodes} instance(s) of {key} are in use, {counted[key]} are counted"


def exceeded(store: Store, placed: Job) -> Iterator[str]:
    """I9: what `placed`, which has just been given its place, and the others take is no more than there may be."""
    limits = parse_limits(store.load_limits()[0])
    holders = [job for job in store.list_jobs(None, JOBS_MAX, None).jobs if taken(job)]
    limit = limits.of(parse_key(placed.quota_key))
    used = sum(taken(job) for job in holders if job.quota_key == placed.quota_key)
    if limit is not None and used > limit:
        yield f"I9: {used} instance(s) of {placed.quota_key} are in use, with {placed.job_id}, of {limit}"
    most, each = limits.max_running_jobs, limits.max_running_jobs_per_user
    if most is not None and len(holders) > most:
        yield f"I9: {len(holders)} jobs have a place, with {placed.job_id}, of {most}"
    of_user = sum(job.spec.user == placed.spec.user for job in holders)
    if each is not None and of_user > each:
        yield f"I9: {of_user} jobs of {placed.spec.user} have a place, with {placed.job_id}, of {each}"
