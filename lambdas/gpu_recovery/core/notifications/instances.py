"""Notifications about instances: quarantine, held repairs, interruptions, impairments, returns and check results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpu_recovery.core.health_check import DRAINED_BY_OTHERS
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.core.identifiers import attempt_id, listed
from gpu_recovery.core.notifications.template import (
    Part,
    Phase,
    Severity,
    clock,
    message,
    next_of,
    runbook,
    story,
    typed,
)

if TYPE_CHECKING:
    from gpu_recovery.core import events
    from gpu_recovery.core.commands import NotifyOperator
    from gpu_recovery.core.instance.record import Instance, Interruption, RankOnInstance


_REPLACE = (
    "Replace the instance: stop and start it for another host, or terminate it in its Auto Scaling group. Or repair it."
)
_REBOOT = "The health check asks for a reboot: reboot the instance. If a reboot has not helped before, replace it."


def quarantined(
    instance: Instance,
    incident_id: str,
    reason: str,
    reminder_at: datetime | None,
    *,
    asks_reboot: bool = False,
    ranks: Sequence[RankOnInstance] = (),
) -> NotifyOperator:
    """Return the message that an instance is quarantined and needs an operator.

    Args:
        instance: the record before.
        incident_id: the incident of the message.
        reason: the reason of the decision.
        reminder_at: time of the next reminder.
        asks_reboot: whether the check asks for a reboot, and no repair was begun before.
        ranks: the ranks on it that no stop has ended.
    """
    left = listed(attempt_id(rank.job_id, rank.attempt) for rank in ranks)
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id} is quarantined: {reason}."],
        Part.EVIDENCE: [reason, *_record_evidence(instance)],
        Part.DONE: [
            "ECS (DRAINING) and gpu-recovery place no new work on it. Jobs on it continue.",
            f"{left} may still run on it, because the end is not confirmed. The GPUs stay claimed until a reboot of "
            "the instance is proved, or EC2 shows the instance as stopped or terminated."
            if ranks
            else "",
        ],
        Part.NEXT: [f"It stays quarantined until an operator acts. A reminder follows at {clock(reminder_at)}."],
        Part.YOU: [
            _check_remedy(instance) or (_REBOOT if asks_reboot else _REPLACE),
            runbook("replacing-an-instance"),
            "Then release the instance. It is used again when it passes a health check:",
            typed(f"instances {instance.instance_id}", "its history"),
            typed(f"release {instance.instance_id}"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV2, "quarantined, needs an operator", parts)


def withdrawn(instance: Instance, incident_id: str, reason: str, reminder_at: datetime | None) -> NotifyOperator:
    """Return the message that an operator took an instance out of use."""
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id} was taken out of use: {reason}."],
        Part.EVIDENCE: ["the request of an operator", *_record_evidence(instance)],
        Part.DONE: ["ECS (DRAINING) and gpu-recovery place no new work on it. Jobs on it continue."],
        Part.NEXT: [f"It stays out of use until an operator releases it. A reminder follows at {clock(reminder_at)}."],
        Part.YOU: [
            "When the work on it is done:",
            typed(f"release {instance.instance_id}"),
            typed(f"instances {instance.instance_id}", "its history"),
            runbook("quarantining"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, "taken out of use by an operator", parts)


def repair_begun(
    instance: Instance, incident_id: str, reason: str, given_up_at: datetime | None, repair: str
) -> NotifyOperator:
    """Return the message that the repair of an instance begins for which no job waits.

    Args:
        instance: the record before.
        incident_id: the incident of the message.
        reason: the reason of the decision.
        given_up_at: time at which the repair counts as failed.
        repair: name of the repair, such as "its reboot".
    """
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id}: {reason}."],
        Part.EVIDENCE: [reason, *_record_evidence(instance)],
        Part.DONE: [
            f"gpu-recovery ordered {repair}. ECS (DRAINING) and gpu-recovery place no work on it. No job waits for it."
        ],
        Part.NEXT: [
            "It is used again when its repair is proved and its check passes. A message follows then.",
            f"If it is not back by {clock(given_up_at)}, the next repair level follows, or it needs an operator.",
        ],
        Part.YOU: [
            "No action is needed. To follow the repair:",
            typed(f"instances {instance.instance_id}"),
            typed("fleet", "the repairs under way"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, "its repair has begun, no job waits", parts)


def repair_held(instance: Instance, incident_id: str, reason: str, given_up_at: datetime | None) -> NotifyOperator:
    """Return the message that an instance needs a repair that may not begin yet, for a reason of the instance."""
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id} needs a repair: {reason}."],
        Part.EVIDENCE: [reason, *_record_evidence(instance)],
        Part.DONE: ["ECS (DRAINING) and gpu-recovery place no new work on it. Its jobs were asked to leave."],
        Part.NEXT: [
            "The repair begins as soon as the reason above no longer holds. gpu-recovery checks that again and again.",
            f"If it has not begun by {clock(given_up_at)}, an operator must decide.",
        ],
        Part.YOU: [
            "No action is needed, unless it takes too long:",
            typed("fleet", "the fleet limits"),
            typed(f"instances {instance.instance_id}", "its history"),
            typed(f"release {instance.instance_id}", "returns it to use after a passed check"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, "its repair is blocked", parts)


def deregistered(
    instance: Instance, incident_id: str, reason: str, held: bool, recovers: bool, *, needs_operator: bool = False
) -> NotifyOperator:
    """Return the message that ECS ended the registration of an instance under running ranks. EC2 shows it running.

    Args:
        instance: the record before the decision.
        incident_id: the incident of the message.
        reason: the reason of the decision.
        held: whether the reboot must wait.
        recovers: whether the jobs go on elsewhere. Under the preset `classic` they fail.
        needs_operator: whether the instance is quarantined for an operator, so that it is not rebooted.
    """
    ranks = listed(attempt_id(rank.job_id, rank.attempt) for rank in instance.orphaned_ranks)
    then = "and continues elsewhere from its last checkpoint; the attempt is not counted" if recovers else "and fails"
    reboot = "The instance is rebooted as soon as the limits of the fleet allow it." if held else "It is rebooted now."
    act = (
        "No action is needed if the instance registers with ECS again after its reboot. If it does not, terminate it: "
        "that also proves that the ranks have ended."
    )
    if needs_operator:
        reboot = (
            "The instance is quarantined and needs an operator, so it is not rebooted. The jobs wait for about an hour."
        )
        act = "Reboot the instance, and release it when it has registered with ECS again. Or terminate it."
    parts = {
        Part.WHAT: [
            f"Instance {instance.instance_id} was deregistered from ECS while {ranks} ran on it, and EC2 shows it "
            "running. The most frequent cause is a forced deregistration by a user."
        ],
        Part.EVIDENCE: [reason, *_record_evidence(instance)],
        Part.DONE: [
            "ECS shows these tasks as STOPPED, but a forced deregistration does not end processes. Their GPUs stay "
            "claimed, and no other attempt of these jobs starts.",
            f"Each of these jobs is stopped {then}.",
        ],
        Part.NEXT: [
            reboot,
            "When the reboot is proved, the ranks have certainly ended, and the jobs continue.",
        ],
        Part.YOU: [
            act,
            typed(f"release {instance.instance_id}") if needs_operator else "",
            typed(f"instances {instance.instance_id}", "its history"),
            *(typed(f"explain {rank.job_id}") for rank in instance.orphaned_ranks[:3]),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, "deregistered under running ranks", parts)


def suspected(instance: Instance, incident_id: str, evidence: str) -> NotifyOperator:
    """Return the message that a health source reports a working instance as impaired."""
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id}: {evidence}."],
        Part.EVIDENCE: [evidence, *_record_evidence(instance)],
        Part.DONE: ["No new work is placed on it. Jobs on it continue."],
        Part.NEXT: ["When the same health source reports it as healthy, it is used again, and a message follows."],
        Part.YOU: [
            "Check whether the instance responds. To take it out of use until it is repaired:",
            typed(f"quarantine {instance.instance_id}"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, "impaired, gets no new work", parts)


def mps_daemon_down(instance: Instance, incident_id: str, reason: str) -> NotifyOperator:
    """Return the message that the MPS daemon of a working instance does not answer. No GPU is suspected.

    The service `nvidia-mps` is that of the ECS AMI for Amazon Linux 2023.
    """
    parts = {
        Part.WHAT: [f"The NVIDIA MPS daemon of instance {instance.instance_id} does not answer."],
        Part.EVIDENCE: [f"ECS reports ACCELERATED_COMPUTE as IMPAIRED: {reason}", *_record_evidence(instance)],
        Part.DONE: ["The instance stays in use, because ranks with whole GPUs need no MPS daemon. No GPU is checked."],
        Part.NEXT: ["When ECS reports ACCELERATED_COMPUTE as OK, a message follows."],
        Part.YOU: [
            "If tasks share GPUs on it, restart the daemon there with: sudo systemctl restart nvidia-mps",
            typed(f"instances {instance.instance_id}", "its history"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, "its MPS daemon does not answer", parts)


def mps_daemon_back(instance: Instance, reason: str) -> NotifyOperator:
    """Return the message that ECS no longer reports the MPS daemon as impaired. `reason` is that of the status."""
    parts = {
        Part.WHAT: [f"The NVIDIA MPS daemon of instance {instance.instance_id} answers again."],
        Part.EVIDENCE: ["ECS no longer reports ACCELERATED_COMPUTE as IMPAIRED.", *_record_evidence(instance)],
        Part.DONE: [f"Nothing. The status of the instance did not change: {reason}."],
        Part.NEXT: ["The incident is closed."],
        Part.YOU: ["No action is needed.", typed(f"instances {instance.instance_id}", "its history")],
        Part.IDS: _ids(instance, instance.incident_id),
    }
    return _resolved_message(instance, "its MPS daemon answers again", parts)


def reservation_ending(
    reservation: str, instance_ids: Sequence[str], failed: Sequence[str], announced: events.DepartureAnnounced
) -> NotifyOperator:
    """Return the one message about the end of a Capacity Block, for all instances of the cluster in it.

    Args:
        reservation: the reservation of the block.
        instance_ids: the instances of the cluster in the block.
        failed: those of them to which the announcement could not be delivered.
        announced: the announcement.
    """
    count = len(instance_ids)
    incident_id = f"reservation/{reservation}"
    parts = {
        Part.WHAT: [f"{announced.sentence}. The block contains {count} instance(s): {listed(instance_ids)}."],
        Part.EVIDENCE: [f"EC2's warning about {reservation}"],
        Part.DONE: [
            "No new work is placed on them.",
            "Their jobs leave now, and continue elsewhere if there are free GPUs.",
            f"The warning could not be processed for {listed(failed)}. It is tried again." if failed else "",
        ],
        Part.NEXT: [
            f"EC2 terminates them from {clock(announced.leaves_at)} on. Jobs without other GPUs wait in the queue.",
            "An instance that is still there an hour later is used again.",
        ],
        Part.YOU: [
            "It is too late to extend the block: EC2 accepts an extension only long before this warning.",
            "If its jobs must not wait, add other GPU instances to the cluster:",
            typed("queue", "the waiting jobs"),
        ],
        Part.IDS: [f"reservation {reservation}", f"correlation id {incident_id}"],
    }
    subject = f"{reservation}: Capacity Block ends, {count} instance(s) leave it"
    return message(incident_id, Severity.SEV3, Phase.NOTED, subject, parts)


def interruption_announced(
    instance: Instance, incident_id: str, announced: Interruption, moves_at: datetime, replaces: bool
) -> NotifyOperator:
    """Return the message about an announced retirement or maintenance.

    Args:
        instance: the record before the announcement.
        incident_id: the incident of the message.
        announced: the announcement of EC2.
        moves_at: time at which the jobs of the instance are moved.
        replaces: whether a retiring instance is then replaced automatically.
    """
    retired = announced.kind is DepartureKind.RETIREMENT
    cure = "A reboot does not prevent a retirement: stop and start the instance, or replace it, before that time."
    parts = {
        Part.WHAT: [
            f"Instance {instance.instance_id}: {announced.sentence} ({announced.kind}, {clock(announced.leaves_at)})."
        ],
        Part.EVIDENCE: [f"announcement {announced.source}"],
        Part.DONE: ["No new work is placed on it."],
        Part.NEXT: [
            f"At {clock(moves_at)} its jobs are stopped and continue elsewhere. The attempt is not counted.",
            "Then the instance is replaced." if retired and replaces else "",
        ],
        Part.YOU: [
            cure if retired and not replaces else "No action is needed.",
            typed(f"instances {instance.instance_id}", "the jobs on it"),
        ],
        Part.IDS: _ids(instance, incident_id),
    }
    return _incident_message(instance, incident_id, Severity.SEV3, f"{announced.kind} announced", parts)


def back_in_service(instance: Instance, reason: str) -> NotifyOperator:
    """Return the message that the incident of an instance is over and that the instance is in use again."""
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id} is in use again: {reason}."],
        Part.EVIDENCE: [reason, *_record_evidence(instance)],
        Part.DONE: ["ECS and gpu-recovery place work on it again."],
        Part.NEXT: ["The incident is closed."],
        Part.YOU: ["No action is needed. Its history:", typed(f"instances {instance.instance_id}")],
        Part.IDS: _ids(instance, instance.incident_id),
    }
    return _resolved_message(instance, "in use again", parts)


def gone(instance: Instance, reason: str, quarantined: bool = False) -> NotifyOperator:
    """Return the message that an instance with an open incident left the cluster. `quarantined`: it is not released."""
    returning = (
        "If it registers again, it is quarantined again, until an operator releases it."
        if quarantined
        else "If it registers again, it is checked before it is used."
    )
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id} has left the cluster: {reason}."],
        Part.EVIDENCE: [reason, *_record_evidence(instance)],
        Part.DONE: ["Its ranks count as ended. Jobs that waited for the instance were told."],
        Part.NEXT: [f"The incident is closed. {returning}"],
        Part.YOU: ["No action is needed. Its history:", typed(f"instances {instance.instance_id}")],
        Part.IDS: _ids(instance, instance.incident_id),
    }
    return _resolved_message(instance, "has left the cluster", parts)


# -- notes -------------------------------------------------------------------------------------------------------------


def would_have_repaired(instance: Instance, would: str) -> NotifyOperator:
    """Return the observe-only message: the repair that would have been done."""
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id}: {would}."],
        Part.EVIDENCE: [would],
        Part.DONE: ["No action: gpu-recovery is in observe-only mode."],
        Part.NEXT: ["The instance stays in use."],
        Part.YOU: [
            "Check the instance yourself. To permit repairs, deploy with gpu-recovery:observe_only=false. "
            "The decisions so far, and the command that takes the instance out of use:",
            typed(f"explain {instance.instance_id}"),
            typed(f"quarantine {instance.instance_id}"),
        ],
        Part.IDS: _ids(instance, _note_id(instance)),
    }
    return _noted_message(instance, "would be repaired (observed only)", parts)


def never_checked(instance: Instance, reason: str) -> NotifyOperator:
    """Return the message that ECS never started a health check, because other tasks hold the GPUs or AWS denied it."""
    parts = {
        Part.WHAT: [f"Instance {instance.instance_id} could not be checked: {reason}."],
        Part.EVIDENCE: [f"health check {instance.check.check_id}" if instance.check else reason],
        Part.DONE: ["The result of its check is inconclusive.", _use_sentence(instance)],
        Part.NEXT: ["It is checked again when a job fails on it."],
        Part.YOU: [
            _drain_remedy(instance)
            or _check_remedy(instance)
            or "Find the tasks that hold its GPUs: other tasks on this cluster, or ranks that ECS still shows running:",
            typed(f"instances {instance.instance_id}"),
        ],
        Part.IDS: _ids(instance, _note_id(instance)),
    }
    return _noted_message(instance, "its health check never started", parts)


def misconfigured(instance: Instance, reason: str) -> NotifyOperator:
    """Return the message that a health check found a wrong host configuration, which no reboot cures."""
    parts = {
        Part.WHAT: [f"The health check of {instance.instance_id} found a wrong host configuration: {reason}."],
        Part.EVIDENCE: [reason, f"health check {instance.check.check_id}" if instance.check else ""],
        Part.DONE: ["No repair: a reboot does not change the configuration, and the check found no fault of the GPUs."],
        Part.NEXT: [_use_sentence(instance)],
        Part.YOU: [
            "Fix the host image or the settings of the check. Other instances with the same image have the same fault.",
            typed(f"explain {instance.instance_id}"),
        ],
        Part.IDS: _ids(instance, _note_id(instance)),
    }
    return _noted_message(instance, "host configuration is wrong", parts)


# -- pieces ------------------------------------------------------------------------------------------------------------


def _incident_message(
    instance: Instance, incident_id: str, severity: Severity, subject: str, parts: dict[Part, list[str]]
) -> NotifyOperator:
    phase = next_of(bool(instance.incident_id))
    name = instance.instance_id
    return message(
        incident_id, severity, phase, f"{name}: {subject}", parts, job_id=_waiting_job(instance), instance_id=name
    )


def _resolved_message(instance: Instance, subject: str, parts: dict[Part, list[str]]) -> NotifyOperator:
    name = instance.instance_id
    return message(
        instance.incident_id,
        Severity.SEV4,
        Phase.RESOLVED,
        f"{name}: {subject}",
        parts,
        job_id=_waiting_job(instance),
        instance_id=name,
    )


def _noted_message(instance: Instance, subject: str, parts: dict[Part, list[str]]) -> NotifyOperator:
    name = instance.instance_id
    return message(
        _note_id(instance),
        Severity.SEV3,
        Phase.NOTED,
        f"{name}: {subject}",
        parts,
        job_id=_waiting_job(instance),
        instance_id=name,
    )


def _drain_remedy(instance: Instance) -> str:
    """Return what an operator does about an instance that others have drained; "" if none have."""
    if not instance.drained_by_others:
        return ""
    name = instance.container_instance_id
    return (
        "A user has set it to DRAINING, or ECS itself before a scale-in. It gets no job until it is ACTIVE again. "
        "When the maintenance is over: aws ecs update-container-instances-state --cluster CLUSTER "
        f"--container-instances {name} --status ACTIVE"
    )


def _check_remedy(instance: Instance) -> str:
    """Return what an operator does about the permission that the health check lacks; "" if none is missing."""
    refusal = instance.check.why_not_started if instance.check is not None else None
    return refusal.lacks.remedy_for_checks if refusal is not None and refusal.lacks is not None else ""


def _note_id(instance: Instance) -> str:
    return f"{instance.instance_id}/{instance.version + 1}"


def _waiting_job(instance: Instance) -> str:
    """Return the job that waits for the check or repair of this instance, "" for none."""
    for waiting in (instance.reboot, instance.need, instance.check):
        if waiting is not None and waiting.job_id:
            return waiting.job_id
    return ""


def _record_evidence(instance: Instance) -> list[str]:
    """Return what the record holds about the instance: health reports, the present boot and the last decisions."""
    reports = [
        f"{kind} is {health.status} since {clock(health.since)}" + (f": {health.sentence}" if health.sentence else "")
        for kind, health in sorted(instance.health.items())
    ]
    boot = [f"boot {instance.boot_id} since {clock(instance.booted_at)}"] if instance.boot_id else []
    return [*reports, *boot, *story(instance.history[-4:], None)]


def _use_sentence(instance: Instance) -> str:
    """Return a sentence that says whether an AVAILABLE instance gets new work."""
    if instance.drained_by_others:
        return f"Jobs on it continue. No new work is placed on it, because {DRAINED_BY_OTHERS}."
    if instance.avoid_reason:
        return f"Jobs on it continue. No new work is placed on it, for another reason: {instance.avoid_reason}."
    return "The instance stays in use."


def _ids(instance: Instance, correlation_id: str) -> list[str]:
    jobs = listed(attempt_id(job_id, claim.attempt) for job_id, claim in sorted(instance.claims.items()))
    return [
        f"instance {instance.instance_id}, container instance {instance.container_instance_id or 'unknown'}, "
        f"decision {instance.instance_id}/{instance.version + 1}",
        f"attempts on it {jobs}",
        f"correlation id {correlation_id}",
    ]
