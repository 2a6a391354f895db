"""Instances as text: the list, and one instance with its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.liveness import Liveness
from gpu_recovery.core.queue.snapshot import OutOfUse

from gpu_recovery_client.render.formats import age, clock, count, moved, since, standing, until
from gpu_recovery_client.render.table import table

View = Mapping[str, Any]
WITHOUT_COLUMN = (OutOfUse.DRAINING, OutOfUse.ORPHANED, OutOfUse.LEAVING)
"""Reasons to get no job that the other columns and the reason of the instance do not explain."""
STATED = (OutOfUse.DRAINING, OutOfUse.ORPHANED)
"""Reasons to get no job that no other line about the instance explains."""


def instance_list(instances: Iterable[View], now: datetime, width: int | None = None) -> str:
    """Return instances as a table. Its columns fit into 80 characters, with the notes on lines of their own."""
    rows = [
        (
            view["instance_id"],
            view["status"],
            count(view.get("gpus")),
            view.get("ecs_status") or "-",
            ecs_agent(view),
            node_agent(view, now),
            health_status(view),
            notes(view),
        )
        for view in instances
    ]
    if not rows:
        return "no instances\n"
    return table(("INSTANCE", "STATUS", "GPU", "ECS", "ECS AGENT", "NODE AGENT", "HEALTH", "NOTES"), rows, width)


def notes(view: View) -> str:
    """Return the jobs on an instance, who reports it as IMPAIRED, why it gets no job, and its reason."""
    others = (one for one in view.get("out_of_use") or () if one["kind"] in WITHOUT_COLUMN)
    words = (
        *(f"claimed by {claim}" for claim in claims(view).split(", ") if claim),
        f"reserved for {view['reserved_for']}" if view.get("reserved_for") else "",
        *health(view, only_impaired=True),
        *(one["because"] for one in others),
        view.get("reason") or "",
    )
    return "; ".join(word for word in words if word)


def health_status(view: View) -> str:
    """Return IMPAIRED if any health source reports the instance as such, else "ok"; "-" if no source has reported."""
    statuses = [report["status"] for report in (view.get("health") or {}).values()]
    if HealthStatus.IMPAIRED in statuses:
        return HealthStatus.IMPAIRED.value
    return "ok" if statuses else "-"


def node_agent(view: View, now: datetime) -> str:
    """Return the liveness of the node agent and when it was last heard: `HEARD 12s`, `SILENT 90s`, `LOST 14m`.

    "none" if no node agent ever reported, "-" if the API does not say.
    """
    if "node_agent" not in view:
        return "-"
    agent = view["node_agent"]
    if agent is None:
        return "none"
    silent = agent["liveness"] in (Liveness.SUSPECT, Liveness.UNREACHABLE)
    return f"{'SILENT' if silent else agent['liveness']} {age(agent['seen_at'], now)}"


def instance_details(view: View, now: datetime, width: int | None = None) -> str:
    """Return one instance as lines of `name  value`, then its history."""
    rows = [
        ("instance", view["instance_id"]),
        ("status", standing(view, now)),
        ("reason", view.get("reason")),
        ("waits until", until(view.get("deadline_at"), now)),
        ("gpus", count(view.get("gpus"))),
        ("ecs status", view.get("ecs_status")),
        ("ecs agent", ecs_agent(view)),
        ("node agent", heartbeat(view, now)),
        *(("health", sentence) for sentence in health(view)),
        *(("out of use", one["because"]) for one in view.get("out_of_use") or () if one["kind"] in STATED),
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


def health(view: View, *, only_impaired: bool = False) -> list[str]:
    """Return the last report of each health source about the instance."""
    return [
        f"{kind} is {report['status']} since {clock(report['since'])}"
        + (f": {report['sentence']}" if report["sentence"] else "")
        for kind, report in (view.get("health") or {}).items()
        if not only_impaired or report["status"] == HealthStatus.IMPAIRED
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


def ecs_agent(view: View) -> str:
    """Return the state of the ECS agent's connection."""
    connected = view.get("agent_connected")
    return "-" if connected is None else "connected" if connected else "cut off"
