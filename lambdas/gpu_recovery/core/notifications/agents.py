"""Notifications about node agents: two agents on one instance, idle agents that are missing, and their return."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.notifications.template import Part, Phase, Severity, clock, message, typed

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.heartbeat import Heartbeat

NAMED_MAX = 8
"""Instances that one message names."""


def duplicate_agent(known: Heartbeat, run: str) -> NotifyOperator:
    """Return the message that two agents report for the instance of `known`. The older agent, `run`, was refused."""
    name = known.instance_id
    note_id = f"agents/{name}/{run}"
    parts = {
        Part.WHAT: [f"Two agents report for instance {name}."],
        Part.EVIDENCE: [
            f"a report of agent {run} came after agent {known.run} had taken its place, in boot {known.boot_id}"
        ],
        Part.DONE: [
            f"Agent {run} is refused and ends; agent {known.run} is heard. Nothing is done to the instance or its jobs."
        ],
        Part.NEXT: ["You hear of it again in a day at the soonest."],
        Part.YOU: [
            "See who runs the agent there twice: systemd's unit and a daemon of ECS, or one token on two machines.",
            typed(f"instances {name}", "what it reports"),
        ],
        Part.IDS: [f"instance {name}, last heard of at {clock(known.seen_at)}", f"correlation id {note_id}"],
    }
    subject = f"{name}: two agents report for it"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, instance_id=name)


def agents_silent(incident_id: str, since: Mapping[str, datetime]) -> NotifyOperator:
    """Return the message about idle instances with a missing heartbeat. `since`: last seen time by instance id."""
    names = listed(list(since)[:NAMED_MAX]) + (f" and {len(since) - NAMED_MAX} more" if len(since) > NAMED_MAX else "")
    parts = {
        Part.WHAT: [f"The agents of {len(since)} idle instance(s) are not heard of: {names}."],
        Part.EVIDENCE: [f"{name}: last heard of at {clock(at)}" for name, at in list(since.items())[:NAMED_MAX]],
        Part.DONE: ["Nothing new is placed on them. Nothing ran there, so no job is lost."],
        Part.NEXT: [
            "Heard of again, they are used again at once. After a day without a word they work without an agent.",
            "You hear of them once more, when all of them are back for good.",
        ],
        Part.YOU: [
            "See on the instance whether the agent runs, and what it says: systemctl status gpu-recovery-agent",
            *(typed(f"instances {name}") for name in list(since)[:1]),
            typed("fleet", "who is silent"),
        ],
        Part.IDS: [f"correlation id {incident_id}"],
    }
    first, count = next(iter(since)), len(since)
    subject = f"{first}: its agent is silent" if count == 1 else f"the agents of {count} idle instances are silent"
    named = first if count == 1 else ""
    return message(incident_id, Severity.SEV3, Phase.OPENED, subject, parts, instance_id=named)


def agents_back(incident_id: str, why: Mapping[str, str]) -> NotifyOperator:
    """Return the message that every instance of the incident is back. `why`: reasons of the last instances by id."""
    parts = {
        Part.WHAT: ["The instances whose agents were silent are in use again."],
        Part.EVIDENCE: [f"{name}: {reason}" for name, reason in list(why.items())[:NAMED_MAX]],
        Part.DONE: ["Work is placed on them again."],
        Part.NEXT: ["The incident is closed."],
        Part.YOU: ["Nothing is needed. All instances:", typed("instances")],
        Part.IDS: [f"correlation id {incident_id}"],
    }
    return message(incident_id, Severity.SEV4, Phase.RESOLVED, "silent agents are back", parts)
