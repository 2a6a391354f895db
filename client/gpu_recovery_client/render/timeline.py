"""The timeline of a job: its history and that of the instances involved."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import accumulate, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gpu_recovery.core.job.status import TERMINAL, WAITING, JobStatus

from gpu_recovery_client.errors import RequestRefused
from gpu_recovery_client.render.formats import clock, duration, moment, moved, short_clock
from gpu_recovery_client.render.instances import STATED
from gpu_recovery_client.render.jobs import attempts, failure_sentence, timeout_warnings, waiting
from gpu_recovery_client.render.preflight import preflight_sentences
from gpu_recovery_client.render.queue import pending
from gpu_recovery_client.render.recovery import bill_sentences
from gpu_recovery_client.render.table import paragraph, table
from gpu_recovery_client.render.text import line
from gpu_recovery_client.texts import heads, tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

View = Mapping[str, Any]
INSTANCE_ID = re.compile(r"\bi-(?:[0-9a-f]{17}|[0-9a-f]{8})\b")
RANKS_RUN = (JobStatus.RUNNING, JobStatus.LOST)
"""Statuses in which rank 0 may have reported its timeouts."""
INSTANCES_MAX = 32
"""Largest number of instances of a timeline."""
AVAILABLE = "AVAILABLE"
LINE_FOUND = "RepairRecordFound"
"""Event of the line that says who ordered a repair. The agent may report the line after the end of the repair."""


def gather(client: RecoveryClient, job_id: str) -> dict[str, Any]:
    """Read what `explanation` shows.

    Returns:
        `{"job": view, "pending": why it waits, "preflight": its results, "instances": [view, ...], "left_out": [ids]}`.
            `preflight` is None for a job without a preflight. `pending` is the
            scheduler's answer for a queued job, as in a dry run; None for any other job. `left_out` holds instances
            after the first INSTANCES_MAX, which cost one request each, and instances that are no longer known.
    """
    job = client.job(job_id)
    has_preflight = job.get("preflight") == "quick" and bool(job.get("instances"))
    explained = client.explain(job_id) if has_preflight or job["status"] in (*WAITING, *RANKS_RUN) else {}
    if "timeout_warnings" in explained:
        job["timeout_warnings"] = explained["timeout_warnings"]  # with what a running rank has reported
    why = explained.get("pending")
    ids = involved(job)
    known: list[dict[str, Any]] = []
    left_out = list(ids[INSTANCES_MAX:])
    for instance_id in ids[:INSTANCES_MAX]:
        try:
            known.append(client.instance(instance_id))
        except RequestRefused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            left_out.append(instance_id)
    return {
        "job": job,
        "pending": why,
        "preflight": explained.get("preflight"),
        "instances": known,
        "left_out": left_out,
    }


def involved(job: View) -> list[str]:
    """Return the instances that a job concerns, the likely causes first.

    The view holds only the instances of the last attempt. Those of earlier attempts come from the sentences of the
    history.
    """
    ids = [*(job.get("repairing") or ())]
    if job.get("failure"):
        ids.append(job["failure"].get("instance_id") or "")
    ids += job.get("instances") or ()
    ids += [name for entry in job.get("history") or () for name in INSTANCE_ID.findall(entry.get("reason") or "")]
    return [instance_id for instance_id in dict.fromkeys(ids) if instance_id]


def timeline(job: View, instances: Sequence[View]) -> list[tuple[str, View]]:
    """Return (subject, entry) in order of time: entries of the job and of `instances`, from its submission to its end.

    An instance that is checked or repaired at the end of the job is followed until it works again, because the repair
    often takes longer than the next attempt. The entries of one record keep their order, regardless of the times of
    their events: a fact that arrives late was also decided late.
    """
    begun = moment(job["queued_at"])
    ended = moment(job["status_at"]) if job["status"] in TERMINAL else None
    placed = _placed("job", job.get("history") or ())
    for view in instances:
        entries = [p for p in _placed(view["instance_id"], view.get("history") or ()) if begun <= p[0]]
        later = [p for p in entries if ended is not None and p[0] > ended]
        placed += entries[: len(entries) - len(later)]
        placed += takewhile(_ends_a_repair, later)
    return [(who, entry) for _, who, entry in sorted(placed, key=itemgetter(0))]


def _ends_a_repair(placed: tuple[datetime, str, View]) -> bool:
    """Return whether the entry, after the end of a job, belongs to a check or a repair that began before."""
    entry = placed[2]
    return entry.get("from") != AVAILABLE or entry["event"] == LINE_FOUND


def _placed(who: str, history: Sequence[View]) -> list[tuple[datetime, str, View]]:
    """Return each entry with its time on the timeline, which is never before that of the entry before."""
    times = accumulate((moment(entry["at"]) for entry in history), max)
    return [(at, who, entry) for at, entry in zip(times, history, strict=True)]


def explanation(story: View, now: datetime, width: int | None = None) -> str:
    """Return the text of what `gather` read: the status of the job, what it waits for, and its timeline."""
    job = story["job"]
    failure = failure_sentence(job)
    text = line(job["job_id"], job["status"], tr("attempt {attempt}", attempt=attempts(job, words=True)))
    sentences = (
        job.get("reason"),
        tr("last failure: {failure}", failure=failure) if failure else "",
        tr("waits for {event}", event=waiting(job, now)),
    )
    text += "".join(paragraph(sentence, width) for sentence in sentences if sentence)
    text += "".join(paragraph(tr("timeouts: {warning}", warning=each), width) for each in timeout_warnings(job))
    text += "".join(paragraph(sentence, width) for sentence in preflight_sentences(story.get("preflight")))
    text += "".join(paragraph(sentence, width) for sentence in bill_sentences(job))
    text += "".join(paragraph(sentence, width) for sentence in _unused(job, story["instances"]))
    why = story.get("pending")
    if why:
        facts = [(tr("because"), str(why.get("sentence") or "")), *pending(why, now)]
        text += "\n" + table(None, [row for row in facts if row[1]], width)
    rows = _rows(timeline(job, story["instances"]), moment(job["queued_at"]), clock if width is None else short_clock)
    if rows:
        text += "\n" + table(
            heads("TIME (UTC)", "ELAPSED", "WHO", "STATUS", "EVENT", "REASON"), rows, width, optional=(4, 1)
        )
    if story["left_out"]:
        text += "\n" + line(tr("without the history of {instances}", instances=", ".join(story["left_out"])))
    return text


def _unused(job: View, instances: Sequence[View]) -> list[str]:
    """Return a sentence for each instance of a job under way that is DRAINING in ECS, or holds an orphaned rank.

    No decision of the instance tells it, so the timeline does not show it.
    """
    if job["status"] in TERMINAL:
        return []
    return [
        f"{view['instance_id']}: {one['because']}"
        for view in instances
        if view["instance_id"] in (job.get("instances") or ())
        for one in view.get("out_of_use") or ()
        if one["kind"] in STATED
    ]


def _rows(
    entries: Sequence[tuple[str, View]], begun: datetime, stamp: Callable[[str | None], str]
) -> list[tuple[str, ...]]:
    """Return rows with the time since `begun`; the subject is the job, named by its attempt, or an instance."""
    return [
        (
            stamp(entry["at"]),
            "+" + duration((moment(entry["at"]) - begun).total_seconds()),
            tr("attempt {number}", number=entry["attempt"]) if who == "job" and entry.get("attempt") else who,
            moved(entry),
            entry["event"],
            entry.get("reason") or "",
        )
        for who, entry in entries
    ]
