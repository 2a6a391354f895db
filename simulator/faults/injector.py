"""Fault injection: carries out the faults of one world, from a scenario or drawn from a seed during the run.

Each fault that a seed draws is recorded when it strikes. The recorded faults, replayed as a scenario, make the same
run again. So a failing seed can be reduced to the few faults that matter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from simulator.faults.delivery import PROMPT_S, Envelope
from simulator.faults.schedule import TimedFault
from simulator.faults.transient import (
    CALL_FAULTS,
    CallFault,
    Delayed,
    Dropped,
    Duplicated,
    EventFault,
    Overlapped,
    kind_of,
)
from simulator.invocations import Effect

if TYPE_CHECKING:
    from simulator.world import World

Fault = TimedFault | EventFault | CallFault


class Source(Protocol):
    """Decides which fault strikes an event or a call, if any."""

    def of_event(self, event: str, nth: int) -> EventFault | None:
        """Return the fault that strikes event number `nth` of the kind `event`, counted from 1; None for no fault."""
        ...

    def of_call(self, step: Effect, nth: int) -> CallFault | None:
        """Return the fault that strikes the effect, number `nth` of its name, counted from 1; None for no fault."""
        ...


class ScriptedFaults:
    """A source of the event and call faults of a scenario."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        listed = list(faults)
        self.events = {(fault.event, fault.nth): fault for fault in listed if isinstance(fault, EventFault)}
        self.calls = {(fault.call, fault.nth): fault for fault in listed if isinstance(fault, CallFault)}

    def of_event(self, event: str, nth: int) -> EventFault | None:
        """Return the fault that the scenario has for the event, or None."""
        return self.events.get((event, nth))

    def of_call(self, step: Effect, nth: int) -> CallFault | None:
        """Return the fault that the scenario has for the effect, or None."""
        return self.calls.get((step.name, nth))


@dataclass
class RandomFaults:
    """A source of faults that one seed draws.

    rates:      the probability of each kind to strike an event or a call, from 0 to 1.
    late_max_s: the upper bound of a delay, in seconds.
    only:       for kinds that may strike certain calls only, the names of these calls.
    """

    seed: int
    rates: Mapping[str, float]
    late_max_s: float = 240
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(f"faults in passing {self.seed}")

    def of_event(self, event: str, nth: int) -> EventFault | None:
        """Draw the fault that strikes the event, or None."""
        kind = self._kind(("drop", "duplicate", "delay"))
        late_s = round(self.random.uniform(PROMPT_S, self.late_max_s), 1) if kind else 0
        if kind == "drop":
            return Dropped(event=event, nth=nth)
        if kind == "duplicate":
            return Duplicated(event=event, nth=nth, after_s=late_s)
        return Delayed(event=event, nth=nth, by_s=late_s) if kind == "delay" else None

    def of_call(self, step: Effect, nth: int) -> CallFault | None:
        """Draw the fault that strikes the effect, or None."""
        kind = self._kind(CALL_FAULTS)
        if kind is None or not CALL_FAULTS[kind].may_strike(step) or step.name not in self.only.get(kind, (step.name,)):
            return None
        if kind == Overlapped.kind:
            return Overlapped(call=step.name, nth=nth, by=self.random.choice(("scheduler", "reconciler")))
        return CALL_FAULTS[kind](call=step.name, nth=nth)

    def _kind(self, kinds: Iterable[str]) -> str | None:
        drawn = self.random.random()
        for kind in kinds:
            drawn -= self.rates.get(kind, 0)
            if drawn < 0:
                return kind
        return None


class FaultInjector:
    """Nemesis and delivery of one world.

    Args:
        source: Decides which faults strike.
        quiet_s: Virtual seconds after which no fault strikes any more. Then every job must come to its end.
    """

    def __init__(self, source: Source, quiet_s: float) -> None:
        self.source, self.quiet_s = source, quiet_s
        self.injected: list[EventFault | CallFault] = []
        self._world: World | None = None
        self._quiet_at = datetime.max
        self._seen: Counter[str] = Counter()
        self._striking: dict[int, CallFault] = {}
        self._overlapped = False

    def begin(self, world: World) -> None:
        """Begin to inject faults into the world."""
        self._world, self._quiet_at = world, world.timeline.now + timedelta(seconds=self.quiet_s)

    def deliver(self, envelope: Envelope) -> Sequence[float]:
        """Return after how many seconds the event arrives, once for each arrival: a `Delivery`."""
        event = kind_of(envelope)
        self._seen[event] += 1
        fault = self.source.of_event(event, self._seen[event]) if self._active_world() else None
        if fault is None:
            return (PROMPT_S,)
        self.injected.append(fault)
        return fault.arrivals()

    def before(self, step: Effect) -> None:
        """Let the fault that strikes the effect, if any, act before the effect."""
        world = self._active_world()
        self._seen[step.name] += 1
        fault = self.source.of_call(step, self._seen[step.name]) if world else None
        if world is None or fault is None or (isinstance(fault, Overlapped) and self._overlapped):
            return
        self.injected.append(fault)
        outermost, self._overlapped = self._overlapped, self._overlapped or isinstance(fault, Overlapped)
        try:
            fault.before(world)
        finally:
            self._overlapped = outermost
        self._striking[step.number] = fault

    def after(self, step: Effect) -> None:
        """Let the fault that strikes the effect, if any, act after the effect."""
        fault = self._striking.pop(step.number, None)
        if fault is not None and self._world is not None:
            fault.after(self._world)

    def _active_world(self) -> World | None:
        """Return the world while faults may strike, else None."""
        world = self._world
        return world if world is not None and world.timeline.now < self._quiet_at else None
