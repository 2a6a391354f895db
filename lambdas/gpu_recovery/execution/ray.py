"""Execute the commands of a job on Ray, or hand them over to the function that reaches the Ray cluster.

Only one function is in the cluster's network. Every other function leaves the command in the record as due and wakes
that function. If the message is lost, the reconciler finds the command still due and sends another.

An attempt is stored like that of a gang. Its plan has one rank: the task id is the submission id, and the progress says
how the driver ended. So the record of an attempt stays when the next attempt begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.policy import duration
from gpu_recovery.core.queue.quota import parse_limits
from gpu_recovery.core.ray.driver import DriverState, DriverStatus, ending_of
from gpu_recovery.core.ray.submission import DriverSubmission, submission_of
from gpu_recovery.core.redaction import masked
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import EndingKind, RankFailure
from gpu_recovery.execution.context import DONE, HOPS_MAX, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.execution.diagnosis import diagnose_attempt
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.values import Refusal


class RayPool(Protocol):
    """A Ray cluster. Every call is safe to repeat.

    Every call raises TryAgainSoon if the cluster cannot be reached.
    """

    def submit(self, submission: DriverSubmission) -> Refusal | None:
        """Start a driver, unless its submission id is known. Return a Refusal if Ray rejects it permanently."""

    def status(self, submission_id: str) -> DriverStatus:
        """Return the status of a driver; its state is GONE if Ray does not know the id."""

    def logs(self, submission_id: str, tail: int) -> str:
        """Return the last `tail` lines of the driver's log; "" if there are none or Ray does not know the driver."""

    def stop(self, submission_id: str) -> None:
        """Stop a driver. A driver that has ended, or that Ray does not know, is ignored."""

    def free_gpus_per_node(self) -> Mapping[str, float]:
        """Return the free GPUs of each node that has any, counted as verl counts them."""

    def total_gpus(self) -> float:
        """Return the number of GPUs of the whole cluster, used or free."""


class RayWaker(Protocol):
    """Wakes the function that reaches the Ray cluster."""

    def wake(self, job_id: str, key: str, hops: int = 1) -> None:
        """Request the processing of a job.

        Args:
            job_id: the job; "" to start the next queued jobs.
            key: messages with the same key are sent once.
            hops: the number of messages in a row, this message included, of which the function sent each after the
                first.
        """


class QueuedRayCommands:
    """Hands commands over, in a function that cannot reach the cluster.

    The command stays in the record, due at once, for the function that can.
    """

    def __init__(self, waker: RayWaker) -> None:
        self.waker = waker

    def execute(self, context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        """Leave the command in the record and wake the function that reaches the cluster."""
        if isinstance(pending.command, commands.PokeScheduler):
            self.waker.wake("", pending.command.key)
            return DONE
        self.waker.wake(job.job_id, f"{pending.command_id}/{pending.tries}")
        return CommandResult(not_before=context.now)

    def wake_pool(self, context: ExecutionContext, key: str) -> None:
        """Wake the function that reaches the cluster, if the number of running jobs is limited."""
        _wake_pool(self.waker, context, key)

    def log_tail(self, submission_id: str, most: int) -> tuple[str, ...] | str:
        """Return that this function cannot read a log. Only a function that was cut off leaves it this task."""
        return "the function that wrote this record cannot reach the Ray cluster: read it with gpu-recovery logs"


class DirectRayCommands:
    """Executes commands, in the function that reaches the cluster."""

    def __init__(self, pool: RayPool, waker: RayWaker) -> None:
        self.pool, self.waker = pool, waker

    def execute(self, context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        """Execute the command. A command of an earlier attempt is void."""
        command = pending.command
        if isinstance(command, commands.PokeScheduler):
            if context.hops < HOPS_MAX:
                self.waker.wake("", command.key, context.hops + 1)
                if context.store.load_limits()[0]:  # jobs on ECS may wait for the place of this job
                    context.actions.poke_scheduler(command.key, context.hops + 1)
            return DONE
        if command.attempt != job.attempt:
            return DONE
        if isinstance(command, commands.LaunchAttempt):
            return self._launch(context, job)
        if not isinstance(command, commands.ObserveAttempt):
            self.pool.stop(attempt_id(job.job_id, job.attempt))
        return self._observe(context, job, pending)

    def wake_pool(self, context: ExecutionContext, key: str) -> None:
        """Wake this function again, if the number of running jobs is limited."""
        _wake_pool(self.waker, context, key)

    def log_tail(self, submission_id: str, most: int) -> tuple[str, ...] | str:
        """Return the last `most` lines of a driver's log, or why there are none."""
        try:
            text = self.pool.logs(submission_id, most)
        except TryAgainSoon as error:
            return str(error)
        return tuple(text.splitlines()) or f"the Ray cluster has no log of {submission_id}"

    def _launch(self, context: ExecutionContext, job: Job) -> CommandResult:
        if job.status is not JobStatus.SUBMITTING:
            return DONE
        submission = submission_of(job)
        context.store.begin_attempt(Plan(job.job_id, job.attempt, ("",), task_ids=(submission.submission_id,)))
        refusal = self.pool.submit(submission)
        if refusal is None:
            return CommandResult((FollowUp(job.job_id, events.AttemptLaunched(at=context.now, attempt=job.attempt)),))
        sentence = f"the Ray cluster refused attempt {job.attempt}: {masked(refusal.reason)}"
        event = events.LaunchRefused(at=context.now, attempt=job.attempt, sentence=sentence, lasting=refusal.lasting)
        return CommandResult((FollowUp(job.job_id, event),))

    def _observe(self, context: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        status = self.pool.status(attempt_id(job.job_id, job.attempt))
        if status.has_ended and _awaits_end(job, status):
            return CommandResult(
                tuple(FollowUp(job.job_id, event) for event in self._end(context, job, status, pending))
            )
        status_event = self._status_event(context, job, status)
        return CommandResult((FollowUp(job.job_id, status_event),)) if status_event is not None else DONE

    def _status_event(self, context: ExecutionContext, job: Job, status: DriverStatus) -> events.JobEvent | None:
        """Return the event of a live driver that the job did not receive; None if there is none."""
        if status.state is DriverState.RUNNING and job.status in (JobStatus.SUBMITTING, JobStatus.SUBMITTED):
            context.store.add_running(job.job_id, job.attempt, 0)
            return events.AllRanksRunning(at=status.started_at or context.now, attempt=job.attempt)
        if status.state is DriverState.PENDING and job.status is JobStatus.SUBMITTING:
            return events.AttemptLaunched(at=context.now, attempt=job.attempt)
        return None

    def _end(
        self, context: ExecutionContext, job: Job, status: DriverStatus, pending: PendingCommand
    ) -> tuple[events.JobEvent, ...]:
        """Return the events of the driver's end: a diagnosis of its log, if there is one, and the end.

        The diagnosis is left out if an earlier try was cut off, because the diagnosis may have been the cause.
        """
        at = status.ended_at or context.now
        began = status.started_at or job.running_at
        was_stable = began is not None and at - began >= duration(context.policy.stable_run_s)
        needs_log = status.needs_its_log or (was_stable and status.state is DriverState.FAILED)
        log = self.pool.logs(attempt_id(job.job_id, job.attempt), LOG_LINES_MAX) if needs_log else ""
        in_all = self.pool.total_gpus() if status.state is DriverState.FAILED else None
        ending = ending_of(status, log, in_all, job.spec.nnodes * job.spec.gpus_per_node, was_stable)
        failure = None if ending.kind is EndingKind.SUCCEEDED else RankFailure(0, "", at, ending)
        context.store.add_stopped(job.job_id, job.attempt, 0, failure)
        stopped = events.AllRanksStopped(at=at, attempt=job.attempt, failure=failure)
        own_failure = ending.kind in (EndingKind.FAILED, EndingKind.CRASHED) and job.status is not JobStatus.STOPPING
        if not (context.policy.diagnose and own_failure) or previous_try_died(pending):
            return (stopped,)
        diagnosis_result = diagnose_attempt(context, job, job.attempt, lambda _job, _id, most: log.splitlines()[-most:])
        return (
            (events.Diagnosed(at=context.now, attempt=job.attempt, conclusion=diagnosis_result), stopped)
            if diagnosis_result
            else (stopped,)
        )


def _wake_pool(waker: RayWaker, context: ExecutionContext, key: str) -> None:
    if parse_limits(context.store.load_limits()[0]).counts_jobs:
        waker.wake("", key, context.hops + 1)


def _awaits_end(job: Job, status: DriverStatus) -> bool:
    """Return whether the job did not receive the end of the driver.

    A driver that Ray does not know may not have been submitted yet.
    """
    return job.status in LIVE and (status.state is not DriverState.GONE or job.status is not JobStatus.SUBMITTING)


LOG_LINES_MAX = 100_000
"""Lines of a failed driver's log that are searched for the cause."""
