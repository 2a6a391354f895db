"""Taking the state out of the one world there is, and putting another in.

Everything that the store, the cluster, the machines and the checks keep is found by looking, so that a field added
there is copied, too; what is of a kind that nobody has thought of is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from gpu_recovery.core.fleet import Fleet as Brakes

from simulator.cloud.fleet import VirtualFleet
from simulator.explore.interning import InternedValues, StepTable, WorkStep
from simulator.explore.read_tracking import Place
from simulator.explore.small_world import SmallWorld
from simulator.explore.state_equivalence import HORIZON_S, NOT_NAMED, seconds
from simulator.explore.state_groups import CONTAINERS, InstanceGroup, ObjectFields, RecordGroup, StateGroup, TaskGroup
from simulator.virtual_clock import START

_ELSEWHERE = {"instances", "tasks", "_tasks", "_registrations", "touched", "ids", "jobs", "machines"}
"""What is copied by itself, or can be found again."""
_OF_SHELVES = {"plans", "progress", "records", "due"}
_COUNTED = {"changes", "boots", "_forgot_at"}
"""What only counts, or only spares work: the same in every state as far as anybody asks."""
_WIRES = {"cluster", "timeline", "timings", "_emit", "goes_down", "about_to_end", "program", "limits", "scheduler"}
"""What holds the world together, and what nobody changes: the limits; what the scheduler's last pass has left, of which
only its ticks take notice, and every pass here is one that somebody asked for."""


class Core(NamedTuple):
    """One state of the world, but for the events that are on their way: the second since START, and for each group the
    number of the row that it holds. `steps` is what machines are about to do, in the order it was asked for."""

    now: int
    fields: int
    jobs: int
    machines: int
    hardware: int
    tasks: int
    steps: int


class StateCapture:
    """Copies states out of and into `world`."""

    def __init__(self, world: SmallWorld) -> None:
        self.world, self.parts = world, InternedValues()
        store: Any = world.memory
        owners = {"store": store, "cluster": world.cluster, "fleet": world.fleet, "checks": world.checks}
        places = [(one, name) for one in owners.values() for name in sorted(vars(one)) if _is_state(one, name)]
        places += [(world, name) for name in ("announced", "incidents", "mishaps")]
        self.fields = ObjectFields(self.parts, [*places, (world.named, "_counts")], NOT_NAMED)
        self.jobs = RecordGroup(self.parts, store.jobs, store, ("progress", "plans"))
        self.machines = RecordGroup(self.parts, store.machines, store)
        self.shelves = {"jobs": self.jobs, "machines": self.machines}
        self._hardware = InstanceGroup(self.parts, list(world.cluster.instances.values()))
        self._tasks = TaskGroup(self.parts, world.cluster)
        self._groups: tuple[StateGroup, ...] = (self.fields, self.jobs, self.machines, self._hardware, self._tasks)
        self._fields = {name: n for n, (_, name) in enumerate(self.fields.places)}
        self._steps = StepTable()

    def take(self, steps: tuple[WorkStep, ...]) -> Core:
        """The state of the world, `steps` being what machines are about to do."""
        groups = [group.take() for group in self._groups]
        return Core._make((seconds(self.world.timeline.now), *groups, self._steps.number(steps)))

    def put(self, core: Core, *, anew: bool = False) -> None:
        """Make it the state of the world, with its tasks in the order of their ids if it is put `anew`. What the run
        before has left in the lists of what happened is thrown away."""
        world = self.world
        world.timeline.now = START + timedelta(seconds=core.now)
        world.timeline.due = []
        for group, number in zip(self._groups, core[1:6], strict=True):
            if anew or number != group.inside:
                group.put(number)
        lives, journal = world.invocations, world.transcript
        for told in (lives.steps, lives.done, lives.killed, journal.lines, journal.broken, journal.placed):
            told.clear()
        world.actions.published.clear()
        world.actions.notified.clear()
        lives.interrupted = 0

    def name(self, core: Core) -> bytes:
        """The same 16 bytes for what is the same."""
        now = core.now
        said = [self._steps.called[core.steps]]
        for group, number in zip(self._groups, core[1:6], strict=True):
            form, times = group.rows.called[number]
            said.append(form)
            said += [max(at - now, -HORIZON_S) for at in times]
        return blake2b(array("q", said).tobytes(), digest_size=16).digest()

    def steps_of(self, core: Core) -> tuple[WorkStep, ...]:
        """What machines are about to do in a state."""
        return self._steps.values[core.steps]

    def records(self, core: Core, shelf: str) -> dict[str, Any]:
        """The records of a shelf (`jobs`, `machines`) by name."""
        return self.shelves[shelf].records(core.jobs if shelf == "jobs" else core.machines)

    def due(self, core: Core, shelf: str) -> dict[str, datetime | None]:
        """When the index of a shelf has each of its records due."""
        return self.shelves[shelf].due(core.jobs if shelf == "jobs" else core.machines)

    def progress(self, core: Core) -> Mapping[tuple[str, int], Any]:
        """The progress of attempts, by job and number."""
        progress: Mapping[tuple[str, int], Any] = self.jobs.of_attempts(core.jobs, 0)
        return progress

    def altered(self, core: Core, shelf: str, changes: Mapping[str, tuple[Any, datetime | None]]) -> Core:
        """The state with other records on a shelf, each due at its time."""
        number = self.shelves[shelf].altered(core.jobs if shelf == "jobs" else core.machines, changes)
        return core._replace(jobs=number) if shelf == "jobs" else core._replace(machines=number)

    def part(self, core: Core, place: Place) -> int:
        """The number of what a state has in a place."""
        shelf, name = place
        if shelf == "jobs":
            return core.jobs
        if shelf == "machines":
            return self.machines.rows.rows[core.machines][self.machines.places[name]]
        return self.fields.rows.rows[core.fields][self._fields[name]]

    def changed(self, core: Core, changes: Iterable[tuple[Place, int]]) -> Core:
        """The state with something else in some places."""
        fields, jobs, machines = None, core.jobs, None
        for (shelf, name), part in changes:
            if shelf == "jobs":
                jobs = part
            elif shelf == "machines":
                machines = machines or list(self.machines.rows.rows[core.machines])
                machines[self.machines.places[name]] = part
            else:
                fields = fields or list(self.fields.rows.rows[core.fields])
                fields[self._fields[name]] = part
        return core._replace(
            fields=core.fields if fields is None else self.fields.rows.number(tuple(fields)),
            jobs=jobs,
            machines=core.machines if machines is None else self.machines.rows.number(tuple(machines)),
        )


def _is_state(one: Any, name: str) -> bool:
    """Whether it is a field of the state that is copied by itself. TypeError for what might be, and is not known."""
    value = vars(one)[name]
    if name in _ELSEWHERE | _OF_SHELVES | _COUNTED | _WIRES or isinstance(value, VirtualFleet):
        return False
    if value is None or isinstance(value, (*CONTAINERS, bool, int, str, datetime, Brakes)):
        return True
    raise TypeError(f"nobody has said whether {type(one).__name__}.{name} is part of a state: {type(value).__name__}")
