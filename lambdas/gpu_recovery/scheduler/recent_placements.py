"""Recent placements: jobs that a pass placed a moment ago, and that the index of the queue may still show as waiting.

The index is eventually consistent, usually within a second. A pass that counts running jobs by the index alone would
give the same place again. So under a limit of running jobs each placement is remembered in the transaction that saves
it, and a pass reads the records of remembered jobs that the index does not show as placed.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import datetime, timedelta

from gpu_recovery.core.job.queue_entry import entry_of, entry_on_ray
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.ports.store import Store

REMEMBERED_FOR = timedelta(seconds=60)
"""Time for which a placement is remembered. An index lags behind for much less."""
REMEMBERED_MAX = 200
"""Upper bound of remembered placements. They are in one item, which each further placement writes again."""


def correct_entries(
    store: Store, term: int, now: datetime, on_ecs: MutableMapping[str, Entry], on_ray: MutableMapping[str, Entry]
) -> int:
    """Replace the entries of jobs that were placed a moment ago if the index does not show their placement.

    The records are read, so a job that has ended meanwhile counts no more.

    Args:
        term: the present term of the caller.
        on_ecs: the entries of jobs on ECS by job id; changed.
        on_ray: the entries of jobs on Ray by job id; changed.

    Returns:
        The number of placements that the caller may still decide in `term`.
    """
    recent = store.recent_placements(term, now - REMEMBERED_FOR)
    shown = {job_id for entries in (on_ecs, on_ray) for job_id, entry in entries.items() if not entry.waits}
    for job_id in sorted(set(recent) - shown):
        job = store.load_job(job_id)
        if job is None:
            continue
        for entries, entry in ((on_ecs, entry_of(job)), (on_ray, entry_on_ray(job))):
            entries.pop(job_id, None)
            if entry is not None:
                entries[job_id] = entry
    return max(0, REMEMBERED_MAX - len(recent))
