"""The product's functions as AWS wakes them: by an event that a rule selects, by the clock, by a queue.

An invocation that raises or dies is tried again, as Lambda does. A FIFO queue hands the scheduler nothing while it
works, and takes the same deduplication id only once in five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol

from gpu_recovery.aws.ecs_events import detail_of, instance_fact, task_fact
from gpu_recovery.aws.health_events import is_health_event, notifications_of
from gpu_recovery.core.identifiers import TICK, attempt_of
from gpu_recovery.ecs_events import tasks
from gpu_recovery.ecs_events.health import deliver

from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import TaskStatus
from simulator.cloud.workloads import environment
from simulator.invariants.records import InvariantBroken
from simulator.world_view import WorldView

CHECK_FAMILY = "gpu-health-check"
SCHEDULER, RECONCILER = "scheduler", "reconciler"
TICK_S, POKE_S, DEDUPLICATED_S = 60, 1, 300
SCHEDULER_BATCH = 10
"""How many messages the scheduler's queue hands out at once: `infra/functions.py`."""
RETRIES_S = (60, 120)
"""Lambda's two retries of an asynchronous invocation that raised or died."""
Work = Callable[[], object]


class TickFilter(Protocol):
    """Decides which ticks of the clock wake no function, because the function would find nothing to do."""

    def may_skip(self, name: str) -> bool:
        """Return whether the function `name` would find nothing to do now."""
        ...

    def begins(self, name: str) -> None:
        """The function `name` is woken."""

    def ended(self, name: str) -> None:
        """The function `name` has returned, or was killed."""


class FunctionsWorld(WorldView, Protocol):
    """A world with the work of the functions that the clock and the queue wake.

    idling: the filter of the clock's ticks; None: every tick wakes its function.
    """

    @property
    def idle_skip(self) -> TickFilter | None: ...

    def invoke(self, name: str, work: Work, tried: int = 0) -> None:
        """Run one asynchronous invocation; `tried`: how many came before it."""

    def run_scheduler(self) -> None:
        """Run the scheduler function once."""

    def run_reconciler(self) -> None:
        """Run the reconciler function once."""


class LambdaRuntime:
    """The functions of one world. `retries`: whether Lambda tries again what raised or died."""

    def __init__(self, world: FunctionsWorld, *, retries: bool) -> None:
        self.world, self.retries = world, retries
        self.failures: list[tuple[str, Exception]] = []
        self.asleep: dict[str, datetime] = {}
        """Functions that the clock does not wake, and until when."""
        self._poke_keys: dict[str, datetime] = {}
        self.asked: dict[str, None] = {}
        """What lies in the scheduler's queue."""
        self._busy_until: datetime | None = None
        """Until when the scheduler works on what it was given last; None: on nothing that takes time."""
        self._is_waited_for = False
        """Whether the scheduler will be woken as soon as it has done its work."""

    # -- who hears of what ---------------------------------------------------------------------------------------------

    def of(self, envelope: Mapping[str, Any]) -> tuple[str, Work] | None:
        """The function whose rule selects the event, and what it does with it; None: no rule does."""
        kind = envelope["detail-type"]
        world, ecs = self.world, self.world.actions.ecs
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
        shown = instance_fact(detail_of(envelope), self.world.timeline.now)
        self.world.actions.ecs.instance_reported(*shown)
        self.world.recovery.handle(*shown)

    def is_unselected(self, task: Task) -> bool:
        """Whether no rule selects what is said of the task as it is, or it says that a rank runs that is known to."""
        is_check = task.definition["family"] == CHECK_FAMILY
        if not _is_selected(is_check, task.last_status):
            return True
        named = attempt_of(task.started_by or "")
        if named is None or task.last_status != TaskStatus.RUNNING:
            return False
        progress = self.world.store.load_progress(*named)
        return progress is not None and int(environment(task)["RANK"]) in progress.running

    # -- invocations ---------------------------------------------------------------------------------------------------

    def invoke(self, name: str, work: Work, tried: int = 0) -> None:
        """One asynchronous invocation; if it raises or dies, Lambda tries twice more, later."""
        world = self.world
        if name == SCHEDULER and (busy_s := self._busy_s()) > 0:
            self._enqueue(busy_s, work, tried)
            return
        try:
            survived = world.invocations.run(name, work)
        except InvariantBroken:
            raise  # the world itself has found something that never may be: no retry may hide it
        except Exception as failure:
            self.failures.append((name, failure))
            if not self.retries:
                raise
            survived = False
        spent_s = 0.0 if world.invocations.meter is None else world.invocations.meter.last_s
        if name == SCHEDULER and spent_s:
            self._busy_until = world.timeline.now + timedelta(seconds=spent_s)
        if not survived and self.retries and tried < len(RETRIES_S):
            world.timeline.after(spent_s + RETRIES_S[tried], world.invoke, name, work, tried + 1)

    def _busy_s(self) -> float:
        until = self._busy_until
        return 0.0 if until is None else (until - self.world.timeline.now).total_seconds()

    def _enqueue(self, seconds: float, work: Work, tried: int) -> None:
        """The queue hands nothing out while the scheduler works on what it got before; then, all that waits."""
        if not self._is_waited_for:
            self._is_waited_for = True
            self.world.timeline.after(seconds, self._dequeue, work, tried)

    def _dequeue(self, work: Work, tried: int) -> None:
        self._is_waited_for = False
        self.world.invoke(SCHEDULER, work, tried)

    # -- what wakes them but events ------------------------------------------------------------------------------------

    def poked(self, key: str) -> None:
        """Somebody has put a message for the scheduler into its queue."""
        now = self.world.timeline.now
        horizon = now - timedelta(seconds=DEDUPLICATED_S)
        while self._poke_keys and next(iter(self._poke_keys.values())) <= horizon:
            del self._poke_keys[next(iter(self._poke_keys))]
        if key in self._poke_keys:
            return
        self._poke_keys[key] = now
        self.asked[key] = None
        self.world.timeline.after(POKE_S, self._woken_by_a_poke)

    @contextmanager
    def messages(self) -> Iterator[tuple[str, ...]]:
        """What the scheduler's queue hands out at once; gone when the block ends well, there again when it does not.

        What is left is handed out when the function has come to its end.
        """
        asked = tuple(islice(self.asked, SCHEDULER_BATCH))
        yield asked
        for key in asked:
            self.asked.pop(key, None)
        if self.asked:
            self.world.timeline.after(0, self._woken_by_a_poke)

    def _woken_by_a_poke(self) -> None:
        if self.asked:  # an empty queue wakes nobody
            self.world.invoke(SCHEDULER, self.world.run_scheduler)

    def begin_to_tick(self) -> None:
        """From now on the clock wakes the scheduler and, half a minute apart, the reconciler."""
        self.world.timeline.after(TICK_S, self._tick, SCHEDULER, self.world.run_scheduler)
        self.world.timeline.after(TICK_S / 2, self._tick, RECONCILER, self.world.run_reconciler)

    def _tick(self, name: str, work: Work) -> None:
        world, idling = self.world, self.world.idle_skip
        world.timeline.after(TICK_S, self._tick, name, work)
        if self.asleep.get(name, world.timeline.start) > world.timeline.now:
            return
        if idling is not None and idling.may_skip(name):
            return
        if name == SCHEDULER:
            self.asked[f"{TICK}/{world.timeline.now.isoformat()}"] = None
        if idling is None:
            world.invoke(name, work, tried=len(RETRIES_S))
        else:
            idling.begins(name)
            world.invoke(name, work, tried=len(RETRIES_S))
            idling.ended(name)


def _is_selected(is_check: bool, last_status: str) -> bool:
    """Whether a rule of the product selects the event of a task: `infra/event_rules.py` says which."""
    return last_status == "STOPPED" or (last_status == "RUNNING" and not is_check)
