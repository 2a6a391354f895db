"""Pending commands of a record: how they are stored, when they fall due, and how finished commands are taken out."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.aws.dynamodb import Table
from gpu_recovery.aws.item_codec import decode, encode, to_iso
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import PendingCommand, due_at

SHARDS = 4
"""Over how many keys the `due` index is spread: each is one query a minute."""


def commands_map(commands: Sequence[PendingCommand]) -> dict[str, Any]:
    """Pending commands as a map by id, so that one can be taken out whatever else changed."""
    return {one.command_id: encode(one) for one in commands}


def commands_list(stored: Mapping[str, Any]) -> tuple[PendingCommand, ...]:
    """Pending commands in the order they were given: by record version, then number."""
    pending = [decode(PendingCommand, one) for one in stored.values()]
    return tuple(sorted(pending, key=lambda one: tuple(int(n) for n in one.command_id.split("/")[-2:])))


def due_keys(
    name: str, deadline: datetime | None, poll_at: datetime | None, commands: Sequence[PendingCommand]
) -> dict[str, Any]:
    """The attributes that put a record into the sparse index `due`; none for a record that waits for nothing."""
    at = due_at(deadline, poll_at, tuple(commands))
    return {} if at is None else {"shard": zlib.crc32(name.encode()) % SHARDS, "due_at": to_iso(at)}


class RecordTable(Table):
    """A table whose records have pending commands and a sparse index `due`."""

    def due(self, now: datetime) -> Iterator[str]:
        """The keys of records whose time has come, the longest overdue first within a shard."""
        for shard in range(SHARDS):
            names, values = {"#s": "shard", "#d": "due_at"}, {":s": shard, ":now": to_iso(now)}
            for item in self.query("due", "#s = :s AND #d <= :now", names, values):
                yield item[self.key]

    def remove_finished(
        self, key: str, record: Job | Instance, done: Sequence[str], deferred: Mapping[str, datetime]
    ) -> None:
        """Take `done` out of the record under `key` and put `deferred` off.

        If another function has written the record meanwhile, its due time is left to the reconciler, and the commands
        that the other took out stay out.

        Args:
            record: the record as it was saved last.
            done: the ids of commands that are finished.
            deferred: the time until which each of the other commands waits, by its id.
        """
        left = [
            replace(one, acting_until=deferred.get(one.command_id, one.acting_until))
            for one in record.commands
            if one.command_id not in done
        ]
        due = due_keys(key, record.deadline_at, record.look_at, left)
        if self._remove_finished(key, done, deferred, due, "#rev = :rev", {":rev": record.revision}):
            return
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
        read: Mapping[str, Any],
    ) -> bool:
        """One write, if `condition` holds; whether it did. `due` None leaves the due time as it is."""
        names = {"#rev": "revision"} | {f"#o{n}": command_id for n, command_id in enumerate((*done, *deferred))}
        names |= {"#c": "commands"} if done or deferred else {}  # DynamoDB refuses a name that is not used
        sets, gone = ["#rev = #rev + :one"], [f"#c.#o{n}" for n in range(len(done))]
        values: dict[str, Any] = {":one": 1, **read}
        for n, until in enumerate(deferred.values(), len(done)):
            sets += [f"#c.#o{n}.acting_until = :t{n}", f"#c.#o{n}.refusals = #c.#o{n}.refusals + :one"]
            values[f":t{n}"] = encode(until)
        if due is not None:
            names |= {"#s": "shard", "#d": "due_at"}
            if due:
                sets += ["#s = :s", "#d = :d"]
                values |= {":s": due["shard"], ":d": due["due_at"]}
            else:
                gone += ["#s", "#d"]
        change = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(gone)}" if gone else "")
        return self.update(key, change, condition, names, values) is not None
