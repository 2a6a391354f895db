"""One table in memory: the records of one kind, their revisions and their due times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from gpu_recovery.aws.pending_commands import settled_batches
from gpu_recovery.core.instance.record import Instance, ListedInstance
from gpu_recovery.core.job.record import Job, ListedJob
from gpu_recovery.core.state_machine import PendingCommand, due_at, next_deadline, replace_fields
from gpu_recovery.ports.errors import StaleRecord

from simulator.memory_store.limits import check_expressions, check_instance, check_job

Record = TypeVar("Record", Job, Instance)
Part = TypeVar("Part", ListedJob, ListedInstance)
MANY = 25
"""Commands of which the expressions of one write are certainly below DynamoDB's limits."""


@dataclass
class MemoryTable(Generic[Record]):
    """Records of one kind by id, and when each is due.

    The due time is stored apart from the record. As in the DynamoDB table, only a write that knows the whole record
    changes it.
    """

    records: dict[str, Record] = field(default_factory=dict)
    due: dict[str, datetime] = field(default_factory=dict)
    listeners: tuple[dict[str, None], ...] = ()
    """Each receives the ids of the records that are written. The reader empties it."""
    _parts: dict[str, tuple[object, Any]] = field(default_factory=dict)
    """The part of each record that lists hold, with the record that it was made of."""

    def save(self, name: str, record: Record) -> Record:
        """Write the whole record with its next revision; return it.

        Raises:
            StaleRecord: Another writer saved the record since its revision.
        """
        stored = self.records.get(name)
        if (stored.revision if stored else 0) != record.revision:
            raise StaleRecord(f"{name} was written since revision {record.revision}")
        saved = replace_fields(record, {"revision": record.revision + 1, "commands": in_order(record.commands)})
        _check(saved, new=stored is None)
        self.records[name] = saved
        for written in self.listeners:
            written[name] = None
        self._due(name, saved)
        return saved

    def change(self, name: str, record: Record, **fields: Any) -> Record:
        """Write fields without comparing revisions; return the record.

        The revision increases. So a writer that read the record before is refused.
        """
        changed = replace_fields(record, {**fields, "revision": record.revision + 1})
        _check(changed, new=False)
        for written in self.listeners:
            written[name] = None
        self.records[name] = changed
        return changed

    def remove_finished(
        self, name: str, read: Record, done: Sequence[str], deferred: Mapping[str, datetime], **fields: Any
    ) -> None:
        """Remove the commands `done` from the record, put the commands `deferred` off, and write `fields`.

        The due time changes only if the stored record still has the revision of `read`. A command that another
        function has put off since stays as it is.
        """
        stored = self.records.get(name)
        refusals = {command.command_id: command.refusals for command in read.commands}
        if len(done) + len(deferred) > MANY:
            for batch in settled_batches(done, deferred, refusals):
                request = batch.request("#rev = :rev", {":rev": 1}, {"shard": 0, "due_at": ""}, None)
                check_expressions(request.change, request.condition, request.names)
        present = {command.command_id for command in stored.commands} if stored else set()
        if stored is None or (deferred and not done and not present & deferred.keys()):
            return
        put_off = {command_id: refusals.get(command_id, 0) + 1 for command_id in deferred}
        left = tuple(
            replace(command, acting_until=deferred[command.command_id], refusals=put_off[command.command_id])
            if command.refusals < put_off.get(command.command_id, 0)
            else command
            for command in stored.commands
            if command.command_id not in done
        )
        if stored.revision != read.revision and left == stored.commands and not fields:
            return  # another writer has done the same
        changed = self.change(name, stored, commands=left, **fields)
        if stored.revision == read.revision:
            self._due(name, changed)

    def part_of(self, name: str, kind: type[Part]) -> Part:
        """Return the fields of a record that lists hold. `kind`: the base class of the record that has these fields."""
        record = self.records[name]
        made_of, part = self._parts.get(name, (None, None))
        if made_of is not record:
            # A frozen dataclass without slots is made by its dict, which is much faster than by its constructor.
            part = object.__new__(kind)
            part.__dict__.update({each: record.__dict__[each] for each in kind.__dataclass_fields__})
            self._parts[name] = (record, part)
        listed: Part = part
        return listed

    def overdue(self, now: datetime) -> list[str]:
        """Return the ids of the records that are due at `now`, the longest overdue first."""
        return sorted((name for name, at in self.due.items() if at <= now), key=lambda name: (self.due[name], name))

    def next_due(self) -> datetime | None:
        """Return when the first record is due; None if no record is."""
        return min(self.due.values(), default=None)

    def _due(self, name: str, record: Record) -> None:
        self.due.pop(name, None)
        if at := due_at(next_deadline(record), record.look_at, record.commands):
            self.due[name] = at


def _check(record: Job | Instance, *, new: bool) -> None:
    if isinstance(record, Job):
        check_job(record, new=new)
    else:
        check_instance(record, new=new)


def in_order(commands: Sequence[PendingCommand]) -> tuple[PendingCommand, ...]:
    """Return pending commands in the order in which they were added: by record version, then number."""
    if len(commands) < 2:
        return tuple(commands)
    return tuple(
        sorted(commands, key=lambda command: tuple(int(number) for number in command.command_id.split("/")[-2:]))
    )
