"""The queue as text: waiting jobs with reasons, running jobs, quotas, and dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority

from gpu_recovery_client.render.formats import clock, count, duration, moment, since, until
from gpu_recovery_client.render.table import line, table

View = Mapping[str, Any]
NOW, UNKNOWN = "now", "-"


def queue(view: View, now: datetime, width: int | None = None) -> str:
    """Return waiting jobs in the order of the API, running jobs, totals, quotas, and reservations of the first jobs."""
    waiting = [
        (
            count(job.get("position")),
            *_columns(job),
            since(job["queued_at"], now),
            _start(job, now),
            _because(job),
        )
        for job in view["waiting"]
    ]
    header = ("PLACE", "JOB", "USER", "PRIORITY", "GROUP", "SIZE", "WAITS", "START", "BECAUSE")
    text = table(header, waiting, width) if waiting else "nobody waits\n"
    runs = [
        (
            job["job_id"],
            job.get("status") or "-",
            *_columns(job)[1:],
            since(job["since"], now),
            _until_when(job, now),
        )
        for job in view["running"]
    ]
    if runs:
        text += "\n" + table(("JOB", "STATUS", "USER", "PRIORITY", "GROUP", "SIZE", "FOR", "ENDS"), runs, width)
    text += _totals(view.get("totals") or (), width) + _used_of(view["quotas"], width)
    promised = [
        (job["job_id"], job["group"] or "-", clock(job.get("at")), ", ".join(job["hosts"]))
        for job in view["reservations"]
    ]
    if promised:
        text += "\n" + table(("PROMISED TO", "GROUP", "FROM", "INSTANCES"), promised, width)
    return text


def placement_preview(view: View, now: datetime, width: int | None = None) -> str:
    """Return the answer of a dry run: whether the job would start now and where, otherwise what is missing."""
    suspends = ", ".join(view.get("would_suspend") or ())
    hosts = ", ".join(view.get("instances") or ())
    if view["would_start"]:
        rows = [("it would start", NOW), ("on", hosts)]
    else:
        rows = [("it would wait", str(view.get("sentence") or "for its turn")), *pending(view, now)]
    if suspends:
        rows.append(("it would suspend", suspends))
    return table(None, [row for row in rows if row[1]], width)


def pending(view: View, now: datetime) -> list[tuple[str, str]]:
    """Return `name  value` rows on why a job waits: what is missing, its place, its blockers, the earliest start."""
    position = view.get("position")
    return [
        ("short of", str(view.get("short_of") or "")),
        ("place in line", "" if position is None else str(position)),
        ("waits for", ", ".join(view.get("blockers") or ())),
        ("earliest start", until(view.get("earliest_at"), now) or "nobody can tell"),
    ]


def queue_status(view: View, now: datetime) -> str:
    """Return place and earliest start of a job on one line."""
    place = f"place {view['position']} in line" if view.get("position") is not None else ""
    at = view.get("earliest_at")
    return ", ".join(words for words in (place, f"start {until(at, now)} at the earliest" if at else "") if words)


def quotas(view: View, width: int | None = None) -> str:
    """Return the limits, and their usage if the view has it."""
    limits = view["limits"]
    rows = [(*key.rsplit("/", 2), str(number)) for key, number in sorted((limits.get("instances") or {}).items())]
    text = table(("USER", "PRIORITY", "GROUP", "INSTANCES"), rows, width) if rows else "no limits of instances\n"
    jobs, each = limits.get("max_running_jobs"), limits.get("max_running_jobs_per_user")
    text += line(f"jobs that may run at once: {_limit(jobs)}", f"of one user: {_limit(each)}")
    return text + line(f"revision {view['revision']}") + _used_of(view.get("used") or (), width)


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
    return "\n" + table(("PRIORITY", "RUNNING", "QUEUED"), lines, width) if lines else ""


def _total(total: View) -> str:
    jobs, instances, gpus = total["jobs"], total["instances"], total["gpus"]
    return f"{jobs} job(s), {instances} instance(s), {gpus} GPU(s)" if jobs else "-"


def _used_of(rows: Iterable[View], width: int | None) -> str:
    used = [(quota["user"], str(quota["priority"]), quota["group"] or "-", _used(quota)) for quota in rows]
    return "\n" + table(("QUOTA OF", "PRIORITY", "GROUP", "USED/TOTAL"), used, width) if used else ""


def _limit(number: Any) -> str:
    return "no limit" if number is None else str(number)


def _used(quota: View) -> str:
    return f"{quota['used']}/{'no limit' if quota.get('limit') is None else quota['limit']}"


def _start(job: View, now: datetime) -> str:
    """Return how soon the job may start at the earliest."""
    at = job.get("earliest_at")
    return f"in {duration((moment(at) - now).total_seconds())}" if at else UNKNOWN


def _because(job: View) -> str:
    """Return why the job waits, after its status or its lowered priority where these are unusual."""
    asked = job.get("asked_priority")
    fell = f"asked for {asked}" if asked and asked != job["priority"] else ""
    standing = "" if job["status"] == JobStatus.PENDING_RESOURCES else job["status"]
    return "; ".join(part for part in (standing, fell, str(job["sentence"])) if part)


def _until_when(job: View, now: datetime) -> str:
    ends = f"{until(job['ends_at'], now)} at the latest" if job.get("ends_at") else "nobody can tell when"
    return f"{ends}; can give way" if job["can_suspend"] else ends


def _columns(job: View) -> tuple[str, str, str, str, str]:
    """Return the columns that waiting and running jobs have in common: id, user, priority, group, size."""
    return job["job_id"], job["user"] or "-", str(job["priority"]), job["group"] or "-", _size(job)


def _size(job: View) -> str:
    return f"{count(job.get('nodes'))}x{count(job.get('gpus'))}"
