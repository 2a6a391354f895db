"""Taking the state out of the one world there is, and putting another in.

A state is a row of parts: each field that the store, the cluster, the machines and the checks keep, each machine, each
task. They are found by looking, so that a field added there is copied, too. A part that a transition has not changed is
the same object before and after it, which makes copying, comparing and keeping very many states cheap.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from copy import copy
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from gpu_recovery.core.fleet import Fleet as Brakes

from sandbox.cluster.model import Instance, Task

from .small_world import SmallWorld

Value = TypeVar("Value")
WorkStep = tuple[Callable[..., object], tuple[Any, ...]]
"""Something that a machine is about to do."""
TaskFields = tuple[dict[str, Any], tuple[dict[str, Any], ...]]
"""The fields of a task, and those of its containers."""
_CONTAINERS = (dict, set, list, deque, Counter)
_ELSEWHERE = {"instances", "tasks", "_tasks", "_registrations", "touched", "ids", "jobs", "machines"}
"""What is copied by hand, or can be found again."""
_OF_MACHINES_KEPT = ("live", "faults", "impaired", "scheduled")
"""The fields of a machine that the model changes in place."""


class Core(NamedTuple):
    """One state of the world, but for the events that are on their way.

    kept:     the fields of the roots, in the order of `Copier.roots`; then those of each machine.
    tasks:    those of each task, in the order of their ids.
    steps:    what machines are about to do, in the order it was asked for.
    """

    now: datetime
    kept: tuple[Any, ...]
    machines: tuple[dict[str, Any], ...]
    tasks: tuple[TaskFields, ...]
    steps: tuple[WorkStep, ...]


class Copier:
    """Copies states out of and into `world`."""

    def __init__(self, world: SmallWorld) -> None:
        self.world = world
        store: Any = world.store
        owners = {
            "store": store, "jobs": store.jobs, "machines": store.machines, "cluster": world.cluster,
            "fleet": world.fleet, "checks": world.checks,
        }  # fmt: skip
        names = {
            what: sorted(n for n, value in vars(one).items() if _is_state(n, value)) for what, one in owners.items()
        }
        owners |= {"world": world, "ids": world.named}
        names |= {"world": ["announced", "incidents", "mishaps"], "ids": ["_counts"]}
        self.roots: list[tuple[Any, str]] = [(owners[what], name) for what in owners for name in names[what]]
        self.places = {(what, name): n for n, (what, name) in enumerate((w, name) for w in owners for name in names[w])}
        """Where each field is in `Core.kept`."""
        self._machines = list(world.cluster.instances.values())
        self._pool: dict[str, Task] = {}
        """Every task that there ever was, by its id, to be filled with what it is in one state."""
        nothing: dict[str, Any] = {}
        self._inside = Core(world.timeline.now, (None,) * len(self.roots), (nothing,) * len(self._machines), (), ())
        """What is in the world, as far as it was put in or taken out."""

    def take(self, steps: tuple[WorkStep, ...]) -> Core:
        """The state of the world, `steps` being what machines are about to do."""
        before = self._inside
        tasks = self.world.cluster.tasks
        self._pool.update(tasks)
        known = {fields["task_id"]: (fields, containers) for fields, containers in before.tasks}
        self._inside = Core(
            self.world.timeline.now,
            tuple([_shared(getattr(one, name), old) for (one, name), old in zip(self.roots, before.kept, strict=True)]),
            tuple([_machine(one, old) for one, old in zip(self._machines, before.machines, strict=True)]),
            tuple([_task(tasks[task_id], known.get(task_id)) for task_id in sorted(tasks)]),
            steps,
        )
        return self._inside

    def put(self, core: Core) -> None:
        """Make it the state of the world. What the run before has left in the lists of what happened is thrown away."""
        world, inside = self.world, self._inside
        self._inside = core
        world.timeline.now = core.now
        world.timeline.due = []
        for (one, name), value, old in zip(self.roots, core.kept, inside.kept, strict=True):
            if value is not old:
                setattr(one, name, _copied(value))
        for machine, fields, was in zip(self._machines, core.machines, inside.machines, strict=True):
            if fields is not was:
                vars(machine).update(fields)
                for name in _OF_MACHINES_KEPT:
                    setattr(machine, name, copy(fields[name]))
        if core.tasks != inside.tasks:
            tasks: Any = {kept[0]["task_id"]: self._filled(kept) for kept in core.tasks}
            world.cluster.tasks = tasks
        lives = world.lives
        journal = world.journal
        for told in (lives.steps, lives.done, lives.killed, journal.lines, journal.broken, journal.placed):
            told.clear()
        world.actions.published.clear()
        world.actions.notified.clear()
        lives.interrupted = 0

    def kept(self, core: Core, owner: str, name: str) -> Any:
        """One field of a state: of the store, its shelves (`jobs`, `machines`), the cluster, the fleet, the checks."""
        return core.kept[self.places[owner, name]]

    def _filled(self, kept: TaskFields) -> Task:
        fields, containers = kept
        task = self._pool[fields["task_id"]]
        vars(task).update(fields)
        for container, values in zip(task.containers, containers, strict=True):
            vars(container).update(values)
        return task


def _is_state(name: str, value: object) -> bool:
    plain = value is None or isinstance(value, (*_CONTAINERS, bool, int, str, datetime, Brakes))
    return name not in _ELSEWHERE and plain


def _machine(machine: Instance, known: dict[str, Any]) -> dict[str, Any]:
    now = vars(machine)
    return known if known == now else {name: _copied(value) for name, value in now.items()}


def _task(task: Task, known: TaskFields | None) -> TaskFields:
    containers = task.containers
    if known is not None and known[0] == vars(task) and known[1] == tuple(map(vars, containers)):
        return known
    return {**vars(task)}, tuple([{**vars(container)} for container in containers])


def _copied(value: Value) -> Value:
    return copy(value) if isinstance(value, _CONTAINERS) else value


def _shared(value: Value, known: Value) -> Value:
    """A copy of `value`, or `known` if that is the same."""
    return known if known == value and type(known) is type(value) else _copied(value)
