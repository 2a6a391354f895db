"""The places of the world that make up its state, in groups: each takes out what they hold, and puts it in.

What a group has taken or put last is what the world holds, so only what has changed since is looked at closely. What is
changed in place (dicts, machines, tasks) is compared with a copy of its own; records are never changed in place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from copy import copy
from datetime import datetime
from typing import Any, Protocol, TypeVar

from sandbox.cluster.model.cluster import ClusterModel
from sandbox.cluster.model.records import ModelInstance, Task
from simulator.explore.interning import NAMELESS, InternedValues, RowTable
from simulator.explore.state_equivalence import (
    form,
    form_of_attempts,
    form_of_machine,
    form_of_task,
    seconds,
    whole_form,
)

Value = TypeVar("Value")
TaskFields = tuple[dict[str, Any], tuple[dict[str, Any], ...]]
"""The fields of a task, and those of its containers."""
CONTAINERS = (dict, set, list, deque, Counter)
_OF_MACHINES_KEPT = ("live", "faults", "impaired", "scheduled")
"""The fields of a machine that the model changes in place."""
_UNSEEN = object()


class StateGroup(Protocol):
    """Some places: `inside` is the number of the row that the world holds there, one of `rows`."""

    rows: RowTable
    inside: int

    def take(self) -> int:
        """The number of the row that the world holds."""

    def put(self, number: int) -> None:
        """Make the world hold that row."""


class ObjectFields:
    """Attributes of objects. `nameless`: those that are no part of a state's name."""

    def __init__(self, parts: InternedValues, places: list[tuple[Any, str]], nameless: set[str]) -> None:
        self.parts, self.rows, self.places = parts, RowTable(parts), places
        self._nameless = nameless
        self._seen: list[Any] = [_UNSEEN] * len(places)
        self._row = [0] * len(places)
        self.inside = -1

    def take(self) -> int:
        """The number of the row that the world holds."""
        changed = False
        for n, (one, name) in enumerate(self.places):
            value, seen = getattr(one, name), self._seen[n]
            if value is seen or (value == seen and type(value) is type(seen)):
                continue
            self._seen[n], changed = copied(value), True
            exactly = form(value)
            self._row[n] = self.parts.number(
                name, self._seen[n], exactly, NAMELESS if name in self._nameless else exactly
            )
        if changed:
            self.inside = self.rows.number(tuple(self._row))
        return self.inside

    def put(self, number: int) -> None:
        """Make the world hold that row."""
        self.inside, values = number, self.parts.values
        for n, part in enumerate(self.rows.rows[number]):
            if part != self._row[n]:
                self._row[n] = part
                self._seen[n] = values[part]
                setattr(*self.places[n], copied(values[part]))


class RecordGroup:
    """The records of one shelf, each with when it is due, and what is kept of `attempts` by job and number."""

    def __init__(self, parts: InternedValues, shelf: Any, store: Any, attempts: tuple[str, ...] = ()) -> None:
        self.parts, self.rows, self.shelf = parts, RowTable(parts), shelf
        self._store, self._attempts = store, attempts
        self.names = tuple(shelf.records)
        self.places = {name: n for n, name in enumerate(self.names)}
        self._kept: list[tuple[Any, datetime | None]] = [(None, None)] * len(self.names)
        self._others: list[Any] = [None] * len(attempts)
        self._row = [0] * (len(self.names) + len(attempts))
        self._at: tuple[int, ...] = ()
        """Which attempt each job is at, if that matters."""
        self.inside = -1

    def take(self) -> int:
        """The number of the row that the world holds. LookupError for a record that nobody has thought of."""
        records, due, row, changed = self.shelf.records, self.shelf.due, self._row, False
        if len(records) != len(self.names):
            raise LookupError(f"the small world has {len(self.names)} records here, and now {len(records)}")
        for n, name in enumerate(self.names):
            record, at = self._kept[n]
            if records[name] is not record or due.get(name) != at:
                self._kept[n], changed = (records[name], due.get(name)), True
                row[n] = self._number(*self._kept[n])
        if not self._attempts:
            at_attempts: tuple[int, ...] = ()
        else:
            at_attempts = tuple([records[name].attempt for name in self.names])
        for n, attribute in enumerate(self._attempts):
            value = getattr(self._store, attribute)
            if value != self._others[n] or at_attempts != self._at:
                self._others[n], changed = dict(value), True
                called = form_of_attempts(value, dict(zip(self.names, at_attempts, strict=True)))
                place = f"{attribute}{at_attempts}"
                row[len(self.names) + n] = self.parts.number(place, self._others[n], form(value), called)
        self._at = at_attempts
        if changed:
            self.inside = self.rows.number(tuple(row))
        return self.inside

    def _number(self, record: Any, at: datetime | None) -> int:
        called = form(record)
        due = -1 if at is None else seconds(at)
        return self.parts.number("record", (record, at), called._replace(times=(*called.times, due)), called)

    def put(self, number: int) -> None:
        """Make the world hold that row."""
        self.inside, values, row = number, self.parts.values, self.rows.rows[number]
        count = len(self.names)
        self._kept = [values[part] for part in row[:count]]
        self.shelf.records = {name: kept[0] for name, kept in zip(self.names, self._kept, strict=True)}
        self.shelf.due = {name: kept[1] for name, kept in zip(self.names, self._kept, strict=True) if kept[1]}
        for n, part in enumerate(row[count:]):
            if part != self._row[count + n]:
                self._others[n] = values[part]
                setattr(self._store, self._attempts[n], dict(values[part]))
        self._row = list(row)
        self._at = tuple([kept[0].attempt for kept in self._kept]) if self._attempts else ()

    def altered(self, number: int, changes: Mapping[str, tuple[Any, datetime | None]]) -> int:
        """The number of a row that has other records, each due at its time, and else what row `number` has."""
        row = list(self.rows.rows[number])
        for name, kept in changes.items():
            row[self.places[name]] = self._number(*kept)
        return self.rows.number(tuple(row))

    def records(self, number: int) -> dict[str, Any]:
        """The records of a row, by name."""
        values = self.parts.values
        return {name: values[part][0] for name, part in zip(self.names, self.rows.rows[number], strict=False)}

    def due(self, number: int) -> dict[str, datetime | None]:
        """When each record of a row is due, as the index has it."""
        values = self.parts.values
        return {name: values[part][1] for name, part in zip(self.names, self.rows.rows[number], strict=False)}

    def of_attempts(self, number: int, n: int) -> Any:
        """Of a row what is kept of attempts: the first, second and so on of these."""
        return self.parts.values[self.rows.rows[number][len(self.names) + n]]


class InstanceGroup:
    """The machines, of which there are always the same ones."""

    def __init__(self, parts: InternedValues, machines: list[ModelInstance]) -> None:
        self.parts, self.rows, self._machines = parts, RowTable(parts), machines
        self._row = [0] * len(machines)
        self._seen: list[Any] = [_UNSEEN] * len(machines)
        self.inside = -1

    def take(self) -> int:
        """The number of the row that the world holds."""
        changed = False
        for n, machine in enumerate(self._machines):
            if vars(machine) != self._seen[n]:
                fields = {name: copied(value) for name, value in vars(machine).items()}
                self._seen[n], changed = fields, True
                self._row[n] = self.parts.number("machine", fields, whole_form(fields), form_of_machine(fields))
        if changed:
            self.inside = self.rows.number(tuple(self._row))
        return self.inside

    def put(self, number: int) -> None:
        """Make the world hold that row."""
        self.inside = number
        for n, part in enumerate(self.rows.rows[number]):
            if part != self._row[n]:
                fields = self.parts.values[part]
                self._row[n], self._seen[n] = part, fields
                vars(self._machines[n]).update(fields)
                for name in _OF_MACHINES_KEPT:
                    setattr(self._machines[n], name, copy(fields[name]))


class TaskGroup:
    """The tasks that the cluster knows, in the order of their ids."""

    def __init__(self, parts: InternedValues, cluster: ClusterModel) -> None:
        self.parts, self.rows, self._cluster = parts, RowTable(parts), cluster
        self._pool: dict[str, Task] = {}
        """Every task that there ever was, by its id, to be filled with what it is in one state."""
        self._seen: dict[str, tuple[int, TaskFields]] = {}
        self.inside = self.rows.number(())

    def take(self) -> int:
        """The number of the row that the world holds."""
        tasks, seen = self._cluster.tasks, self._seen
        changed = len(tasks) != len(seen)
        for task_id, task in tasks.items():
            known = seen.get(task_id)
            containers = task.containers
            if known is not None and known[1][0] == vars(task) and known[1][1] == tuple(map(vars, containers)):
                continue
            changed = True
            self._pool[task_id] = task
            kept = {**vars(task)}, tuple([{**vars(container)} for container in containers])
            seen[task_id] = self.parts.number("task", kept, whole_form(*kept), form_of_task(*kept)), kept
        if changed:
            if len(seen) > len(tasks):
                self._seen = seen = {task_id: seen[task_id] for task_id in tasks}
            self.inside = self.rows.number(tuple([seen[task_id][0] for task_id in sorted(seen)]))
        return self.inside

    def put(self, number: int) -> None:
        """Make the world hold that row."""
        self.inside = number
        kept = [(part, self.parts.values[part]) for part in self.rows.rows[number]]
        self._seen = {fields["task_id"]: (part, (fields, containers)) for part, (fields, containers) in kept}
        tasks: Any = {task_id: self._filled(task_id, *fields) for task_id, (_, fields) in self._seen.items()}
        self._cluster.tasks = tasks

    def _filled(self, task_id: str, fields: dict[str, Any], containers: tuple[dict[str, Any], ...]) -> Task:
        task = self._pool[task_id]
        vars(task).update(fields)
        for container, values in zip(task.containers, containers, strict=True):
            vars(container).update(values)
        return task


def copied(value: Value) -> Value:
    """`value`, or a copy of its own if it is changed in place."""
    return copy(value) if isinstance(value, CONTAINERS) else value
