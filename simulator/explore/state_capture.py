"""State capture: takes the state out of the world, and puts another state in.

The fields of the store, the cluster, the fleet and the checks are found by introspection, so that a new field is
captured, too. A field of an unknown type is rejected.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from gpu_recovery.core.fleet import Fleet

from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.held_ranks import HeldRanks
from simulator.explore.interning import InternedValues, StepTable, WorkStep
from simulator.explore.small_world import SmallWorld
from simulator.explore.state_equivalence import HORIZON_S, NOT_NAMED, seconds
from simulator.explore.state_groups import CONTAINERS, InstanceGroup, ObjectFields, RecordGroup, StateGroup, TaskGroup
from simulator.virtual_clock import START

_ELSEWHERE = {"instances", "tasks", "_tasks", "_registrations", "touched", "ids", "jobs", "machines"}
"""Fields that a group of their own captures, or that are computed from other fields."""
_OF_SHELVES = {"plans", "progress", "records", "due"}
"""Fields that `RecordGroup` captures."""
_COUNTED = {"changes", "boots", "_forgot_at"}
"""Counters and caches. No decision reads them, so they may differ between equal states."""
_WIRES = {
    "cluster",
    "timeline",
    "timings",
    "_emit",
    "goes_down",
    "about_to_end",
    "on_document",
    "program",
    "limits",
    "scheduler",
}
"""References between the objects of the world, and fields that never matter here.

Nothing changes the limits. `scheduler` holds the result of the latest pass, which only the ticks of the scheduler read;
here every pass was requested.
"""


class Core(NamedTuple):
    """State of the world without the events in flight: a time, and the number of the row of each group.

    Attributes:
        now: seconds since START.
        fields: row of the fields of objects.
        jobs: row of the records of jobs, with their progress and plans.
        instances: row of the records of instances.
        hardware: row of the instances in the cluster model.
        tasks: row of the tasks in the cluster model.
        steps: number of the pending steps of instances, in the order in which they were scheduled.
    """

    now: int
    fields: int
    jobs: int
    instances: int
    hardware: int
    tasks: int
    steps: int


class StateCapture:
    """Copies states out of `world` and into `world`."""

    def __init__(self, world: SmallWorld) -> None:
        self.world, self.parts = world, InternedValues()
        store: Any = world.memory
        owners = {"store": store, "cluster": world.cluster, "fleet": world.fleet, "checks": world.checks}
        places = [(owner, name) for owner in owners.values() for name in sorted(vars(owner)) if _is_state(owner, name)]
        places += [(world, name) for name in ("announced", "incidents", "mishaps")]
        self.fields = ObjectFields(self.parts, [*places, (world.named, "_counts")], NOT_NAMED)
        self.jobs = RecordGroup(self.parts, store.jobs, store, ("progress", "plans"))
        self.instances = RecordGroup(self.parts, store.machines, store)
        self.shelves = {"jobs": self.jobs, "machines": self.instances}
        self._hardware = InstanceGroup(self.parts, list(world.cluster.instances.values()))
        self._tasks = TaskGroup(self.parts, world.cluster)
        self._groups: tuple[StateGroup, ...] = (self.fields, self.jobs, self.instances, self._hardware, self._tasks)
        self._steps = StepTable()

    def take(self, steps: tuple[WorkStep, ...]) -> Core:
        """Return the state of the world, with the pending steps `steps`."""
        groups = [group.take() for group in self._groups]
        return Core._make((seconds(self.world.timeline.now), *groups, self._steps.number(steps)))

    def put(self, core: Core, *, anew: bool = False) -> None:
        """Make `core` the state of the world, and clear the recorded effects, transcript and messages.

        Args:
            core: the state.
            again: whether all groups are put, also the groups with unchanged rows. The tasks are then in id order.
        """
        world = self.world
        world.timeline.now = START + timedelta(seconds=core.now)
        world.timeline.due = []
        for group, number in zip(self._groups, core[1:6], strict=True):
            if anew or number != group.inside:
                group.put(number)
        invocations, transcript = world.invocations, world.transcript
        for record_list in (
            invocations.steps,
            invocations.done,
            invocations.killed,
            transcript.lines,
            transcript.broken,
            transcript.placed,
        ):
            record_list.clear()
        world.actions.published.clear()
        world.actions.causes.clear()
        world.actions.notified.clear()
        invocations.interrupted = 0

    def name(self, core: Core) -> bytes:
        """Return the name of the state: 16 bytes, the same for equivalent states (see `state_equivalence`)."""
        now = core.now
        numbers = [self._steps.called[core.steps]]
        for group, number in zip(self._groups, core[1:6], strict=True):
            form, times = group.rows.called[number]
            numbers.append(form)
            numbers += [max(time - now, -HORIZON_S) for time in times]
        return blake2b(array("q", numbers).tobytes(), digest_size=16).digest()

    def steps_of(self, core: Core) -> tuple[WorkStep, ...]:
        """Return the pending steps of instances in a state."""
        return self._steps.values[core.steps]

    def records(self, core: Core, shelf: str) -> dict[str, Any]:
        """Return the records of a shelf by id. `shelf`: name of the shelf in the store."""
        return self.shelves[shelf].records(core.jobs if shelf == "jobs" else core.instances)

    def due(self, core: Core, shelf: str) -> dict[str, datetime | None]:
        """Return the due time of each record in the index of a shelf, by id."""
        return self.shelves[shelf].due(core.jobs if shelf == "jobs" else core.instances)

    def progress(self, core: Core) -> Mapping[tuple[str, int], Any]:
        """Return the progress of attempts, by job id and attempt number."""
        progress: Mapping[tuple[str, int], Any] = self.jobs.of_attempts(core.jobs, 0)
        return progress

    def altered(self, core: Core, shelf: str, changes: Mapping[str, tuple[Any, datetime | None]]) -> Core:
        """Return the state with changed records of a shelf. `changes`: new record and due time, by id."""
        number = self.shelves[shelf].altered(core.jobs if shelf == "jobs" else core.instances, changes)
        return core._replace(jobs=number) if shelf == "jobs" else core._replace(instances=number)


def _is_state(owner: Any, name: str) -> bool:
    """Whether the field `name` of `owner` is part of the state and captured by `ObjectFields`.

    Raises:
        TypeError: the type of the field is unknown, so that the field may or may not be part of the state.
    """
    value = vars(owner)[name]
    if name in _ELSEWHERE | _OF_SHELVES | _COUNTED | _WIRES or isinstance(value, VirtualFleet | HeldRanks):
        return False
    if value is None or isinstance(value, (*CONTAINERS, bool, int, str, datetime, Fleet)):
        return True
    raise TypeError(f"decide whether {type(owner).__name__}.{name} ({type(value).__name__}) is part of a state")
