"""Pending commands in DynamoDB: storage, due index, and removal of finished commands."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import decode, encode, to_iso
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import PendingCommand, due_at, next_deadline
from gpu_recovery.ports.values import RefusedCheck, StartedCheck

SHARDS = 4
"""Partition keys over which the index `due` is spread. Each of them costs one query a minute."""


def commands_map(commands: Sequence[PendingCommand]) -> dict[str, Any]:
    """Return pending commands as a map by id. A write can then remove one command and leave the others unchanged."""
    return {command.command_id: encode(command) for command in commands}


def commands_list(stored: Mapping[str, Any]) -> tuple[PendingCommand, ...]:
    """Return the pending commands of a stored map in their original order: by record version, then by number."""
    pending = [decode(PendingCommand, command) for command in stored.values()]
    return tuple(sorted(pending, key=lambda command: tuple(int(n) for n in command.command_id.split("/")[-2:])))


def due_keys(
    name: str, deadline: datetime | None, poll_at: datetime | None, commands: Sequence[PendingCommand]
) -> dict[str, Any]:
    """Return the attributes of a record in the sparse index `due`; none if the record has no due time.

    Args:
        name: the key of the record, which chooses the shard.
        deadline: the deadline of the record's status, if it has one.
        poll_at: the time of the next poll, if there is one.
        commands: the pending commands.
    """
    at = due_at(deadline, poll_at, tuple(commands))
    return {} if at is None else {"shard": due_shard(name), "due_at": to_iso(at)}


def due_shard(name: str) -> int:
    """Return the partition key of a record in the index `due`."""
    return zlib.crc32(name.encode()) % SHARDS


SETTLED_AT_ONCE = 50
"""Commands that one write removes or puts off. DynamoDB refuses an expression of more than 4 KB or 300 operators."""


class Deferral(NamedTuple):
    """A command to put off: the time before which it is not tried again, and its number of deferrals with this one.

    The number is computed from the record that was read. A repeated write after a lost answer then counts once.
    """

    command_id: str
    until: datetime
    refusals: int


class SettlingRequest(NamedTuple):
    """Expressions and placeholders of one write."""

    change: str
    condition: str
    names: Mapping[str, str]
    values: Mapping[str, Any]


class SettledBatch(NamedTuple):
    """Commands that one write removes (`done`) or puts off (`deferred`)."""

    done: tuple[str, ...] = ()
    deferred: tuple[Deferral, ...] = ()

    def request(
        self,
        condition: str,
        condition_values: Mapping[str, Any],
        due: Mapping[str, Any] | None,
        check_request: StartedCheck | RefusedCheck | None,
    ) -> SettlingRequest:
        """Return the write of the batch under `condition`. With `due` None the due time stays."""
        command_ids = (*self.done, *(deferral.command_id for deferral in self.deferred))
        names = {"#rev": "revision"} | {f"#o{n}": command_id for n, command_id in enumerate(command_ids)}
        names |= {"#c": "commands"} if command_ids else {}  # DynamoDB refuses an unused name
        sets, removed = ["#rev = #rev + :one"], [f"#c.#o{n}" for n in range(len(self.done))]
        values: dict[str, Any] = {":one": 1, **condition_values}
        if check_request is not None:
            names["#check"] = "check"
        if isinstance(check_request, StartedCheck):
            values[":task"] = check_request.task_id
            sets.append("#check.task_id = :task")
        elif check_request is not None:
            values[":refusal"] = encode(check_request.refusal)
            sets.append("#check.refusal = :refusal")
        for n, deferral in enumerate(self.deferred, len(self.done)):
            sets += [f"#c.#o{n}.acting_until = :t{n}", f"#c.#o{n}.refusals = :n{n}"]
            values |= {f":t{n}": encode(deferral.until), f":n{n}": deferral.refusals}
        if due is not None:
            names |= {"#s": "shard", "#d": "due_at"}
        if due:
            sets += ["#s = :s", "#d = :d"]
            values |= {":s": due["shard"], ":d": due["due_at"]}
        elif due is not None:
            removed += ["#s", "#d"]
        change = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removed)}" if removed else "")
        return SettlingRequest(change, condition, names, values)


def settled_batches(
    done: Sequence[str], deferred: Mapping[str, datetime], refusals: Mapping[str, int]
) -> list[SettledBatch]:
    """Return the commands to remove and to put off in batches, each small enough for one write; at least one batch.

    Args:
        done: the ids of finished commands.
        deferred: for each command that stays, by its id, the time before which it is not tried again.
        refusals: the number of deferrals of each command before, by its id.
    """
    left = [Deferral(command_id, until, refusals.get(command_id, 0) + 1) for command_id, until in deferred.items()]
    whole = SettledBatch(tuple(done), tuple(left))
    most = SETTLED_AT_ONCE
    batches = [SettledBatch(whole.done[start : start + most]) for start in range(0, len(whole.done), most)]
    batches += [SettledBatch((), whole.deferred[start : start + most]) for start in range(0, len(left), most)]
    return batches if len(done) + len(deferred) > most else [whole]


class RecordTable(Table):
    """A table of records with pending commands and a sparse index `due`."""

    def due(self, now: datetime) -> tuple[str, ...]:
        """Return the keys of records that are due at `now`, the longest overdue first, over all shards."""
        found: list[tuple[str, str]] = []
        for shard in range(SHARDS):
            names, values = {"#s": "shard", "#d": "due_at"}, {":s": shard, ":now": to_iso(now)}
            items = self.query("due", "#s = :s AND #d <= :now", names, values)
            found += [(item["due_at"], item[self.key]) for item in items]
        return tuple(key for _, key in sorted(found))

    def remove_finished(
        self,
        key: str,
        record: Job | Instance,
        done: Sequence[str],
        deferred: Mapping[str, datetime],
        check_request: StartedCheck | RefusedCheck | None = None,
    ) -> None:
        """Remove the commands `done` from the stored record and put the commands `deferred` off.

        If another function has written the record since, the due time is not changed: the reconciler corrects it.
        Commands that the other function removed stay removed.

        Args:
            key: the key of the record.
            record: the record as it was saved last.
            done: the ids of finished commands.
            deferred: for each command that stays, by its id, the time before which it is not tried again.
            check_request: the answer to the request of a health check. The task id or the refusal is written into the
                record if the check is still under way.
        """
        left = [
            replace(command, acting_until=deferred.get(command.command_id, command.acting_until))
            for command in record.commands
            if command.command_id not in done
        ]
        due = due_keys(key, next_deadline(record), record.look_at, left)
        check = record.check if isinstance(record, Instance) else None
        is_current = check_request is not None and check is not None and check.check_id == check_request.check_id
        refusals = {command.command_id: command.refusals for command in record.commands}
        batches = settled_batches(done, deferred, refusals)
        for n, batch in enumerate(batches):
            is_last = n == len(batches) - 1
            request = batch.request(
                "#rev = :rev",
                {":rev": record.revision + n},
                due if is_last else None,
                check_request if is_last and is_current else None,
            )
            if not self._write(key, request):
                self._remove_regardless(key, batches[n:], check_request)
                return

    def _remove_regardless(
        self, key: str, batches: Sequence[SettledBatch], check_request: StartedCheck | RefusedCheck | None
    ) -> None:
        """Make the writes of `batches`, and of the check, after another writer has changed the record.

        A write has no effect if the record shows its effect already: the answer to an earlier try may have been lost.
        """
        if check_request is not None:
            is_under_way, values = "#check.check_id = :check", {":check": check_request.check_id}
            self._write(key, SettledBatch().request(is_under_way, values, None, check_request))
        for batch in batches:
            if batch.done:
                removal = SettledBatch(batch.done)
                is_pending = " OR ".join(f"attribute_exists(#c.#o{n})" for n in range(len(batch.done)))
                self._write(key, removal.request(is_pending, {}, None, None))
            for deferral in batch.deferred:
                is_before = "attribute_exists(#c.#o0) AND #c.#o0.refusals < :n0"
                self._write(key, SettledBatch((), (deferral,)).request(is_before, {}, None, None))

    def _write(self, key: str, request: SettlingRequest) -> bool:
        return self.update(key, request.change, request.condition, request.names, request.values) is not None
