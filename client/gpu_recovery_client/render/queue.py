"""The queue as text: waiting jobs with reasons, running jobs, quotas, and dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.job.status import JobStatus
from gpu_recovery.core.queue.priority import Priority

from gpu_recovery_client.render.formats import clock, count, duration, moment, since, until
from gpu_recovery_client.render.jobs import timeout_warnings
from gpu_recovery_client.render.recovery import expectation_rows
from gpu_recovery_client.render.table import table
from gpu_recovery_client.render.text import line
from gpu_recovery_client.texts import heads, tr

View = Mapping[str, Any]
UNKNOWN = "-"


def queue(view: View, now: datetime, width: int | None = None) -> str:
    """Return waiting jobs in the order of the API, running jobs, totals, quotas, and reservations of the first jobs.

    If a job has a name, waiting and running jobs have a column for it.
    """
    named = any(job.get("name") for job in (*view["waiting"], *view["running"]))
    name = ("NAME",) if named else ()
    waiting = [
        (
            count(job.get("position")),
            *_columns(job, named),
            since(job["queued_at"], now),
            _start(job, now),
            _because(job),
        )
        for job in view["waiting"]
    ]
    header = heads("PLACE", "JOB", *name, "USER", "PRIORITY", "GROUP", "SIZE", "WAITS", "START", "BECAUSE")
    optional = (5, 4, 7, 6, 3, 2) if named else (4, 3, 6, 5, 2)
    text = table(header, waiting, width, optional=optional) if waiting else line(tr("no job waits"))
    runs = [
        (
            job["job_id"],
            job.get("status") or "-",
            *_columns(job, named)[1:],
            since(job["since"], now),
            _until_when(job, now),
        )
        for job in view["running"]
    ]
    if runs:
        text += "\n" + table(
            heads("JOB", "STATUS", *name, "USER", "PRIORITY", "GROUP", "SIZE", "FOR", "ENDS"),
            runs,
            width,
            optional=(5, 4, 6, 3, 2) if named else (4, 3, 5, 2),
        )
    text += _totals(view.get("totals") or (), width) + _used_of(view["quotas"], width)
    promised = [
        (job["job_id"], job["group"] or "-", clock(job.get("at")), ", ".join(job["hosts"]))
        for job in view["reservations"]
    ]
    if promised:
        text += "\n" + table(heads("PROMISED TO", "GROUP", "FROM", "INSTANCES"), promised, width)
    return text


def placement_preview(view: View, now: datetime, width: int | None = None) -> str:
    """Return the answer of a dry run: whether the job would start now and where, otherwise what is missing."""
    suspends = ", ".join(view.get("would_suspend") or ())
    hosts = ", ".join(view.get("instances") or ())
    if view["would_start"]:
        rows = [(tr("would start"), tr("now")), (tr("on instances"), hosts)]
    else:
        rows = [(tr("would wait"), str(view.get("sentence") or tr("for its turn"))), *pending(view, now)]
    if suspends:
        rows.append((tr("would suspend"), suspends))
    rows += [(tr("timeouts"), sentence) for sentence in timeout_warnings(view)]
    rows += expectation_rows(view)
    return table(None, [row for row in rows if row[1]], width)


def pending(view: View, now: datetime) -> list[tuple[str, str]]:
    """Return `name  value` rows on why a job waits: what is missing, its place, its blockers, the earliest start."""
    position = view.get("position")
    return [
        (tr("short of"), str(view.get("short_of") or "")),
        (tr("position"), "" if position is None else str(position)),
        (tr("waits for"), ", ".join(view.get("blockers") or ())),
        (tr("earliest start"), until(view.get("earliest_at"), now) or tr("unknown")),
    ]


def queue_status(view: View, now: datetime) -> str:
    """Return place and earliest start of a job on one line."""
    place = tr("position {number}", number=view["position"]) if view.get("position") is not None else ""
    at = view.get("earliest_at")
    start = tr("earliest start {time}", time=until(at, now)) if at else ""
    return ", ".join(words for words in (place, start) if words)


def quotas(view: View, width: int | None = None) -> str:
    """Return the limits, and their usage if the view has it."""
    limits = view["limits"]
    rows = [(*key.rsplit("/", 2), str(number)) for key, number in sorted((limits.get("instances") or {}).items())]
    text = (
        table(heads("USER", "PRIORITY", "GROUP", "INSTANCES"), rows, width)
        if rows
        else line(tr("no limits of instances"))
    )
    jobs, each = limits.get("max_running_jobs"), limits.get("max_running_jobs_per_user")
    text += line(
        tr("jobs that may run at once: {number}", number=_limit(jobs)),
        tr("of each user: {number}", number=_limit(each)),
    )
    return text + line(tr("revision {number}", number=view["revision"])) + _used_of(view.get("used") or (), width)


def totals_of(view: View) -> list[dict[str, Any]]:
    """Return the totals by priority of the jobs in a view, in the form of the API. A job that waits does not run."""
    waiting = {job["job_id"] for job in view["waiting"]}
    states = {"running": [job for job in view["running"] if job["job_id"] not in waiting], "queued": view["waiting"]}

    def total(jobs: Iterable[View], priority: Priority) -> dict[str, int]:
        chosen = [job for job in jobs if job["priority"] == priority.name]
        instances, gpus = sum(job["nodes"] for job in chosen), sum(job["nodes"] * job["gpus"] for job in chosen)
        return {"jobs": len(chosen), "instances": instances, "gpus": gpus}

    return [
        {"priority": priority.name, **{state: total(jobs, priority) for state, jobs in states.items()}}
        for priority in sorted(Priority, reverse=True)
    ]


def _totals(rows: Iterable[View], width: int | None) -> str:
    """Return jobs, instances and GPUs by priority, without the priorities that no job has."""
    lines = [
        (str(row["priority"]), _total(row["running"]), _total(row["queued"]))
        for row in rows
        if row["running"]["jobs"] or row["queued"]["jobs"]
    ]
    return "\n" + table(heads("PRIORITY", "RUNNING", "QUEUED"), lines, width) if lines else ""


def _total(total: View) -> str:
    jobs, instances, gpus = total["jobs"], total["instances"], total["gpus"]
    if not jobs:
        return "-"
    return tr("jobs: {jobs}, instances: {instances}, GPUs: {gpus}", jobs=jobs, instances=instances, gpus=gpus)


def _used_of(rows: Iterable[View], width: int | None) -> str:
    used = [(quota["user"], str(quota["priority"]), quota["group"] or "-", _used(quota)) for quota in rows]
    return "\n" + table(heads("QUOTA OF", "PRIORITY", "GROUP", "USED/TOTAL"), used, width) if used else ""


def _limit(number: Any) -> str:
    return tr("no limit") if number is None else str(number)


def _used(quota: View) -> str:
    return f"{quota['used']}/{_limit(quota.get('limit'))}"


def _start(job: View, now: datetime) -> str:
    """Return how soon the job may start at the earliest."""
    at = job.get("earliest_at")
    return tr("in {time}", time=duration((moment(at) - now).total_seconds())) if at else UNKNOWN


def _because(job: View) -> str:
    """Return why the job waits, after its status or its lowered priority where these are unusual."""
    asked = job.get("asked_priority")
    fell = tr("asked for {priority}", priority=asked) if asked and asked != job["priority"] else ""
    standing = "" if job["status"] == JobStatus.PENDING_RESOURCES else job["status"]
    return "; ".join(part for part in (standing, fell, str(job["sentence"])) if part)


def _until_when(job: View, now: datetime) -> str:
    ends = tr("{time} at the latest", time=until(job["ends_at"], now)) if job.get("ends_at") else tr("unknown")
    return tr("{end}; can be suspended", end=ends) if job["can_suspend"] else ends


def _columns(job: View, named: bool) -> tuple[str, ...]:
    """Return the columns that waiting and running jobs have in common: id, name, user, priority, group, size."""
    name = (str(job.get("name") or "-"),) if named else ()
    return job["job_id"], *name, job["user"] or "-", str(job["priority"]), job["group"] or "-", _size(job)


def _size(job: View) -> str:
    """Return `2x8`: instances times GPUs of each. An elastic job waits with `2..4x8`, and runs with `3/4x8`."""
    nodes = str(count(job.get("nodes")))
    if job.get("nodes_min") is not None:
        nodes = f"{job['nodes_min']}..{nodes}"
    elif job.get("nodes_max") is not None:
        nodes = f"{nodes}/{job['nodes_max']}"
    return f"{nodes}x{count(job.get('gpus'))}"
