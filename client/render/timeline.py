"""What happened to a job: its history and that of the instances involved, as one timeline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Any

from gpu_recovery.core.job.record import TERMINAL, WAITING
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.errors import RequestRefused
from gpu_recovery_client.render.formats import clock, duration, moment, moved
from gpu_recovery_client.render.jobs import attempts, failure_sentence, waiting
from gpu_recovery_client.render.queue import pending
from gpu_recovery_client.render.table import line, table

View = Mapping[str, Any]
INSTANCE_ID = re.compile(r"\bi-(?:[0-9a-f]{17}|[0-9a-f]{8})\b")
INSTANCES_MAX = 32
NOT_FOUND = 404


def gather(client: RecoveryClient, job_id: str) -> dict[str, Any]:
    """`{"job": view, "pending": why it waits, "instances": [view, ...], "left_out": [ids]}`.

    pending: what the scheduler says of a job in line, as a dry run has it; None for any other.
    Left out are instances past the first INSTANCES_MAX, one request each, and those that are no longer known.
    """
    job = client.job(job_id)
    why = client.explain(job_id).get("pending") if job["status"] in WAITING else None
    ids = involved(job)
    known: list[dict[str, Any]] = []
    left_out = list(ids[INSTANCES_MAX:])
    for instance_id in ids[:INSTANCES_MAX]:
        try:
            known.append(client.instance(instance_id))
        except RequestRefused as refusal:
            if refusal.status != NOT_FOUND:
                raise
            left_out.append(instance_id)
    return {"job": job, "pending": why, "instances": known, "left_out": left_out}


def involved(job: View) -> list[str]:
    """The instances a job has to do with, the likely culprits first.

    The view holds those of the last attempt only; earlier attempts are found by the ids in the history's sentences.
    """
    ids = [*(job.get("repairing") or ())]
    if job.get("failure"):
        ids.append(job["failure"].get("instance_id") or "")
    ids += job.get("instances") or ()
    ids += [found for entry in job.get("history") or () for found in INSTANCE_ID.findall(entry.get("reason") or "")]
    return [instance_id for instance_id in dict.fromkeys(ids) if instance_id]


def timeline(job: View, instances: Sequence[View]) -> list[tuple[str, View]]:
    """(who, entry) in order of time: the job's entries and those of `instances` from its submission to its end.

    An instance still under repair for the job is followed past the job's end. A record's own entries keep their
    order, whatever times their events carry: a fact that comes late was also decided late.
    """
    begun = moment(job["queued_at"])
    ended = moment(job["status_at"]) if job["status"] in TERMINAL else None
    placed = _placed("job", job.get("history") or ())
    for view in instances:
        until = None if view["instance_id"] in (job.get("repairing") or ()) else ended
        entries = _placed(view["instance_id"], view.get("history") or ())
        placed += [p for p in entries if begun <= p[0] and (until is None or p[0] <= until)]
    return [(who, entry) for _, who, entry in sorted(placed, key=itemgetter(0))]


def _placed(who: str, history: Sequence[View]) -> list[tuple[datetime, str, View]]:
    """Each entry with its place in time, which is never before that of the entry before it."""
    times = accumulate((moment(entry["at"]) for entry in history), max)
    return [(at, who, entry) for at, entry in zip(times, history, strict=True)]


def explanation(story: View, now: datetime, width: int | None = None) -> str:
    """The text of what `gather` found: where the job stands, what it waits for, and how it came there."""
    job = story["job"]
    failure = failure_sentence(job)
    text = line(job["job_id"], job["status"], f"attempt {attempts(job, words=True)}")
    sentences = (job.get("reason"), f"last failure: {failure}" if failure else "", f"waits for {waiting(job, now)}")
    text += "".join(line(sentence) for sentence in sentences if sentence)
    why = story.get("pending")
    if why:
        facts = [("because", str(why.get("sentence") or "")), *pending(why, now)]
        text += "\n" + table(None, [row for row in facts if row[1]], width)
    rows = _rows(timeline(job, story["instances"]), moment(job["queued_at"]))
    if rows:
        text += "\n" + table(("TIME (UTC)", "ELAPSED", "WHO", "STATUS", "EVENT", "REASON"), rows, width)
    if story["left_out"]:
        text += "\n" + line(f"without the history of {', '.join(story['left_out'])}")
    return text


def _rows(entries: Sequence[tuple[str, View]], begun: datetime) -> list[tuple[str, ...]]:
    """Rows whose elapsed time counts from `begun`; who is the job, by its attempt, or an instance."""
    return [
        (
            clock(entry["at"]),
            "+" + duration((moment(entry["at"]) - begun).total_seconds()),
            f"attempt {entry['attempt']}" if who == "job" and entry.get("attempt") else who,
            moved(entry),
            entry["event"],
            entry.get("reason") or "",
        )
        for who, entry in entries
    ]
