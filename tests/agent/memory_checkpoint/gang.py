"""Processes of a job that save memory checkpoints: forked, with real folders and sockets, and a gather over pipes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint, PickledStates

KILLED = "killed"
Program = Callable[[MemoryCheckpoint], Any]


class Pipes:
    """The processes of a job. As with gloo, a gather fails in all of them when one is gone."""

    def __init__(self, rank: int, size: int, connection: Connection) -> None:
        self.rank, self.size, self._connection = rank, size, connection

    def gather(self, value: Any) -> list[Any]:
        self._connection.send(("gather", value))
        answer = self._connection.recv()
        if answer is None:
            raise RuntimeError("a process is gone")
        return answer


def run(
    root: Path,
    program: Program,
    instances: Iterable[int],
    *,
    before: Mapping[int, Callable[[], object]] | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> list[Any]:
    """Run `program` in one process for each rank, and return their results by rank; KILLED for a killed process.

    Args:
        root: has a memory folder for each instance.
        instances: the instance of each rank.
        before: called in the process of a rank before its MemoryCheckpoint is made.
        environment: variables of all processes.
    """
    placed = list(instances)
    pipes = [multiprocessing.Pipe() for _ in placed]
    context = multiprocessing.get_context("fork")

    def process(rank: int) -> None:
        for number, (ours, theirs) in enumerate(pipes):
            ours.close()
            if number != rank:
                theirs.close()
        connection = pipes[rank][1]
        order = sorted(set(placed))
        os.environ.update({"JOB_ID": "job", "NODE_RANK": str(order.index(placed[rank])), **(environment or {})})
        try:
            (before or {}).get(rank, lambda: None)()
            memory = MemoryCheckpoint(
                Pipes(rank, len(placed), connection),
                PickledStates(),
                folder=str(folder_of(root, placed[rank])),
                **{"keep_free_bytes": 0, **settings},
            )
            connection.send(("done", program(memory)))
        except Exception as error:  # noqa: BLE001 - the test sees it
            connection.send(("done", error))
        os._exit(0)

    processes = [context.Process(target=process, args=(rank,)) for rank in range(len(placed))]
    for each in processes:
        each.start()
    for _, theirs in pipes:
        theirs.close()
    try:
        return _coordinate([ours for ours, _ in pipes])
    finally:
        for (ours, _), each in zip(pipes, processes, strict=True):
            ours.close()
            each.kill()
            each.join()


def _coordinate(connections: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    values: dict[int, Any] = {}
    is_broken = False
    while len(results) < len(connections):
        for ready in wait([each for rank, each in enumerate(connections) if rank not in results]):
            rank = connections.index(ready)
            try:
                kind, value = ready.recv()
            except (EOFError, ConnectionError):
                kind, value = "done", KILLED
            if kind == "done":
                results[rank] = value
                is_broken = is_broken or value == KILLED or isinstance(value, Exception)
            else:
                values[rank] = value
        if len(values) == len(connections):
            for each in connections:
                with suppress(BrokenPipeError):  # killed while it waited
                    each.send([values[rank] for rank in range(len(connections))])
            values.clear()
        elif is_broken:
            for rank in values:  # they wait for a process that is gone
                with suppress(BrokenPipeError):
                    connections[rank].send(None)
            values.clear()
    return [results[rank] for rank in range(len(connections))]


def folder_of(root: Path, instance: int) -> Path:
    """The memory folder of an instance."""
    return root / f"instance-{instance}"


def kill_self() -> None:
    """End this process at once, as a crash of the GPU driver or the kernel does."""
    os.kill(os.getpid(), signal.SIGKILL)
