"""Transient faults: faults that strike one event on its way, or one effect of a function.

A fault names the kind of event or effect that it strikes, and its number among those of the run, counted from 1. Each
fault is a value that a scenario file can contain.
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
    """A fault that strikes event number `nth` of the kind `event` (see `kind_of`)."""

    kind: ClassVar[str]
    event: str
    nth: int

    @abstractmethod
    def arrivals(self) -> Sequence[float]:
        """Return after how many seconds the event arrives, once for each arrival."""


def kind_of(envelope: Envelope) -> str:
    """Return the kind of an event in scenario files: `task STOPPED`, `instance`, or the detail type of other events."""
    detail_type = str(envelope["detail-type"])
    if detail_type == "ECS Task State Change":
        return f"task {envelope['detail']['lastStatus']}"
    return "instance" if detail_type == "ECS Container Instance State Change" else detail_type


@dataclass(frozen=True, kw_only=True)
class Dropped(EventFault):
    """The event is lost."""

    kind = "drop"

    def arrivals(self) -> Sequence[float]:
        """Return no arrival."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Duplicated(EventFault):
    """The event arrives a second later, and once more after `after_s` seconds."""

    kind = "duplicate"
    after_s: float = 30

    def arrivals(self) -> Sequence[float]:
        """Return two arrivals."""
        return PROMPT_S, self.after_s


@dataclass(frozen=True, kw_only=True)
class Delayed(EventFault):
    """The event arrives `by_s` seconds late, perhaps after later events."""

    kind = "delay"
    by_s: float = 120

    def arrivals(self) -> Sequence[float]:
        """Return one late arrival."""
        return (PROMPT_S + self.by_s,)


@dataclass(frozen=True, kw_only=True)
class CallFault:
    """A fault that strikes effect number `nth` of the name `call`: `RunTask`, `store.save_job`, ..."""

    kind: ClassVar[str]
    call: str
    nth: int

    def before(self, world: World) -> None:
        """Act before the effect takes place."""

    def after(self, world: World) -> None:
        """Act after the effect has taken place, before its caller receives the answer."""

    @classmethod
    def may_strike(cls, step: Effect) -> bool:
        """Return whether the fault can strike the effect. A request to the job API fails only by a killed function."""
        return step.invocation != "job_api"


@dataclass(frozen=True, kw_only=True)
class KilledBefore(CallFault):
    """The function is killed just before the effect."""

    kind = "kill_before"

    def before(self, world: World) -> None:
        """Kill the function.

        Raises:
            Killed: Always.
        """
        raise Killed

    @classmethod
    def may_strike(cls, step: Effect) -> bool:
        """Return True: each function can be killed at each effect."""
        return True


@dataclass(frozen=True, kw_only=True)
class KilledAfter(KilledBefore):
    """The function is killed just after the effect."""

    kind = "kill_after"

    def before(self, world: World) -> None:
        """Let the effect take place."""

    def after(self, world: World) -> None:
        """Kill the function.

        Raises:
            Killed: Always.
        """
        raise Killed


@dataclass(frozen=True, kw_only=True)
class Throttled(CallFault):
    """AWS throttles the call, and throttles every retry of botocore."""

    kind = "throttle"

    def before(self, world: World) -> None:
        """Refuse the call.

        Raises:
            TryAgainSoon: Always.
        """
        raise TryAgainSoon(f"{self.call} is asked for too often")


@dataclass(frozen=True, kw_only=True)
class AnswerLost(CallFault):
    """The effect takes place, and its answer is lost."""

    kind = "answer_lost"

    def after(self, world: World) -> None:
        """Replace the answer with a timeout.

        Raises:
            ReadTimeoutError: Always.
        """
        raise ReadTimeoutError(endpoint_url=f"https://aws/{self.call}")


@dataclass(frozen=True, kw_only=True)
class ConditionFails(CallFault):
    """Another writer saved the record since it was read."""

    kind = "condition_fails"

    def before(self, world: World) -> None:
        """Refuse the write.

        Raises:
            StaleRecord: Always.
        """
        raise StaleRecord(f"{self.call} was refused")

    @classmethod
    def may_strike(cls, step: Effect) -> bool:
        """Return whether the effect is a conditional write of a job or an instance."""
        return super().may_strike(step) and step.name in ("store.save_job", "store.save_instance")


@dataclass(frozen=True, kw_only=True)
class Overlapped(CallFault):
    """A whole scheduler pass, or reconcile cycle (`by`), runs before the effect: two invocations overlap."""

    kind = "overlap"
    by: str = "scheduler"

    def before(self, world: World) -> None:
        """Run the other function once; it is not retried."""
        work = world.run_scheduler if self.by == "scheduler" else world.run_reconciler
        world.invoke("overlapping", work, tried=2)


EVENT_FAULTS: dict[str, type[EventFault]] = {fault.kind: fault for fault in (Dropped, Duplicated, Delayed)}
CALL_FAULTS: dict[str, type[CallFault]] = {
    fault.kind: fault for fault in (KilledBefore, KilledAfter, Throttled, AnswerLost, ConditionFails, Overlapped)
}
