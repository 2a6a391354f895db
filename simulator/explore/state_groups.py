"""Groups of the places that make up a state of the world: each group takes its parts out and puts other parts in.

A group remembers the row that it took or put last, so only later changes need work. Objects that are changed in place
(dicts, instances, tasks) are compared with a copy. Records are never changed in place.
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
    form_of_instance,
    form_of_task,
    seconds,
    whole_form,
)

Value = TypeVar("Value")
TaskFields = tuple[dict[str, Any], tuple[dict[str, Any], ...]]
"""Fields of a task, and fields of each of its containers."""
CONTAINERS = (dict, set, list, deque, Counter)
"""Types of values that are changed in place."""
_CHANGED_IN_PLACE = ("live", "faults", "impaired", "scheduled")
"""Fields of an instance that the cluster model changes in place."""
_UNSEEN = object()


class StateGroup(Protocol):
    """A group of places. `inside` is the number of the row, in the table `rows`, that the world has now."""

    rows: RowTable
    inside: int

    def take(self) -> int:
        """Take the present state of the places out of the world. Return the number of its row."""

    def put(self, number: int) -> None:
        """Put row `number` into the world."""


class ObjectFields:
    """Group of attributes of objects. `nameless`: names of the attributes that are not part of the name of a state."""

    def __init__(self, parts: InternedValues, places: list[tuple[Any, str]], nameless: set[str]) -> None:
        self.parts, self.rows, self.places = parts, RowTable(parts), places
        self._nameless = nameless
        self._seen: list[Any] = [_UNSEEN] * len(places)
        self._row = [0] * len(places)
        self.inside = -1

    def take(self) -> int:
        """Take the present state of the places out of the world. Return the number of its row."""
        changed = False
        for n, (owner, name) in enumerate(self.places):
            value, seen = getattr(owner, name), self._seen[n]
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
        """Put row `number` into the world."""
        self.inside, values = number, self.parts.values
        for n, part in enumerate(self.rows.rows[number]):
            if part != self._row[n]:
                self._row[n] = part
                self._seen[n] = values[part]
                setattr(*self.places[n], copied(values[part]))


class RecordGroup:
    """Group of the records of a shelf, each with its due time in the index, and of values by attempt.

    Args:
        parts: the table of parts.
        shelf: the shelf of the store.
        store: the store, which has the values by attempt.
        attempts: attributes of the store with values by job id and attempt number.
    """

    def __init__(self, parts: InternedValues, shelf: Any, store: Any, attempts: tuple[str, ...] = ()) -> None:
        self.parts, self.rows, self.shelf = parts, RowTable(parts), shelf
        self._store, self._attempts = store, attempts
        self.names = tuple(shelf.records)
        self.places = {name: n for n, name in enumerate(self.names)}
        self._entries: list[tuple[Any, datetime | None]] = [(None, None)] * len(self.names)
        self._attempt_values: list[Any] = [None] * len(attempts)
        self._row = [0] * (len(self.names) + len(attempts))
        self._at: tuple[int, ...] = ()
        """Present attempt number of each job, if the group has values by attempt."""
        self.inside = -1

    def take(self) -> int:
        """Take the present state of the places out of the world. Return the number of its row.

        Raises:
            LookupError: a record was added to the shelf or removed from it.
        """
        records, due, row, changed = self.shelf.records, self.shelf.due, self._row, False
        if len(records) != len(self.names):
            raise LookupError(f"the small world has {len(self.names)} records here, and now {len(records)}")
        for n, name in enumerate(self.names):
            record, due_at = self._entries[n]
            if records[name] is not record or due.get(name) != due_at:
                self._entries[n], changed = (records[name], due.get(name)), True
                row[n] = self._number(*self._entries[n])
        if not self._attempts:
            at_attempts: tuple[int, ...] = ()
        else:
            at_attempts = tuple([records[name].attempt for name in self.names])
        for n, attribute in enumerate(self._attempts):
            value = getattr(self._store, attribute)
            if value != self._attempt_values[n] or at_attempts != self._at:
                self._attempt_values[n], changed = dict(value), True
                called = form_of_attempts(value, dict(zip(self.names, at_attempts, strict=True)))
                place = f"{attribute}{at_attempts}"
                row[len(self.names) + n] = self.parts.number(place, self._attempt_values[n], form(value), called)
        self._at = at_attempts
        if changed:
            self.inside = self.rows.number(tuple(row))
        return self.inside

    def _number(self, record: Any, due_at: datetime | None) -> int:
        called = form(record)
        due = -1 if due_at is None else seconds(due_at)
        return self.parts.number("record", (record, due_at), called._replace(times=(*called.times, due)), called)

    def put(self, number: int) -> None:
        """Put row `number` into the world."""
        self.inside, values, row = number, self.parts.values, self.rows.rows[number]
        count = len(self.names)
        self._entries = [values[part] for part in row[:count]]
        self.shelf.records = {name: entry[0] for name, entry in zip(self.names, self._entries, strict=True)}
        self.shelf.due = {name: entry[1] for name, entry in zip(self.names, self._entries, strict=True) if entry[1]}
        for n, part in enumerate(row[count:]):
            if part != self._row[count + n]:
                self._attempt_values[n] = values[part]
                setattr(self._store, self._attempts[n], dict(values[part]))
        self._row = list(row)
        self._at = tuple([entry[0].attempt for entry in self._entries]) if self._attempts else ()

    def altered(self, number: int, changes: Mapping[str, tuple[Any, datetime | None]]) -> int:
        """Return the number of row `number` with changed records. `changes`: new record and due time, by id."""
        row = list(self.rows.rows[number])
        for name, entry in changes.items():
            row[self.places[name]] = self._number(*entry)
        return self.rows.number(tuple(row))

    def records(self, number: int) -> dict[str, Any]:
        """Return the records of a row by id."""
        values = self.parts.values
        return {name: values[part][0] for name, part in zip(self.names, self.rows.rows[number], strict=False)}

    def due(self, number: int) -> dict[str, datetime | None]:
        """Return the due time of each record of a row in the index, by id."""
        values = self.parts.values
        return {name: values[part][1] for name, part in zip(self.names, self.rows.rows[number], strict=False)}

    def of_attempts(self, number: int, n: int) -> Any:
        """Return the values by attempt of a row. `n`: index of the attribute in `attempts`."""
        return self.parts.values[self.rows.rows[number][len(self.names) + n]]


class InstanceGroup:
    """Group of the instances of the cluster model. The set of instances never changes."""

    def __init__(self, parts: InternedValues, instances: list[ModelInstance]) -> None:
        self.parts, self.rows, self._instances = parts, RowTable(parts), instances
        self._row = [0] * len(instances)
        self._seen: list[Any] = [_UNSEEN] * len(instances)
        self.inside = -1

    def take(self) -> int:
        """Take the present state of the places out of the world. Return the number of its row."""
        changed = False
        for n, instance in enumerate(self._instances):
            if vars(instance) != self._seen[n]:
                fields = {name: copied(value) for name, value in vars(instance).items()}
                self._seen[n], changed = fields, True
                self._row[n] = self.parts.number("instance", fields, whole_form(fields), form_of_instance(fields))
        if changed:
            self.inside = self.rows.number(tuple(self._row))
        return self.inside

    def put(self, number: int) -> None:
        """Put row `number` into the world."""
        self.inside = number
        for n, part in enumerate(self.rows.rows[number]):
            if part != self._row[n]:
                fields = self.parts.values[part]
                self._row[n], self._seen[n] = part, fields
                vars(self._instances[n]).update(fields)
                for name in _CHANGED_IN_PLACE:
                    setattr(self._instances[n], name, copy(fields[name]))


class TaskGroup:
    """Group of the tasks that the cluster model knows, in id order."""

    def __init__(self, parts: InternedValues, cluster: ClusterModel) -> None:
        self.parts, self.rows, self._cluster = parts, RowTable(parts), cluster
        self._pool: dict[str, Task] = {}
        """Every task object ever seen, by id. `put` fills the objects with the fields of a state."""
        self._seen: dict[str, tuple[int, TaskFields]] = {}
        self.inside = self.rows.number(())

    def take(self) -> int:
        """Take the present state of the places out of the world. Return the number of its row."""
        tasks, seen = self._cluster.tasks, self._seen
        changed = len(tasks) != len(seen)
        for task_id, task in tasks.items():
            known = seen.get(task_id)
            containers = task.containers
            if known is not None and known[1][0] == vars(task) and known[1][1] == tuple(map(vars, containers)):
                continue
            changed = True
            self._pool[task_id] = task
            captured = {**vars(task)}, tuple([{**vars(container)} for container in containers])
            seen[task_id] = (
                self.parts.number("task", captured, whole_form(*captured), form_of_task(*captured)),
                captured,
            )
        if changed:
            if len(seen) > len(tasks):
                self._seen = seen = {task_id: seen[task_id] for task_id in tasks}
            self.inside = self.rows.number(tuple([seen[task_id][0] for task_id in sorted(seen)]))
        return self.inside

    def put(self, number: int) -> None:
        """Put row `number` into the world."""
        self.inside = number
        parts = [(part, self.parts.values[part]) for part in self.rows.rows[number]]
        self._seen = {fields["task_id"]: (part, (fields, containers)) for part, (fields, containers) in parts}
        tasks: Any = {task_id: self._filled(task_id, *fields) for task_id, (_, fields) in self._seen.items()}
        self._cluster.tasks = tasks

    def _filled(self, task_id: str, fields: dict[str, Any], containers: tuple[dict[str, Any], ...]) -> Task:
        task = self._pool[task_id]
        vars(task).update(fields)
        for container, values in zip(task.containers, containers, strict=True):
            vars(container).update(values)
        return task


def copied(value: Value) -> Value:
    """Return `value`, or a copy of `value` if its type is changed in place."""
    return copy(value) if isinstance(value, CONTAINERS) else value
