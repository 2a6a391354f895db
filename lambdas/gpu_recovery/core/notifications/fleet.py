"""Notifications about the fleet: circuit breaker opened, still open or closed, and reporting outages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.notifications.template import Part, Phase, Severity, clock, message, runbook, typed
from gpu_recovery.core.policy import duration

if TYPE_CHECKING:
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.policy import RecoveryPolicy

SUBJECT_OPEN = "the circuit breaker is open: many instances are suspected at once"
"""Subject of the message that the circuit breaker opened."""


def of_breaker(before: Fleet, after: Fleet, policy: RecoveryPolicy) -> tuple[NotifyOperator, ...]:
    """Return the message about a change of the breaker: opened, still open after a probe, or closed. At most one."""
    if after.opened_at is None:
        if before.opened_at is None:
            return ()
        return (breaker_closed(before, "the probe instance was repaired and passed its check"),)
    if before.opened_at is None:
        return (_breaker_opened(after, policy),)
    if before.probe and not after.probe:
        return (_breaker_stays_open(before, after, policy),)
    return ()


def _breaker_opened(fleet: Fleet, policy: RecoveryPolicy) -> NotifyOperator:
    parts = {
        Part.WHAT: [
            f"The circuit breaker has opened: {fleet.opened_because}. "
            "If so many are suspected at once, the hardware is seldom the cause."
        ],
        Part.EVIDENCE: [
            f"suspected: {listed(sorted(fleet.blamed))}",
            f"under repair: {listed(sorted(fleet.repairing))}",
        ],
        Part.DONE: [
            "No new repair begins. Jobs, checks, releases and repairs under way continue.",
            "While the breaker is open, no message is sent about a single instance.",
        ],
        Part.NEXT: _next_try(fleet, policy),
        Part.YOU: [
            "Find what they have in common: the image of the check, a driver, a network, a rack. Then run one of:",
            typed("fleet", "the blocked repairs, with reasons"),
            typed("fleet reset-breaker", "blocked repairs continue; old evidence is checked again first"),
            typed("fleet pause --because TEXT", "no repair begins until fleet unpause"),
            runbook("breaker-open"),
        ],
        Part.IDS: [f"correlation id {fleet.incident_id}"],
    }
    return message(fleet.incident_id, Severity.SEV2, Phase.OPENED, SUBJECT_OPEN, parts)


def _breaker_stays_open(before: Fleet, fleet: Fleet, policy: RecoveryPolicy) -> NotifyOperator:
    parts = {
        Part.WHAT: [f"The circuit breaker stays open: {before.probe} was repaired as a probe, and is not healthy."],
        Part.EVIDENCE: [fleet.opened_because, f"suspected: {listed(sorted(fleet.blamed))}"],
        Part.DONE: ["No other repair begins."],
        Part.NEXT: _next_try(fleet, policy),
        Part.YOU: [
            "The repair did not help, so the hardware is probably not the cause:",
            typed(f"instances {before.probe}", "the history of the probe instance"),
            typed("fleet", "the blocked repairs, with reasons"),
            typed("fleet reset-breaker"),
            runbook("breaker-open"),
        ],
        Part.IDS: [f"correlation id {fleet.incident_id}"],
    }
    subject = "the circuit breaker stays open: the repair of the probe instance did not help"
    return message(fleet.incident_id, Severity.SEV2, Phase.ESCALATED, subject, parts, instance_id=before.probe)


def breaker_closed(fleet: Fleet, reason: str) -> NotifyOperator:
    """Return the message that the breaker is closed. `fleet` is the record while the breaker was open."""
    parts = {
        Part.WHAT: [f"The circuit breaker is closed: {reason}."],
        Part.EVIDENCE: [f"it had opened because {fleet.opened_because}"],
        Part.DONE: ["Repairs may begin again, within the repair budget."],
        Part.NEXT: ["Blocked repairs continue. Evidence that is too old is checked again first."],
        Part.YOU: ["No action is needed. The state of the fleet:", typed("fleet")],
        Part.IDS: [f"correlation id {fleet.incident_id}"],
    }
    return message(fleet.incident_id, Severity.SEV4, Phase.RESOLVED, "the circuit breaker is closed again", parts)


def idle_repairs(fleet: Fleet, evidence: str, policy: RecoveryPolicy) -> NotifyOperator:
    """Return the one message about the repairs of several instances for which no job waits.

    Args:
        fleet: the record with these repairs.
        evidence: reason of the repair that began last.
    """
    incident_id = f"repairs/{fleet.revision}"
    count = len(fleet.repairing)
    parts = {
        Part.WHAT: [f"{count} instances are under repair at once: {listed(sorted(fleet.repairing))}."],
        Part.EVIDENCE: [f"the last instance: {evidence}"],
        Part.DONE: ["Their repairs were ordered. No new work is placed on them. No job waits for the last of them."],
        Part.NEXT: [
            "Each is used again when its repair is proved and its check passes.",
            f"For {policy.fleet_window_s // 60} minutes, no message is sent about another repair of an idle instance. "
            "A message is still sent about an instance that cannot be repaired.",
        ],
        Part.YOU: [
            "Find what the instances have in common: a driver, a network, a rack.",
            typed("fleet", "the repairs under way"),
            typed("instances"),
        ],
        Part.IDS: [f"correlation id {incident_id}"],
    }
    return message(incident_id, Severity.SEV3, Phase.NOTED, f"{count} instances are under repair at once", parts)


def reporting_outage(fleet: Fleet) -> NotifyOperator:
    """Return the message that a reporting outage began. `fleet` is the record with the outage."""
    assert fleet.deaf is not None
    parts = {
        Part.WHAT: [f"{fleet.deaf.sentence}."],
        Part.EVIDENCE: [
            "their heartbeats stopped within minutes of each other, and they are more than the repair budget"
        ],
        Part.DONE: [
            "No repair begins. No job becomes LOST or fails because heartbeats are missing. Jobs continue to run, and "
            "events of ECS and EC2 are processed as usual."
        ],
        Part.NEXT: ["When enough instances report again, the outage ends by itself, and a message follows."],
        Part.YOU: [
            "Find what they have in common: the network to the node API, its function, their tokens, their agents.",
            typed("fleet", "the instances that do not report"),
            typed("instances"),
        ],
        Part.IDS: [f"correlation id {fleet.deaf.incident_id}"],
    }
    subject = f"{fleet.deaf.silent} of {fleet.deaf.reporting} instances do not report"
    return message(fleet.deaf.incident_id, Severity.SEV2, Phase.OPENED, subject, parts)


def reporting_restored(before: Fleet) -> NotifyOperator:
    """Return the message that the reporting outage ended. `before` is the record with the outage."""
    assert before.deaf is not None
    parts = {
        Part.WHAT: ["Most instances report again."],
        Part.EVIDENCE: [f"since {clock(before.deaf.since)}: {before.deaf.sentence}"],
        Part.DONE: ["Repairs may begin again. An instance that still does not report counts as lost."],
        Part.NEXT: ["Blocked repairs continue."],
        Part.YOU: ["No action is needed. The state of the fleet:", typed("fleet")],
        Part.IDS: [f"correlation id {before.deaf.incident_id}"],
    }
    return message(before.deaf.incident_id, Severity.SEV4, Phase.RESOLVED, "the instances report again", parts)


def _next_try(fleet: Fleet, policy: RecoveryPolicy) -> list[str]:
    try_at = fleet.opened_at + duration(policy.breaker_probe_s) if fleet.opened_at is not None else None
    return [f"From {clock(try_at)} on, one instance is repaired as a probe. If it is healthy then, the breaker closes."]
