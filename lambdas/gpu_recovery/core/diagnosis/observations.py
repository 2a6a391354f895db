"""Observations: what the sources of a diagnosis report, one small frozen dataclass for each kind.

Any number may be missing (None). No number is NaN after `case.finite`.
"""

from __future__ import annotations

from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass(kw_only=True)
class Observation:
    """Fields of every observation.

    report_id: id by which a diagnosis cites the observation.
    at_s: Unix seconds on the server's clock. An agent sends ages, so the clock of an instance is never used.
    instance_id, worker, rank: source of the observation; "" and None if it is unknown.
    worker_role: role of the process that reports about itself, such as "train" or "aggregator"; "" if it is unknown.
    pid: number of that process on its instance, as the kernel told the agent; None if it is unknown.
    """

    report_id: str
    at_s: float
    instance_id: str = ""
    worker: str = ""
    rank: int | None = None
    worker_role: str = ""
    pid: int | None = None

    @property
    def reporter(self) -> str:
        """Name of the worker, else of the rank, else the instance id; "" if all are unknown."""
        return self.worker or (f"rank {self.rank}" if self.rank is not None else self.instance_id)

    @property
    def sender(self) -> str:
        """Id of the instance whose agent sent the observation, which may be about a worker of another instance.

        The receiver puts it before the report id: `<instance id>/<name>`. "" if the id has no such part.
        """
        return self.report_id.partition("/")[0] if "/" in self.report_id else ""


class Check(StrEnum):
    """Result of a probe of the GPU."""

    PASSED = "passed"
    FAILED = "failed"


@frozen_dataclass()
class Occupant:
    """A process that holds memory of a GPU.

    memory_mb: megabytes.
    owner: role that the process belongs to ("train", "rollout"); "" if it is unknown.
    """

    pid: int
    memory_mb: float
    owner: str = ""


@frozen_dataclass(kw_only=True)
class StageReport(Observation):
    """State of a GPU at a stage of the program (rows 1-6, 51 and 52 of the fault catalogue, docs/diagnosis.md).

    stage: name of the stage.
    moment: "before", "after" or "during" the stage.
    step: step of the training; None if it is unknown.
    gpu: UUID of the GPU; "" if it is unknown.
    boot_id: boot of the instance, within which ECC errors are counted; "" if it is unknown.
    corrected, uncorrected: ECC errors since the driver was loaded; None if the GPU does not report them.
    probe: result of a probe of the GPU; None if none ran.
    synchronised: the probe waited for the GPU. Without that a passed probe shows nothing.
    matches: the probe's result was the known result; None if the results were not compared.
    error: exception of the stage or of the probe, in one line.
    is_synchronising: the exception came out of a call that waits for the GPU.
    operation: name of an operation within the stage (row 6); "" for the stage itself.
    allocated_gb, reserved_gb: gigabytes (10^9 bytes) that the reporting process has allocated, or reserved, on the GPU.
    occupants: processes that hold memory of the GPU; None if the observation does not list them.
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


@frozen_dataclass(kw_only=True)
class WeightSyncReport(Observation):
    """Seconds of each part of one weight synchronisation (row 7)."""

    step: int | None = None
    serialize_s: float | None = None
    upload_s: float | None = None
    download_s: float | None = None
    deserialize_s: float | None = None


@frozen_dataclass(kw_only=True)
class ProgressReport(Observation):
    """Progress heartbeat of a worker (rows 12, 13).

    value: progress of the worker; it only grows.
    status: HTTP status, 200 if the worker answered.
    unchanged_s: seconds since the value last changed, by the worker's own clock. A stall may be older than the stored
        observations.
    steps: number of the worker's intervals between two changes of the value, without its first and its pauses. The next
        two fields are about these intervals.
    step_s: median of the newest intervals in seconds.
    slowest_s: longest interval in seconds.
    paused: name of the phase without progress that the program is in, such as "evaluation"; "" if it is in none.
    """

    value: float | None = None
    status: int = 200
    unchanged_s: float | None = None
    steps: int | None = None
    step_s: float | None = None
    slowest_s: float | None = None
    paused: str = ""


@frozen_dataclass(kw_only=True)
class CallTiming(Observation):
    """Seconds that a worker took for a method (rows 15, 16). `stage` is its pipeline stage, if any."""

    method: str
    seconds: float
    stage: int | None = None


class RpcStage(StrEnum):
    """Stage of a remote call (row 29)."""

    CONNECT = "connect"
    SEND = "send"
    HEADER = "response_header"
    BODY = "response_data"


@frozen_dataclass(kw_only=True)
class RpcReport(Observation):
    """One remote call, with the seconds of each stage (rows 22-33).

    failed_at: stage that failed; None if the call returned.
    timed_out: the caller's own time-out ended the call.
    connection_error: the connection broke, possibly by TCP keepalive (row 34).
    status: HTTP status; None without an answer.
    server_phase: origin of the server's exception: "deserialise", "method", "serialise"; "" if it is unknown.
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


@frozen_dataclass(kw_only=True)
class WorkerHealth(Observation):
    """Health that a worker reports of itself every 10 s (row 38): gigabytes, percent, bytes."""

    memory_used_gb: float | None = None
    memory_free_gb: float | None = None
    cpu_percent: float | None = None
    network_sent: int | None = None
    network_received: int | None = None
    active_requests: int | None = None


class RequestState(StrEnum):
    """State of a request in its worker (row 36)."""

    START = "processing_start"
    DONE = "processing_done"
    ERROR = "processing_error"


@frozen_dataclass(kw_only=True)
class RequestReport(Observation):
    """A worker's telemetry of one request."""

    request_id: str
    state: RequestState
    duration_s: float | None = None
    error_type: str = ""
    error: str = ""


class Delivery(StrEnum):
    """Delivery state of an event (row 42). For `FAILED`, `EventReport.last_state` is the state before the failure."""

    SENT = "sent"
    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


@frozen_dataclass(kw_only=True)
class EventReport(Observation):
    """One event between train and rollout (rows 41-44).

    event: name of the event, such as "train_start".
    last_state: furthest state before the failure.
    gpu_state: "ready", "busy", "processing" or "error", with or without the prefix "gpu_"; "" if it is unknown.
    step: step of the training; None if it is unknown.
    error: error of the delivery, in one line; "" for none.
    """

    request_id: str
    event: str
    state: Delivery
    last_state: Delivery = Delivery.SENT
    gpu_state: str = ""
    step: int | None = None
    error: str = ""


class LockState(StrEnum):
    """State of a request for the lock of a GPU (rows 47, 48)."""

    HELD = "held"
    WAITING = "waiting"
    TIMED_OUT = "timed out"
    RELEASED = "released"
    REFUSED = "release refused"


@frozen_dataclass(kw_only=True)
class LockReport(Observation):
    """Request of `owner` for the lock `lock`, or its release.

    holder: the holder of the lock at that moment.
    waited_s: seconds that the owner has waited.
    token: number of the grant; it rises with every grant.
    """

    lock: str
    owner: str
    state: LockState
    holder: str = ""
    holder_heard_s: float | None = None
    """Seconds since the holder was last seen; None if that is unknown."""
    waited_s: float | None = None
    token: int | None = None


@frozen_dataclass(kw_only=True)
class LogFinding(Observation):
    """A log line with its kind and its role (`core.logs`).

    generic: the line only says that something failed, as an exception of unknown kind does.
    """

    line: str
    kind: str
    role: str
    generic: bool = False


@frozen_dataclass(kw_only=True)
class Written(Observation):
    """Part of the output tail of a failed rank, sent by its wrapper. Part 0 is the end of the output."""

    part: int
    lines: tuple[str, ...]


@frozen_dataclass(kw_only=True)
class NcclReport(Observation):
    """A line of NCCL's own log that its monitor selected (row 10)."""

    line: str


@frozen_dataclass(kw_only=True)
class ExitReport(Observation):
    """Exit code or signal of a rank; None if it is unknown. `by_us`: gpu-recovery had stopped the rank."""

    code: int | None = None
    signal: int | None = None
    by_us: bool = False


@frozen_dataclass(kw_only=True)
class XidReport(Observation):
    """XID in the kernel log of an instance. `asks` is its class (`core.xid.XidClass`)."""

    xid: int
    asks: str
    gpu: str = ""


@frozen_dataclass(kw_only=True)
class SilenceReport(Observation):
    """An instance that was last seen `silent_s` seconds before this observation."""

    silent_s: float


@frozen_dataclass(kw_only=True)
class RestartReport(Observation):
    """An instance that booted at `at_s` while the attempt ran, without a reboot by gpu-recovery."""


@frozen_dataclass(kw_only=True)
class IdleCheckReport(Observation):
    """Idle check that the instance passed before the attempt. It ended at `at_s`; `level` is its DCGM run level."""

    level: int


@frozen_dataclass(kw_only=True)
class PairReport(Observation):
    """One pairwise test: its round, its instances and its result (`core.diagnosis.pairwise_test`)."""

    round: int
    instances: tuple[str, ...]
    passed: bool
    seconds: float | None = None


@frozen_dataclass(kw_only=True)
class FlightReport(Observation):
    """State of one process group in the flight recorder of a process (`core.diagnosis.flight_recorder`).

    rank: rank of the process as PyTorch counts it over the whole job, one for each GPU. Only if each instance has one
        process is it also the number of the instance.
    members: ranks of the group, as this process knows them.
    member_ranges: the same as ranges of ranks (`core.diagnosis.rank_ranges`), for a group of any size.
    local_world: processes of the job on each instance; None if it is unknown.
    last_enqueued: sequence number of the last collective that the process has called; None if it is unknown.
    last_completed: sequence number of the last collective that has ended on this GPU; None if there was none yet.
    from_status: the two numbers come from `pg_status`, where calls between two ranks are counted, too.
    uses_p2p: the process has also called sends and receives between two ranks in this group.
    sends_to, receives_from: ranks, as ranges, of the other side of sends and receives that have not ended.
    waits_s: seconds since the call of the first operation that has not ended; None if it is unknown.
    op: name, data type and, where all ranks must agree in it, number of elements of the first collective that has not
        ended; "" if it is unknown.
    frame: hash of the top frame of the last collective; "" if it is unknown.
    """

    group: str
    members: tuple[int, ...] = ()
    last_enqueued: int | None = None
    last_completed: int | None = None
    frame: str = ""
    member_ranges: str = ""
    local_world: int | None = None
    from_status: bool = False
    uses_p2p: bool = False
    sends_to: str = ""
    receives_from: str = ""
    waits_s: float | None = None
    op: str = ""


@frozen_dataclass(kw_only=True)
class ProbeReport(Observation):
    """A probe of this instance that has run. It need not run again, with any result."""

    probe: str
    passed: bool | None = None


@frozen_dataclass()
class TimeoutVariable:
    """A known timeout in the environment or the command of a rank, in its own unit (`core/job/timeout_order.py`)."""

    name: str
    value: int


@frozen_dataclass(kw_only=True)
class TimeoutsReport(Observation):
    """Known timeouts of a rank, as its wrapper sees them. Values of other variables are never reported."""

    variables: tuple[TimeoutVariable, ...] = ()


class StepResult(StrEnum):
    """Result of a step of the preflight. A step that was not run has not passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    INCONCLUSIVE = "inconclusive"


@frozen_dataclass()
class PreflightStep:
    """One step of the preflight (docs/training.md).

    seconds: time that the step took.
    sentence: what was seen, in words of the wrapper.
    error: text of another program that the sentence rests on; "" for none.
    value: number of RDMA devices, or gigabytes per second of an all-reduce; None for any other step.
    """

    name: str
    result: StepResult
    seconds: float = 0.0
    sentence: str = ""
    error: str = ""
    value: float | None = None


@frozen_dataclass(kw_only=True)
class PreflightReport(Observation):
    """Results of the preflight of a rank, which its wrapper runs before the training starts."""

    steps: tuple[PreflightStep, ...] = ()
