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
        Part.EVIDENCE: [f"agent {run} reported after agent {known.run} had replaced it, in boot {known.boot_id}"],
        Part.DONE: [
            f"Reports of agent {run} are rejected, and it exits. Reports of agent {known.run} are accepted. "
            "The instance and its jobs are not affected."
        ],
        Part.NEXT: ["The next message about this follows in a day at the earliest."],
        Part.YOU: [
            "Find out why two agents run: a systemd unit and an ECS daemon, or the same token on two instances.",
            typed(f"instances {name}", "the reports of the instance"),
        ],
        Part.IDS: [f"instance {name}, last report at {clock(known.seen_at)}", f"correlation id {note_id}"],
    }
    subject = f"{name}: two agents report for it"
    return message(note_id, Severity.SEV3, Phase.NOTED, subject, parts, instance_id=name)


def agents_silent(incident_id: str, since: Mapping[str, datetime]) -> NotifyOperator:
    """Return the message about idle instances with a missing heartbeat. `since`: last seen time by instance id."""
    names = listed(list(since)[:NAMED_MAX]) + (f" and {len(since) - NAMED_MAX} more" if len(since) > NAMED_MAX else "")
    parts = {
        Part.WHAT: [f"The node agents of {len(since)} idle instance(s) do not report: {names}."],
        Part.EVIDENCE: [f"{name}: last report at {clock(at)}" for name, at in list(since.items())[:NAMED_MAX]],
        Part.DONE: ["No new work is placed on them. No job ran on them, so no job is affected."],
        Part.NEXT: [
            "An instance that reports again is used again at once. After a day without a report it is used without an "
            "agent.",
            "One more message follows, when all of them are in use again.",
        ],
        Part.YOU: [
            "Check on the instance whether the agent runs: systemctl status gpu-recovery-agent",
            *(typed(f"instances {name}") for name in list(since)[:1]),
            typed("fleet", "the instances that do not report"),
        ],
        Part.IDS: [f"correlation id {incident_id}"],
    }
    first, count = next(iter(since)), len(since)
    subject = (
        f"{first}: its agent does not report" if count == 1 else f"the agents of {count} idle instances do not report"
    )
    named = first if count == 1 else ""
    return message(incident_id, Severity.SEV3, Phase.OPENED, subject, parts, instance_id=named)


def agents_back(incident_id: str, why: Mapping[str, str]) -> NotifyOperator:
    """Return the message that every instance of the incident is back. `why`: reasons of the last instances by id."""
    parts = {
        Part.WHAT: ["All instances whose agents did not report are in use again."],
        Part.EVIDENCE: [f"{name}: {reason}" for name, reason in list(why.items())[:NAMED_MAX]],
        Part.DONE: ["New work is placed on them again."],
        Part.NEXT: ["The incident is closed."],
        Part.YOU: ["No action is needed. All instances:", typed("instances")],
        Part.IDS: [f"correlation id {incident_id}"],
    }
    return message(incident_id, Severity.SEV4, Phase.RESOLVED, "the agents report again", parts)
