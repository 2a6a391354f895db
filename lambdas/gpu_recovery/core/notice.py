"""The messages operators get: what happened, what was done, what comes next, and what they can do.

Subjects are ASCII, one line, under 100 characters (what SNS accepts for e-mail). One incident is one thread: every
message about it carries the same incident id.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from .commands import NotifyOperator
from .names import listed

if TYPE_CHECKING:
    from .fleet import Fleet
    from .instance.record import Departure, Instance
    from .job.record import Job

SUBJECT_CHARACTERS_MAX = 99


class Severity(StrEnum):
    """How much an operator must hurry: SEV2 needs a person, SEV3 is being dealt with, SEV4 is good news."""

    SEV2 = "SEV2"
    SEV3 = "SEV3"
    SEV4 = "SEV4"


def opened(job: Job, incident_id: str, reason: str) -> NotifyOperator:
    """A gang failed and the recovery begins."""
    body = _body(
        what=f"Job {job.job_id}, attempt {job.attempt} of {job.spec.nnodes} rank(s): {reason}.",
        done="The whole gang is being stopped, so that no rank waits for a dead one.",
        then=f"When every rank has ended, each of the {len(job.instances)} instance(s) gets a health check; what is "
        "faulty is repaired and the job goes on from its last checkpoint. You will hear how it ends.",
        you=f"Nothing is needed. To follow it: gpu-recovery explain {job.job_id}",
        ids=_job_ids(job, incident_id),
    )
    return _message(incident_id, Severity.SEV3, f"{job.job_id}: attempt {job.attempt} failed, recovering", body)


def recovered(job: Job) -> NotifyOperator:
    """The job runs again after an incident."""
    incident_id = job.incident_id or ""
    body = _body(
        what=f"Job {job.job_id} runs again: attempt {job.attempt} on {listed(job.instances)}.",
        done="Its ranks were started again, to go on from their last checkpoint.",
        then="The incident is closed. Instances under repair come back by themselves or are reported apart.",
        you=f"Nothing is needed. The whole story: gpu-recovery explain {job.job_id}",
        ids=_job_ids(job, incident_id),
    )
    return _message(incident_id, Severity.SEV4, f"{job.job_id}: recovered on attempt {job.attempt}", body)


def failed(job: Job, incident_id: str, reason: str) -> NotifyOperator:
    """The job ended as FAILED; nothing more is tried."""
    body = _body(
        what=f"Job {job.job_id} has FAILED on attempt {job.attempt}: {reason}.",
        done="Its ranks are stopped and its GPUs given back, except where a rank's end could not be confirmed.",
        then="Nothing more is tried for this job.",
        you=f"Read why: gpu-recovery explain {job.job_id} . Mend the cause and submit the job again; it will find "
        "its last checkpoint.",
        ids=_job_ids(job, incident_id),
    )
    return _message(incident_id, Severity.SEV2, f"{job.job_id}: FAILED on attempt {job.attempt}", body)


def would_have_acted(job: Job, would: str) -> NotifyOperator:
    """Observe-only: what would have been done to a job."""
    incident_id = f"{job.job_id}/observed/{job.attempt}"
    alone = "adoption is set to `observe`" if job.hands_off else "the system is observe-only"
    body = _body(
        what=f"Job {job.job_id}, attempt {job.attempt}: {would}.",
        done=f"Nothing: {alone}.",
        then="The other ranks go on, or hang.",
        you="Stop the other ranks if they hang. To have it done: deploy with gpu-recovery:adopt=recover, or "
        "gpu-recovery:observe_only=false.",
        ids=_job_ids(job, incident_id),
    )
    return _message(incident_id, Severity.SEV3, f"{job.job_id}: would be stopped (observed only)", body)


def adoption_refused(job_id: str, task_id: str, reason: str) -> NotifyOperator:
    """A person's task carries a JOB_ID that it may not have."""
    body = _body(
        what=f"Task {task_id} carries JOB_ID {job_id}, but {reason}.",
        done="The task was left alone and is not watched.",
        then="Nothing.",
        you="Start it under a JOB_ID of its own.",
        ids=f"job {job_id}, task {task_id}",
    )
    return _message(f"{job_id}/refused/{task_id}", Severity.SEV3, f"{job_id}: a task was not adopted", body)


def quarantined(instance: Instance, reason: str) -> NotifyOperator:
    """An instance that cannot be mended from here."""
    incident_id = f"{instance.instance_id}/{instance.epoch}"
    body = _body(
        what=f"Instance {instance.instance_id} is quarantined: {reason}.",
        done="ECS places nothing on it (DRAINING), and neither do we.",
        then="It stays so until a person acts; you will be reminded.",
        you="Replace the instance (stop and start it for another host, or terminate it in its Auto Scaling group), or "
        f"repair it and give it back: gpu-recovery release {instance.instance_id} (it must pass a check first). "
        f"Its history: gpu-recovery instances {instance.instance_id}",
        ids=f"instance {instance.instance_id}, container instance {instance.container_instance_id}, "
        f"incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV2, f"{instance.instance_id}: quarantined, needs a person", body)


def repair_held(instance: Instance, reason: str) -> NotifyOperator:
    """An instance that needs a repair which may not begin yet."""
    incident_id = f"{instance.instance_id}/{instance.epoch}"
    body = _body(
        what=f"Instance {instance.instance_id} needs a repair: {reason}.",
        done="ECS places nothing on it (DRAINING), and neither do we. Jobs on it were asked to leave.",
        then="The repair begins as soon as nothing stands in its way; until then it is asked for again and again.",
        you=f"Nothing is needed, unless it takes too long: gpu-recovery fleet shows the brakes, gpu-recovery instances "
        f"{instance.instance_id} its history, gpu-recovery release {instance.instance_id} gives it back.",
        ids=f"instance {instance.instance_id}, incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV3, f"{instance.instance_id}: its repair is held back", body)


def would_have_repaired(instance: Instance, would: str) -> NotifyOperator:
    """Observe-only: what would have been done to an instance."""
    incident_id = f"{instance.instance_id}/observed/{instance.version + 1}"
    body = _body(
        what=f"Instance {instance.instance_id}: {would}.",
        done="Nothing: the system is observe-only.",
        then="The instance stays in use.",
        you="Look at it yourself. To have it done: deploy with gpu-recovery:observe_only=false.",
        ids=f"instance {instance.instance_id}, incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV3, f"{instance.instance_id}: would be repaired (observed only)", body)


def suspected(instance: Instance, evidence: str) -> NotifyOperator:
    """A watcher finds an instance impaired in a way that no repair of ours is meant for."""
    incident_id = f"{instance.instance_id}/suspected"
    body = _body(
        what=f"Instance {instance.instance_id}: {evidence}.",
        done="Nothing new is placed on it; what runs on it goes on.",
        then="When the same watcher says that all is well, it is used again.",
        you=f"See whether the machine answers. To take it out of use: gpu-recovery quarantine {instance.instance_id}",
        ids=f"instance {instance.instance_id}, incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV3, f"{instance.instance_id}: impaired, nothing new placed on it", body)


def departure(instance: Instance, announced: Departure) -> NotifyOperator:
    """EC2 will take the instance away."""
    incident_id = f"{instance.instance_id}/{announced.kind}/{announced.leaves_at:%Y%m%d}"
    when = f"{announced.leaves_at:%Y-%m-%d %H:%M} UTC"
    body = _body(
        what=f"Instance {instance.instance_id}: {announced.sentence} ({announced.kind}, {when}).",
        done="Nothing new is placed on it.",
        then="Its jobs are stopped in time and go on elsewhere; such a stop does not count against their attempts.",
        you="A retirement is not cured by a reboot: stop and start the instance, or replace it, before that time.",
        ids=f"instance {instance.instance_id}, incident {incident_id}, announcement {announced.source}",
    )
    return _message(incident_id, Severity.SEV3, f"{instance.instance_id}: {announced.kind} announced", body)


def of_breaker(before: Fleet, after: Fleet) -> tuple[NotifyOperator, ...]:
    """The breaker has opened, or closed again."""
    if before.opened_at is None and after.opened_at is not None:
        return (_breaker_opened(after),)
    if before.opened_at is not None and after.opened_at is None:
        return (breaker_closed(before, "an instance was repaired and passed its check"),)
    return ()


def _breaker_opened(fleet: Fleet) -> NotifyOperator:
    incident_id = fleet.incident_id
    body = _body(
        what=f"The breaker has opened: {fleet.opened_because}. That many at once are seldom the machines themselves: "
        f"{listed(sorted(fleet.blamed))}.",
        done="No repair begins any more. Jobs, checks, releases and repairs that are under way go on.",
        then="After a while one instance may try; if it comes back healthy the breaker closes by itself.",
        you="Look for what they have in common: the check's image, a driver, a network, a rack. Then either "
        "gpu-recovery fleet reset-breaker (the held repairs go on, old evidence is checked afresh), or "
        "gpu-recovery fleet pause.",
        ids=f"incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV2, "the breaker is open: many instances look bad at once", body)


def breaker_closed(fleet: Fleet, reason: str) -> NotifyOperator:
    """The breaker that was open is closed."""
    incident_id = fleet.incident_id
    body = _body(
        what=f"The breaker is closed: {reason}.",
        done="Repairs may begin again, within the budget.",
        then="What was held back goes on; evidence that has grown old is looked at afresh first.",
        you="Nothing is needed.",
        ids=f"incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV4, "the breaker is closed again", body)


def never_checked(instance: Instance, reason: str) -> NotifyOperator:
    """A health check that ECS never started, most often because somebody else holds the GPUs."""
    incident_id = f"{instance.instance_id}/unchecked"
    body = _body(
        what=f"Instance {instance.instance_id} could not be checked: {reason}.",
        done="Its check counts as one that could not tell; the instance stays in use.",
        then="It is checked again when a job fails on it.",
        you="See who holds its GPUs: other tasks on this cluster, or ranks that ECS still counts as running.",
        ids=f"instance {instance.instance_id}, incident {incident_id}",
    )
    return _message(incident_id, Severity.SEV3, f"{instance.instance_id}: its health check never started", body)


def unwatched(job: Job, reason: str) -> NotifyOperator:
    """A person's job of which not every rank was ever seen."""
    incident_id = f"{job.job_id}/unwatched/{job.attempt}"
    body = _body(
        what=f"Job {job.job_id}, which a person started, is no longer watched: {reason}.",
        done="Its tasks were left alone.",
        then="Nothing.",
        you="WORLD_SIZE must be the number of tasks (instances), and RANK the task's number, from 0; torchrun's own "
        "WORLD_SIZE counts processes. Start it again so, to have it recovered.",
        ids=_job_ids(job, incident_id),
    )
    return _message(incident_id, Severity.SEV3, f"{job.job_id}: not every rank was seen, no longer watched", body)


def misconfigured(instance: Instance, reason: str) -> NotifyOperator:
    """A health check that found the host set up wrongly: no reboot cures that."""
    body = _body(
        what=f"The health check of {instance.instance_id} found the host configured wrongly: {reason}.",
        done="Nothing: a reboot would not change it, and the GPUs are not to blame.",
        then="The instance stays in use.",
        you="Mend the host image or the check's settings; other instances of the same image have it too.",
        ids=f"instance {instance.instance_id}",
    )
    incident_id = f"{instance.instance_id}/configuration"
    return _message(incident_id, Severity.SEV3, f"{instance.instance_id}: host configuration needs mending", body)


def _job_ids(job: Job, incident_id: str) -> str:
    where = listed(job.instances)
    return f"job {job.job_id}, attempt {job.attempt}, incident {incident_id}, instances {where}"


def _body(*, what: str, done: str, then: str, you: str, ids: str) -> str:
    return f"WHAT HAPPENED\n{what}\n\nDONE\n{done}\n\nNEXT\n{then}\n\nYOU\n{you}\n\nIDS\n{ids}\n"


def _message(incident_id: str, severity: Severity, subject: str, body: str) -> NotifyOperator:
    line = " ".join(f"[GPU-RECOVERY][{severity}] {subject}".split())
    printable = "".join(one if " " <= one <= "~" else "?" for one in line)
    return NotifyOperator(incident_id, severity, printable[:SUBJECT_CHARACTERS_MAX], body)
