"""The one loop: load -> decide -> save -> act.

    load    the record the event is about, and nothing else
    decide  core: pure
    save    ONE conditional write: the new state, its history entry, and the commands, claimed for us
    act     each command; each is safe to repeat; then take it out of the record

Whoever dies after the save leaves its commands in the record with a claim that expires, and the reconciler takes them
over. Whoever dies before it has changed nothing. A writer who read an older record is refused and decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from gpu_recovery import execution
from gpu_recovery.core import commands, events
from gpu_recovery.core.commands import Channel, NotifyOperator
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.notifications.channels import for_every_channel
from gpu_recovery.core.policy import RecoveryPolicy, within
from gpu_recovery.core.ray import state_machine as ray_state_machine
from gpu_recovery.core.state_machine import Decision, EventOutcome, PendingCommand
from gpu_recovery.execution.context import ExecutionContext, FollowUp, ForEach, RayCommandHandler, previous_try_died
from gpu_recovery.partial_failures import raise_all, run_each
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.decision_log import DecisionLog
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.retry import SAVE_ATTEMPTS_MAX, retry_stale
from gpu_recovery.ports.store import Store

Record = TypeVar("Record", Job, Instance)
REMOVE_ATTEMPTS_MAX = 3
CONTENDED = f"refused {SAVE_ATTEMPTS_MAX} times: others write the record all the time"
BUSY_RETRY = timedelta(seconds=15)
"""What AWS was too busy for is tried again no sooner: it has been asked several times by then."""


class NotificationFailed(ExceptionGroup):
    """Everything was done, but somebody could not be told. The words stay in the record and are tried again."""


def sequentially(work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """The plain way to do `work` for each of `items`; a function with threads to spare brings its own."""
    for item in items:
        work(item)


def always() -> bool:
    """There is time."""
    return True


@dataclass
class _CommandResults:
    """What has become of the commands of one record."""

    done: list[str] = field(default_factory=list)
    deferred: dict[str, datetime] = field(default_factory=dict)
    notification_failures: list[Exception] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)
    """What went wrong with commands that only help."""
    scheduler_retry_at: datetime | None = None
    """Until when something is put off that the scheduler is to find; None: nothing is."""


@dataclass(frozen=True)
class Recovery:
    """The loop over the machines. `each` carries out independent pieces of work; `ray` those orders of jobs on Ray."""

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
    """Whether there is time for another command; what is not begun is left to the reconciler, at once."""

    def handle(self, record_id: str, event: events.JobEvent | events.InstanceEvent) -> Decision[Any] | None:
        """Give one record an event; its decision, None if there is no such record."""
        if isinstance(event, events.JobEvent):
            return self._handle_job(record_id, event)
        return self._handle_instance(record_id, event)

    def notify(self, message: NotifyOperator) -> None:
        """Tell operators by every channel at once; for what no record keeps a command of.

        A channel that fails keeps no other from being told, and is raised when all have been tried.
        """
        said = run_each(lambda channel: self.actions.notify(replace(message, channel=channel)), self.channels)
        raise_all("not every channel could be told", said)

    def create_job(self, decision: Decision[Job], submitted: str) -> bool:
        """Keep a new job and act on its first commands; False if its id is taken."""
        if not self.store.create_job(decision.record, submitted):
            return False
        self.begin_job(decision, submitted)
        return True

    def begin_job(self, decision: Decision[Job], submitted: str | None = None) -> None:
        """Act on the first commands of a job that was just kept; `submitted` is its text, where it is at hand.

        A kept job is an answer, even if nobody could be told yet: an error would make its user submit it twice. The
        reconciler finds the words that are left, and raises what keeps them from being said.
        """
        self.decision_log.job_created(decision)
        with suppress(NotificationFailed, TryAgainSoon):
            self.execute(replace(decision.record, revision=1), decision.commands, submitted)

    def _handle_job(self, job_id: str, event: events.JobEvent, settling: str = "") -> Decision[Job] | None:
        def attempt() -> Decision[Job] | None:
            record = self.store.load_job(job_id)
            if record is None:
                self.decision_log.unknown_record(job_id, event)
                return None
            settled = _without_command(record, settling)
            machine = ray_state_machine if record.spec.backend is Backend.RAY else job_state_machine
            decision = machine.decide(settled, event, self.policy, self.clock())
            return self._save_job(record, event, decision, settling)

        return retry_stale(attempt, SAVE_ATTEMPTS_MAX, CONTENDED)

    def _save_job(self, before: Job, event: events.JobEvent, decision: Decision[Job], settling: str) -> Decision[Job]:
        if decision.outcome is not EventOutcome.APPLIED:
            self.decision_log.decided(before, event, decision)
            if settling:
                self.store.remove_finished_job_commands(before, (settling,), {})
            return decision
        decision = for_every_channel(self.channels, decision)
        saved = self.store.save_job(decision.record, decision.quota)
        self.decision_log.decided(before, event, decision)
        self.execute(saved, decision.commands)
        return _with_saved(decision, saved)

    def _handle_instance(
        self, instance_id: str, event: events.InstanceEvent, settling: str = ""
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
                # Read after the instance: brakes older than the record could let it do what they forbid by now.
                fleet = self.store.load_fleet() if state_machine.needs_fleet_limits(record, event) else None
                decision = state_machine.decide(_without_command(record, settling), event, self.policy, now, fleet)
                before = record
            return self._save_instance(before, event, decision, settling)

        return retry_stale(attempt, SAVE_ATTEMPTS_MAX, CONTENDED)

    def _save_instance(
        self, before: Instance, event: events.InstanceEvent, decision: Decision[Instance], settling: str
    ) -> Decision[Instance]:
        if decision.outcome is not EventOutcome.APPLIED:
            self.decision_log.decided(before, event, decision)
            if settling:
                self.store.remove_finished_instance_commands(before, (settling,), {})
            return decision
        decision = for_every_channel(self.channels, decision)
        saved = self.store.save_instance(decision.record, decision.fleet)
        self.decision_log.decided(before, event, decision)
        if saved.container_instance_id != before.container_instance_id or before.revision == 0:
            self.store.remember_registration(saved)
        self.execute(saved, decision.commands)
        return _with_saved(decision, saved)

    def execute(self, record: Job | Instance, pending: Sequence[PendingCommand], submitted: str | None = None) -> None:
        """Carry out `pending` of the saved `record`, tell what follows, and settle what is done.

        What was done before a failure is settled too, so that only the failed rest is repeated. A word to the outside
        that cannot be sent keeps nothing else from being done; it is raised when the rest is.
        """
        if not pending:
            return
        so_far = _CommandResults()
        told = False
        try:
            for one in pending:
                if not self.has_time():
                    so_far.deferred[one.command_id] = self.clock()
                elif isinstance(one.command, execution.NOTIFICATIONS):
                    self._send_notification(record, one, so_far, submitted)
                else:
                    record = self._reloaded(record) if told else record
                    helps = isinstance(one.command, execution.BEST_EFFORT)
                    told = (
                        self._execute_best_effort(record, one, so_far)
                        if helps
                        else self._execute_one(record, one, so_far)
                    )
        finally:
            if so_far.done or so_far.deferred:
                self._remove_finished(record, so_far.done, so_far.deferred)
        raise_all(f"not everything could be found out about {_name(record)}", so_far.failed)
        if so_far.notification_failures:
            raise NotificationFailed(
                f"not everything could be said about {_name(record)}", so_far.notification_failures
            )

    def _execute_one(self, record: Job | Instance, one: PendingCommand, so_far: _CommandResults) -> bool:
        """Carry out one command and tell what follows; whether anybody was told, so that records may have moved.

        What AWS has put off may be a write of one who was told, so they may have then, too.
        """
        try:
            acted = execution.execute(self._context(), record, one)
            if acted.not_before is not None:
                so_far.deferred[one.command_id] = acted.not_before
            elif not self._deliver(acted.follow_ups, _name(record), one.command_id, so_far.notification_failures):
                so_far.done.append(one.command_id)
            return bool(acted.follow_ups)
        except TryAgainSoon:
            again_at = so_far.deferred[one.command_id] = self.clock() + BUSY_RETRY
            if isinstance(one.command, execution.SCHEDULER_VISIBLE):
                so_far.scheduler_retry_at = again_at
            return True

    def _execute_best_effort(self, record: Job | Instance, one: PendingCommand, so_far: _CommandResults) -> bool:
        """As `_execute_one`, for a command that only helps: what goes wrong with it is entered, and raised at the end.

        One in the middle of which a function has died is not tried again: it may have been what it died of.
        """
        if previous_try_died(one):
            so_far.done.append(one.command_id)
            return False
        so_far.failed += run_each(lambda command: self._execute_one(record, command, so_far), [one])
        return True

    def _send_notification(
        self, record: Job | Instance, one: PendingCommand, so_far: _CommandResults, submitted: str | None
    ) -> None:
        """Send one word to the outside; what keeps it from being sent is entered, not raised.

        The scheduler is not woken before what it is to find is so.
        """
        if isinstance(one.command, commands.PokeScheduler) and so_far.scheduler_retry_at is not None:
            so_far.deferred[one.command_id] = so_far.scheduler_retry_at
            return
        try:
            kit = self._context(submitted)
            failed = run_each(lambda word: execution.execute(kit, record, word), [one], fatal=TryAgainSoon)
        except TryAgainSoon:
            so_far.deferred[one.command_id] = self.clock() + BUSY_RETRY
            return
        if failed:
            so_far.notification_failures += failed
        else:
            so_far.done.append(one.command_id)
        self.decision_log.notified(record, one.command, failed[0] if failed else None)

    def _context(self, submitted: str | None = None) -> ExecutionContext:
        return ExecutionContext(self.store, self.actions, self.policy, self.clock(), self.for_each, self.ray, submitted)

    def _reloaded(self, record: Job | Instance) -> Job | Instance:
        """The record after what was told has moved it, perhaps: an order that it has outgrown must not be obeyed."""
        if isinstance(record, Job):
            return self.store.load_job(record.job_id) or record
        return self.store.load_instance(record.instance_id) or record

    def _remove_finished(self, record: Job | Instance, done: Sequence[str], deferred: dict[str, datetime]) -> None:
        """Enter what is done. Refused for its rate it is asked again: what was said and is forgotten is said twice."""
        settle: Any = (
            self.store.remove_finished_job_commands
            if isinstance(record, Job)
            else self.store.remove_finished_instance_commands
        )
        for left in reversed(range(REMOVE_ATTEMPTS_MAX)):
            try:
                settle(record, done, deferred)
                return
            except TryAgainSoon:
                if not left:
                    raise

    def _deliver(self, messages: Sequence[FollowUp], name: str, command_id: str, unsaid: list[Exception]) -> bool:
        """Tell others first, then the record itself; whether that last write settled the command.

        One who was told, and could not tell everybody else in turn, has been told all the same: `unsaid` takes it.
        """

        def tell(message: FollowUp, settling: str = "") -> None:
            try:
                if isinstance(message.event, events.JobEvent):
                    self._handle_job(message.record_id, message.event, settling)
                else:
                    self._handle_instance(message.record_id, message.event, settling)
            except NotificationFailed as silence:
                unsaid.append(silence)

        own = [message for message in messages if message.record_id == name]
        self.for_each(tell, [message for message in messages if message.record_id != name])
        for message in own:
            tell(message, command_id)
        return bool(own)

    def reclaim_expired(self, record: Job | Instance) -> bool:
        """Carry out the commands of `record` whose claim has expired: whoever had them is dead. Whether there are any,
        so that the record may have moved."""
        now = self.clock()
        expired = {one.command_id for one in record.commands if one.acting_until <= now}
        if not expired:
            return False
        claim = now + within(self.policy.command_lease_s)
        orders = tuple(
            replace(one, acting_until=claim, tries=one.tries + 1) if one.command_id in expired else one
            for one in record.commands
        )
        claimed: Job | Instance
        if isinstance(record, Job):
            claimed = self.store.save_job(replace(record, commands=orders))
        else:
            claimed = self.store.save_instance(replace(record, commands=orders))
        self.execute(claimed, [one for one in claimed.commands if one.command_id in expired])
        return True


def _with_saved(decision: Decision[Record], saved: Record) -> Decision[Record]:
    """The decision with the record as it was kept."""
    return Decision(saved, decision.commands, decision.reason, decision.outcome, decision.fleet)


def _name(record: Job | Instance) -> str:
    return record.job_id if isinstance(record, Job) else record.instance_id


def _without_command(record: Record, command_id: str) -> Record:
    if not command_id:
        return record
    return replace(record, commands=tuple(one for one in record.commands if one.command_id != command_id))
