"""Carrying out faults in one world: those that a scenario gives, or those that a seed draws as the run goes on.

What a seed draws is recorded as it strikes. The record, given back as a scenario's faults, makes the same run again,
which is what lets a failing seed be cut down to the few faults that matter.
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
    """Says which fault strikes, if any."""

    def of_event(self, event: str, nth: int) -> EventFault | None: ...

    def of_call(self, step: Effect, nth: int) -> CallFault | None: ...


class ScriptedFaults:
    """The faults of a scenario."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        listed = list(faults)
        self.events = {(one.event, one.nth): one for one in listed if isinstance(one, EventFault)}
        self.calls = {(one.call, one.nth): one for one in listed if isinstance(one, CallFault)}

    def of_event(self, event: str, nth: int) -> EventFault | None:
        return self.events.get((event, nth))

    def of_call(self, step: Effect, nth: int) -> CallFault | None:
        return self.calls.get((step.name, nth))


@dataclass
class RandomFaults:
    """Faults as one seed has them.

    rates: the chance of each kind to strike whatever it can, from 0 to 1.
    only:  the calls that a kind may strike, for kinds that may not strike each.
    """

    seed: int
    rates: Mapping[str, float]
    late_max_s: float = 240
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(f"faults in passing {self.seed}")

    def of_event(self, event: str, nth: int) -> EventFault | None:
        kind = self._kind(("drop", "duplicate", "delay"))
        late_s = round(self.random.uniform(PROMPT_S, self.late_max_s), 1) if kind else 0
        if kind == "drop":
            return Dropped(event=event, nth=nth)
        if kind == "duplicate":
            return Duplicated(event=event, nth=nth, after_s=late_s)
        return Delayed(event=event, nth=nth, by_s=late_s) if kind == "delay" else None

    def of_call(self, step: Effect, nth: int) -> CallFault | None:
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
    """Nemesis and delivery of one world, until `quiet_s` of virtual time: then faults stop, and all must end well."""

    def __init__(self, source: Source, quiet_s: float) -> None:
        self.source, self.quiet_s = source, quiet_s
        self.injected: list[EventFault | CallFault] = []
        self._world: World | None = None
        self._quiet_at = datetime.max
        self._seen: Counter[str] = Counter()
        self._striking: dict[int, CallFault] = {}
        self._overlapped = False

    def begin(self, world: World) -> None:
        """From now on."""
        self._world, self._quiet_at = world, world.timeline.now + timedelta(seconds=self.quiet_s)

    def deliver(self, envelope: Envelope) -> Sequence[float]:
        """When the event arrives: a `Delivery`."""
        event = kind_of(envelope)
        self._seen[event] += 1
        fault = self.source.of_event(event, self._seen[event]) if self._awake() else None
        if fault is None:
            return (PROMPT_S,)
        self.injected.append(fault)
        return fault.arrivals()

    def before(self, step: Effect) -> None:
        world = self._awake()
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
        fault = self._striking.pop(step.number, None)
        if fault is not None and self._world is not None:
            fault.after(self._world)

    def _awake(self) -> World | None:
        world = self._world
        return world if world is not None and world.timeline.now < self._quiet_at else None
