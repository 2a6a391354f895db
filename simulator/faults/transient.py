"""What goes wrong in passing: with one event on its way, or with one effect of a function.

A fault names what it strikes by its kind and by the how manyth of that kind it is in the run, counted from 1. Each is a
value that a scenario file can hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from botocore.exceptions import ReadTimeoutError
from gpu_recovery.ports.errors import StaleRecord, TryAgainSoon

from simulator.faults.delivery import PROMPT_S, Envelope
from simulator.invocations import Effect, Killed

if TYPE_CHECKING:
    from simulator.world import World


@dataclass(frozen=True, kw_only=True)
class EventFault(ABC):
    """Something that happens to event number `nth` of those that `kind_of` calls `event`."""

    kind: ClassVar[str]
    event: str
    nth: int

    @abstractmethod
    def arrivals(self) -> Sequence[float]:
        """After how many seconds it arrives, once for each arrival."""


def kind_of(envelope: Envelope) -> str:
    """What an event is called in a scenario: `task STOPPED`, `instance`, or the detail type of a watcher's."""
    about = str(envelope["detail-type"])
    if about == "ECS Task State Change":
        return f"task {envelope['detail']['lastStatus']}"
    return "instance" if about == "ECS Container Instance State Change" else about


@dataclass(frozen=True, kw_only=True)
class Dropped(EventFault):
    """The event is lost."""

    kind = "drop"

    def arrivals(self) -> Sequence[float]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Duplicated(EventFault):
    """The event arrives at once, and once more after `after_s`."""

    kind = "duplicate"
    after_s: float = 30

    def arrivals(self) -> Sequence[float]:
        return PROMPT_S, self.after_s


@dataclass(frozen=True, kw_only=True)
class Delayed(EventFault):
    """The event arrives `by_s` late, perhaps after others that followed it."""

    kind = "delay"
    by_s: float = 120

    def arrivals(self) -> Sequence[float]:
        return (PROMPT_S + self.by_s,)


@dataclass(frozen=True, kw_only=True)
class CallFault:
    """Something that happens to effect number `nth` of those called `call`: `RunTask`, `store.save_job`, …"""

    kind: ClassVar[str]
    call: str
    nth: int

    def before(self, world: World) -> None:
        """Before the effect takes place."""

    def after(self, world: World) -> None:
        """Once it has taken place, before its caller hears of it."""

    @classmethod
    def may_strike(cls, step: Effect) -> bool:
        """Whether this can happen to the step at all. A person's own call fails only by a function that dies."""
        return step.invocation != "job_api"


@dataclass(frozen=True, kw_only=True)
class KilledBefore(CallFault):
    """The function dies just before it."""

    kind = "kill_before"

    def before(self, world: World) -> None:
        raise Killed

    @classmethod
    def may_strike(cls, step: Effect) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class KilledAfter(KilledBefore):
    """The function dies just after it."""

    kind = "kill_after"

    def before(self, world: World) -> None:
        """It takes place."""

    def after(self, world: World) -> None:
        raise Killed


@dataclass(frozen=True, kw_only=True)
class Throttled(CallFault):
    """AWS refuses it unread, however often botocore asks."""

    kind = "throttle"

    def before(self, world: World) -> None:
        raise TryAgainSoon(f"{self.call} is asked for too often")


@dataclass(frozen=True, kw_only=True)
class AnswerLost(CallFault):
    """It takes effect, and nobody hears of it."""

    kind = "answer_lost"

    def after(self, world: World) -> None:
        raise ReadTimeoutError(endpoint_url=f"https://aws/{self.call}")


@dataclass(frozen=True, kw_only=True)
class ConditionFails(CallFault):
    """Somebody else has written the record since it was read."""

    kind = "condition_fails"

    def before(self, world: World) -> None:
        raise StaleRecord(f"{self.call} was refused")

    @classmethod
    def may_strike(cls, step: Effect) -> bool:
        return super().may_strike(step) and step.name in ("store.save_job", "store.save_instance")


@dataclass(frozen=True, kw_only=True)
class Overlapped(CallFault):
    """A whole pass of the scheduler, or round of the reconciler, comes in between: two of them run at once."""

    kind = "overlap"
    by: str = "scheduler"

    def before(self, world: World) -> None:
        work = world.run_scheduler if self.by == "scheduler" else world.run_reconciler
        world.invoke("overlapping", work, tried=2)


EVENT_FAULTS: dict[str, type[EventFault]] = {one.kind: one for one in (Dropped, Duplicated, Delayed)}
CALL_FAULTS: dict[str, type[CallFault]] = {
    one.kind: one for one in (KilledBefore, KilledAfter, Throttled, AnswerLost, ConditionFails, Overlapped)
}
