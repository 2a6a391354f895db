"""Dumps in the form in which PyTorch writes them, made without PyTorch, and published traces of hangs."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parent / "nvrx_traces.json"
"""Four hangs of 16 ranks, converted from the tests of NVIDIA's resiliency extension (Apache-2.0): the file says it."""
TRUTH = {"gpu_error_1st": {12, 14}, "gpu_error_2nd": {9, 14}, "lock_gil_1st": {9, 14}, "lock_gil_2nd": {10, 15}}
"""Ranks with an injected fault, as the logs of the injections beside the traces have them."""
NAMED = {"gpu_error_1st": (12,), "gpu_error_2nd": (9, 14), "lock_gil_1st": (9, 14), "lock_gil_2nd": (10, 15)}
"""Ranks that the reference output beside the traces names."""
CREATED_NS = 1_758_610_505_000_000_000


def entry(
    group: str, number: int, name: str = "all_reduce", *, state: str = "completed", **more: Any
) -> dict[str, Any]:
    """An entry with every field of format 2.10."""
    fields = {
        "record_id": number,
        "pg_id": int(group),
        "process_group": (group, "undefined" if group != "0" else "default_pg"),
        "thread_name": "python3",
        "thread_id": "23456244340032",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": CREATED_NS + number,
        "input_sizes": [[4096, 1]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[4096, 1]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": CREATED_NS + number + 5 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    return {**fields, **more}


def p2p(group: str, number: int, name: str, *, state: str = "scheduled", **more: Any) -> dict[str, Any]:
    """An entry of a send or a receive, such as `send 0->1`."""
    return entry(group, 3, name, state=state, p2p_seq_id=number, op_id=number + 3, is_p2p=True, **more)


def dump(
    groups: Mapping[str, Sequence[int]], entries: Iterable[dict[str, Any]], status: Any = None, **more: Any
) -> dict[str, Any]:
    """A dump of a process that is in these groups."""
    config = {
        name: {"name": name, "desc": "default_pg" if name == "0" else "undefined", "ranks": str(list(ranks))}
        for name, ranks in groups.items()
    }
    content = {"version": "2.10", "pg_config": config, "comm_lib_version": "2.27.5", "pg_status": status or {}}
    return {**content, "entries": list(entries), **more}


def hung(ranks: int, missing: Iterable[int], last: int = 10) -> dict[int, dict[str, Any]]:
    """Dumps of all ranks. Those in `missing` have not called the last collective, and the others wait in it."""
    stuck = set(missing)
    world = {"0": range(ranks)}
    ended = [entry("0", number) for number in range(1, last)]
    waits = entry("0", last, state="scheduled")
    return {rank: dump(world, ended if rank in stuck else [*ended, waits]) for rank in range(ranks)}


def pickled(content: Any) -> bytes:
    """The bytes that `torch::jit::Pickler` writes of plain values: protocol 2, and texts remembered by their number."""
    out = bytearray(b"\x80\x02")
    texts: dict[str, int] = {}
    _write(content, out, texts)
    return bytes(out + b".")


def _write(value: Any, out: bytearray, texts: dict[str, int]) -> None:
    match value:
        case bool() | None:
            out += {True: b"\x88", False: b"\x89", None: b"N"}[value]
        case int():
            out += _number(value)
        case str():
            known = value in texts
            number = texts.setdefault(value, len(texts))
            if not known:
                raw = value.encode()
                out += struct.pack("<cI", b"X", len(raw)) + raw
            short, long = (b"h", b"j") if known else (b"q", b"r")
            out += struct.pack("<cB", short, number) if number < 256 else struct.pack("<cI", long, number)
        case (first, second) if isinstance(value, tuple):
            _write(first, out, texts)
            _write(second, out, texts)
            out += b"\x86"
        case list():
            out += b"](" if value else b"]"
            for part in value:
                _write(part, out, texts)
            out += b"e" if value else b""
        case dict():
            out += b"}("
            for part in (part for pair in value.items() for part in pair):
                _write(part, out, texts)
            out += b"u"
        case _:
            raise TypeError(type(value))


def _number(value: int) -> bytes:
    if 0 <= value < 256:
        return struct.pack("<cB", b"K", value)
    if 0 <= value < 65_536:
        return struct.pack("<cH", b"M", value)
    if -(2**31) <= value < 2**31:
        return struct.pack("<ci", b"J", value)
    return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)


def as_json(content: dict[str, Any]) -> bytes:
    """The text of PyTorch's handler `dump_nccl_trace_json`: numbers of `pg_status` are texts, and no time is 0."""
    status = {key: {name: str(number) for name, number in of.items()} for key, of in content["pg_status"].items()}
    times = ("time_discovered_started_ns", "time_discovered_completed_ns")
    entries = [{**each, **{name: each[name] or 0 for name in times}} for each in content["entries"]]
    found = {**content, "pg_status": status, "entries": entries}
    if not entries:
        del found["entries"]
    return json.dumps(found).encode()


def write(folder: Path, dumps: Mapping[int, dict[str, Any]], prefix: str = "nccl_trace_rank_") -> Path:
    """The folder with a file for each dump, named as PyTorch names it."""
    folder.mkdir(exist_ok=True)
    for rank, content in dumps.items():
        (folder / f"{prefix}{rank}").write_bytes(pickled(content))
    return folder


@cache
def _traces() -> dict[str, Any]:
    traces: dict[str, Any] = json.loads(TRACES.read_text())["traces"]
    return traces


def trace(name: str) -> dict[int, dict[str, Any]]:
    """The dumps of a published trace by rank, with the fields that a diagnosis reads."""
    told = _traces()[name]
    return {rank: _of_trace(told["groups"], of) for rank, of in enumerate(told["dumps"])}


def _of_trace(groups: Mapping[str, Any], of: Mapping[str, Any]) -> dict[str, Any]:
    config = {
        group: {"name": group, "desc": groups[group][0], "ranks": str(groups[group][1])} for group in of["groups"]
    }
    status = {
        number: {
            "last_enqueued_collective": called,
            "last_started_collective": -1,
            "last_completed_collective": ended,
        }
        for number, (called, ended) in of["status"].items()
    }
    entries = [
        entry(
            group,
            collective,
            operation,
            state="scheduled",
            pg_id=pg_id,
            process_group=(group, groups[group][0]),
            p2p_seq_id=number,
            is_p2p=operation.startswith(("send", "recv")),
        )
        for group, pg_id, collective, number, operation in of["entries"]
    ]
    return {"version": "2.9", "pg_config": config, "nccl_version": "2.27.3", "pg_status": status, "entries": entries}
