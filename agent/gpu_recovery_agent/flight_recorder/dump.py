"""One dump of PyTorch's flight recorder: its process groups, and what each of them waits for.

The format is that of `torch/csrc/distributed/c10d/FlightRecorder*.hpp`. Its version is 2.x from PyTorch 2.4 on: 2.1 to
2.4 until PyTorch 2.6, and up to 2.10 in 2026. A minor version only adds fields, so every 2.x is read. Version 1 numbers
its operations in another way and is refused. A dump is a pickle, as PyTorch writes it to a file, or the JSON of its
handler `dump_nccl_trace_json`, where the numbers of `pg_status` are texts.

- `entries` are the last operations, the oldest first. If the program dumps only active entries, those that have ended
  are missing. `state` is `scheduled`, `started` (only with timing) or `completed`. It is known from CUDA events: an
  operation that is part of a coalesced one has none, and has the state of the entry `coalesced` with the same number.
  Gloo has no CUDA events, so its operations stay `scheduled`; `retired` says that they have ended. With NCCL, `retired`
  may also mean that an operation has timed out.
- `collective_seq_id` counts the collectives of a group, alike on all of its ranks. `p2p_seq_id` counts the sends and
  receives of one rank in the group.
- `pg_config` has the ranks of the groups of this process by name. With gloo it has one group without a name, with the
  ranks of the group that was made last (PyTorch 2.14).
- `pg_status` has the number of the last operation that was called and of the last that has ended, by the number of the
  group in this process (`pg_id`). That operation may be a send or a receive, which are counted apart. So the number is
  that of a collective only in a group without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .pickled import BYTES_MAX, Unreadable, loads

ENTRIES_MAX, GROUPS_MAX, MEMBERS_MAX = 200_000, 20_000, 200_000
MEMBERS_TOTAL_MAX = 2_000_000
"""Largest number of members of all groups together. A pickle may name the same long list in each of many groups."""
COMPLETED = "completed"
_VERSION = re.compile(r"2\.\d{1,4}", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_PEER = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})", re.ASCII)
SAME_SIZE = {
    "_all_gather_base",
    "_broadcast_oop",
    "_reduce_oop",
    "_reduce_scatter_base",
    "all_gather",
    "all_reduce",
    "allreduce",
    "broadcast",
    "reduce",
    "reduce_scatter",
}
"""Collectives in which all ranks have inputs of the same type and number of elements."""
DEFAULT_GROUP = "0"
"""Name of the group of all processes."""


@dataclass(frozen=True)
class GroupState:
    """What a process knows of one of its groups.

    members: ranks of the group in its own order; () if they are unknown.
    enqueued, completed: number of the last collective that was called, and of the last that has ended before the first
        that has not; None if they are unknown.
    from_status: the numbers come from `pg_status`.
    uses_p2p: there are sends or receives in the group.
    sends_to, receives_from: ranks of the other side of sends and receives that have not ended.
    op: the first collective that has not ended; "" if it is unknown.
    waits_since_ns: time of the call of the first operation that has not ended, nanoseconds of the machine's clock.
    """

    name: str
    description: str
    members: tuple[int, ...]
    enqueued: int | None = None
    completed: int | None = None
    from_status: bool = False
    uses_p2p: bool = False
    sends_to: tuple[int, ...] = ()
    receives_from: tuple[int, ...] = ()
    op: str = ""
    waits_since_ns: int | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether an operation of the group has not ended."""
        behind = self.enqueued is not None and self.completed is not None and self.completed < self.enqueued
        return behind or bool(self.sends_to or self.receives_from)


@dataclass(frozen=True)
class Dump:
    """A dump: the version of its format, and the groups of its process by name."""

    version: str
    groups: tuple[GroupState, ...]

    @property
    def world(self) -> int:
        """Number of processes of the job; 0 if it is unknown."""
        return next((len(group.members) for group in self.groups if group.name == DEFAULT_GROUP), 0)


@dataclass(frozen=True)
class _Entry:
    """One operation. `number` is that of the collective, or of the send or receive."""

    group: str
    pg_id: str
    name: str
    is_p2p: bool
    number: int
    collectives: int
    completed: bool
    created_ns: int | None
    fields: Mapping[str, Any]


def read_dump(data: bytes) -> Dump:
    """Return the dump in a file's content.

    Raises:
        Unreadable: it is neither a pickle of plain values nor JSON, or no dump of this format.
    """
    is_json = data[:64].lstrip()[:1] == b"{"
    if not is_json and data[:1] != b"\x80":  # the first instruction of protocol 2 and later
        raise Unreadable("it is neither a pickle of PyTorch nor JSON")
    content = _json(data) if is_json else loads(data)
    if not isinstance(content, dict) or "version" not in content:
        raise Unreadable("it is no dump of a flight recorder: it has no version")
    version = content["version"]
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        named = _text(version)[:20]
        raise Unreadable(f"its format has version {named!r}; versions 2.x are read (PyTorch 2.4 or newer)")
    members = _members(content.get("pg_config"))
    entries: dict[str, list[_Entry]] = {}
    for number, values in enumerate(_list(content.get("entries") or [], "entries")):
        entry = _entry(number, values)
        entries.setdefault(entry.group, []).append(entry)
    status = _status(content.get("pg_status"), members, entries)
    names = sorted({*members, *entries}, key=lambda name: (not name.isdigit(), name.zfill(20)))
    groups = []
    for name in names:
        description, ranks = members.get(name, ("", ()))
        groups.append(_group_state(name, description, ranks, entries.get(name, []), status.get(name)))
    return Dump(version, tuple(groups))


def _json(data: bytes) -> Any:
    if len(data) > BYTES_MAX:
        raise Unreadable(f"it is larger than {BYTES_MAX} bytes")
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is damaged JSON: {type(error).__name__}") from None


def _list(value: Any, name: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > ENTRIES_MAX:
        raise Unreadable(f"its {name} are no list of at most {ENTRIES_MAX}")
    return value


def _whole(value: Any) -> int | None:
    """Return a number of 64 bits, also from a text of digits; None for any other value."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _text(value: Any) -> str:
    """Return a text or a number as text; "" for any other value, whose text may have any length."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _members(config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the description and the ranks of each group by its name."""
    if not isinstance(config, dict) or len(config) > GROUPS_MAX:
        raise Unreadable("its pg_config is missing or has too many groups")
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    left = MEMBERS_TOTAL_MAX
    for key, values in config.items():
        if not isinstance(values, dict):
            raise Unreadable("a group of its pg_config is no object")
        ranks = values.get("ranks", "")
        if isinstance(ranks, str):
            ranks = [match[0] for match in islice(re.finditer(r"\d{1,7}", ranks, re.ASCII), MEMBERS_MAX)]
        numbers = [rank for rank in map(_whole, _list(ranks, "ranks")) if rank is not None and rank >= 0]
        if (left := left - len(numbers)) < 0:
            raise Unreadable(f"its groups have more than {MEMBERS_TOTAL_MAX} members together")
        name, description = _text(values.get("name", key)), values.get("desc", "")
        if name:
            found[name] = (description if isinstance(description, str) else "", tuple(numbers[:MEMBERS_MAX]))
    return found


def _entry(number: int, values: Any) -> _Entry:
    if not isinstance(values, dict):
        raise Unreadable(f"entry {number} is no object")
    group, name = values.get("process_group"), values.get("profiling_name")
    collectives, state = _whole(values.get("collective_seq_id")), values.get("state")
    if not isinstance(group, (list, tuple)) or not group or not isinstance(group[0], str):
        raise Unreadable(f"entry {number} has no process_group")
    if not isinstance(name, str) or collectives is None or not isinstance(state, str):
        raise Unreadable(f"entry {number} has no profiling_name, collective_seq_id or state")
    operation = name.rpartition(":")[2]
    is_p2p = values.get("is_p2p")
    is_p2p = is_p2p if isinstance(is_p2p, bool) else operation.startswith(("send", "recv"))
    return _Entry(
        group=group[0],
        pg_id=_text(values.get("pg_id", "")),
        name=operation,
        is_p2p=is_p2p,
        number=(_whole(values.get("p2p_seq_id")) or 0) if is_p2p else collectives,
        collectives=collectives,
        completed=state == COMPLETED or (name.startswith("gloo:") and values.get("retired") is True),
        created_ns=_whole(values.get("time_created_ns")),
        fields=values,
    )


def _status(
    status: Any, members: Mapping[str, Any], entries: Mapping[str, Sequence[_Entry]]
) -> dict[str, tuple[int, int]]:
    """Return the last called and the last ended operation of each group by its name.

    `pg_status` has numbers instead of names. The number of a group with entries is known from them. Both numbers and
    names count the groups in the order of their creation. So if there are as many numbers as names, they correspond, as
    long as every entry says the same.
    """
    if not isinstance(status, dict):
        return {}
    numbers = {of[0].group: of[0].pg_id for of in entries.values()}
    if all(map(_NUMBER.fullmatch, members)) and all(_NUMBER.fullmatch(str(key)) for key in status):
        by_age = dict(zip(sorted(members, key=int), map(str, sorted(status, key=int))))
        if len(status) == len(members) and all(by_age.get(name) == number for name, number in numbers.items()):
            numbers = by_age
    by_number = {str(key): values for key, values in status.items() if isinstance(values, dict)}
    found = {}
    for name, number in numbers.items():
        values = by_number.get(number, {})
        called, ended = (_whole(values.get(f"last_{which}_collective")) for which in ("enqueued", "completed"))
        if called is not None and ended is not None and called >= 0:
            found[name] = (called, max(ended, 0))
    return found


def _group_state(
    name: str,
    description: str,
    members: tuple[int, ...],
    entries: Sequence[_Entry],
    status: tuple[int, int] | None,
) -> GroupState:
    if not entries:
        if status is None:
            return GroupState(name, description, members)
        return GroupState(name, description, members, status[0], status[1], from_status=True)
    ended = {(of.is_p2p, of.number): of.completed for of in entries if "coalesced" in of.name}
    open_ = [of for of in entries if not ended.get((of.is_p2p, of.number), of.completed)]
    uses_p2p = any(of.is_p2p or _whole(of.fields.get("p2p_seq_id")) for of in entries)
    enqueued = max(of.collectives for of in entries)
    not_ended = {id(of) for of in open_}
    last = max((of.number for of in entries if not of.is_p2p and id(of) not in not_ended), default=-1)
    if status is not None and not uses_p2p:
        last = max(last, status[1])
    waiting = [of for of in open_ if not of.is_p2p and of.number > last]
    first = min((of.number for of in waiting), default=None)
    sends, receives, calls = _peers(entries, open_, members, status)
    created = [of.created_ns for of in (*waiting, *calls) if of.created_ns is not None]
    return GroupState(
        name,
        description,
        members,
        enqueued,
        enqueued if first is None else first - 1,
        uses_p2p=uses_p2p,
        sends_to=sends,
        receives_from=receives,
        op=_op([of for of in waiting if of.number == first]),
        waits_since_ns=min(created, default=None),
    )


def _peers(
    entries: Sequence[_Entry], open_: Sequence[_Entry], members: Sequence[int], status: tuple[int, int] | None
) -> tuple[tuple[int, ...], tuple[int, ...], list[_Entry]]:
    """Return the ranks that the process sends to and receives from, and the calls that have not ended.

    Operations with one rank in one direction end in their order. So an open one before an ended one has ended, too.
    In a dump of active entries only, `pg_status` may show that: its number is that of a send or a receive if the group
    has called fewer collectives.
    """
    not_ended = {id(of) for of in open_}
    last: dict[str, int] = {}
    for of in entries:
        if of.is_p2p and id(of) not in not_ended:
            last[of.name] = max(last.get(of.name, -1), of.number)
    ended = status[1] if status is not None and status[1] > max(of.collectives for of in entries) else -1
    sides: dict[str, set[int]] = {"send": set(), "recv": set()}
    calls = []
    for of in open_:
        match = _PEER.fullmatch(of.name) if of.is_p2p else None
        if match is None or of.number <= max(last.get(of.name, -1), ended) or int(match[3]) >= len(members):
            continue
        sides[match[1]].add(members[int(match[3])])
        calls.append(of)
    return tuple(sorted(sides["send"])), tuple(sorted(sides["recv"])), calls


def _op(entries: Sequence[_Entry]) -> str:
    """Return the operation of one collective, with its type and size where all ranks must agree in them."""
    if len(entries) != 1 or "coalesced" in entries[0].name:
        return ""
    entry = entries[0]
    types, sizes = entry.fields.get("input_dtypes"), entry.fields.get("input_sizes")
    if entry.name not in SAME_SIZE or not isinstance(types, (list, tuple)) or not isinstance(sizes, (list, tuple)):
        return entry.name[:60]
    elements = 0
    for size in sizes:
        count = 1
        for length in size if isinstance(size, (list, tuple)) else ():
            count = min(count * (_whole(length) or 0), 2**53)
        elements += count
    kinds = sorted({kind for kind in types if isinstance(kind, str)})
    return f"{entry.name} of {elements} {' '.join(kinds)}"[:120]
