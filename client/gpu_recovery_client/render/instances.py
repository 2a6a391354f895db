"""Instances as text: the list, and one instance with its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.identifiers import attempt_id

from gpu_recovery_client.render.formats import clock, count, moved, since, standing, until
from gpu_recovery_client.render.table import table

View = Mapping[str, Any]


def instance_list(instances: Iterable[View], width: int | None = None) -> str:
    """Return instances as a table."""
    rows = [
        (
            view["instance_id"],
            view["status"],
            count(view.get("gpus")),
            agent(view),
            claims(view) or "-",
            view.get("reserved_for") or "-",
            view.get("reason") or "",
        )
        for view in instances
    ]
    if not rows:
        return "no instances\n"
    return table(("INSTANCE", "STATUS", "GPUS", "AGENT", "CLAIMED BY", "RESERVED FOR", "REASON"), rows, width)


def instance_details(view: View, now: datetime, width: int | None = None) -> str:
    """Return one instance as lines of `name  value`, then its history."""
    rows = [
        ("instance", view["instance_id"]),
        ("status", standing(view, now)),
        ("reason", view.get("reason")),
        ("waits until", until(view.get("deadline_at"), now)),
        ("gpus", count(view.get("gpus"))),
        ("agent", agent(view)),
        ("heartbeat", heartbeat(view, now)),
        *(("health", sentence) for sentence in health(view)),
        ("leaves", interruption(view, now)),
        ("needs", needs(view)),
        ("held back", held_back(view, now)),
        ("lemon score", lemon(view)),
        ("drained", "by gpu-recovery" if view.get("drained") else ""),
        ("incident", view.get("incident_id")),
        ("claimed by", claims(view)),
        ("reserved for", view.get("reserved_for")),
        ("boot", f"{view['boot_id']} since {clock(view.get('booted_at'))}" if view.get("boot_id") else ""),
        ("epoch", count(view.get("epoch"))),
        ("container instance", view.get("container_instance_id")),
    ]
    text = table(None, [(name, str(value)) for name, value in rows if value], width)
    history = [
        (clock(entry["at"]), moved(entry), entry["event"], entry.get("reason") or "")
        for entry in view.get("history") or ()
    ]
    return text + ("\n" + table(("TIME", "STATUS", "EVENT", "REASON"), history, width) if history else "")


def heartbeat(view: View, now: datetime) -> str:
    """Return when the instance was last seen and the ranks it reported; "" if it never reported.

    A rank that the newest report does not name is shown with the time of its own last report, and only while its
    attempt has GPUs there.
    """
    beat = view.get("heartbeat")
    if not beat:
        return ""
    ranks = ", ".join(rank for entry in beat["ranks"] if (rank := _reported_rank(entry, view, now)))
    seen = f"{beat['liveness']}, {since(beat['seen_at'], now)} ago"
    return f"{seen}: {ranks}" if ranks else seen


def _reported_rank(rank: View, view: View, now: datetime) -> str:
    is_reported = rank["seen_at"] == view["heartbeat"]["seen_at"]
    if not is_reported and (view.get("claims") or {}).get(rank["job_id"]) != rank["attempt"]:
        return ""  # it has ended
    last = "" if is_reported else f", last reported {since(rank['seen_at'], now)} ago"
    return f"rank {rank['rank']} of {rank['job_id']} (attempt {rank['attempt']}{last})"


def health(view: View) -> list[str]:
    """Return the last report of each health source about the instance."""
    return [
        f"{kind} is {report['status']} since {clock(report['since'])}"
        + (f": {report['sentence']}" if report["sentence"] else "")
        for kind, report in (view.get("health") or {}).items()
    ]


def interruption(view: View, now: datetime) -> str:
    """Return when the instance will be taken away, and why; "" if no interruption is known."""
    departure = view.get("departure")
    if not departure:
        return ""
    return f"{until(departure['leaves_at'], now)}: {departure['kind']}, {departure['sentence']}"


def needs(view: View) -> str:
    """Return the repair that the instance needs, and the evidence; "" for none."""
    need = view.get("need")
    return f"{need['rung']}: {need['evidence']}" if need else ""


def held_back(view: View, now: datetime) -> str:
    """Return why that repair may not begin yet; "" if it may."""
    held = view.get("held")
    return f"since {clock(held['since'])} ({since(held['since'], now)}): {held['because']}" if held else ""


def lemon(view: View) -> str:
    """Return the lemon score of the instance and its parts; "" if it has none."""
    score = view.get("lemon") or {}
    return f"{score['score']} %: {score['made_of']}" if score.get("made_of") else ""


def claims(view: View) -> str:
    """Return the attempts that own GPUs of the instance."""
    return ", ".join(attempt_id(job, attempt) for job, attempt in (view.get("claims") or {}).items())


def agent(view: View) -> str:
    """Return the state of the ECS agent's connection."""
    connected = view.get("agent_connected")
    return "-" if connected is None else "connected" if connected else "disconnected"
