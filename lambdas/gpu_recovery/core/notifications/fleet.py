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

SUBJECT_OPEN = "the breaker is open: many instances look bad at once"
"""Subject of the message that the circuit breaker opened."""


def of_breaker(before: Fleet, after: Fleet, policy: RecoveryPolicy) -> tuple[NotifyOperator, ...]:
    """Return the message about a change of the breaker: opened, still open after a probe, or closed. At most one."""
    if after.opened_at is None:
        if before.opened_at is None:
            return ()
        return (breaker_closed(before, "the instance that tried was repaired and passed its check"),)
    if before.opened_at is None:
        return (_breaker_opened(after, policy),)
    if before.probe and not after.probe:
        return (_breaker_stays_open(before, after, policy),)
    return ()


def _breaker_opened(fleet: Fleet, policy: RecoveryPolicy) -> NotifyOperator:
    parts = {
        Part.WHAT: [
            f"The breaker has opened: {fleet.opened_because}. That many at once are seldom the machines themselves."
        ],
        Part.EVIDENCE: [f"blamed: {listed(sorted(fleet.blamed))}", f"under repair: {listed(sorted(fleet.repairing))}"],
        Part.DONE: [
            "No repair begins any more. Jobs, checks, releases and repairs that are under way go on.",
            "While it is open, single instances send no message of their own.",
        ],
        Part.NEXT: _next_try(fleet, policy),
        Part.YOU: [
            "Look for what they have in common: the check's image, a driver, a network, a rack. Then one of:",
            typed("fleet", "what is held, and why"),
            typed("fleet reset-breaker", "the held repairs go on, old evidence is looked at afresh"),
            typed("fleet pause --because TEXT", "no repair begins until you say so"),
            runbook("breaker-open"),
        ],
        Part.IDS: [f"correlation id {fleet.incident_id}"],
    }
    return message(fleet.incident_id, Severity.SEV2, Phase.OPENED, SUBJECT_OPEN, parts)


def _breaker_stays_open(before: Fleet, fleet: Fleet, policy: RecoveryPolicy) -> NotifyOperator:
    parts = {
        Part.WHAT: [f"The breaker stays open: {before.probe} tried, and did not come back healthy."],
        Part.EVIDENCE: [fleet.opened_because, f"blamed: {listed(sorted(fleet.blamed))}"],
        Part.DONE: ["No other repair begins."],
        Part.NEXT: _next_try(fleet, policy),
        Part.YOU: [
            "A repair did not help, so the cause is probably not the machines:",
            typed(f"instances {before.probe}", "what became of the one that tried"),
            typed("fleet", "what is held, and why"),
            typed("fleet reset-breaker"),
            runbook("breaker-open"),
        ],
        Part.IDS: [f"correlation id {fleet.incident_id}"],
    }
    subject = "the breaker stays open: the repair that was tried did not help"
    return message(fleet.incident_id, Severity.SEV2, Phase.ESCALATED, subject, parts, instance_id=before.probe)


def breaker_closed(fleet: Fleet, reason: str) -> NotifyOperator:
    """Return the message that the breaker is closed. `fleet` is the record while the breaker was open."""
    parts = {
        Part.WHAT: [f"The breaker is closed: {reason}."],
        Part.EVIDENCE: [f"it had opened because {fleet.opened_because}"],
        Part.DONE: ["Repairs may begin again, within the budget."],
        Part.NEXT: ["What was held back goes on; evidence that has grown old is looked at afresh first."],
        Part.YOU: ["Nothing is needed. What goes on:", typed("fleet")],
        Part.IDS: [f"correlation id {fleet.incident_id}"],
    }
    return message(fleet.incident_id, Severity.SEV4, Phase.RESOLVED, "the breaker is closed again", parts)


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
        Part.EVIDENCE: [f"the last of them: {evidence}"],
        Part.DONE: ["Their repairs were ordered. Nothing is placed on them. No job waits for the last of them."],
        Part.NEXT: [
            "Each works again with the proof of its repair and a passed check.",
            f"For {policy.fleet_window_s // 60} minutes, a further repair of an idle instance sends no message of its "
            "own. An instance that is not repaired still sends one.",
        ],
        Part.YOU: [
            "Look for what they have in common: a driver, a network, a rack.",
            typed("fleet", "what is under repair"),
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
        Part.EVIDENCE: ["their heartbeats stopped within minutes of each other, beyond the repair budget"],
        Part.DONE: [
            "No repair begins, and no job is LOST or given up for a silence. Jobs run on, and what ECS and EC2 report "
            "is acted on as ever."
        ],
        Part.NEXT: ["When enough of them are heard of again this ends by itself, and you hear of it."],
        Part.YOU: [
            "Look for what they have in common: the network to the node API, its function, their tokens, their agents.",
            typed("fleet", "who is silent"),
            typed("instances"),
        ],
        Part.IDS: [f"correlation id {fleet.deaf.incident_id}"],
    }
    subject = f"{fleet.deaf.silent} of {fleet.deaf.reporting} instances are silent at once"
    return message(fleet.deaf.incident_id, Severity.SEV2, Phase.OPENED, subject, parts)


def reporting_restored(before: Fleet) -> NotifyOperator:
    """Return the message that the reporting outage ended. `before` is the record with the outage."""
    assert before.deaf is not None
    parts = {
        Part.WHAT: ["Most instances are heard of again."],
        Part.EVIDENCE: [f"since {clock(before.deaf.since)}: {before.deaf.sentence}"],
        Part.DONE: ["Repairs may begin again, and what is still silent counts as lost by itself."],
        Part.NEXT: ["What was held back goes on."],
        Part.YOU: ["Nothing is needed. What goes on:", typed("fleet")],
        Part.IDS: [f"correlation id {before.deaf.incident_id}"],
    }
    return message(before.deaf.incident_id, Severity.SEV4, Phase.RESOLVED, "instances are heard of again", parts)


def _next_try(fleet: Fleet, policy: RecoveryPolicy) -> list[str]:
    try_at = fleet.opened_at + duration(policy.breaker_probe_s) if fleet.opened_at is not None else None
    return [f"From {clock(try_at)} on one instance may try; if it comes back healthy the breaker closes by itself."]
