"""Alerts about idle instances with a missing heartbeat.

No job fails with such an agent, but no job is placed on the instance either. So operators are notified. They receive
one message when an agent is missing for long, and one when it is stably back. Changes in between send no message.
Agents that go missing together share one message, because they most often have one cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.notifications import agents
from gpu_recovery.core.policy import duration
from gpu_recovery.fleet_controls import change_fleet
from gpu_recovery.recovery import Recovery

JOINS_WITHIN, GATHERING_MAX = timedelta(seconds=120), timedelta(seconds=300)
"""Agents that become due within `JOINS_WITHIN` delay an alert and join it, for at most `GATHERING_MAX`."""


def alert_silent_agents(
    recovery: Recovery, fleet: Fleet, records: Mapping[str, ListedInstance], beats: Mapping[str, Heartbeat]
) -> None:
    """Notify operators of idle instances with a long missing heartbeat, and of those that report again.

    Args:
        fleet: the fleet limits as they were just read, with the instances that operators know of.
        records: every instance from which a heartbeat is expected, by id.
        beats: the heartbeats of instances that have an agent, by instance id.
    """
    now = recovery.clock()
    due = _due(recovery, {name: record for name, record in records.items() if name not in fleet.unheard}, now)
    back = {name: why for name in sorted(fleet.unheard) if (why := _back(recovery, name, records, beats, now))}
    if not due and not back:
        return
    incident_id = f"silence/{now:%Y%m%dT%H%M%S}"
    if due:
        recovery.notify(agents.agents_silent(incident_id, due))
    left = {name: known for name, known in fleet.unheard.items() if name not in back}
    for over in sorted({fleet.unheard[name] for name in back} - set(left.values())):
        recovery.notify(
            agents.agents_back(over, {name: why for name, why in back.items() if fleet.unheard[name] == over})
        )
    _save_alerted(recovery, dict.fromkeys(due, incident_id), set(back))


def _due(recovery: Recovery, records: Mapping[str, ListedInstance], now: datetime) -> dict[str, datetime]:
    """Return the instances to alert operators of now, with the time since which the heartbeat is missing.

    Empty while more instances are about to join the alert.
    """
    alert_after = duration(recovery.policy.silence_alert_after_s)
    silent = {
        name: record.silent_since
        for name, record in records.items()
        if record.status is InstanceStatus.AVAILABLE and not record.claims and record.silent_since is not None
    }
    due = {name: since for name, since in sorted(silent.items()) if now - since >= alert_after}
    soon = [name for name, since in silent.items() if name not in due and now - since >= alert_after - JOINS_WITHIN]
    if soon and due and now - min(due.values()) < alert_after + GATHERING_MAX:
        return {}
    return due


def _back(
    recovery: Recovery,
    instance_id: str,
    records: Mapping[str, ListedInstance],
    beats: Mapping[str, Heartbeat],
    now: datetime,
) -> str:
    """Return why an instance in the alerts counts as back; "" while its heartbeat is missing or may soon be again."""
    record = records.get(instance_id) or recovery.store.load_instance(instance_id)
    if record is None or record.status is InstanceStatus.GONE:
        return "it has left the cluster"
    if record.silent_since is not None or record.heard_at is None:
        return ""
    if now - record.heard_at < duration(recovery.policy.silence_clear_after_s):
        return ""
    if instance_id in beats:
        return "its agent reports again"
    return "" if instance_id not in records else "it has not reported for a day: it is used without an agent"


def _save_alerted(recovery: Recovery, due: Mapping[str, str], back: set[str]) -> None:
    """Save the instances that operators know of.

    Operators are notified before the save. If the function is killed in between, they receive a message twice rather
    than never.
    """

    def with_alerts(fleet: Fleet) -> Fleet:
        left = {name: known for name, known in fleet.unheard.items() if name not in back}
        return replace(fleet, unheard=left | dict(due))

    change_fleet(recovery, with_alerts)
