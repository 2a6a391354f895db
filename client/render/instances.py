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
    """Instances as a table."""
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
    """One instance as a block of `name  value` lines, then its history."""
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
    history = [(clock(e["at"]), moved(e), e["event"], e.get("reason") or "") for e in view.get("history") or ()]
    return text + ("\n" + table(("TIME", "STATUS", "EVENT", "REASON"), history, width) if history else "")


def heartbeat(view: View, now: datetime) -> str:
    """When the instance was last heard of, and the ranks it spoke of; "" for one that has never been."""
    beat = view.get("heartbeat")
    if not beat:
        return ""
    ranks = ", ".join(f"rank {one['rank']} of {one['job_id']} (attempt {one['attempt']})" for one in beat["ranks"])
    told = f"{beat['liveness']}, {since(beat['seen_at'], now)} ago"
    return f"{told}: {ranks}" if ranks else told


def health(view: View) -> list[str]:
    """What each watcher last said of the instance."""
    return [
        f"{kind} is {one['status']} since {clock(one['since'])}" + (f": {one['sentence']}" if one["sentence"] else "")
        for kind, one in (view.get("health") or {}).items()
    ]


def interruption(view: View, now: datetime) -> str:
    """When the instance will be taken away, and why; "" if nothing says so."""
    departure = view.get("departure")
    if not departure:
        return ""
    return f"{until(departure['leaves_at'], now)}: {departure['kind']}, {departure['sentence']}"


def needs(view: View) -> str:
    """The repair that the instance needs, and on what evidence; "" for none."""
    need = view.get("need")
    return f"{need['rung']}: {need['evidence']}" if need else ""


def held_back(view: View, now: datetime) -> str:
    """Why that repair may not begin yet; "" if it may."""
    held = view.get("held")
    return f"since {clock(held['since'])} ({since(held['since'], now)}): {held['because']}" if held else ""


def lemon(view: View) -> str:
    """How much speaks against the instance, and what; "" if nothing does, or nobody says."""
    told = view.get("lemon") or {}
    return f"{told['score']} %: {told['made_of']}" if told.get("made_of") else ""


def claims(view: View) -> str:
    """The attempts that own GPUs of the instance."""
    return ", ".join(attempt_id(job, attempt) for job, attempt in (view.get("claims") or {}).items())


def agent(view: View) -> str:
    """The word for the ECS agent's connection."""
    connected = view.get("agent_connected")
    return "-" if connected is None else "connected" if connected else "disconnected"
