"""The same exploration, the slow way: what the explorer saves is measured against it.

Everything is copied each time and written out in full, everything is carried out again wherever it can happen, and each
death is an invocation of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from gpu_recovery.core.attempt import AttemptProgress

from sandbox.cluster.model.records import Task
from simulator.explore import state_equivalence
from simulator.explore.action import DELIVER, STEP, Action, Death, Done, NextState
from simulator.explore.action_runner import dies_before
from simulator.explore.in_flight_events import EventTable
from simulator.explore.model import Bounds, ExploredFault, ModelState, Move
from simulator.explore.properties import PropertyChecker
from simulator.explore.search import Search
from simulator.explore.small_world import SmallWorld
from simulator.explore.transition import Transitions

WIRES = {
    "cluster",
    "timeline",
    "timings",
    "_emit",
    "goes_down",
    "about_to_end",
    "program",
    "jobs",
    "machines",
    "instances",
    "tasks",
    "_tasks",
    "ids",
    "_registrations",
    "touched",
    "ranks",
}
"""What holds the world together, and what is copied by itself."""


class SlowCore:
    """One state: its clock, every attribute, every machine, every task, and what machines are about to do."""

    def __init__(self, world: SmallWorld, steps: tuple[Any, ...]) -> None:
        self.now, self.steps = world.timeline.now, steps
        self.attributes = [(one, name, deepcopy(value)) for one, name, value in attributes(world)]
        self.machines = [deepcopy(vars(machine)) for machine in world.cluster.instances.values()]
        tasks = world.cluster.tasks  # ECS promises no order: every state has them in that of their ids
        self.tasks = [deepcopy(vars(tasks[task_id])) for task_id in sorted(tasks)]
        store = world.memory
        self.shelves = {
            name: (dict(shelf.records), dict(shelf.due))
            for name, shelf in (("jobs", store.jobs), ("machines", store.machines))
        }


def attributes(world: SmallWorld) -> Iterator[tuple[Any, str, Any]]:
    """Every attribute that is not a wire, whatever it is."""
    checks = {name: value for name, value in vars(world.checks).items() if name != "fleet"}
    for one, values in (
        (world.memory, vars(world.memory)),
        (world.cluster, vars(world.cluster)),
        (world.fleet, vars(world.fleet)),
        (world.checks, checks),
    ):
        yield from ((one, name, value) for name, value in values.items() if name not in WIRES)
    yield from ((world, name, getattr(world, name)) for name in ("announced", "incidents", "mishaps"))
    yield world.named, "_counts", world.named._counts


class SlowCopier:
    """What `StateCapture` does."""

    def __init__(self, world: SmallWorld) -> None:
        self.world = world

    def take(self, steps: tuple[Any, ...]) -> SlowCore:
        return SlowCore(self.world, steps)

    def put(self, core: SlowCore) -> None:
        world, store = self.world, self.world.memory
        world.timeline.now, world.timeline.due = core.now, []
        for one, name, value in core.attributes:
            setattr(one, name, deepcopy(value))
        for machine, values in zip(world.cluster.instances.values(), core.machines, strict=True):
            vars(machine).update(deepcopy(values))
        tasks: Any = {values["task_id"]: Task(**deepcopy(values)) for values in core.tasks}
        world.cluster.tasks = tasks
        for name, shelf in (("jobs", store.jobs), ("machines", store.machines)):
            records, due = core.shelves[name]
            shelf.records, shelf.due = dict(records), dict(due)  # type: ignore[assignment]
        for told in (
            world.invocations.steps,
            world.invocations.done,
            world.invocations.killed,
            world.transcript.lines,
            world.transcript.broken,
        ):
            told.clear()
        world.invocations.interrupted = 0

    def steps_of(self, core: SlowCore) -> tuple[Any, ...]:
        return core.steps

    def records(self, core: SlowCore, shelf: str) -> dict[str, Any]:
        return core.shelves[shelf][0]

    def due(self, core: SlowCore, shelf: str) -> dict[str, Any]:
        return {name: core.shelves[shelf][1].get(name) for name in core.shelves[shelf][0]}

    def progress(self, core: SlowCore) -> Mapping[tuple[str, int], Any]:
        return next(value for one, name, value in core.attributes if one is self.world.memory and name == "progress")

    def altered(self, core: SlowCore, shelf: str, changes: Mapping[str, Any]) -> SlowCore:
        after = deepcopy_of(core)
        records, due = (dict(one) for one in core.shelves[shelf])
        for name, (record, at) in changes.items():
            records[name] = record
            due.pop(name, None)
            if at is not None:
                due[name] = at
        after.shelves = {**core.shelves, shelf: (records, due)}
        return after


def deepcopy_of(core: SlowCore) -> SlowCore:
    """Another one with the same in it."""
    after = object.__new__(SlowCore)
    vars(after).update(vars(core))
    return after


def written(core: SlowCore, world: SmallWorld) -> str:
    """Everything in a state that a name may have, in full."""
    now = core.now
    (job,) = core.shelves["jobs"][0].values()
    said = [text(core.shelves[shelf][0], now) for shelf in core.shelves]
    for one, name, whole in core.attributes:
        value = whole
        if name in ("progress", "plans"):
            value = {key: kept for key, kept in whole.items() if key == (job.job_id, job.attempt)}
        if name not in state_equivalence.NOT_NAMED | {"changes", "boots", "_forgot_at", "scheduler", "limits"}:
            said.append(f"{type(one).__name__}.{name}={text(value, now)}")
    said += ["|".join(text(machine[name], now) for name in state_equivalence._OF_INSTANCE) for machine in core.machines]
    for task in sorted(core.tasks, key=lambda one: str(one["task_id"])):
        ends = [(one.exit_code, one.reason) for one in task["containers"]]
        said.append("|".join([*(text(task[name], now) for name in state_equivalence._OF_TASK), text(ends, now)]))
    return "\n".join([*said, *sorted(f"{happen.__qualname__}{about}" for happen, about in core.steps)])


def text(value: Any, now: datetime) -> str:
    """`value` in words that are the same for what is the same."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return f"{max((value - now).total_seconds(), -state_equivalence.HORIZON_S):+.0f}s"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text(one, now)}" for key, one in sorted(value.items())) + "}"
    if isinstance(value, frozenset | set):
        return "{" + ",".join(sorted(text(one, now) for one in value)) + "}"
    if isinstance(value, list | tuple | deque):
        return "(" + ",".join(text(one, now) for one in value) + ")"
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    if isinstance(value, AttemptProgress):
        value = replace(value, running=value.running - value.stopped)
    left_out, told = state_equivalence.LEFT_OUT.get(type(value), set()), []
    for field in fields(value):
        if field.name not in left_out:
            one = getattr(value, field.name)
            told.append(
                f"{bool(one)}" if field.name in ("incident_id", "incident_at", "running_at") else text(one, now)
            )
    return f"{type(value).__name__}({','.join(told)})"


class SlowStage(Transitions):
    """Carries everything out each time that it is asked for."""

    def __init__(self, world: SmallWorld) -> None:
        self.world, self.copier = world, SlowCopier(world)  # type: ignore[assignment]
        self.checker = PropertyChecker(world, self.copier)
        self.events = EventTable({one.arn.rsplit("/", 1)[-1]: one.instance_id for one in world.model_instances()})
        self.cores: list[SlowCore] = []  # type: ignore[assignment]
        self.finals = bytearray()
        self.carried_out = 0
        self.names: dict[str, int] = {}
        self.asks_for_deaths = False
        """Whether it also matters what follows if an invocation dies on its way."""

    def done(self, core: int, action: Action, *, deaths: bool = False) -> Done:
        made: list[str] = []
        steps = self._put(core)
        after = self._watched(action, steps, lambda step: made.append(step.name), lambda: steps)
        found: dict[NextState, Death] = {}
        for effect in range(1, len(made)) if self.asks_for_deaths else ():
            follows = self._killed_before(core, action, effect)
            found.setdefault(follows, Death(effect, follows))
        found.pop(after, None)
        return Done(after, len(made), tuple(found.values()))

    def _killed_before(self, core: int, action: Action, effect: int) -> NextState:
        steps = self._put(core)
        self.world.hook.act = dies_before(effect)
        try:
            self._happen(action, steps)
        finally:
            self.world.hook.act = lambda step: None
        return self._taken(steps, of_the_dead=True)

    def _put(self, number: int) -> tuple[Any, ...]:
        self.carried_out += 1
        core = self._begun = self.cores[number]  # type: ignore[assignment]
        self.copier.put(core)  # type: ignore[arg-type]
        return core.steps  # type: ignore[return-value]

    def begin(self) -> int:
        self._begun = self.copier.take(())
        return self._taken(()).core

    def _numbered(self, core: Any) -> int:
        name = written(core, self.world)
        number = self.names.get(name)
        if number is None:
            self.checker.check(core)
            number = self.names[name] = len(self.cores)
            self.cores.append(core)
            self.finals.append(self.checker.is_final(core))
        return number

    def is_news(self, core: int, event: int) -> bool:
        state, told = self.cores[core], self.events.known[event]
        held = told.is_held(self.copier.records(state, "machines"), self.copier.progress(state))  # type: ignore[arg-type]
        asks, self.asks_for_deaths = self.asks_for_deaths, False
        try:
            return not (held and self.done(core, Action(DELIVER, event)).after == NextState(core))
        finally:
            self.asks_for_deaths = asks


class Recorded(Search):
    """Enters every transition with the states that it connects, each in full, and how it was found."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.transitions: set[tuple[str, str, str]] = set()
        self._known: dict[ModelState, str] = {}

    def _following(self, number: int, state: ModelState) -> Iterator[tuple[Move, ModelState]]:
        yield from self._entered(state, super()._following(number, state))

    def _going_wrong(self, number: int, state: ModelState) -> Iterator[tuple[Move, ModelState]]:
        yield from self._entered(state, super()._going_wrong(number, state))

    def _entered(
        self, state: ModelState, found: Iterator[tuple[Move, ModelState]]
    ) -> Iterator[tuple[Move, ModelState]]:
        for move, after in found:
            self.transitions.add((self.told(state), self._move(state, move), self.told(after)))
            yield move, after

    def told(self, state: ModelState) -> str:
        """A state in full."""
        known = self._known.get(state)
        if known is None:
            events = [tuple(map(self._event, line)) for line in (*state.lines, state.late)]
            known = self._known[state] = f"{self.world_told(state.core)}\n{events} {state.slow} {state.crashes}"
        return known

    def world_told(self, core: int) -> str:
        """The world in full, however the stage keeps it."""
        self.stage.copier.put(self.stage.cores[core])
        world = self.stage.world
        return written(SlowCore(world, self.stage.copier.steps_of(self.stage.cores[core])), world)

    def _event(self, number: int) -> str:
        event = self.stage.events.known[number]
        return f"{event.words} {event.envelope['detail'].get('version')}"

    def _move(self, state: ModelState, move: Move) -> str:
        words = [str(move.fault), str(move.effect)]
        for action in (move.action, move.inner):
            if action is None or action.name not in (DELIVER, STEP):
                words.append(str(action and action.name))
            elif action.name == DELIVER:
                words.append(self._event(action.number))
            else:
                words.append(str(self.stage.steps(state.core)[action.number][0].__qualname__))
                words.append(str(self.stage.steps(state.core)[action.number][1]))
        return " ".join(words)


class SlowSearch(Recorded):
    """Keeps every state as it is."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.stage: SlowStage = SlowStage(SmallWorld(bounds.incident))
        self.walk.stage = self.stage

    def all_states(self) -> list[list[str]]:
        """Walk; the states, by the fewest faults with which they are reached."""
        level = [ModelState(self.stage.begin(), ((),) * len(self._lines))]
        known: dict[ModelState, None] = {}
        for faults in range(self.bounds.faults + 1):
            queue, before, after = deque[ModelState](), len(known), list[ModelState]()
            for state in level:
                if state not in known:
                    known[state] = None
                    queue.append(state)
            while queue:
                state = queue.popleft()
                if self._is_final(state):
                    continue
                for _, follows in self._following(0, state):
                    if follows not in known:
                        known[follows] = None
                        queue.append(follows)
                if faults < self.bounds.faults:
                    self.stage.asks_for_deaths = ExploredFault.CRASH in self.bounds.kinds
                    after += [follows for _, follows in self._going_wrong(0, state)]
                    self.stage.asks_for_deaths = False
            self.walk.states_by_faults.append(len(known) - before)
            level = after
        found = iter(known)
        return [[self.told(next(found)) for _ in range(count)] for count in self.walk.states_by_faults]
