"""Carrying out the orders of a job on Ray, where the cluster can be reached; handing them over where it cannot.

Only one function is in the cluster's network. Every other saves its decision, leaves the order in the record as due,
and wakes that one; if the message is lost, the reconciler finds the order still due and wakes it again.

An attempt is kept as that of every gang: its plan has one rank, whose task is the submission, and its progress says how
the driver ended. So each attempt's record outlives the next one's beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.ray.driver import DriverState, DriverStatus, ending_of
from gpu_recovery.core.ray.submission import DriverSubmission, submission_of
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import EndingKind, RankFailure
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp, previous_try_died
from gpu_recovery.execution.diagnosis import diagnose_attempt
from gpu_recovery.ports.values import Refusal

RAY_COMMANDS = (
    commands.LaunchAttempt,
    commands.StopAttempt,
    commands.EndRanks,
    commands.ObserveAttempt,
    commands.PokeScheduler,
)
"""The orders of a job that concern what runs it; all others are the same for every job."""


class RayPool(Protocol):
    """A Ray cluster. Every question and order is safe to repeat; one that it cannot be asked raises TryAgainSoon."""

    def submit(self, order: DriverSubmission) -> Refusal | None:
        """Start a driver, unless one has this submission id already; why not, if it will never be taken."""

    def status(self, submission_id: str) -> DriverStatus:
        """What Ray says of a driver; GONE if it knows none by this id."""

    def logs(self, submission_id: str, tail: int) -> str:
        """The last `tail` lines that the driver wrote; "" if there are none, or Ray does not know it."""

    def stop(self, submission_id: str) -> None:
        """End a driver; one that has ended or is not known is no error."""

    def free_gpus_per_node(self) -> Mapping[str, float]:
        """The free GPUs of each node that has any, counted as verl counts them."""

    def total_gpus(self) -> float:
        """The GPUs of the whole cluster, used or free."""


class RayWaker(Protocol):
    """The way to the function that reaches the cluster."""

    def wake(self, job_id: str, key: str) -> None:
        """Have it open the job, "" for a look at who may go next; messages with the same `key` count once."""


class QueuedRayCommands:
    """Where the cluster cannot be reached: the order stays in the record, due at once, for whoever reaches it."""

    def __init__(self, waker: RayWaker) -> None:
        self.waker = waker

    def execute(self, kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        if isinstance(pending.command, commands.PokeScheduler):
            self.waker.wake("", pending.command.key)
            return DONE
        self.waker.wake(job.job_id, f"{pending.command_id}/{pending.tries}")
        return CommandResult(not_before=kit.now)


class DirectRayCommands:
    """Where the cluster can be reached: the orders are carried out."""

    def __init__(self, pool: RayPool, waker: RayWaker) -> None:
        self.pool, self.waker = pool, waker

    def execute(self, kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        command = pending.command
        if isinstance(command, commands.PokeScheduler):
            self.waker.wake("", command.key)
            return DONE
        if command.attempt != job.attempt:
            return DONE
        if isinstance(command, commands.LaunchAttempt):
            return self._launch(kit, job)
        if not isinstance(command, commands.ObserveAttempt):
            self.pool.stop(attempt_id(job.job_id, job.attempt))
        return self._observe(kit, job, pending)

    def _launch(self, kit: ExecutionContext, job: Job) -> CommandResult:
        if job.status is not JobStatus.SUBMITTING:
            return DONE
        order = submission_of(job)
        kit.store.begin_attempt(Plan(job.job_id, job.attempt, ("",), task_ids=(order.submission_id,)))
        refusal = self.pool.submit(order)
        if refusal is None:
            return CommandResult((FollowUp(job.job_id, events.AttemptLaunched(at=kit.now, attempt=job.attempt)),))
        sentence = f"the Ray cluster refused attempt {job.attempt}: {refusal.reason}"
        event = events.LaunchRefused(at=kit.now, attempt=job.attempt, sentence=sentence, lasting=refusal.lasting)
        return CommandResult((FollowUp(job.job_id, event),))

    def _observe(self, kit: ExecutionContext, job: Job, pending: PendingCommand) -> CommandResult:
        status = self.pool.status(attempt_id(job.job_id, job.attempt))
        if status.has_ended and _awaits_end(job, status):
            return CommandResult(tuple(FollowUp(job.job_id, one) for one in self._end(kit, job, status, pending)))
        news = self._status_events(kit, job, status)
        return CommandResult((FollowUp(job.job_id, news),)) if news is not None else DONE

    def _status_events(self, kit: ExecutionContext, job: Job, status: DriverStatus) -> events.JobEvent | None:
        """What Ray says of a driver that lives, and the job has not heard."""
        if status.state is DriverState.RUNNING and job.status in (JobStatus.SUBMITTING, JobStatus.SUBMITTED):
            kit.store.add_running(job.job_id, job.attempt, 0)
            return events.AllRanksRunning(at=status.started_at or kit.now, attempt=job.attempt)
        if status.state is DriverState.PENDING and job.status is JobStatus.SUBMITTING:
            return events.AttemptLaunched(at=kit.now, attempt=job.attempt)
        return None

    def _end(
        self, kit: ExecutionContext, job: Job, status: DriverStatus, pending: PendingCommand
    ) -> tuple[events.JobEvent, ...]:
        """The end of the driver, and before it what its log says that it was.

        What may have kept the end from being told once is not tried again.
        """
        at = status.ended_at or kit.now
        log = self.pool.logs(attempt_id(job.job_id, job.attempt), LOG_LINES_MAX) if status.needs_its_log else ""
        ending = ending_of(status, log, self.pool.total_gpus() if status.state is DriverState.FAILED else None)
        failure = None if ending.kind is EndingKind.SUCCEEDED else RankFailure(0, "", at, ending)
        kit.store.add_stopped(job.job_id, job.attempt, 0, failure)
        stopped = events.AllRanksStopped(at=at, attempt=job.attempt, failure=failure)
        by_itself = ending.kind in (EndingKind.FAILED, EndingKind.CRASHED) and job.status is not JobStatus.STOPPING
        if not (kit.policy.diagnose and by_itself) or previous_try_died(pending):
            return (stopped,)
        found = diagnose_attempt(kit, job, job.attempt, lambda _job, _id, most: log.splitlines()[-most:])
        return (events.Diagnosed(at=kit.now, attempt=job.attempt, conclusion=found), stopped) if found else (stopped,)


def _awaits_end(job: Job, status: DriverStatus) -> bool:
    """Whether the job does not know it; a driver that Ray knows nothing of may not have been submitted yet."""
    return job.status in LIVE and (status.state is not DriverState.GONE or job.status is not JobStatus.SUBMITTING)


LOG_LINES_MAX = 100_000
"""So much of a failed driver's log is searched for why it failed."""
