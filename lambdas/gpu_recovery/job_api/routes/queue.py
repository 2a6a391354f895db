"""Route of the queue: as a pass of the scheduler would decide now, or as the scheduler has written it last."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import RunningJob
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import PAGING, page_of
from gpu_recovery.job_api.request import FLAG, TEXT, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.queue import queue_order, running_jobs, running_view, summary_of, waiting_entries, waiting_view

PURPOSE = "queue/2"
"""Name of the list, which its cursors belong to. Its number rises with the form of the cursors."""
SNAPSHOT_PURPOSE = "queue-snapshot/1"
"""The same for the pages of the snapshot."""
RUNNING_FIRST_MAX = 5_000
"""Running jobs of the first page, which stays below 6 MB: an entry has about 350 bytes."""
RUNNING_SNAPSHOT_MAX = 200
"""Running jobs of the first page of the snapshot, which is polled."""
NO_SUMMARY: dict[str, Any] = {"quotas": [], "reservations": [], "totals": [], "unreadable": []}
"""What further pages have in the place of the summary."""


def read_queue(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the queue as the next pass sees it: waiting and running jobs, totals by priority, quotas, reservations.

    The waiting jobs are paged. The first page also contains everything else, and the first 5,000 running jobs. The
    others are on the pages after the last waiting job. Jobs on Ray have no position, because another pass places them.

    With `snapshot=1` the answer is that of the scheduler's last pass. It reads no record, so a page may poll it.
    """
    if request.flag("snapshot"):
        return _from_snapshot(dependencies, request)
    is_first = "cursor" not in request.query
    view, policy = dependencies.queue_views.read(dependencies.recovery, is_first), dependencies.recovery.policy
    running = running_jobs(view, policy)
    items: list[Entry | RunningJob] = [*waiting_entries(view), *running[RUNNING_FIRST_MAX:]]
    page, cursor = page_of(dependencies, request, PURPOSE, items, lambda item: item.job_id, queue_order(view))
    shown = running[:RUNNING_FIRST_MAX] if is_first else [item for item in page if isinstance(item, RunningJob)]
    entries = {**view.entries, **view.on_ray}
    answer: dict[str, Any] = {
        "waiting": [waiting_view(entry, view, policy) for entry in page if isinstance(entry, Entry)],
        "running": [running_view(job, entries[job.job_id], view) for job in shown],
        **(summary_of(view, policy) if is_first else NO_SUMMARY),
    }
    if cursor is None:
        dependencies.queue_views.forget()
    return ApiResponse(200, {**answer, "next_cursor": cursor})


def _from_snapshot(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the scheduler's last snapshot, of all groups or of one. Before the first it is empty.

    The first page has the first waiting jobs and the first `RUNNING_SNAPSHOT_MAX` running jobs. The other waiting jobs
    follow, then the other running jobs. Every page has the totals, quotas and reservations.
    """
    known = dependencies.snapshots.load(SnapshotName.QUEUE, dependencies.recovery.clock())
    group = request.query.get("group")

    def of_group(name: str) -> list[dict[str, Any]]:
        return [one for one in known.get(name, ()) if group is None or one["group"] == group]

    # A snapshot of an older release has no names of jobs.
    waiting, running = ([{"name": None, **job} for job in of_group(name)] for name in ("waiting", "running"))
    # A gang between two attempts may be in both lists, so the name of an item also names its list.
    items = [(number, "waiting", job) for number, job in enumerate(waiting)]
    items += [(len(waiting) + number, "running", job) for number, job in enumerate(running[RUNNING_SNAPSHOT_MAX:])]
    page, cursor = page_of(
        dependencies,
        request,
        SNAPSHOT_PURPOSE,
        items,
        lambda item: f"{item[1]}/{item[2]['job_id']}",
        lambda item: item[:1],
    )
    first = running[:RUNNING_SNAPSHOT_MAX] if "cursor" not in request.query else []
    return ApiResponse(
        200,
        {
            "as_of": known.get("as_of"),
            "groups": known.get("groups", []),
            "waiting": [job for _, name, job in page if name == "waiting"],
            "waiting_more": known.get("waiting_more", 0),
            "running": first + [job for _, name, job in page if name == "running"],
            "running_more": known.get("running_more", 0),
            **{name: known.get(name, []) for name in NO_SUMMARY},
            "reservations": of_group("reservations"),
            "next_cursor": cursor,
        },
    )


_QUERY = (
    *PAGING,
    Parameter("snapshot", "1: the snapshot of the scheduler's last pass.", FLAG),
    Parameter("group", "With `snapshot=1`: only jobs of this group.", TEXT),
)
ROUTES = (Route("GET", "/api/v2/queue", read_queue, "Read the queue", {200: "Queue"}, query=_QUERY),)
