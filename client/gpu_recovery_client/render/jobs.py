"""Jobs as text.

Pure: no terminal and no clock. A width of None, as for a pipe, folds no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.job.status import TERMINAL, WAITING, JobStatus

from gpu_recovery_client.render.formats import clock, count, duration, moment, since, standing, until
from gpu_recovery_client.render.recovery import bill_sentences, contract_text, lost_text
from gpu_recovery_client.render.table import table
from gpu_recovery_client.render.text import line
from gpu_recovery_client.texts import heads, tr

View = Mapping[str, Any]
WAITS_FOR: Mapping[str, str] = {
    JobStatus.QUEUED: "its turn",
    JobStatus.PENDING_RESOURCES: "GPUs to become free",
    JobStatus.SUBMITTING: "every rank to be launched",
    JobStatus.SUBMITTED: "every rank to run",
    JobStatus.RUNNING: "the ranks to end",
    JobStatus.LOST: "a heartbeat, the end of a rank, or the status checks of ECS and EC2",
    JobStatus.SUSPENDING: "rank 0 to save its state and exit, or the end of its grace period",
    JobStatus.SUSPENDED: "its turn again, at its former position",
    JobStatus.STOPPING: "the confirmed end of every rank",
    JobStatus.DIAGNOSING: "the health check of every instance",
    JobStatus.RECOVERING: "healthy instances to relaunch on",
}
"""What a job of each status waits for."""
COLUMNS = ("JOB", "STATUS", "SINCE", "ATTEMPT", "SIZE", "USER", "PRIORITY", "REASON")
"""Columns of a list."""
DISPENSABLE = (6, 3, 4, 2, 5)
"""Columns of a list that a narrow terminal leaves out, the least important first: priority, attempt, size, since, user.
"""
DELAY = "the end of its retry delay"
"""What a job of status RECOVERING waits for until its next attempt may start, if none of its instances is repaired."""
HELD = "a user to resume the job"
"""What a job waits for that a user has suspended."""


def job_line(job: View) -> str:
    """Return one line: id, status and reason."""
    return line(job["job_id"], job["status"], job.get("reason") or "")


def job_list(page: View, now: datetime, width: int | None = None, *, wide: bool = False) -> str:
    """Return a page of jobs as a table, and how to get the next page. `wide` adds columns, and so does a job's name."""
    named = wide or any(job.get("name") for job in page["jobs"])
    rows = [
        (
            job["job_id"],
            *((job.get("name") or "-",) if named else ()),
            job["status"],
            since(job.get("status_at"), now),
            attempts(job),
            size(job),
            job.get("user") or "-",
            str(job.get("priority") or "-"),
            *((job.get("group") or "-", job.get("workload") or "-", clock(job.get("queued_at"))) if wide else ()),
            job.get("reason") or "",
        )
        for job in page["jobs"]
    ]
    if not rows:
        text = line(tr("no jobs"))
    else:
        more_columns = ("GROUP", "WORKLOAD", "SUBMITTED") if wide else ()
        columns = (COLUMNS[0], *(("NAME",) if named else ()), *COLUMNS[1:-1], *more_columns, COLUMNS[-1])
        optional = (*(number + 1 for number in DISPENSABLE), 1) if named else DISPENSABLE
        text = table(heads(*columns), rows, width, optional=optional)
    more = page.get("next_cursor")
    if not more:
        return text
    if wide:
        text += line(tr("next page: --cursor {cursor}", cursor=str(more)))
    return text + line(tr("more jobs follow: add --all, or a larger --limit (-o json has the cursor)"))


def job_details(job: View, now: datetime, width: int | None = None) -> str:
    """Return one job as lines of `name  value`, then its attempts if the view has them; without its history."""
    failure = failure_sentence(job)
    rows = [
        (tr("job"), job["job_id"]),
        (tr("name"), job.get("name")),
        (tr("status"), standing(job, now)),
        (tr("reason"), _reason(job)),
        (tr("waits for"), waiting(job, now)),
        (tr("attempt"), attempts(job, words=True)),
        (tr("workload"), job.get("workload")),
        (tr("user"), job.get("user")),
        (tr("priority"), _priority(job)),
        (tr("group"), job.get("group")),
        (tr("suspended for"), job.get("suspended_for")),
        (tr("size"), size(job, words=True)),
        (tr("task definition"), job.get("task_definition")),
        (tr("origin"), job.get("origin")),
        (tr("queued"), clock(job.get("queued_at"))),
        (tr("instances"), ", ".join(job.get("instances") or ())),
        (tr("in place"), in_place(job)),
        (tr("preflight"), job["preflight"] if job.get("preflight", "off") != "off" else None),
        (tr("warm spares"), ", ".join(job.get("warm_spares") or ())),
        (tr("repairing"), ", ".join(job.get("repairing") or ())),
        (tr("last failure"), failure),
        (tr("incident"), job.get("incident_id")),
        *((tr("timeouts"), sentence) for sentence in timeout_warnings(job)),
        (tr("recovery contract"), contract_text(job)),
        *((tr("downtime"), sentence) for sentence in bill_sentences(job)),
        (tr("lost so far"), lost_text(job)),
    ]
    text = table(None, [(name, str(value)) for name, value in rows if value], width)
    tried = [_attempt(attempt) for attempt in job.get("attempts") or ()]
    return text + (
        "\n" + table(heads("ATTEMPT", "STATUS", "BEGAN", "LASTED", "EXIT", "FAILURE"), tried, width) if tried else ""
    )


def timeout_warnings(view: View) -> list[str]:
    """Return the sentence of each pair of timeouts that does not fit, of a job or of a dry run."""
    return [str(warning["sentence"]) for warning in view.get("timeout_warnings") or ()]


def _reason(job: View) -> str | None:
    """Return the reason. That of a waiting job has its time: the numbers in it are those of the decision."""
    at = job.get("reason_at")
    if not job.get("reason") or job["status"] not in WAITING or not at:
        return job.get("reason")
    return tr("{reason} (as of {time})", reason=job["reason"], time=clock(at))


def waiting(job: View, now: datetime) -> str:
    """Return what the job waits for now, the earliest time it may continue, and its deadline."""
    if job["status"] in TERMINAL:
        return tr("nothing: the job has ended")
    again = job.get("next_run_at")
    is_delayed = moment(again) > now if again else False
    known = HELD if job.get("held") else WAITS_FOR.get(job["status"], "")
    if is_delayed and job["status"] == JobStatus.RECOVERING and not job.get("repairing"):
        known = DELAY
    what = tr(known) if known else tr("the end of {status}", status=job["status"])
    if is_delayed:
        what = tr("{event}, not before {time}", event=what, time=until(again, now))
    deadline = job.get("deadline_at")
    if not deadline:
        return tr("{event}, without a deadline", event=what)
    return tr("{event}, until {time}", event=what, time=until(deadline, now))


def attempts(job: View, *, words: bool = False) -> str:
    """Return `2 (1/3)`: the attempt's number, and how many of the largest number of counted attempts are used up.

    An attempt that is not counted, as after an interruption, raises only the first number.
    """
    attempt, most = job.get("attempt") or 0, job.get("attempts_max")
    if not words:
        return f"{attempt} ({job.get('attempts_counted') or 0}/{most})" if most else str(attempt)
    if not most:
        return str(attempt)
    values = {"attempt": attempt, "counted": job.get("attempts_counted") or 0, "most": most}
    return tr("{attempt} ({counted} of {most} counted)", **values)


def size(job: View, *, words: bool = False) -> str:
    """Return `2x8`: instances times GPUs of each. An elastic job shows `3/2..4x8`: its instances, and its range."""
    nodes, gpus = job.get("nnodes"), job.get("n_gpus_per_node")
    if nodes is None or gpus is None:
        return "-"
    least, width = job.get("nnodes_min"), job.get("width")
    if least is not None and words:
        values = {"least": least, "most": nodes, "gpus": gpus}
        if width is None:
            return tr("instances: {least} to {most}, with {gpus} GPUs each", **values)
        return tr("instances: {width} of {least}..{most}, with {gpus} GPUs each", width=width, **values)
    if least is not None:
        return f"{least}..{nodes}x{gpus}" if width is None else f"{width}/{least}..{nodes}x{gpus}"
    return tr("instances: {nodes}, with {gpus} GPUs each", nodes=nodes, gpus=gpus) if words else f"{nodes}x{gpus}"


def failure_sentence(job: View) -> str:
    """Return the failure that stopped the last attempt, as one sentence; "" if there was none."""
    failure = job.get("failure")
    if not failure:
        return ""
    values = {"rank": failure["rank"], "instance": failure["instance_id"], "sentence": failure["sentence"]}
    return tr("rank {rank} on {instance} {sentence}", **values)


def in_place(job: View) -> str:
    """Return how many ranks of the attempt were placed on a waiting container; "" for a job that starts new tasks."""
    placed = job.get("ranks_in_place") or 0
    if placed:
        nodes = job.get("width") or job.get("nnodes")
        return tr("{placed} of {nodes} ranks use a container that waited", placed=placed, nodes=nodes)
    return tr("a failed attempt may restart in its containers") if job.get("restart_in_place") else ""


def _priority(job: View) -> str:
    """Return the current priority, and the requested priority if the job has fallen back from it."""
    counts, asked = str(job.get("priority") or ""), job.get("asked_priority")
    if asked and counts and asked != counts:
        return tr("{priority} (asked for {asked})", priority=counts, asked=asked)
    return counts


def _attempt(attempt: View) -> tuple[str, ...]:
    began, ended = attempt.get("started_at"), attempt.get("ended_at")
    lasted = duration((moment(ended) - moment(began)).total_seconds()) if began and ended else "-"
    words = [
        attempt.get("failure_kind"),
        attempt.get("message"),
        tr("not counted") if attempt.get("counted") is False else "",
    ]
    exit_code = count(attempt.get("exit_code"))
    why = ": ".join(str(word) for word in words if word)
    return str(attempt["attempt"]), str(attempt.get("status") or "-"), clock(began), lasted, exit_code, why
