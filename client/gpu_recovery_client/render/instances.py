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
from gpu_recovery_client.texts import heads, tr

View = Mapping[str, Any]
WITHOUT_COLUMN = (OutOfUse.DRAINING, OutOfUse.ORPHANED, OutOfUse.LEAVING)
"""Reasons to get no job that the other columns and the reason of the instance do not explain."""
STATED = (OutOfUse.DRAINING, OutOfUse.ORPHANED)
"""Reasons to get no job that no other line about the instance explains."""


def instance_list(instances: Iterable[View], now: datetime, width: int | None = None, *, wide: bool = False) -> str:
    """Return instances as a table. `wide` adds columns."""
    rows = [
        (
            view["instance_id"],
            view["status"],
            count(view.get("gpus")),
            view.get("ecs_status") or "-",
            ecs_agent(view),
            node_agent(view, now),
            health_status(view),
            *((since(view.get("status_at"), now), count((view.get("lemon") or {}).get("score"))) if wide else ()),
            notes(view),
        )
        for view in instances
    ]
    if not rows:
        return tr("no instances") + "\n"
    more = ("SINCE", "LEMON %") if wide else ()
    header = heads("INSTANCE", "STATUS", "GPU", "ECS", "ECS AGENT", "NODE AGENT", "HEALTH", *more, "NOTES")
    return table(header, rows, width, optional=(2, 3, 4, 6))


def notes(view: View) -> str:
    """Return the jobs on an instance, who reports it as IMPAIRED, why it gets no job, and its reason."""
    others = (one for one in view.get("out_of_use") or () if one["kind"] in WITHOUT_COLUMN)
    words = (
        *(tr("claimed by {attempt}", attempt=claim) for claim in claims(view).split(", ") if claim),
        tr("reserved for {job}", job=view["reserved_for"]) if view.get("reserved_for") else "",
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
    return tr("ok") if statuses else "-"


def node_agent(view: View, now: datetime) -> str:
    """Return the liveness of the node agent and when it last reported: `HEARD 12s`, `SILENT 90s`, `LOST 14m`.

    "none" if no node agent ever reported, "-" if the API does not say.
    """
    if "node_agent" not in view:
        return "-"
    agent = view["node_agent"]
    if agent is None:
        return tr("none")
    silent = agent["liveness"] in (Liveness.SUSPECT, Liveness.UNREACHABLE)
    return f"{'SILENT' if silent else agent['liveness']} {age(agent['seen_at'], now)}"


def instance_details(view: View, now: datetime, width: int | None = None) -> str:
    """Return one instance as lines of `name  value`, then its history."""
    rows = [
        (tr("instance"), view["instance_id"]),
        (tr("status"), standing(view, now)),
        (tr("reason"), view.get("reason")),
        (tr("waits until"), until(view.get("deadline_at"), now)),
        (tr("gpus"), count(view.get("gpus"))),
        (tr("ecs status"), view.get("ecs_status")),
        (tr("ecs agent"), ecs_agent(view)),
        (tr("node agent"), heartbeat(view, now)),
        *((tr("health"), sentence) for sentence in health(view)),
        *((tr("out of use"), one["because"]) for one in view.get("out_of_use") or () if one["kind"] in STATED),
        (tr("leaves"), interruption(view, now)),
        (tr("needs"), needs(view)),
        (tr("repair held"), held_back(view, now)),
        (tr("lemon score"), lemon(view)),
        (tr("idle check"), idle_check(view, now)),
        (tr("drained"), tr("by gpu-recovery") if view.get("drained") else ""),
        (tr("incident"), view.get("incident_id")),
        (tr("claimed by"), claims(view)),
        (tr("reserved for"), view.get("reserved_for")),
        (tr("boot"), _boot(view)),
        (tr("epoch"), count(view.get("epoch"))),
        (tr("container instance"), view.get("container_instance_id")),
    ]
    text = table(None, [(name, str(value)) for name, value in rows if value], width)
    history = [
        (clock(entry["at"]), moved(entry), entry["event"], entry.get("reason") or "")
        for entry in view.get("history") or ()
    ]
    return text + ("\n" + table(heads("TIME", "STATUS", "EVENT", "REASON"), history, width) if history else "")


def heartbeat(view: View, now: datetime) -> str:
    """Return when the instance was last seen and the ranks it reported; "" if it never reported.

    A rank that the newest report does not name is shown with the time of its own last report, and only while its
    attempt has GPUs there.
    """
    beat = view.get("heartbeat")
    if not beat:
        return ""
    ranks = ", ".join(rank for entry in beat["ranks"] if (rank := _reported_rank(entry, view, now)))
    seen = tr("{liveness}, {time} ago", liveness=beat["liveness"], time=since(beat["seen_at"], now))
    return f"{seen}: {ranks}" if ranks else seen


def _reported_rank(rank: View, view: View, now: datetime) -> str:
    is_reported = rank["seen_at"] == view["heartbeat"]["seen_at"]
    if not is_reported and (view.get("claims") or {}).get(rank["job_id"]) != rank["attempt"]:
        return ""  # it has ended
    values = {"rank": rank["rank"], "job": rank["job_id"], "attempt": rank["attempt"]}
    if is_reported:
        return tr("rank {rank} of {job} (attempt {attempt})", **values)
    age = since(rank["seen_at"], now)
    return tr("rank {rank} of {job} (attempt {attempt}, last reported {age} ago)", age=age, **values)


def _boot(view: View) -> str:
    if not view.get("boot_id"):
        return ""
    return tr("{boot} since {at}", boot=view["boot_id"], at=clock(view.get("booted_at")))


def health(view: View, *, only_impaired: bool = False) -> list[str]:
    """Return the last report of each health source about the instance."""
    return [
        tr("{source} is {status} since {at}", source=kind, status=report["status"], at=clock(report["since"]))
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
    if not held:
        return ""
    values = {"at": clock(held["since"]), "age": since(held["since"], now), "reason": held["because"]}
    return tr("since {at} ({age}): {reason}", **values)


def idle_check(view: View, now: datetime) -> str:
    """Return the last idle check that the instance passed, and the outcome of a later one; "" if it had none."""
    checked = view.get("idle_check")
    if not checked:
        return ""
    level, passed_at, ended_at = checked["level"], checked["passed_at"], checked["ended_at"]
    passed = tr("passed at level {level}, {time} ago", level=level, time=age(passed_at, now)) if passed_at else ""
    if passed and not checked["counts"]:
        passed = tr("{passed}, which no longer counts", passed=passed)
    if passed_at == ended_at:
        return passed
    outcome = checked["outcome"] or tr("no result")
    last = tr("the last ended {time} ago: {outcome}", time=age(ended_at, now), outcome=outcome)
    return f"{passed}; {last}" if passed else last


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
    return "-" if connected is None else tr("connected") if connected else tr("cut off")
