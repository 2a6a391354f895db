"""The loop: load -> decide -> save -> execute. Executes each pending command of a record after the save.

    load     the record that the event is about
    decide   in `core`, without I/O
    save     ONE conditional write: the new state, its history entry, and the pending commands, leased to this function
    execute  each command, which is safe to repeat; then remove it from the record

A function that is killed after the save leaves pending commands in the record. Their lease expires, and the reconciler
executes them. A function that is killed before the save has changed nothing. A writer that read an older record is
refused and decides again.

A function may leave some commands to another function (`Recovery.hand_over`). They stay in the record, due at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery import execution
from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import with_seen_instances
from gpu_recovery.core.commands import Channel, NotifyOperator
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import LIVE, Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.notifications.channels import for_every_channel
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.ray import state_machine as ray_state_machine
from gpu_recovery.core.state_machine import Decision, EventOutcome, PendingCommand
from gpu_recovery.execution.command_results import (
    BEST_EFFORT,
    BUSY_RETRY,
    DELIVERED_AT_ONCE,
    NOTIFICATIONS,
    RETRIED,
    SCHEDULER_VISIBLE,
    CommandResults,
    record_id,
    without_command,
)
from gpu_recovery.execution.context import (
    CommandResult,
    ExecutionContext,
    FollowUp,
    ForEach,
    RayCommandHandler,
    always,
    not_at_all,
    previous_try_died,
    sequentially,
)
from gpu_recovery.execution.hand_over import HandOver
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.back_off import BackOff
from gpu_recovery.ports.decision_log import DecisionLog
from gpu_recovery.ports.errors import NotificationFailed, TryAgainSoon
from gpu_recovery.ports.retry import SAVE_ATTEMPTS_MAX, retry_stale
from gpu_recovery.ports.store import Store

REMOVE_ATTEMPTS_MAX = 3
"""Tries to remove finished commands from a record when AWS throttles the write."""
CONTENDED = f"refused {SAVE_ATTEMPTS_MAX} times: others write the record all the time"


@frozen_dataclass()
class Recovery:
    """The loop, with its store, its actions and its settings.

    channels: the channels of every operator notification.
    ray:      executes the commands of jobs on Ray; None if the deployment has no Ray cluster.
    for_each: executes independent pieces of work.
    hand_over: the commands that this function leaves to the command executor; None: it executes every command.
    back_off: waits before a throttled command is tried again in the same invocation; None: the reconciler tries it.
    hops:     the number of messages in a row that led to this invocation, each sent by the invocation before; 0 if an
              event or the clock did. At `HOPS_MAX` the invocation sends no further message to its own queue.
    """

    store: Store
    actions: Actions
    policy: RecoveryPolicy
    clock: Callable[[], datetime]
    decision_log: DecisionLog
    adoption: Adoption = Adoption.OFF
    channels: tuple[Channel, ...] = (Channel.MAIL,)
    ray: RayCommandHandler | None = None
    for_each: ForEach = sequentially
    has_time: Callable[[], bool] = always
    """Returns whether there is time for another command, or another item of `run_each`. The other commands are due at
    once, for another function."""
    wait: Callable[[float], object] = not_at_all
    """Waits for some seconds within the invocation, for reports that are on their way."""
    hops: int = 0
    hand_over: HandOver | None = None
    back_off: BackOff | None = None

    def until(self, seconds_left: Callable[[], float], reserve_s: float) -> Recovery:
        """Return the loop that begins no work when at most `reserve_s` of the function's `seconds_left` are left."""
        return replace(self, has_time=lambda: seconds_left() > reserve_s)

    def handle(self, record_id: str, event: events.JobEvent | events.InstanceEvent) -> Decision[Any] | None:
        """Handle one event about a record.

        Args:
            record_id: the id of the job or the instance, as the type of `event` says.

        Returns:
            The decision; None if there is no such record.

        Raises:
            TooManyConflicts: other writers saved the record at every try.
            NotificationFailed: a notification was not sent. Everything else was done.
            ExceptionGroup: a best-effort command failed. Everything else was done.
            IllegalTransition: neither table of the state machine has a row for the status and the event.
            Exception: an ordinary command failed. Later commands were not executed; the reconciler executes them.
        """
        if isinstance(event, events.JobEvent):
            return self._handle_job(record_id, event)
        return self._handle_instance(record_id, event)

    def run_each(self, work: Callable[[Any], object], items: Iterable[Any]) -> list[Exception]:
        """Do `work` for each of `items`, in parallel where there are threads, and return the failures.

        Items that have not begun when the time is over are left out. StaleRecord is not a failure.
        """
        failures: list[Exception] = []

        def in_time(item: Any) -> None:
            if self.has_time():
                failures.extend(run_each(work, (item,)))

        self.for_each(in_time, items)
        return failures

    def notify(self, message: NotifyOperator) -> None:
        """Notify operators on every channel about a problem that belongs to no record.

        Raises:
            ExceptionGroup: channels that failed. All channels were tried.
        """
        failures = run_each(lambda channel: self.actions.notify(replace(message, channel=channel)), self.channels)
        raise_all("not every channel could be told", failures)

    def create_job(self, decision: Decision[Job], submitted: str) -> bool:
        """Save a new job and execute its first commands. Return False if its id is taken."""
        if not self.store.create_job(decision.record, submitted):
            return False
        self.begin_job(decision, submitted)
        return True

    def begin_job(self, decision: Decision[Job], submitted: str | None = None) -> None:
        """Execute the first commands of a job that was just saved.

        Failed notifications and throttled calls are not raised: the job is saved, and an error would make its user
        submit it twice. The reconciler executes the remaining commands and raises their failures.

        Args:
            submitted: the submitted text, if the caller has it.
        """
        self.decision_log.job_created(decision)
        with suppress(NotificationFailed, TryAgainSoon):
            self.execute(replace(decision.record, revision=1), decision.commands, submitted)

    def _handle_job(self, job_id: str, event: events.JobEvent, finished_id: str = "") -> Decision[Job] | None:
        def attempt() -> Decision[Job] | None:
            record = self.store.load_job(job_id)
            if record is None:
                self.decision_log.unknown_record(job_id, event)
                return None
            record = self._with_seen_ranks(record)
            remaining = without_command(record, finished_id)
            state_machine_of_job = ray_state_machine if record.spec.backend is Backend.RAY else job_state_machine
            decision = state_machine_of_job.decide(remaining, event, self.policy, self.clock())
            return self._save_job(record, event, decision, finished_id)

        return retry_stale(attempt, SAVE_ATTEMPTS_MAX, CONTENDED)

    def _with_seen_ranks(self, job: Job) -> Job:
        """Return the job with the instances of all ranks that were seen, and write their tasks into the plan.

        The ranks of an adopted job write neither the job nor its plan, because hundreds of them are seen at once.
        """
        if not job.started_by_person or job.status not in LIVE or all(job.instances):
            return job
        plan = self.store.load_plan(job.job_id, job.attempt)
        if plan is None or (seen := with_seen_instances(job, plan)) is job:
            return job
        ranks = [rank for rank, name in enumerate(seen.instances) if name != job.instances[rank]]
        self.store.record_tasks(plan, ranks)
        return seen

    def _save_job(
        self, before: Job, event: events.JobEvent, decision: Decision[Job], finished_id: str
    ) -> Decision[Job]:
        if decision.outcome is not EventOutcome.APPLIED:
            self.decision_log.decided(before, event, decision)
            if finished_id:
                self.store.remove_finished_job_commands(before, (finished_id,), {})
            return decision
        decision = for_every_channel(self.channels, decision)
        saved = self.store.save_job(decision.record, decision.quota)
        self.decision_log.decided(before, event, decision)
        self.execute(saved, decision.commands)
        return replace(decision, record=saved)

    def _handle_instance(
        self, instance_id: str, event: events.InstanceEvent, finished_id: str = ""
    ) -> Decision[Instance] | None:
        def attempt() -> Decision[Instance] | None:
            record = self.store.load_instance(instance_id)
            now = self.clock()
            if record is None:
                if not isinstance(event, events.InstanceObserved):
                    self.decision_log.unknown_record(instance_id, event)
                    return None
                decision = state_machine.registered(instance_id, event, self.policy, now)
                before = replace(decision.record, commands=())
            else:
                # Read after the instance: older fleet limits could permit a repair that the present limits forbid.
                fleet = self.store.load_fleet() if state_machine.needs_fleet_limits(record, event) else None
                decision = state_machine.decide(without_command(record, finished_id), event, self.policy, now, fleet)
                before = record
            return self._save_instance(before, event, decision, finished_id)

        return retry_stale(attempt, SAVE_ATTEMPTS_MAX, CONTENDED)

    def _save_instance(
        self, before: Instance, event: events.InstanceEvent, decision: Decision[Instance], finished_id: str
    ) -> Decision[Instance]:
        if decision.outcome is not EventOutcome.APPLIED:
            self.decision_log.decided(before, event, decision)
            if finished_id:
                self.store.remove_finished_instance_commands(before, (finished_id,), {})
            return decision
        decision = for_every_channel(self.channels, decision)
        saved = self.store.save_instance(decision.record, decision.fleet)
        self.decision_log.decided(before, event, decision)
        if saved.container_instance_id != before.container_instance_id or before.revision == 0:
            self.store.remember_registration(saved)
        self.execute(saved, decision.commands)
        return replace(decision, record=saved)

    def execute(self, record: Job | Instance, pending: Sequence[PendingCommand], submitted: str | None = None) -> None:
        """Execute the `pending` commands of the saved `record` and remove the finished commands from it.

        Events that follow from a command are delivered before the command is removed. Commands that finished before a
        failure are removed too, so only the rest is repeated. A failed notification does not stop other commands. It is
        raised after them.

        Args:
            submitted: the submitted text of a new job, if the caller has it.

        Raises:
            NotificationFailed: a notification was not sent.
            ExceptionGroup: a best-effort command failed.
            IllegalTransition: a state machine has no row for an event that followed from a command.
            Exception: an ordinary command failed. Later commands were not executed; the reconciler executes them.
        """
        if not pending:
            return
        results = CommandResults()
        delivered = False
        try:
            for pending_command in pending:
                if self._is_left(record, pending_command, results):
                    results.leave(pending_command, self.clock())
                elif isinstance(pending_command.command, NOTIFICATIONS):
                    self._send_notification(record, pending_command, results, submitted)
                else:
                    record = self._reloaded(record) if delivered else record
                    helps = isinstance(pending_command.command, BEST_EFFORT)
                    delivered = (
                        self._execute_best_effort(record, pending_command, results)
                        if helps
                        else self._execute_command(record, pending_command, results)
                    )
        finally:
            if results.done or results.deferred:
                self._remove_finished(record, results)
            if results.left:
                self._wake_executor(record)
        raise_all(f"not everything could be found out about {record_id(record)}", results.failed)
        if results.notification_failures:
            raise NotificationFailed(
                f"not every message about {record_id(record)} could be sent", results.notification_failures
            )

    def _is_left(self, record: Job | Instance, pending: PendingCommand, results: CommandResults) -> bool:
        """Return whether the command is left to another function: it has the permissions, or time.

        Commands other than notifications keep their order, so all after a command that is left are left too.
        """
        if not self.has_time():
            return True
        if self.hand_over is None:
            return False
        return results.must_wait(pending) or self.hand_over.includes(record, pending.command)

    def _wake_executor(self, record: Job | Instance) -> None:
        """Wake the command executor for the commands that were left. The reconciler executes them if that fails."""
        if self.hand_over is None:
            return
        for failure in run_each(self.hand_over.wake, [record]):
            self.decision_log.notified(record, self.hand_over, failure)

    def _execute_command(self, record: Job | Instance, pending: PendingCommand, results: CommandResults) -> bool:
        """Execute one command and deliver the events that follow from it.

        Returns:
            Whether the record may have changed: an event was delivered, or a throttled write of its receiver may have
            happened.
        """

        def attempt(retry: int) -> CommandResult:
            return execution.execute(self._context(), self._reloaded(record) if retry else record, pending)

        back_off = self.back_off if isinstance(pending.command, RETRIED) else None
        try:
            result = back_off.repeat(attempt, self.has_time) if back_off is not None else attempt(0)
            results.check_request = result.check_request or results.check_request
            if result.unfinished:
                results.leave(pending, self.clock())
            elif result.not_before is not None:
                for message in result.follow_ups:
                    self._deliver(message, results.notification_failures)
                results.deferred[pending.command_id] = result.not_before
            else:
                self._finish(record, pending, result.follow_ups, result.after, results)
            return bool(result.follow_ups)
        except TryAgainSoon:
            again_at = results.deferred[pending.command_id] = self.clock() + BUSY_RETRY
            if isinstance(pending.command, SCHEDULER_VISIBLE):
                results.scheduler_retry_at = again_at
            return True

    def _finish(
        self,
        record: Job | Instance,
        pending: PendingCommand,
        messages: Sequence[FollowUp],
        after: Callable[[], object] | None,
        results: CommandResults,
    ) -> None:
        """Deliver the events that follow from a command: first to other records, then to the record itself.

        The write that follows from the record's own event removes the command. If the time is over before every other
        record has its event, the command is left, due at once. It is safe to repeat and leaves out what was done.
        """
        name = record_id(record)
        own = [message for message in messages if message.record_id == name]
        others = [message for message in messages if message.record_id != name]
        for start in range(0, len(others), DELIVERED_AT_ONCE):
            if start and not self.has_time():
                results.leave(pending, self.clock())
                return
            part = others[start : start + DELIVERED_AT_ONCE]
            self.for_each(lambda message: self._deliver(message, results.notification_failures), part)
        if after is not None:
            after()
        for message in own:
            self._deliver(message, results.notification_failures, pending.command_id)
        if not own:
            results.done.append(pending.command_id)

    def _execute_best_effort(self, record: Job | Instance, pending: PendingCommand, results: CommandResults) -> bool:
        """Execute a best-effort command as `_execute_command` does, and collect its failure instead of raising it.

        A command during which a function was killed is not tried again: the command may have been the cause.
        """
        if previous_try_died(pending):
            results.done.append(pending.command_id)
            return False
        results.failed += run_each(lambda command: self._execute_command(record, command, results), [pending])
        return True

    def _send_notification(
        self, record: Job | Instance, pending: PendingCommand, results: CommandResults, submitted: str | None
    ) -> None:
        """Execute one notification command, and collect its failure instead of raising it.

        The scheduler is not woken before the changes that it must see are made.
        """
        if isinstance(pending.command, commands.PokeScheduler) and results.scheduler_retry_at is not None:
            results.deferred[pending.command_id] = results.scheduler_retry_at
            return
        try:
            context = self._context(submitted)
            failed = run_each(
                lambda command: execution.execute(context, record, command), [pending], fatal=TryAgainSoon
            )
        except TryAgainSoon:
            results.deferred[pending.command_id] = self.clock() + BUSY_RETRY
            return
        if failed:
            results.notification_failures += failed
        else:
            results.done.append(pending.command_id)
        self.decision_log.notified(record, pending.command, failed[0] if failed else None)

    def _context(self, submitted: str | None = None) -> ExecutionContext:
        store, actions, policy, now = self.store, self.actions, self.policy, self.clock()
        return ExecutionContext(
            store, actions, policy, now, self.for_each, self.ray, submitted, self.hops, self.has_time, self.wait
        )

    def _reloaded(self, record: Job | Instance) -> Job | Instance:
        """Return the record after delivered events may have changed it.

        A command that the record has outgrown must not be executed.
        """
        if isinstance(record, Job):
            return self.store.load_job(record.job_id) or record
        return self.store.load_instance(record.instance_id) or record

    def _remove_finished(self, record: Job | Instance, results: CommandResults) -> None:
        """Remove finished commands from the record, and record ECS's answer about a health check in the same write.

        A throttled write is tried again, because a notification that stays in the record is sent twice.
        """
        done, deferred = results.done, results.deferred
        for tries_left in reversed(range(REMOVE_ATTEMPTS_MAX)):
            try:
                if isinstance(record, Job):
                    self.store.remove_finished_job_commands(record, done, deferred)
                else:
                    self.store.remove_finished_instance_commands(record, done, deferred, results.check_request)
                return
            except TryAgainSoon:
                if not tries_left:
                    raise

    def _deliver(self, message: FollowUp, notification_failures: list[Exception], finished_id: str = "") -> None:
        """Deliver one event.

        Args:
            message: the event and its receiver.
            notification_failures: collects the notifications that the receiver could not send. The event counts as
                delivered nevertheless.
            finished_id: the command of the receiver that its write removes; "" for none.
        """
        try:
            if isinstance(message.event, events.JobEvent):
                self._handle_job(message.record_id, message.event, finished_id)
            else:
                self._handle_instance(message.record_id, message.event, finished_id)
        except NotificationFailed as failure:
            notification_failures.append(failure)

    def reclaim_expired(self, record: Job | Instance) -> bool:
        """Execute the commands of `record` with an expired lease: the function that held the lease was killed.

        Returns:
            Whether there were any, so that the record may have changed.

        Raises:
            StaleRecord: another writer saved the record since it was read.
        """
        now = self.clock()
        expired = {pending.command_id for pending in record.commands if pending.acting_until <= now}
        if not expired:
            return False
        lease_end = now + duration(self.policy.command_lease_s)
        leased = tuple(
            replace(pending, acting_until=lease_end, tries=pending.tries + 1)
            if pending.command_id in expired
            else pending
            for pending in record.commands
        )
        claimed: Job | Instance
        if isinstance(record, Job):
            claimed = self.store.save_job(replace(record, commands=leased))
        else:
            claimed = self.store.save_instance(replace(record, commands=leased))
        self.execute(claimed, [pending for pending in claimed.commands if pending.command_id in expired])
        return True

    def execute_left(self, load: Callable[[], Job | Instance | None]) -> bool:
        """Execute the commands that another function left in the record that `load` returns.

        Of two calls at the same time, one executes the commands and the other finds nothing left.

        Returns:
            Whether there were any.
        """

        def attempt() -> bool:
            record = load()
            return record is not None and self.reclaim_expired(record)

        return retry_stale(attempt, SAVE_ATTEMPTS_MAX, CONTENDED)
