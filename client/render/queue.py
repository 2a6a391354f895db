"""The queue as text: the line with what each job is short of, who runs, quotas, what a dry run tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.job.record import JobStatus
from gpu_recovery_client.render.formats import clock, count, duration, moment, since, until
from gpu_recovery_client.render.table import line, table

View = Mapping[str, Any]
NOW, NOBODY_KNOWS = "now", "-"


def queue(view: View, now: datetime, width: int | None = None) -> str:
    """Who waits, in the order of the API, who runs, quotas, and what is promised to the heads of the line."""
    waiting = [
        (
            count(one.get("position")),
            *_columns(one),
            since(one["queued_at"], now),
            _start(one, now),
            _because(one),
        )
        for one in view["waiting"]
    ]
    header = ("PLACE", "JOB", "USER", "PRIORITY", "GROUP", "SIZE", "WAITS", "START", "BECAUSE")
    text = table(header, waiting, width) if waiting else "nobody waits\n"
    runs = [
        (
            *_columns(one),
            since(one["since"], now),
            _until_when(one, now),
        )
        for one in view["running"]
    ]
    if runs:
        text += "\n" + table(("RUNNING", "USER", "PRIORITY", "GROUP", "SIZE", "FOR", "ENDS"), runs, width)
    text += _used_of(view["quotas"], width)
    promised = [
        (one["job_id"], one["group"] or "-", clock(one.get("at")), ", ".join(one["hosts"]))
        for one in view["reservations"]
    ]
    if promised:
        text += "\n" + table(("PROMISED TO", "GROUP", "FROM", "INSTANCES"), promised, width)
    return text


def placement_preview(view: View, now: datetime, width: int | None = None) -> str:
    """What a dry run answers: whether the job would start now and where, else what it is short of."""
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
    """`name  value` of why a job waits: what is short, its place, whom it waits for, the earliest start."""
    position = view.get("position")
    return [
        ("short of", str(view.get("short_of") or "")),
        ("place in line", "" if position is None else str(position)),
        ("waits for", ", ".join(view.get("blockers") or ())),
        ("earliest start", until(view.get("earliest_at"), now) or "nobody can tell"),
    ]


def queue_status(view: View, now: datetime) -> str:
    """The same in a few words, for one line."""
    place = f"place {view['position']} in line" if view.get("position") is not None else ""
    at = view.get("earliest_at")
    return ", ".join(words for words in (place, f"start {until(at, now)} at the earliest" if at else "") if words)


def quotas(view: View, width: int | None = None) -> str:
    """The limits as they are set; what is used of them, where the view has it."""
    limits = view["limits"]
    rows = [(*key.rsplit("/", 2), str(number)) for key, number in sorted((limits.get("instances") or {}).items())]
    text = table(("USER", "PRIORITY", "GROUP", "INSTANCES"), rows, width) if rows else "no limits of instances\n"
    jobs, each = limits.get("max_running_jobs"), limits.get("max_running_jobs_per_user")
    text += line(f"jobs that may run at once: {_limit(jobs)}", f"of one user: {_limit(each)}")
    return text + line(f"revision {view['revision']}") + _used_of(view.get("used") or (), width)


def _used_of(rows: Iterable[View], width: int | None) -> str:
    used = [(one["user"], str(one["priority"]), one["group"] or "-", _used(one)) for one in rows]
    return "\n" + table(("QUOTA OF", "PRIORITY", "GROUP", "USED/TOTAL"), used, width) if used else ""


def _limit(number: Any) -> str:
    return "no limit" if number is None else str(number)


def _used(one: View) -> str:
    return f"{one['used']}/{'no limit' if one.get('limit') is None else one['limit']}"


def _start(one: View, now: datetime) -> str:
    """How soon it may start at the earliest."""
    at = one.get("earliest_at")
    return f"in {duration((moment(at) - now).total_seconds())}" if at else NOBODY_KNOWS


def _because(one: View) -> str:
    """Why it waits; before it, what of its standing would surprise."""
    asked = one.get("asked_priority")
    fell = f"asked for {asked}" if asked and asked != one["priority"] else ""
    standing = "" if one["status"] == JobStatus.PENDING_RESOURCES else one["status"]
    return "; ".join(part for part in (standing, fell, str(one["sentence"])) if part)


def _until_when(one: View, now: datetime) -> str:
    ends = f"{until(one['ends_at'], now)} at the latest" if one.get("ends_at") else "nobody can tell when"
    return f"{ends}; can give way" if one["can_suspend"] else ends


def _columns(job: View) -> tuple[str, str, str, str, str]:
    """Return the columns that waiting and running jobs have in common: id, user, priority, group, size."""
    return job["job_id"], job["user"] or "-", str(job["priority"]), job["group"] or "-", _size(job)


def _size(one: View) -> str:
    return f"{count(one.get('nodes'))}x{count(one.get('gpus'))}"
