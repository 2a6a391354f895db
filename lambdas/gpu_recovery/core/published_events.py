"""Facts that every event on the bus carries besides its own: time, size and owner of the job, cause, message.

They are optional in the schemas of the events (`docs/events`). The event history is made from them alone, so it reads
no record, and an event that arrives late or twice says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpu_recovery.core.commands import Channel, NotifyOperator, PublishEvent
from gpu_recovery.core.instance.record import CheckRun, Instance, RepairNeed
from gpu_recovery.core.job.downtime import bill_facts
from gpu_recovery.core.job.record import Job

NAMED_MAX = 8
"""Instances and GPUs of a diagnosis result that an event names at most."""


def utc_text(at: datetime) -> str:
    """Return an ISO 8601 text in UTC with microseconds and a Z. Such texts sort in the order of their times."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def with_job_facts(orders: tuple[Any, ...], before: Job, changes: Mapping[str, Any], now: datetime) -> tuple[Any, ...]:
    """Return the commands of a decision about a job, with the facts added to the events among them.

    Args:
        orders: the commands.
        before: the record before the decision.
        changes: the fields that the decision changes.
        now: time of the decision.
    """
    if not _publishes(orders):
        return orders
    spec = before.spec
    is_placed = spec.nnodes_min is not None and "instances" in changes
    width = len(changes["instances"]) if is_placed else before.width
    facts: dict[str, object] = {
        "at": utc_text(now),
        "since": utc_text(before.status_at) if before.version else None,
        "user": spec.user,
        "priority": spec.priority.name,
        "instances": width,
        "gpus": width * spec.gpus_per_node,
        "opened_at": _opened_at(before, changes, now),
        "failure": None,
        "diagnosis": None,
        **bill_facts(changes.get("downtime"), spec),
    }
    attempt = changes.get("attempt", before.attempt)
    failure = changes.get("failure", before.failure)
    if failure is not None:
        facts["failure"] = {
            "rank": failure.rank,
            "instance_id": failure.instance_id,
            "exit_code": failure.ending.exit_code,
        }
    conclusion = changes.get("conclusion", before.conclusion)
    if conclusion is not None and conclusion.attempt == attempt:
        facts["diagnosis"] = {
            "cause": conclusion.cause.value,
            "confidence": conclusion.confidence,
            "decided": conclusion.decided,
            "remedy": conclusion.remedy.value,
            "instances": list(conclusion.instances[:NAMED_MAX]),
            "gpus": list(conclusion.gpus[:NAMED_MAX]),
            "sentence": conclusion.sentence,
        }
    return _with_facts(orders, facts)


def _opened_at(before: Job, changes: Mapping[str, Any], now: datetime) -> str | None:
    """Return the start of the incident that the decision belongs to. None if there is none, or it is not known."""
    if before.incident_id is None and changes.get("incident_id") is None:
        return None
    if before.incident_id is None:  # the decision opens the incident
        return utc_text(changes.get("recovery_since") or before.incident_at or now)
    since = before.recovery_since or before.incident_at
    return None if since is None else utc_text(since)


def with_instance_facts(
    orders: tuple[Any, ...], before: Instance, changes: Mapping[str, Any], now: datetime
) -> tuple[Any, ...]:
    """Return the commands of a decision about an instance, with the facts added to the events among them.

    Args:
        orders: the commands.
        before: the record before the decision.
        changes: the fields that the decision changes.
        now: time of the decision.
    """
    if not _publishes(orders):
        return orders
    check = changes.get("check", before.check) or before.check
    opened_at = changes.get("incident_since", before.incident_since) or before.incident_since
    job_id, attempt = _asker(check, changes.get("need", before.need) or before.need)
    facts: dict[str, object] = {
        "at": utc_text(now),
        "since": utc_text(before.status_at) if before.version else None,
        "gpus": changes.get("gpus", before.gpus),
        "job_id": job_id or None,
        "attempt": attempt if job_id else None,
        "check_id": None if check is None else check.check_id,
        "opened_at": None if opened_at is None else utc_text(opened_at),
    }
    return _with_facts(orders, facts)


def _asker(check: CheckRun | None, need: RepairNeed | None) -> tuple[str, int]:
    """Return the job, with its attempt, for which the instance is checked or repaired; "" and 0 for none."""
    for asked in (check, need):
        if asked is not None and asked.job_id:
            return asked.job_id, asked.attempt
    return "", 0


def _publishes(orders: tuple[Any, ...]) -> bool:
    return any(isinstance(order, PublishEvent) for order in orders)


def _with_facts(orders: tuple[Any, ...], facts: Mapping[str, object]) -> tuple[Any, ...]:
    told = (order for order in orders if isinstance(order, NotifyOperator) and order.channel is Channel.MAIL)
    message = next(told, None)
    said = None if message is None else {"severity": str(message.severity), "subject": message.subject}
    return tuple(
        replace(order, data={**order.data, **facts, "message": said}) if isinstance(order, PublishEvent) else order
        for order in orders
    )
