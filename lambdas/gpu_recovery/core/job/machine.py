"""The job machine: everything that moves a job from one status to another is in this file.

A job is launched in attempts. An attempt is a gang: one rank on each of its instances, all or nothing. When a rank
fails the whole gang is stopped, the end of every rank is confirmed, every instance is checked behind one barrier, and
only then is it decided whether the job goes on (RECOVERING, until the scheduler places the next attempt) or ends.

The attempt is the fence: an event about another attempt changes nothing, so what has moved a job never moves it
again. Each status waits for one thing, until a deadline, and is compared with ECS at every look in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from .. import commands, events, notice
from ..machine import Decision, Given, Ignore, Outcome, Row, Step, answer, applied, checked, ignored, unless_pending
from ..names import attempt_id, listed
from ..policy import RecoveryPolicy, within
from ..task import EndingKind, RankFailure
from .adoption import newer_task, rank_seen
from .assessment import assess, purpose_of
from .deadlines import deadlines
from .endings import failed, finished, poke
from .record import Cause, Job, JobStatus, Origin, StopPurpose
from .spec import JobSpec


def created(job_id: str, spec: JobSpec, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """The first record of a submitted job, with the order that makes the scheduler look at it."""
    job = Job(job_id=job_id, spec=spec, queued_at=now, status_at=now, version=0)
    step = Step(
        JobStatus.QUEUED, f"submitted by {spec.user or 'an unnamed user'}", {}, (commands.PokeScheduler(f"{job_id}/1"),)
    )
    return _applied(job, "JobSubmitted", step, policy, now)


def adopted(job_id: str, spec: JobSpec, hands_off: bool, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """The first record of a job whose tasks a person started; its ranks are counted as they show themselves."""
    job = Job(
        job_id=job_id, spec=spec, queued_at=now, status_at=now, version=0, attempt=1, origin=Origin.ADOPTED,
        hands_off=hands_off, started_by_person=True, instances=("",) * spec.nnodes,
    )  # fmt: skip
    reason = f"adopted {'to observe' if hands_off else 'to recover'}: its tasks were started by a person"
    return _applied(job, "JobAdopted", Step(JobStatus.SUBMITTED, reason), policy, now)


def decide(job: Job, event: events.JobEvent, policy: RecoveryPolicy, now: datetime) -> Decision[Job]:
    """What `event` makes of `job`. Pure: the same arguments give the same decision."""
    fenced_off = _fence(job, event)
    if fenced_off:
        return Decision(job, (), fenced_off, Outcome.OUTDATED)
    row = answer(TRANSITIONS, IGNORED, job.status, event)
    step = checked(row, job.status, event, row.decide(job, event, Given(policy, now))) if isinstance(row, Row) else row
    if isinstance(step, Ignore):
        return Decision(job, (), step.reason, Outcome.IGNORED)
    return _applied(job, event, step, policy, now)


def _fence(job: Job, event: events.JobEvent) -> str:
    """Why `event` is about something that is over; "" if it is about the job as it stands."""
    if event.attempt != job.attempt:
        return f"about attempt {event.attempt}, the job is at {job.attempt}"
    if isinstance(event, events.JobPlaced | events.ResourcesShort) and event.version != job.version:
        return f"decided from version {event.version}, the record is at {job.version}"
    if isinstance(event, events.JobDeadlineReached) and event.deadline_at != job.deadline_at:
        return "about a deadline that has moved"
    if isinstance(event, events.JobLookDue) and event.look_at != job.look_at:
        return "about a look that has been taken"
    return ""


def _applied(
    job: Job, event: events.JobEvent | str, step: Step, policy: RecoveryPolicy, now: datetime
) -> Decision[Job]:
    """The record after `step`; a job that changes its status says so on the bus."""
    if step.status != job.status or job.version == 0:
        data = {
            "job_id": job.job_id, "attempt": step.changes.get("attempt", job.attempt), "after": step.status,
            "before": job.status if job.version else None, "reason": step.reason, "version": job.version + 1,
        }  # fmt: skip
        step = replace(step, commands=(*step.commands, commands.PublishEvent("Job State Changed", data)))
    return applied(job, step, job.job_id, event, lambda after: deadlines(after, Given(policy, now)), policy, now)


# -- getting in line and being launched --------------------------------------------------------------------------------


def _placed(job: Job, event: events.JobPlaced, given: Given) -> Step | Ignore:
    attempt = job.attempt + 1
    launch = commands.LaunchAttempt(attempt, event.instances, event.epochs, event.port_offset)
    changes = {
        "attempt": attempt, "instances": event.instances, "stop_purpose": None, "stop_cause": None, "stop_tries": 0,
        "stop_reason": "", "failure": None, "repairing": (), "repaired": {}, "launched": False, "launch_ended": False,
        "started_by_person": False,
    }  # fmt: skip
    left = tuple(instance for instance in job.instances if instance not in event.instances)
    orders = (launch, commands.ReleaseInstances(left, attempt=job.attempt)) if any(left) else (launch,)
    return Step(JobStatus.SUBMITTING, f"attempt {attempt} placed on {listed(event.instances)}", changes, orders)


def _short(job: Job, event: events.ResourcesShort, given: Given) -> Step | Ignore:
    if job.status is JobStatus.PENDING_RESOURCES and event.sentence == job.reason:
        return Ignore("it is known to be short of that")
    return Step(JobStatus.PENDING_RESOURCES, event.sentence)


def _retry_due(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    """Look for resources again, without a word in the history: it would say the same each minute."""
    if given.now >= (job.in_line_at or job.queued_at) + within(given.policy.queue_timeout_s):
        return _queued_too_long(job, event, given)
    changes = {"stop_cause": None, "deadline_at": given.now + within(given.policy.pending_retry_s)}
    return Step(JobStatus.PENDING_RESOURCES, job.reason, changes, unless_pending(job, poke(job)))


def _poke_again(job: Job, event: events.JobLookDue, given: Given) -> Step | Ignore:
    return Step(job.status, job.reason, {}, unless_pending(job, poke(job)))


def _queued_too_long(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    return failed(job, f"found no place within {given.policy.queue_timeout_s} s", ())


def _launched(job: Job, event: events.AttemptLaunched, given: Given) -> Step:
    reason = f"all {job.spec.nnodes} ranks of attempt {job.attempt} have their task"
    return Step(JobStatus.SUBMITTED, reason, {"launched": True, "launch_ended": True})


def _launched_too_late(job: Job, event: events.AttemptLaunched | events.LaunchRefused, given: Given) -> Step | Ignore:
    if job.launch_ended:
        return Ignore("the launch of this attempt is over")
    reason = "the launch ended while the gang was being stopped: stopping what it started"
    return Step(JobStatus.STOPPING, reason, {"launch_ended": True}, (commands.StopAttempt(job.attempt),))


def _refused(job: Job, event: events.LaunchRefused, given: Given) -> Step:
    if event.lasting:
        step = _stop(job, StopPurpose.FAIL, event.sentence)
    else:
        step = _relaunch_or_fail(job, Cause.INSUFFICIENT_RESOURCES, event.sentence, given.policy)
    return replace(step, changes={**step.changes, "launch_ended": True})


def _launch_overdue(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    return _relaunch_or_fail(
        job,
        Cause.INSUFFICIENT_RESOURCES,
        f"not every rank was launched within {given.policy.launch_timeout_s} s",
        given.policy,
    )


def _start_overdue(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    """A gang of ours that does not start is broken; a person's of which ranks never showed is only misunderstood."""
    reason = f"not every rank was running within {given.policy.start_timeout_s} s"
    if not job.started_by_person:
        return _stop(job, StopPurpose.DIAGNOSE, reason)
    unseen = sum(not instance for instance in job.instances)
    if unseen:
        reason = f"{unseen} of its {job.spec.nnodes} ranks were never seen"
        step = finished(job, JobStatus.CANCELED, reason)
        return replace(step, commands=(*step.commands, notice.unwatched(job, reason)))
    if job.hands_off:
        return Step(job.status, reason, {"deadline_at": given.now + within(given.policy.start_timeout_s)})
    return _stop(job, StopPurpose.DIAGNOSE, reason)


def _running(job: Job, event: events.AllRanksRunning, given: Given) -> Step:
    reason = f"all {job.spec.nnodes} ranks of attempt {job.attempt} run"
    changes = {"launched": True, "launch_ended": True}
    if job.incident_id is None:
        return Step(JobStatus.RUNNING, reason, changes)
    data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": job.incident_id, "reason": reason}
    orders = (notice.recovered(job), commands.PublishEvent("Recovery Succeeded", data))
    return Step(JobStatus.RUNNING, f"recovered: {reason}", {**changes, "incident_id": None}, orders)


# -- failing, stopping, confirming -------------------------------------------------------------------------------------


def _rank_failed(job: Job, event: events.RankFailed, given: Given) -> Step | Ignore:
    failure = event.failure
    if job.hands_off:
        if job.failure is not None:
            return Ignore("the failure of this attempt is already recorded, and this job is only observed")
        reason = f"rank {failure.rank} {failure.ending.sentence}; this job is only observed, so nothing is done"
        return Step(job.status, reason, {"failure": failure}, (notice.would_have_acted(job, failure),))
    return _stop_for(job, failure, given.policy)


def _stop_for(job: Job, failure: RankFailure, policy: RecoveryPolicy) -> Step:
    """Stop the gang because of `failure`, for the purpose that its kind has under `policy`."""
    purpose, cause = purpose_of(failure, policy)
    reason = f"rank {failure.rank} on {failure.instance_id} {failure.ending.sentence}"
    if purpose is StopPurpose.RELAUNCH and cause is not None:
        return _relaunch_or_fail(job, cause, reason, policy, failure)
    return _stop(job, purpose, reason, failure=failure)


def _relaunch_or_fail(
    job: Job, cause: Cause, reason: str, policy: RecoveryPolicy, failure: RankFailure | None = None
) -> Step:
    """Stop for an uncounted cause, unless it has happened too often."""
    if job.attempts_uncounted.get(cause, 0) >= policy.uncounted_max:
        return _stop(
            job, StopPurpose.FAIL, f"{reason}; this was relaunch {policy.uncounted_max} for this cause", failure=failure
        )
    return _stop(job, StopPurpose.RELAUNCH, reason, cause, failure)


def _stop(
    job: Job, purpose: StopPurpose, reason: str, cause: Cause | None = None, failure: RankFailure | None = None
) -> Step:
    """Order the gang to stop; an attempt that will be diagnosed or relaunched opens an incident."""
    changes: dict[str, Any] = {"stop_purpose": purpose, "stop_cause": cause, "stop_tries": 0, "stop_reason": reason}
    orders: tuple[Any, ...] = (commands.StopAttempt(job.attempt),)
    if failure is not None:
        changes["failure"] = failure
    if purpose is StopPurpose.DIAGNOSE:
        incident = job.incident_id or attempt_id(job.job_id, job.attempt)
        changes["incident_id"] = incident
        data = {"job_id": job.job_id, "attempt": job.attempt, "incident_id": incident, "reason": reason}
        orders = (*orders, notice.opened(job, incident, reason), commands.PublishEvent("Recovery Started", data))
    return Step(JobStatus.STOPPING, f"stopping the gang: {reason}", changes, orders)


def _ended(job: Job, event: events.AllRanksStopped, given: Given) -> Step:
    """Every rank ended while none was being stopped: success, or a gang that died all at once."""
    if event.failure is None:
        return finished(job, JobStatus.SUCCEEDED, f"all {job.spec.nnodes} ranks exited with code 0")
    if job.hands_off:
        person = event.failure.ending.kind is EndingKind.STOPPED_BY_PERSON
        reason = f"rank {event.failure.rank} {event.failure.ending.sentence}; observed only"
        return finished(job, JobStatus.CANCELED, reason) if person else failed(job, reason, ())
    stop = _stop_for(job, event.failure, given.policy)
    stopped = replace(job, **stop.changes)
    after = _all_stopped(stopped, event, given)
    kept = tuple(order for order in stop.commands if not isinstance(order, commands.StopAttempt))
    return Step(
        after.status, f"rank {event.failure.rank} {event.failure.ending.sentence}; {after.reason}",
        {**stop.changes, **after.changes}, (*kept, *after.commands),
    )  # fmt: skip


def _all_stopped(job: Job, event: events.AllRanksStopped, given: Given) -> Step:
    """The end of every rank is confirmed: do what the gang was stopped for."""
    match job.stop_purpose:
        case StopPurpose.CANCEL:
            return finished(job, JobStatus.CANCELED, "every rank has ended; the job was stopped by a person")
        case StopPurpose.FAIL:
            return failed(job, job.stop_reason, ())
        case StopPurpose.RELAUNCH:
            return _relaunch(job, given.now)
        case _:
            may_reboot = not given.policy.only_exit_one_is_checked or job.attempts_left(given.policy)
            request = events.CheckRequested(at=given.now, job_id=job.job_id, attempt=job.attempt, may_reboot=may_reboot)
            reason = f"every rank has ended; checking {len(job.instances)} instance(s)"
            return Step(JobStatus.DIAGNOSING, reason, {}, (commands.CheckInstances(job.attempt, request),))


def _relaunch(job: Job, now: datetime) -> Step:
    cause = job.stop_cause or Cause.INTERRUPTED
    uncounted = {**job.attempts_uncounted, cause: job.attempts_uncounted.get(cause, 0) + 1}
    orders = (commands.ReleaseInstances(job.instances, attempt=job.attempt), poke(job))
    changes: dict[str, Any] = {"attempts_uncounted": uncounted}
    if cause is Cause.INSUFFICIENT_RESOURCES:
        changes["in_line_at"] = now
        return Step(JobStatus.PENDING_RESOURCES, "short of resources; looking again soon", changes, orders)
    return Step(
        JobStatus.RECOVERING, "capacity was taken away; waiting for another place (not counted)", changes, orders
    )


def _stop_overdue(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    """First ask and stop again, then reboot what does not answer, then give up: GPUs never come back on suspicion."""
    tries = job.stop_tries + 1
    silent = listed(event.unconfirmed)
    changes = {"stop_tries": tries, "deadline_at": given.now + within(given.policy.stop_timeout_s)}
    if tries == 1:
        reason = f"ranks on {silent} have not ended in time: asking ECS and stopping them again"
        return Step(
            JobStatus.STOPPING,
            reason,
            changes,
            (commands.StopAttempt(job.attempt), commands.ObserveAttempt(job.attempt)),
        )
    if tries == 2:
        changes["deadline_at"] = given.now + within(given.policy.reboot_timeout_s + given.policy.verify_timeout_s)
        sentence = f"a rank of {attempt_id(job.job_id, job.attempt)} cannot be stopped"
        repair = events.RepairRequested(at=given.now, job_id=job.job_id, attempt=job.attempt, sentence=sentence)
        orders = tuple(commands.TellInstance(instance, repair) for instance in event.unconfirmed)
        return Step(JobStatus.STOPPING, f"ranks on {silent} cannot be stopped: rebooting to end them", changes, orders)
    return failed(
        job, f"the ranks on {silent} were never confirmed to have ended; their GPUs stay claimed", event.unconfirmed
    )


def _rank_not_ended(job: Job, event: events.RepairEnded, given: Given) -> Step | Ignore:
    """The reboot that was to end a rank has failed: nobody will ever confirm that end."""
    if event.healed:
        return Ignore("the end of its rank is reported apart")
    reason = f"a rank was never confirmed to have ended ({event.sentence}); its GPUs stay claimed"
    return failed(job, reason, (event.instance_id,))


def _late_end(job: Job, event: events.AllRanksStopped, given: Given) -> Step | Ignore:
    """The last rank has ended after its job had: now its GPUs can be given back."""
    if not job.claims_kept:
        return Ignore("the end of every rank is known")
    release = commands.ReleaseInstances(job.instances, attempt=job.attempt)
    return Step(job.status, f"{job.reason}; every rank has ended since", {"claims_kept": False}, (release, poke(job)))


def _cancel_running(job: Job, event: events.CancelRequested, given: Given) -> Step:
    return _stop(job, StopPurpose.CANCEL, f"canceled by {event.by}")


def _cancel_stopping(job: Job, event: events.CancelRequested, given: Given) -> Step | Ignore:
    if job.stop_purpose is StopPurpose.CANCEL:
        return Ignore("it is being stopped for that already")
    return Step(JobStatus.STOPPING, f"canceled by {event.by} while stopping", {"stop_purpose": StopPurpose.CANCEL})


def _cancel_idle(job: Job, event: events.CancelRequested, given: Given) -> Step:
    return finished(job, JobStatus.CANCELED, f"canceled by {event.by}")


def _runtime_over(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    reason = f"ran longer than its limit of {job.spec.max_runtime_s} s"
    return _stop(job, StopPurpose.FAIL, reason)


def _observe(job: Job, event: events.JobLookDue, given: Given) -> Step | Ignore:
    return Step(job.status, job.reason, {}, unless_pending(job, commands.ObserveAttempt(job.attempt)))


# -- checking and recovering -------------------------------------------------------------------------------------------


def _barrier_down(job: Job, event: events.InstancesChecked, given: Given) -> Step:
    return _after_checks(job, event.results, given.policy)


def _checks_overdue(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    return _after_checks(job, event.results, given.policy)


def _after_checks(job: Job, results: Mapping[str, events.Checked], policy: RecoveryPolicy) -> Step:
    assessment = assess(job, results, policy)
    changes = {"attempts_counted": job.attempts_counted + 1}
    if not assessment.goes_on:
        return failed(job, assessment.reason, (), changes)
    recovering = {**changes, "repairing": assessment.repairing}
    return Step(JobStatus.RECOVERING, assessment.reason, recovering, (poke(job),))


def _repair_ended_early(job: Job, event: events.RepairEnded, given: Given) -> Step | Ignore:
    if event.instance_id in job.repaired:
        return Ignore("this repair is known to have ended")
    changes = {"repaired": {**job.repaired, event.instance_id: event.healed}}
    return Step(JobStatus.DIAGNOSING, f"{event.sentence}; other checks still run", changes)


def _repair_ended(job: Job, event: events.RepairEnded, given: Given) -> Step | Ignore:
    if event.instance_id not in job.repairing:
        return Ignore("the job does not wait for this instance")
    rest = tuple(i for i in job.repairing if i != event.instance_id)
    if not event.healed and given.policy.relaunch_on_same_instances:
        return failed(job, event.sentence, ())
    return Step(JobStatus.RECOVERING, event.sentence, {"repairing": rest}, (poke(job),))


def _recovery_overdue(job: Job, event: events.JobDeadlineReached, given: Given) -> Step | Ignore:
    return failed(job, f"no healthy instances were to be had within {given.policy.recover_timeout_s} s", ())


_S = JobStatus
TRANSITIONS: dict[tuple[JobStatus, type[events.JobEvent]], Row] = {
    (_S.QUEUED, events.JobPlaced): Row.to(_placed, _S.SUBMITTING),
    (_S.QUEUED, events.ResourcesShort): Row.to(_short, _S.PENDING_RESOURCES),
    (_S.QUEUED, events.CancelRequested): Row.to(_cancel_idle, _S.CANCELED),
    (_S.QUEUED, events.JobLookDue): Row.to(_poke_again, _S.QUEUED),
    (_S.QUEUED, events.JobDeadlineReached): Row.to(_queued_too_long, _S.FAILED),
    (_S.PENDING_RESOURCES, events.JobPlaced): Row.to(_placed, _S.SUBMITTING),
    (_S.PENDING_RESOURCES, events.CancelRequested): Row.to(_cancel_idle, _S.CANCELED),
    (_S.PENDING_RESOURCES, events.ResourcesShort): Row.to(_short, _S.PENDING_RESOURCES),
    (_S.PENDING_RESOURCES, events.JobDeadlineReached): Row.to(_retry_due, _S.PENDING_RESOURCES, _S.FAILED),
    (_S.SUBMITTING, events.AttemptLaunched): Row.to(_launched, _S.SUBMITTED),
    (_S.SUBMITTING, events.LaunchRefused): Row.to(_refused, _S.STOPPING),
    (_S.SUBMITTING, events.AllRanksRunning): Row.to(_running, _S.RUNNING),
    (_S.SUBMITTING, events.RankFailed): Row.to(_rank_failed, _S.STOPPING),
    (_S.SUBMITTING, events.AllRanksStopped): Row.to(
        _ended, _S.SUCCEEDED, _S.FAILED, _S.CANCELED, _S.DIAGNOSING, _S.RECOVERING, _S.PENDING_RESOURCES
    ),
    (_S.SUBMITTING, events.CancelRequested): Row.to(_cancel_running, _S.STOPPING),
    (_S.SUBMITTING, events.JobLookDue): Row.to(_observe, _S.SUBMITTING),
    (_S.SUBMITTING, events.JobDeadlineReached): Row.to(_launch_overdue, _S.STOPPING),
    (_S.SUBMITTED, events.RankSeen): Row.to(rank_seen, _S.SUBMITTED),
    (_S.SUBMITTED, events.AllRanksRunning): Row.to(_running, _S.RUNNING),
    (_S.SUBMITTED, events.RankFailed): Row.to(_rank_failed, _S.STOPPING, _S.SUBMITTED),
    (_S.SUBMITTED, events.AllRanksStopped): Row.to(
        _ended, _S.SUCCEEDED, _S.FAILED, _S.CANCELED, _S.DIAGNOSING, _S.RECOVERING, _S.PENDING_RESOURCES
    ),
    (_S.SUBMITTED, events.CancelRequested): Row.to(_cancel_running, _S.STOPPING),
    (_S.SUBMITTED, events.JobLookDue): Row.to(_observe, _S.SUBMITTED),
    (_S.SUBMITTED, events.JobDeadlineReached): Row.to(_start_overdue, _S.STOPPING, _S.SUBMITTED, _S.CANCELED),
    (_S.RUNNING, events.RankFailed): Row.to(_rank_failed, _S.STOPPING, _S.RUNNING),
    (_S.RUNNING, events.AllRanksStopped): Row.to(
        _ended, _S.SUCCEEDED, _S.FAILED, _S.CANCELED, _S.DIAGNOSING, _S.RECOVERING, _S.PENDING_RESOURCES
    ),
    (_S.RUNNING, events.CancelRequested): Row.to(_cancel_running, _S.STOPPING),
    (_S.RUNNING, events.JobLookDue): Row.to(_observe, _S.RUNNING),
    (_S.RUNNING, events.JobDeadlineReached): Row.to(_runtime_over, _S.STOPPING),
    (_S.STOPPING, events.AttemptLaunched): Row.to(_launched_too_late, _S.STOPPING),
    (_S.STOPPING, events.LaunchRefused): Row.to(_launched_too_late, _S.STOPPING),
    (_S.STOPPING, events.RankSeen): Row.to(rank_seen, _S.STOPPING),
    (_S.STOPPING, events.AllRanksStopped): Row.to(
        _all_stopped, _S.DIAGNOSING, _S.RECOVERING, _S.PENDING_RESOURCES, _S.FAILED, _S.CANCELED
    ),
    (_S.STOPPING, events.RepairEnded): Row.to(_rank_not_ended, _S.FAILED),
    (_S.STOPPING, events.CancelRequested): Row.to(_cancel_stopping, _S.STOPPING),
    (_S.STOPPING, events.JobLookDue): Row.to(_observe, _S.STOPPING),
    (_S.STOPPING, events.JobDeadlineReached): Row.to(_stop_overdue, _S.STOPPING, _S.FAILED),
    (_S.DIAGNOSING, events.InstancesChecked): Row.to(_barrier_down, _S.RECOVERING, _S.FAILED),
    (_S.DIAGNOSING, events.RepairEnded): Row.to(_repair_ended_early, _S.DIAGNOSING),
    (_S.DIAGNOSING, events.CancelRequested): Row.to(_cancel_idle, _S.CANCELED),
    (_S.DIAGNOSING, events.JobLookDue): Row.to(_observe, _S.DIAGNOSING),
    (_S.DIAGNOSING, events.JobDeadlineReached): Row.to(_checks_overdue, _S.RECOVERING, _S.FAILED),
    (_S.RECOVERING, events.JobPlaced): Row.to(_placed, _S.SUBMITTING),
    (_S.RECOVERING, events.RepairEnded): Row.to(_repair_ended, _S.RECOVERING, _S.FAILED),
    (_S.RECOVERING, events.CancelRequested): Row.to(_cancel_idle, _S.CANCELED),
    (_S.RECOVERING, events.JobLookDue): Row.to(_poke_again, _S.RECOVERING),
    (_S.RECOVERING, events.JobDeadlineReached): Row.to(_recovery_overdue, _S.FAILED),
    (_S.FAILED, events.AllRanksStopped): Row.to(_late_end, _S.FAILED),
    (_S.SUCCEEDED, events.NewerTaskSeen): Row.to(newer_task, _S.SUBMITTED),
    (_S.FAILED, events.NewerTaskSeen): Row.to(newer_task, _S.SUBMITTED),
    (_S.CANCELED, events.NewerTaskSeen): Row.to(newer_task, _S.SUBMITTED),
}


_ENDED = (_S.SUCCEEDED, _S.FAILED, _S.CANCELED)
_IN_LINE = (_S.QUEUED, _S.PENDING_RESOURCES)
_NOT_IN_LINE = (_S.SUBMITTING, _S.SUBMITTED, _S.RUNNING, _S.STOPPING, _S.DIAGNOSING, *_ENDED)
_AFTER_LAUNCH = (_S.SUBMITTED, _S.RUNNING)
_AFTER_STOP = (_S.DIAGNOSING, _S.RECOVERING)
IGNORED: dict[tuple[JobStatus, type[events.JobEvent]], str] = {
    **ignored("the job is not in line", events.JobPlaced, *_NOT_IN_LINE),
    **ignored("the job is not in line", events.ResourcesShort, *_NOT_IN_LINE),
    **ignored("it waits for healthy instances in any case", events.ResourcesShort, _S.RECOVERING),
    **ignored(
        "the launch of this attempt is over", events.AttemptLaunched, *_IN_LINE, *_AFTER_LAUNCH, *_AFTER_STOP, *_ENDED
    ),
    **ignored(
        "the launch of this attempt is over", events.LaunchRefused, *_IN_LINE, *_AFTER_LAUNCH, *_AFTER_STOP, *_ENDED
    ),
    **ignored("every rank is known", events.RankSeen, _S.RUNNING),
    **ignored(
        "its tasks are not started by people now", events.RankSeen, *_IN_LINE, _S.SUBMITTING, *_AFTER_STOP, *_ENDED
    ),
    **ignored("the job is under way", events.NewerTaskSeen, *_IN_LINE, _S.SUBMITTING, *_AFTER_LAUNCH, _S.STOPPING),
    **ignored("the job is under way", events.NewerTaskSeen, *_AFTER_STOP),
    **ignored("every rank is known to run", events.AllRanksRunning, _S.RUNNING),
    **ignored("the gang is being stopped", events.AllRanksRunning, _S.STOPPING),
    **ignored("the attempt has ended", events.AllRanksRunning, *_IN_LINE, *_AFTER_STOP, *_ENDED),
    **ignored("the gang is being stopped: ranks are expected to end", events.RankFailed, _S.STOPPING),
    **ignored("the attempt has ended", events.RankFailed, *_IN_LINE, *_AFTER_STOP, *_ENDED),
    **ignored(
        "the end of every rank is known", events.AllRanksStopped, *_IN_LINE, *_AFTER_STOP, _S.SUCCEEDED, _S.CANCELED
    ),
    **ignored(
        "the attempt is not being diagnosed",
        events.InstancesChecked,
        *_IN_LINE,
        _S.SUBMITTING,
        *_AFTER_LAUNCH,
        _S.STOPPING,
    ),
    **ignored("the diagnosis of this attempt is done", events.InstancesChecked, _S.RECOVERING, *_ENDED),
    **ignored(
        "the attempt waits for no repair",
        events.RepairEnded,
        *_IN_LINE,
        _S.SUBMITTING,
        *_AFTER_LAUNCH,
        *_ENDED,
    ),
    **ignored("the job has ended", events.CancelRequested, *_ENDED),
    **ignored("this status has a deadline instead", events.JobLookDue, _S.PENDING_RESOURCES),
    **ignored("the job has ended", events.JobLookDue, *_ENDED),
    **ignored("the job has ended", events.JobDeadlineReached, *_ENDED),
}
