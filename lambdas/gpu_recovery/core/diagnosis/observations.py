"""What is known: one small frozen report for each observation. Every number may be missing; none is ever NaN.

at_s: seconds on the server's clock (Unix time); an agent sends ages, so no machine's clock is believed.
report_id: by which a diagnosis cites it; instance_id, worker and rank say whose it is, "" and None where nobody said.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What every report has."""

    report_id: str
    at_s: float
    instance_id: str = ""
    worker: str = ""
    rank: int | None = None

    @property
    def reporter(self) -> str:
        """The worker, else the rank, else the instance; "" for nobody."""
        return self.worker or (f"rank {self.rank}" if self.rank is not None else self.instance_id)


class Check(StrEnum):
    """How a probe ended."""

    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Occupant:
    """A process on a GPU. `owner` is whose it is by design ("train", "rollout"), "" if nobody said."""

    pid: int
    memory_mb: float
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport(Observation):
    """What the GPU looked like at a stage of the program (rows 1-6, 51, 52).

    moment:                "before", "after" or "during" the stage.
    corrected, uncorrected: ECC errors since the driver was loaded; None for what the GPU does not say.
    synchronised:          whether the probe waited for the GPU: without that, a pass says nothing.
    matches:               whether the probe's result was the known one; None if it was not compared.
    error:                 the exception of the stage or of the probe, one line.
    is_synchronising:      whether it came out of a call that waits for the GPU.
    """

    stage: str
    moment: str = "before"
    step: int | None = None
    gpu: str = ""
    boot_id: str = ""
    corrected: int | None = None
    uncorrected: int | None = None
    probe: Check | None = None
    synchronised: bool = False
    matches: bool | None = None
    error: str = ""
    is_synchronising: bool = False
    operation: str = ""
    allocated_gb: float | None = None
    reserved_gb: float | None = None
    occupants: tuple[Occupant, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSyncReport(Observation):
    """The seconds of the parts of one weight synchronisation (row 7)."""

    step: int | None = None
    serialize_s: float | None = None
    upload_s: float | None = None
    download_s: float | None = None
    deserialize_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport(Observation):
    """A progress heartbeat (rows 12, 13). `status`: of HTTP, 200 if it answered; `value` only grows.

    unchanged_s: how long the value has been the same, by the worker's own clock: a stall is older than what is kept.
    """

    value: float | None = None
    status: int = 200
    unchanged_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming(Observation):
    """How long a worker took for a method (rows 15, 16). `stage`: its pipeline stage, if the program has any."""

    method: str
    seconds: float
    stage: int | None = None


class RpcStage(StrEnum):
    """Where in a call something happened (row 29)."""

    CONNECT = "connect"
    SEND = "send"
    HEADER = "response_header"
    BODY = "response_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcReport(Observation):
    """One remote call, stage by stage (rows 22-33).

    failed_at: the stage that failed, None if the call returned. timed_out: whether by a time-out of ours.
    connection_error: the connection broke (it may have been TCP's keepalive, row 34). status: of HTTP, None without.
    server_phase: where the server's exception came from: "deserialise", "method", "serialise"; "" if unknown.
    """

    method: str = ""
    request_id: str = ""
    connect_s: float | None = None
    send_s: float | None = None
    header_s: float | None = None
    body_s: float | None = None
    failed_at: RpcStage | None = None
    timed_out: bool = False
    connection_error: bool = False
    status: int | None = None
    server_phase: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHealth(Observation):
    """A worker's report of itself, every 10 s (row 38). Gigabytes, percent, bytes."""

    memory_used_gb: float | None = None
    memory_free_gb: float | None = None
    cpu_percent: float | None = None
    network_sent: int | None = None
    network_received: int | None = None
    active_requests: int | None = None


class RequestState(StrEnum):
    """How far a worker is with a request (row 36)."""

    START = "processing_start"
    DONE = "processing_done"
    ERROR = "processing_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport(Observation):
    """A worker's telemetry of one request."""

    request_id: str
    state: RequestState
    duration_s: float | None = None
    error_type: str = ""
    error: str = ""


class Delivery(StrEnum):
    """How far an event has come (row 42). `FAILED` hides how far: see `EventReport.last_state`."""

    SENT = "sent"
    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReport(Observation):
    """One notice between train and rollout (rows 41-44). `last_state`: how far it came before it failed."""

    request_id: str
    event: str
    state: Delivery
    last_state: Delivery = Delivery.SENT
    gpu_state: str = ""
    step: int | None = None
    error: str = ""


class LockState(StrEnum):
    """What became of somebody's wish for the GPU's lock (rows 47, 48)."""

    HELD = "held"
    WAITING = "waiting"
    TIMED_OUT = "timed out"
    RELEASED = "released"
    REFUSED = "release refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReport(Observation):
    """`owner` wants, holds or has given back the lock `lock`; `holder` has it at that moment."""

    lock: str
    owner: str
    state: LockState
    holder: str = ""
    holder_heard_s: float | None = None
    """How long ago the holder was last heard of; None if nobody knows."""
    waited_s: float | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding(Observation):
    """A line of a log and what it is (`core.logs`). `kind` and `role` are its words there.

    generic: it knows no more than that something went wrong, as an exception does that nobody knows.
    """

    line: str
    kind: str
    role: str
    generic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Observation):
    """Some of the last lines that a rank which failed has written, by its wrapper; part 0 is the end of it."""

    part: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclReport(Observation):
    """A line of NCCL's own log that its monitor noticed (row 10)."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport(Observation):
    """How a rank ended: by its exit code or a signal; None for what nobody knows. `by_us`: we had stopped it."""

    code: int | None = None
    signal: int | None = None
    by_us: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class XidReport(Observation):
    """An XID in a machine's kernel log; `asks` is what the policy makes of it (`core.xid.XidClass`)."""

    xid: int
    asks: str
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceReport(Observation):
    """A machine that was last heard of `silent_s` before the report."""

    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport(Observation):
    """One pairwise test: the instances that met, and whether it went well (`core.diagnosis.pairing`)."""

    round: int
    instances: tuple[str, ...]
    passed: bool
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightReport(Observation):
    """What a rank's NCCL flight recorder says of one process group (`core.diagnosis.flight`).

    members:   the ranks that belong to the group, as this rank knows them.
    last_enqueued, last_completed: sequence numbers of collectives; None for what it has not done yet.
    frame:     a hash of the top frame of the last one, "" if unknown.
    """

    group: str
    members: tuple[int, ...] = ()
    last_enqueued: int | None = None
    last_completed: int | None = None
    frame: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport(Observation):
    """A probe that has been made of this instance, whatever it found: it need not be made again."""

    probe: str
    passed: bool | None = None
