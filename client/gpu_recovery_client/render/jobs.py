"""Jobs as text.

Pure: no terminal and no clock. A width of None, as for a pipe, folds no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.job.record import TERMINAL, JobStatus

from gpu_recovery_client.render.formats import clock, count, duration, moment, since, standing, until
from gpu_recovery_client.render.table import cleaned, line, table

View = Mapping[str, Any]
WAITS_FOR: Mapping[str, str] = {
    JobStatus.QUEUED: "its turn",
    JobStatus.PENDING_RESOURCES: "GPUs to become free",
    JobStatus.SUBMITTING: "every rank to be launched",
    JobStatus.SUBMITTED: "every rank to run",
    JobStatus.RUNNING: "the ranks to end",
    JobStatus.LOST: "a heartbeat, an end, or what ECS and EC2 make of the silence",
    JobStatus.SUSPENDING: "rank 0 to save its state and leave, or its grace to end",
    JobStatus.SUSPENDED: "its turn again, where it stood in line, or a person who resumes it",
    JobStatus.STOPPING: "the confirmed end of every rank",
    JobStatus.DIAGNOSING: "the health check of every instance",
    JobStatus.RECOVERING: "healthy instances to relaunch on",
}
"""What a job of each status waits for."""


def job_line(job: View) -> str:
    """Return one line: id, status and reason."""
    return line(job["job_id"], job["status"], job.get("reason") or "")


def job_list(page: View, now: datetime, width: int | None = None) -> str:
    """Return a page of jobs as a table, and how to get the next page."""
    rows = [
        (
            job["job_id"],
            job["status"],
            since(job.get("status_at"), now),
            attempts(job),
            size(job),
            job.get("user") or "-",
            str(job.get("priority") or "-"),
            job.get("reason") or "",
        )
        for job in page["jobs"]
    ]
    if not rows:
        text = "no jobs\n"
    else:
        text = table(("JOB", "STATUS", "SINCE", "ATTEMPT", "SIZE", "USER", "PRIORITY", "REASON"), rows, width)
    more = page.get("next_cursor")
    return text + (f"more: add --cursor {cleaned(str(more))}, or --all\n" if more else "")


def job_details(job: View, now: datetime, width: int | None = None) -> str:
    """Return one job as lines of `name  value`, then its attempts if the view has them; without its history."""
    failure = failure_sentence(job)
    rows = [
        ("job", job["job_id"]),
        ("status", standing(job, now)),
        ("reason", job.get("reason")),
        ("waits for", waiting(job, now)),
        ("attempt", attempts(job, words=True)),
        ("workload", job.get("workload")),
        ("user", job.get("user")),
        ("priority", _priority(job)),
        ("group", job.get("group")),
        ("suspended for", job.get("suspended_for")),
        ("size", size(job, words=True)),
        ("task definition", job.get("task_definition")),
        ("origin", job.get("origin")),
        ("queued", clock(job.get("queued_at"))),
        ("instances", ", ".join(job.get("instances") or ())),
        ("repairing", ", ".join(job.get("repairing") or ())),
        ("last failure", failure),
        ("incident", job.get("incident_id")),
    ]
    text = table(None, [(name, str(value)) for name, value in rows if value], width)
    tried = [_attempt(attempt) for attempt in job.get("attempts") or ()]
    return text + (
        "\n" + table(("ATTEMPT", "STATUS", "BEGAN", "LASTED", "EXIT", "FAILURE"), tried, width) if tried else ""
    )


def waiting(job: View, now: datetime) -> str:
    """Return what the job waits for now, the earliest time it may continue, and its deadline."""
    if job["status"] in TERMINAL:
        return "nothing: the job has ended"
    what = WAITS_FOR.get(job["status"], f"the end of {job['status']}")
    again = job.get("next_run_at")
    if again and moment(again) > now:
        what = f"{what}, not before {until(again, now)}"
    deadline = job.get("deadline_at")
    if not deadline:
        return f"{what}, without a deadline"
    return f"{what}, until {until(deadline, now)}"


def attempts(job: View, *, words: bool = False) -> str:
    """Return `2 (1/3)`: the attempt's number, and how many of the largest number of counted attempts are used up.

    An attempt that is not counted, as after an interruption, raises only the first number.
    """
    attempt, most = job.get("attempt") or 0, job.get("attempts_max")
    if not words:
        return f"{attempt} ({job.get('attempts_counted') or 0}/{most})" if most else str(attempt)
    counted = f"{job.get('attempts_counted') or 0} of {most} counted" if most else ""
    return f"{attempt} ({counted})" if counted else str(attempt)


def size(job: View, *, words: bool = False) -> str:
    """Return `2x8`: instances times GPUs of each."""
    nodes, gpus = job.get("nnodes"), job.get("n_gpus_per_node")
    if nodes is None or gpus is None:
        return "-"
    return f"{nodes} instance(s) with {gpus} GPU(s) each" if words else f"{nodes}x{gpus}"


def failure_sentence(job: View) -> str:
    """Return the failure that stopped the last attempt, as one sentence; "" if there was none."""
    failure = job.get("failure")
    if not failure:
        return ""
    return f"rank {failure['rank']} on {failure['instance_id']} {failure['sentence']}"


def _priority(job: View) -> str:
    """Return the current priority, and the requested priority if the job has fallen back from it."""
    counts, asked = str(job.get("priority") or ""), job.get("asked_priority")
    return f"{counts} (asked for {asked})" if asked and counts and asked != counts else counts


def _attempt(attempt: View) -> tuple[str, ...]:
    began, ended = attempt.get("started_at"), attempt.get("ended_at")
    lasted = duration((moment(ended) - moment(began)).total_seconds()) if began and ended else "-"
    words = [
        attempt.get("failure_kind"),
        attempt.get("message"),
        "not counted" if attempt.get("counted") is False else "",
    ]
    exit_code = count(attempt.get("exit_code"))
    why = ": ".join(str(word) for word in words if word)
    return str(attempt["attempt"]), str(attempt.get("status") or "-"), clock(began), lasted, exit_code, why
