"""How long things take, and whether they go on: calls of workers, weight synchronisations, progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_recovery_client.diagnosis.reporter import ObservationReporter, reporter, sentence
from gpu_recovery_client.diagnosis.sender import log

HEARTBEAT_S = 10.0
CALLS_GAP_S = 10.0
PHASES = {"connect": "connect_s", "send": "send_s", "response_header": "header_s", "response_data": "body_s"}
PARTS = ("serialize", "upload", "download", "deserialize")


class RpcCall:
    """One remote call. Its stages are timed by `phase`, where the caller can tell them apart."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.told: dict[str, Any] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one stage: connect, send, response_header or response_data. What fails in it failed there."""
        if name not in PHASES:
            raise ValueError(f"{name!r} is no stage of a call; they are {', '.join(PHASES)}")
        began = self._now()
        try:
            yield
        except BaseException:
            self.told["failed_at"] = name
            raise
        finally:
            self.told[PHASES[name]] = round(self._now() - began, 3)

    def answered(self, status: int, server_phase: str = "") -> None:
        """The status of HTTP, and where the server's exception came from: "deserialise", "method" or "serialise"."""
        self.told |= {"status": status, "server_phase": server_phase}


@contextmanager
def rpc_timing(
    worker: str,
    method: str,
    *,
    stage: int | None = None,
    request_id: str = "",
    now: Callable[[], float] = time.monotonic,
) -> Iterator[RpcCall]:
    """Time a call of `method` on `worker`; what it raises goes on, and is told. `stage`: the pipeline stage of it."""
    call, began, me = RpcCall(now), now(), reporter()
    try:
        yield call
    except Exception as error:
        call.told |= {
            "error": sentence(error),
            "timed_out": is_timeout(error),
            "connection_error": isinstance(error, ConnectionError),
        }
        me.send("rpc", worker=worker, urgent=True, method=method, request_id=request_id, **call.told)
        raise
    seconds = now() - began
    log.info("Worker %s %s took %.2fs", worker, method, seconds)
    me.send_latest("call", CALLS_GAP_S, method, worker=worker, method=method, seconds=round(seconds, 4), stage=stage)
    if call.told:
        log.info("RPC diagnosis for %s: %s", worker, call.told)
        me.send_latest("rpc", CALLS_GAP_S, method, worker=worker, method=method, request_id=request_id, **call.told)


def is_timeout(error: BaseException) -> bool:
    """Whether it says that a time was over, whichever library it is of."""
    return isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower()


class WeightSyncTimer:
    """One weight synchronisation, part by part."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time one part: serialize, upload, download or deserialize."""
        if name not in PARTS:
            raise ValueError(f"{name!r} is no part of a weight synchronisation; they are {', '.join(PARTS)}")
        began = self._now()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + self._now() - began, 3)


@contextmanager
def weight_sync_timing(
    step: int | None = None, *, now: Callable[[], float] = time.monotonic
) -> Iterator[WeightSyncTimer]:
    """Time a weight synchronisation by its parts, whether it ends well or not."""
    sync = WeightSyncTimer(now)
    try:
        yield sync
    finally:
        log.info("Weight sync profile: %s", sync.seconds)
        parts: dict[str, Any] = {f"{name}_s": seconds for name, seconds in sync.seconds.items()}
        reporter().send("weight_sync", step=step, **parts)


class ProgressHeartbeat:
    """The progress of this process, told every HEARTBEAT_S whether there is any or not: a stall is told by it."""

    def __init__(self, of: ObservationReporter) -> None:
        self.of, self._now = of, of.sender.now
        self._value: float | None = None
        self._since = 0.0
        of.sender.every(HEARTBEAT_S, self.send)

    def made(self, value: float) -> None:
        """So far it is; a value that falls is told as well."""
        if value != self._value:
            self._value, self._since = value, self._now()

    def send(self) -> None:
        """One heartbeat."""
        if self._value is not None:
            self.of.send("progress", value=self._value, unchanged_s=round(self._now() - self._since, 1))


_progressing: list[ProgressHeartbeat] = []


def progress(value: float) -> None:
    """Say how far the training is: a step, a number of samples, what only grows. Cheap enough for every step."""
    me = reporter()
    if not _progressing or _progressing[0].of is not me:
        _progressing[:] = [ProgressHeartbeat(me)]
    _progressing[0].made(float(value))
