"""Idle instances whose agents are silent: nothing is lost, and nobody would notice that nothing is placed on them.

Operators hear once that an agent is silent for good, and once that it is back. In between it may flap as it likes, and
those that fall silent together are one message: they are most often one cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.notifications import agents
from gpu_recovery.core.policy import within
from gpu_recovery.fleet_controls import change_fleet
from gpu_recovery.recovery import Recovery

JOINS_WITHIN, GATHERING_MAX = timedelta(seconds=120), timedelta(seconds=300)
"""Who is about to be told of is waited for, but only so long."""


def alert_silent_agents(
    recovery: Recovery, fleet: Fleet, records: Mapping[str, Instance], beats: Mapping[str, Heartbeat]
) -> None:
    """Tell operators of idle instances that have been silent for long, and of those that are not any more.

    fleet: the brakes as they were just read, with whom operators know of. records: every instance that should be heard
    of; beats: the heartbeats of those that have an agent.
    """
    now = recovery.clock()
    due = _due(recovery, {one: record for one, record in records.items() if one not in fleet.unheard}, now)
    back = {one: why for one in sorted(fleet.unheard) if (why := _back(recovery, one, records, beats, now))}
    if not due and not back:
        return
    incident_id = f"silence/{now:%Y%m%dT%H%M%S}"
    if due:
        recovery.notify(agents.agents_silent(incident_id, due))
    left = {one: known for one, known in fleet.unheard.items() if one not in back}
    for over in sorted({fleet.unheard[one] for one in back} - set(left.values())):
        recovery.notify(agents.agents_back(over, {one: why for one, why in back.items() if fleet.unheard[one] == over}))
    _save_alerted(recovery, dict.fromkeys(due, incident_id), set(back))


def _due(recovery: Recovery, records: Mapping[str, Instance], now: datetime) -> dict[str, datetime]:
    """Those to be told of now, and since when they are silent; none while others are about to join them."""
    told_after = within(recovery.policy.silence_alert_after_s)
    silent = {
        one: record.silent_since
        for one, record in records.items()
        if record.status is InstanceStatus.AVAILABLE and not record.claims and record.silent_since is not None
    }
    due = {one: since for one, since in sorted(silent.items()) if now - since >= told_after}
    soon = [one for one, since in silent.items() if one not in due and now - since >= told_after - JOINS_WITHIN]
    if soon and due and now - min(due.values()) < told_after + GATHERING_MAX:
        return {}
    return due


def _back(
    recovery: Recovery, instance_id: str, records: Mapping[str, Instance], beats: Mapping[str, Heartbeat], now: datetime
) -> str:
    """Why an instance that operators know to be silent is not any more; "" as long as it is, or might be again."""
    record = records.get(instance_id) or recovery.store.load_instance(instance_id)
    if record is None or record.status is InstanceStatus.GONE:
        return "it has left the cluster"
    if record.silent_since is not None or record.heard_at is None:
        return ""
    if now - record.heard_at < within(recovery.policy.silence_clear_after_s):
        return ""
    if instance_id in beats:
        return "its agent is heard of again"
    return "" if instance_id not in records else "its agent is forgotten: it works without one"


def _save_alerted(recovery: Recovery, due: Mapping[str, str], back: set[str]) -> None:
    """Enter whom operators know of. They were told first: who dies in between has it told twice rather than never."""

    def entered(fleet: Fleet) -> Fleet:
        left = {one: known for one, known in fleet.unheard.items() if one not in back}
        return replace(fleet, unheard=left | dict(due))

    change_fleet(recovery, entered)
