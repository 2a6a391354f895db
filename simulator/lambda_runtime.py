"""The product's Lambda functions and their triggers: EventBridge rules, the clock, the scheduler's queue, wake-ups.

An asynchronous invocation that raises or is killed is retried, as Lambda does. The FIFO queue delivers nothing to the
scheduler while the scheduler works. If the scheduler raises or is killed, its messages and all later messages wait for
the visibility timeout. After `RECEIVES_MAX` receives a message moves to the dead-letter queue. The queue accepts one
deduplication id only once in five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol

from gpu_recovery.aws.command_executor import load_record, request_of
from gpu_recovery.aws.ecs_events import detail_of, instance_fact, task_fact
from gpu_recovery.aws.health_events import is_health_event, notifications_of
from gpu_recovery.core.identifiers import TICK, attempt_of
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.ecs_events import tasks
from gpu_recovery.ecs_events.health import deliver

from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import TaskStatus
from simulator.cloud.task_environment import environment
from simulator.invariants.records import InvariantBroken
from simulator.world_view import WorldView

CHECK_FAMILY = "gpu-health-check"
SCHEDULER, RECONCILER, EXECUTOR = "scheduler", "reconciler", "command_executor"
WAKE = "wake"
"""Kind of an asynchronous invocation of the command executor, in place of the detail type of an event."""
TICK_S, POKE_S, DEDUPLICATED_S = 60, 1, 300
SCHEDULER_BATCH = 10
"""Upper bound of the messages that the scheduler's queue delivers at once: `infra/functions.py`."""
VISIBILITY_S, RECEIVES_MAX = 120, 5
"""Visibility timeout of the scheduler's queue, and receives of a message before its dead letter: `infra/queues.py`."""
RETRIES_S = (60, 120)
"""Seconds after which Lambda retries an asynchronous invocation that raised or was killed, first and second time."""
Work = Callable[[], object]


class TickFilter(Protocol):
    """Decides which ticks of the clock skip a function, because the function would find nothing to do."""

    def may_skip(self, name: str) -> bool:
        """Return whether the function `name` would find nothing to do now."""
        ...

    def begins(self, name: str) -> None:
        """Record that the function `name` begins."""

    def ended(self, name: str) -> None:
        """Record that the function `name` has returned, or was killed."""


class FunctionsWorld(WorldView, Protocol):
    """A world with the work of the functions that the clock and the queue trigger.

    idle_skip: the filter of the clock's ticks; None: every tick triggers its function.
    """

    @property
    def idle_skip(self) -> TickFilter | None:
        """The filter of the clock's ticks, or None."""
        ...

    def invoke(self, name: str, work: Work, tried: int = 0) -> None:
        """Run one asynchronous invocation. `tried`: the number of tries before this try."""

    def run_scheduler(self) -> None:
        """Run the scheduler function once."""

    def run_reconciler(self) -> None:
        """Run the reconciler function once."""


class LambdaRuntime:
    """The functions of one world.

    Args:
        world: The world.
        retries: Whether an invocation that raised or was killed is repeated, by Lambda or by the scheduler's queue. If
            not, the messages of the scheduler wait for its next invocation.
    """

    def __init__(self, world: FunctionsWorld, *, retries: bool) -> None:
        self.world, self.retries = world, retries
        self.failures: list[tuple[str, Exception]] = []
        self.asleep: dict[str, datetime] = {}
        """Functions that the clock does not trigger, each with the end of that time."""
        self.poke_s: float = POKE_S
        """Seconds from a message in the scheduler's queue to the scheduler."""
        self._poke_keys: dict[str, datetime] = {}
        self.asked: dict[str, int] = {}
        """The hops of the messages in the scheduler's queue, by deduplication id."""
        self.dead_letters: list[str] = []
        """The deduplication ids of the messages that moved to the dead-letter queue of the scheduler's queue."""
        self._receives: dict[str, int] = {}
        """How often each message of the scheduler's queue was received without success, by deduplication id."""
        self._busy_until: datetime | None = None
        """The time until which the queue delivers nothing: the end of the scheduler's last invocation or, after a
        failure, of the visibility timeout. None: no invocation has taken time or failed."""
        self._is_waited_for = False
        """Whether the scheduler will be triggered as soon as its present invocation ends."""

    # -- which function receives which event ---------------------------------------------------------------------------

    def of(self, envelope: Mapping[str, Any]) -> tuple[str, Work] | None:
        """Return the name and the work of the function that a rule triggers for the event; None: no rule does."""
        kind = envelope["detail-type"]
        world, ecs = self.world, self.world.actions.ecs
        if kind == WAKE:
            return EXECUTOR, lambda: world.recovery.execute_left(
                lambda: load_record(world.recovery.store, envelope["detail"])
            )
        if kind == "ECS Container Instance State Change":
            return "ecs_instance_monitor", lambda: self._instance_changed(envelope)
        if kind != "ECS Task State Change":
            if not is_health_event(envelope):
                return None
            return "ecs_instance_monitor", lambda: deliver(
                world.recovery, notifications_of(envelope, world.timeline.now)
            )
        family = str(envelope["detail"]["taskDefinitionArn"]).rsplit("/", 1)[-1].split(":")[0]
        is_check = family == CHECK_FAMILY
        if not _is_selected(is_check, envelope["detail"]["lastStatus"]):
            return None
        fact = task_fact(detail_of(envelope), world.timeline.now, ecs.overrides)
        ecs.task_reported(fact)
        if is_check:
            return "dcgm_task_monitor", lambda: tasks.check_changed(world.recovery, fact)
        return "ecs_task_handler", lambda: tasks.task_changed(world.recovery, fact)

    def _instance_changed(self, envelope: Mapping[str, Any]) -> None:
        fact = instance_fact(detail_of(envelope), self.world.timeline.now)
        self.world.actions.ecs.instance_reported(*fact)
        self.world.recovery.handle(*fact)

    def is_unselected(self, task: Task) -> bool:
        """Return whether an event about the task, as it is now, would change nothing.

        That is so if no rule selects the event, or if it reports a start that the progress of the attempt already
        holds.
        """
        is_check = task.definition["family"] == CHECK_FAMILY
        if not _is_selected(is_check, task.last_status):
            return True
        attempt = attempt_of(task.started_by or "")
        if attempt is None or task.last_status != TaskStatus.RUNNING:
            return False
        progress = self.world.store.load_progress(*attempt)
        return progress is not None and int(environment(task)["RANK"]) in progress.running

    # -- invocations ---------------------------------------------------------------------------------------------------

    def invoke(self, name: str, work: Work, tried: int = 0) -> None:
        """Run one invocation. If it raises or is killed, Lambda or the scheduler's queue repeats it later."""
        world = self.world
        if name == SCHEDULER and (busy_s := self._busy_s()) > 0:
            self._enqueue(busy_s, work)
            return
        try:
            survived = world.invocations.run(name, work)
        except InvariantBroken:
            raise  # the simulator found a broken invariant: no retry may hide it
        except Exception as failure:
            self.failures.append((name, failure))
            if not self.retries:
                raise
            survived = False
        spent_s = 0.0 if world.invocations.meter is None else world.invocations.meter.last_s
        if name == SCHEDULER:
            is_repeated = self.retries and not survived
            blocked_s = VISIBILITY_S if is_repeated else spent_s
            if blocked_s:
                self._busy_until = world.timeline.now + timedelta(seconds=blocked_s)
            if is_repeated:
                self._enqueue(blocked_s, work)
        elif not survived and self.retries and tried < len(RETRIES_S):
            world.timeline.after(spent_s + RETRIES_S[tried], world.invoke, name, work, tried + 1)

    def _busy_s(self) -> float:
        until = self._busy_until
        return 0.0 if until is None else (until - self.world.timeline.now).total_seconds()

    def _enqueue(self, seconds: float, work: Work) -> None:
        """Invoke the scheduler in `seconds`, if its queue holds a message then. The queue delivers nothing before."""
        if not self._is_waited_for:
            self._is_waited_for = True
            self.world.timeline.after(seconds, self._dequeue, work)

    def _dequeue(self, work: Work) -> None:
        self._is_waited_for = False
        for key in [key for key, times in self._receives.items() if times >= RECEIVES_MAX]:
            del self._receives[key], self.asked[key]
            self.dead_letters.append(key)
        if self.asked:
            self.world.invoke(SCHEDULER, work)

    # -- triggers other than events ------------------------------------------------------------------------------------

    def poked(self, key: str, hops: int) -> None:
        """Put a message into the scheduler's queue, unless its deduplication id was used in the last five minutes."""
        now = self.world.timeline.now
        horizon = now - timedelta(seconds=DEDUPLICATED_S)
        while self._poke_keys and next(iter(self._poke_keys.values())) <= horizon:
            del self._poke_keys[next(iter(self._poke_keys))]
        if key in self._poke_keys:
            return
        self._poke_keys[key] = now
        self.asked[key] = hops
        self.world.timeline.after(self.poke_s, self._woken_by_a_poke)

    @contextmanager
    def messages(self) -> Iterator[dict[str, int]]:
        """Receive up to `SCHEDULER_BATCH` messages of the scheduler's queue: their hops by deduplication id.

        The messages are deleted when the block ends, and stay in the queue when the block raises. The remaining
        messages trigger the scheduler again after the block.
        """
        received = dict(islice(self.asked.items(), SCHEDULER_BATCH))
        for key in received:
            self._receives[key] = self._receives.get(key, 0) + 1
        yield received
        for key in received:  # a pass that overlapped may have deleted a message
            self._receives.pop(key, None)
            self.asked.pop(key, None)
        if self.asked:
            self.world.timeline.after(0, self._woken_by_a_poke)

    def _woken_by_a_poke(self) -> None:
        if self.asked:  # an empty queue triggers nothing
            self.world.invoke(SCHEDULER, self.world.run_scheduler)

    def begin_to_tick(self) -> None:
        """Let the clock trigger the scheduler and, half a minute apart, the reconciler, each once a minute."""
        self.world.timeline.after(TICK_S, self._tick, SCHEDULER, self.world.run_scheduler)
        self.world.timeline.after(TICK_S / 2, self._tick, RECONCILER, self.world.run_reconciler)

    def _tick(self, name: str, work: Work) -> None:
        world, idle_skip = self.world, self.world.idle_skip
        world.timeline.after(TICK_S, self._tick, name, work)
        if self.asleep.get(name, world.timeline.start) > world.timeline.now:
            return
        if idle_skip is not None and idle_skip.may_skip(name):
            return
        if name == SCHEDULER:
            self.asked[f"{TICK}/{world.timeline.now.isoformat()}"] = 0
        if idle_skip is None:
            world.invoke(name, work, tried=len(RETRIES_S))
        else:
            idle_skip.begins(name)
            world.invoke(name, work, tried=len(RETRIES_S))
            idle_skip.ended(name)


def wake_of(record: Job | Instance) -> dict[str, Any]:
    """Return the invocation of the command executor for the record, in the form of an event."""
    return {"id": "", "detail-type": WAKE, "detail": request_of(record)}


def _is_selected(is_check: bool, last_status: str) -> bool:
    """Return whether a rule of the product selects the event of a task, as `infra/event_rules.py` defines."""
    return last_status == "STOPPED" or (last_status == "RUNNING" and not is_check)
