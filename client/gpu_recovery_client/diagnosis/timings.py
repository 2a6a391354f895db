"""Durations and progress: calls of workers, weight synchronisations, progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .reporter import ObservationReporter, reporter, sentence
from .sender import log
from .step_times import StepTimes

HEARTBEAT_S = 10.0
"""Seconds between two reports of progress."""
CALLS_GAP_S = 10.0
"""Seconds in which at most one successful call per method and worker is reported."""
PHASES = {"connect": "connect_s", "send": "send_s", "response_header": "header_s", "response_data": "body_s"}
"""Phases of a call, and the fields of their durations."""
PARTS = ("serialize", "upload", "download", "deserialize")
"""Parts of a weight synchronisation."""


class RpcCall:
    """One remote call. `phase` times its phases, where the caller can separate them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.told: dict[str, Any] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase: connect, send, response_header or response_data.

        An error in the block is reported with this phase.
        """
        if name not in PHASES:
            raise ValueError(f"{name!r} is not a phase of a call; the phases are {', '.join(PHASES)}")
        began = self._now()
        try:
            yield
        except BaseException:
            self.told["failed_at"] = name
            raise
        finally:
            self.told[PHASES[name]] = round(self._now() - began, 3)

    def answered(self, status: int, server_phase: str = "") -> None:
        """Record the HTTP status, and the origin of the server's exception: "deserialise", "method" or "serialise"."""
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
    """Time a call of `method` on `worker`. An exception is reported and raised again. `stage` is its pipeline stage."""
    call, began, current = RpcCall(now), now(), reporter()
    try:
        yield call
    except Exception as error:
        call.told |= {
            "error": sentence(error),
            "timed_out": is_timeout(error),
            "connection_error": isinstance(error, ConnectionError),
        }
        current.send("rpc", worker=worker, urgent=True, method=method, request_id=request_id, **call.told)
        raise
    seconds = now() - began
    log.info("Worker %s %s took %.2fs", worker, method, seconds)
    current.send_latest(
        "call", CALLS_GAP_S, method, worker=worker, method=method, seconds=round(seconds, 4), stage=stage
    )
    if call.told:
        log.info("RPC diagnosis for %s: %s", worker, call.told)
        current.send_latest(
            "rpc", CALLS_GAP_S, method, worker=worker, method=method, request_id=request_id, **call.told
        )


def is_timeout(error: BaseException) -> bool:
    """Return whether the error is a timeout, of any library."""
    return isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower()


class WeightSyncTimer:
    """Times one weight synchronisation by its parts."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time one part: serialize, upload, download or deserialize."""
        if name not in PARTS:
            raise ValueError(f"{name!r} is not a part of a weight synchronisation; the parts are {', '.join(PARTS)}")
        began = self._now()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + self._now() - began, 3)


@contextmanager
def weight_sync_timing(
    step: int | None = None, *, now: Callable[[], float] = time.monotonic
) -> Iterator[WeightSyncTimer]:
    """Time a weight synchronisation by its parts, also if it fails."""
    sync = WeightSyncTimer(now)
    try:
        yield sync
    finally:
        log.info("Weight sync profile: %s", sync.seconds)
        parts: dict[str, Any] = {f"{name}_s": seconds for name, seconds in sync.seconds.items()}
        reporter().send("weight_sync", step=step, **parts)


class ProgressHeartbeat:
    """Reports the progress of this process every HEARTBEAT_S, also if there is none: so a hang is visible.

    Each report has the step times so far, from which the server derives how long the process may stay without progress.
    """

    def __init__(self, process_reporter: ObservationReporter) -> None:
        self.reporter, self._now = process_reporter, process_reporter.sender.now
        self._value: float | None = None
        self._since = self._now()
        self._times = StepTimes()
        self._pauses: list[str] = []
        self._paused_between = False
        process_reporter.sender.every(HEARTBEAT_S, self.send)

    @property
    def value(self) -> float | None:
        """Return the progress so far; None before the first."""
        return self._value

    def made(self, value: float) -> None:
        """Record the progress so far. A lower value is recorded as well."""
        if value == self._value:
            return
        now = self._now()
        if self._value is not None and not self._paused_between:
            self._times.add(now - self._since)
        self._paused_between = bool(self._pauses)
        self._value, self._since = value, now

    @contextmanager
    def pausing(self, name: str) -> Iterator[None]:
        """Run a phase without progress. The time without progress counts from the end of the phase."""
        self._pauses.append(name)
        self._paused_between = True
        try:
            yield
        finally:
            self._pauses.remove(name)
            self._since = self._now()

    def send(self) -> None:
        """Send one report of progress."""
        if self._value is None:
            return
        pauses = self._pauses[-1:]
        fields: dict[str, Any] = {"paused": pauses[0]} if pauses else {}
        unchanged_s = round(self._now() - self._since, 1)
        self.reporter.send("progress", value=self._value, unchanged_s=unchanged_s, **self._times.fields(), **fields)


_progressing: list[ProgressHeartbeat] = []


def progress(value: float) -> None:
    """Report how far the training is: a step or another number that only grows. Cheap enough for every step."""
    _heartbeat().made(float(value))


@contextmanager
def pause(name: str) -> Iterator[None]:
    """Mark a phase in which the program makes no progress although it works: an evaluation, or a checkpoint.

    During the phase the job does not count as hung before `progress_timeout_s` of the deployment. The phase is no part
    of the step times.
    """
    with _heartbeat().pausing(str(name)):
        yield


def last_progress() -> float | None:
    """Return the last value that this process gave to `progress`; None if it gave none."""
    return _progressing[0].value if _progressing else None


def _heartbeat() -> ProgressHeartbeat:
    current = reporter()
    if not _progressing or _progressing[0].reporter is not current:
        _progressing[:] = [ProgressHeartbeat(current)]
    return _progressing[0]
