"""Result of a finished health check task: exit code and verdict document."""

from __future__ import annotations

from gpu_recovery.core import events, health_check
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import StopCode, TaskFact
from gpu_recovery.execution.context import FollowUp
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.errors import VerdictUnreadable

NEVER_RAN = ("CannotStartContainerError", "CannotCreateContainerError")
"""Prefixes of the reason that ECS gives for a container that did not start."""


def check_ended(actions: Actions, policy: RecoveryPolicy, fact: TaskFact) -> FollowUp | None:
    """Return the event for the instance of a check task that has stopped; None if its process may run on.

    The verdict follows from the exit code and the verdict document. An unreadable document makes it INCONCLUSIVE. A
    forced deregistration ends no process and gives no exit code: the check has ended when its document is there.

    Args:
        fact: the stopped task; its `startedBy` is the check id. The task must be known to be ours.
    """
    container = fact.container(fact.main_container)
    exit_code, reason = (container.exit_code, container.reason) if container else (None, "")
    instance_id = fact.started_by.split("/")[1]
    # ECS may report an end much later than it happened. A fast clock must not make it later still.
    at = min(fact.at, fact.ended_at or fact.at)
    never_ran = fact.stop_code == StopCode.TASK_FAILED_TO_START or reason.startswith(NEVER_RAN)
    if exit_code is None and never_ran:
        unstarted = health_check.verdict_of_unstarted(reason or fact.stopped_reason)
        return FollowUp(instance_id, events.CheckEnded(at=at, check_id=fact.started_by, verdict=unstarted))
    try:
        document = actions.load_verdict(fact.started_by, fact.verdict_key)
    except VerdictUnreadable as error:
        unreadable = health_check.Verdict(CheckOutcome.INCONCLUSIVE, str(error))
        return FollowUp(instance_id, events.CheckEnded(at=at, check_id=fact.started_by, verdict=unreadable))
    if fact.is_orphaned:
        if document is None:
            return None
        return FollowUp(instance_id, events.CheckEnded(at=at, check_id=fact.started_by, verdict=document))
    verdict = health_check.verdict_of(exit_code, document, document_required=policy.require_verdict_document)
    return FollowUp(instance_id, events.CheckEnded(at=at, check_id=fact.started_by, verdict=verdict))
