"""Pending commands in DynamoDB: storage, due index, and removal of finished commands."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import decode, encode, to_iso
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import PendingCommand, due_at
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
    return {} if at is None else {"shard": zlib.crc32(name.encode()) % SHARDS, "due_at": to_iso(at)}


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
        due = due_keys(key, record.deadline_at, record.look_at, left)
        check = record.check if isinstance(record, Instance) else None
        is_current = check_request is not None and check is not None and check.check_id == check_request.check_id
        current = check_request if is_current else None
        if self._remove_finished(key, done, deferred, due, "#rev = :rev", {":rev": record.revision}, current):
            return
        if check_request is not None:
            is_under_way, values = "#check.check_id = :check", {":check": check_request.check_id}
            self._remove_finished(key, (), {}, None, is_under_way, values, check_request)
        if done or not deferred:
            self._remove_finished(key, done, {}, None, "attribute_exists(#rev)", {})
        for command_id, until in deferred.items():
            self._remove_finished(key, (), {command_id: until}, None, "attribute_exists(#c.#o0)", {})

    def _remove_finished(
        self,
        key: str,
        done: Sequence[str],
        deferred: Mapping[str, datetime],
        due: Mapping[str, Any] | None,
        condition: str,
        condition_values: Mapping[str, Any],
        check_request: StartedCheck | RefusedCheck | None = None,
    ) -> bool:
        """Make one write if `condition` holds. Return whether it held. With `due` None the due time stays."""
        names = {"#rev": "revision"} | {f"#o{n}": command_id for n, command_id in enumerate((*done, *deferred))}
        names |= {"#c": "commands"} if done or deferred else {}  # DynamoDB refuses an unused name
        sets, removed = ["#rev = #rev + :one"], [f"#c.#o{n}" for n in range(len(done))]
        values: dict[str, Any] = {":one": 1, **condition_values}
        if isinstance(check_request, StartedCheck):
            names["#check"], values[":task"] = "check", check_request.task_id
            sets.append("#check.task_id = :task")
        elif check_request is not None:
            names["#check"], values[":refusal"] = "check", encode(check_request.refusal)
            sets.append("#check.refusal = :refusal")
        for n, until in enumerate(deferred.values(), len(done)):
            sets += [f"#c.#o{n}.acting_until = :t{n}", f"#c.#o{n}.refusals = #c.#o{n}.refusals + :one"]
            values[f":t{n}"] = encode(until)
        if due is not None:
            names |= {"#s": "shard", "#d": "due_at"}
            if due:
                sets += ["#s = :s", "#d = :d"]
                values |= {":s": due["shard"], ":d": due["due_at"]}
            else:
                removed += ["#s", "#d"]
        change = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removed)}" if removed else "")
        return self.update(key, change, condition, names, values) is not None
