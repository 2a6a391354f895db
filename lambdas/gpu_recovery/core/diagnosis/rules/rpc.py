"""Remote call rules: each stage of a call, its status and its connection.

Rows 22-35 of the fault catalogue, docs/diagnosis.md.

Row 29's object is published for the last call of each worker. Row 30's two actions are published for each failed
call; the real action is in `remedies`.

Row 31 has earlier variants that conflict with rows 25-28, and those rows replace them: a header time-out of 30 s that
points to the network; a header beyond 100 s that points to the network; a body with a total of ten headers; a body
time-out that points to the worker.

Row 27 has no lower bound: beside an immediate header any body is slow. It is published as specified. Row 27+
decides and also asks for a number of seconds.

Row 32: 200 is an answer, 408 may be sent again, 500 says nothing about the cause. Its single time-out for all stages is
replaced by rows 22-28.

Row 34: TCP keepalive may end a long call first, so a broken connection does not prove that the worker hangs. Row 35:
only the sum of sending, working and receiving is visible.

Every match of a cause has a rival: a second match with at most the same weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.failure_pattern import has_failed
from gpu_recovery.core.diagnosis.misleading_oom import OK, explained_ooms, is_answered, is_out_of_memory
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import at_place, at_worker, name_of, once, worker_of
from gpu_recovery.core.diagnosis.taxonomy import Cause, Weight
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

REQUEST_TIMEOUT, INTERNAL_ERROR = 408, 500
CUDA_ERROR, NETWORK_SLOW, WORKER_TIMEOUT = 521, 522, 523
"""HTTP status codes that row 32 proposes."""
RETRIES_MAX = 3
"""Upper bound of the times that a call is sent again (row 32).

Published rule only: gpu-recovery sends no call again.
"""

Find = Callable[[Case], Iterator[Match]]
"""Function of a rule: the matches in a case."""
Asks = Callable[[RpcReport, Case], bool]
"""Condition of a rule on one call."""


def is_retryable(status: int) -> bool:
    """Whether a call that ended with this HTTP status may be sent again, up to RETRIES_MAX times (row 32).

    Published rule only: gpu-recovery sends no call again.
    """
    return status == REQUEST_TIMEOUT


@frozen_dataclass()
class _CallMeaning:
    """Rule function: the causes that a call supports under a condition, the main cause first, then its rivals."""

    asks: Asks
    causes: tuple[tuple[Cause, float], ...]
    seconds: str = ""
    together: bool = True
    """Whether a whole place may have this failure (`failure_pattern`); else it is the worker's own."""

    def __call__(self, case: Case) -> Iterator[Match]:
        for call in case.all(RpcReport):
            if not self.asks(call, case):
                continue
            at = at_place(case, call) if self.together else at_worker(case, call)
            values = {"who": name_of(case, call), "seconds": getattr(call, self.seconds) if self.seconds else None}
            values |= {"status": call.status, "error": call.error}
            for cause, weight in self.causes or ((None, 0.0),):
                supported = once(cause, at)
                yield Match(supported, at, weight if supported else 0.0, (call.report_id,), values)


def _late(stage: RpcStage) -> Asks:
    return lambda call, case: call.failed_at is stage and call.timed_out


def _connect_slow(call: RpcReport, case: Case) -> bool:
    return call.failed_at is not RpcStage.CONNECT and (call.connect_s or 0.0) > case.thresholds.connect_slow_s


def _header_slow(call: RpcReport, case: Case) -> bool:
    """Whether the header arrived late."""
    arrived = call.failed_at in (None, RpcStage.BODY)
    return arrived and (call.header_s or 0.0) > case.thresholds.header_slow_s


def _body_slow(call: RpcReport, case: Case) -> bool:
    if call.body_s is None or call.header_s is None or call.failed_at is not None:
        return False
    return call.body_s > case.thresholds.body_slow_ratio * call.header_s


def _body_slow_and_long(call: RpcReport, case: Case) -> bool:
    return _body_slow(call, case) and (call.body_s or 0.0) > case.thresholds.body_slow_s


def _diagnosis_of(call: RpcReport) -> str:
    """Row 29's object as text, without unknown values."""
    known = {
        "connect_time": call.connect_s,
        "send_time": call.send_s,
        "response_header_time": call.header_s,
        "response_data_time": call.body_s,
    }
    values = [f"{name}={seconds:.2f}" for name, seconds in known.items() if seconds is not None]
    return ", ".join([*values, *([f"failure_stage={call.failed_at}"] if call.failed_at else [])])


def _last_calls(case: Case) -> Iterator[Match]:
    for call in {worker_of(case, call): call for call in case.all(RpcReport)}.values():
        values = {"who": name_of(case, call), "diagnosis": _diagnosis_of(call)}
        yield Match(None, at_worker(case, call), evidence=(call.report_id,), values=values)


def _action(is_of_worker: bool) -> Find:
    """Row 30. The worker's failures are answers with an error, and missing headers. Others are the network's."""

    def find(case: Case) -> Iterator[Match]:
        for call in case.all(RpcReport):
            failed_in_worker = (
                call.failed_at is RpcStage.HEADER or call.status not in (None, OK) or bool(call.server_phase)
            )
            if has_failed(call) and failed_in_worker is is_of_worker:
                values = {"who": name_of(case, call), "diagnosis": _diagnosis_of(call)}
                yield Match(None, at_worker(case, call), evidence=(call.report_id,), values=values)

    return find


def _is_cuda_error(call: RpcReport) -> bool:
    return call.status == CUDA_ERROR or ("CUDA" in call.error and not is_out_of_memory(call))


def _out_of_memory(call: RpcReport, case: Case) -> bool:
    """Whether the worker had too little GPU memory, and no other observation explains that (row 46)."""
    return is_answered(call) and is_out_of_memory(call) and call.report_id not in case.computed_once(explained_ooms)


def _cuda_error(call: RpcReport, case: Case) -> bool:
    return is_answered(call) and _is_cuda_error(call)


def _status(code: int) -> Asks:
    return lambda call, case: call.status == code


def _ambiguous(call: RpcReport, case: Case) -> bool:
    """Whether the status is 500 without further information."""
    return call.status == INTERNAL_ERROR and not call.server_phase and not _names_gpu(call)


def _names_gpu(call: RpcReport) -> bool:
    return is_out_of_memory(call) or _is_cuda_error(call)


def _deserialise(call: RpcReport, case: Case) -> bool:
    return call.server_phase == "deserialise"


def _method(call: RpcReport, case: Case) -> bool:
    """Whether a method raised. Errors of the GPU in a method belong to rows 32c and 32d."""
    return call.server_phase == "method" and not _names_gpu(call)


def _serialise_memory(call: RpcReport, case: Case) -> bool:
    return call.server_phase == "serialise" and "MemoryError" in call.error


def _serialise_other(call: RpcReport, case: Case) -> bool:
    return call.server_phase == "serialise" and "MemoryError" not in call.error


def _broken(call: RpcReport, case: Case) -> bool:
    return call.connection_error and call.failed_at is not RpcStage.CONNECT


def _refused(call: RpcReport, case: Case) -> bool:
    return call.connection_error and call.failed_at is RpcStage.CONNECT


_CALLED = (RpcReport,)
RULES: tuple[Rule, ...] = (
    Rule(
        "22",
        "Worker {who} connection slow ({seconds:.1f} s) → suspected network latency",
        "Worker {who} 连接慢 → 疑似网络延迟",
        _CALLED,
        _CallMeaning(
            _connect_slow, ((Cause.NETWORK_SLOW, Weight.WEAK), (Cause.CPU_CONTENTION, Weight.HINT)), "connect_s"
        ),
    ),
    Rule(
        "23",
        "Worker {who} connection timed out → network unreachable or worker down",
        "Worker {who} 连接超时 → 网络不可达或worker down",
        _CALLED,
        _CallMeaning(_late(RpcStage.CONNECT), ((Cause.NETWORK, Weight.FAIR), (Cause.WORKER_CRASH, Weight.WEAK))),
    ),
    Rule(
        "24",
        "Worker {who} send timed out → insufficient network bandwidth",
        "Worker {who} 发送超时 → 网络带宽不足",
        _CALLED,
        _CallMeaning(_late(RpcStage.SEND), ((Cause.NETWORK, Weight.FAIR), (Cause.WORKER_HANG, Weight.HINT))),
    ),
    Rule(
        "25",
        "Worker {who} response header slow ({seconds:.1f} s) → suspected worker hang",
        "Worker {who} 响应头慢 → 疑似worker处理hang",
        _CALLED,
        _CallMeaning(_header_slow, ((Cause.WORKER_HANG, Weight.WEAK), (Cause.STRAGGLER, Weight.HINT)), "header_s"),
    ),
    Rule(
        "26",
        "Worker {who} response header timed out → connection established but no answer, suspected worker hang / OOM",
        "Worker {who} 响应头超时 → 已建立连接但worker无响应，疑似worker hang/OOM",
        _CALLED,
        _CallMeaning(
            _late(RpcStage.HEADER),
            (
                (Cause.WORKER_HANG, Weight.FAIR),
                (Cause.GPU_MEMORY, Weight.HINT),
                (Cause.NETWORK, Weight.HINT),
            ),
        ),
    ),
    Rule(
        "27",
        "Worker {who} data transfer slow → insufficient bandwidth or data too large",
        "Worker {who} 数据传输慢 → 网络带宽不足或数据过大",
        _CALLED,
        _CallMeaning(_body_slow, ()),
    ),
    Rule(
        "27+",
        "Worker {who} data transfer slow, and it took {seconds:.1f} s",
        "Worker {who} 数据传输慢，用时{seconds:.1f}秒",
        _CALLED,
        _CallMeaning(
            _body_slow_and_long, ((Cause.NETWORK_SLOW, Weight.WEAK), (Cause.CPU_CONTENTION, Weight.HINT)), "body_s"
        ),
    ),
    Rule(
        "28",
        "Worker {who} data receive timed out → header received, body stuck, suspected large transfer or packet loss",
        "Worker {who} 数据接收超时 → 已收到header，疑似大数据传输或网络丢包",
        _CALLED,
        _CallMeaning(
            _late(RpcStage.BODY),
            (
                (Cause.NETWORK, Weight.FAIR),
                (Cause.NETWORK_SLOW, Weight.HINT),
                (Cause.WORKER_HANG, Weight.HINT),
            ),
        ),
    ),
    Rule("29", "RPC diagnosis for {who}: {diagnosis}", "RPC diagnosis for {who}: {diagnosis}", _CALLED, _last_calls),
    Rule(
        "30a",
        "{who}: worker-internal failure: {diagnosis} → restart that worker",
        "Worker内部故障: {diagnosis}",
        _CALLED,
        _action(True),
    ),
    Rule(
        "30b",
        "{who}: network failure: {diagnosis} → a standby worker, or wait for the network",
        "网络故障: {diagnosis}",
        _CALLED,
        _action(False),
    ),
    Rule(
        "32a",
        "Worker {who} answered 408: the request came too slowly; it may be sent again",
        "Worker {who} 408: 请求发送太慢，可重试",
        _CALLED,
        _CallMeaning(
            _status(REQUEST_TIMEOUT), ((Cause.NETWORK_SLOW, Weight.WEAK), (Cause.CPU_CONTENTION, Weight.HINT))
        ),
    ),
    Rule(
        "32b",
        "Worker {who} answered 500: GPU OOM, CUDA error, Python exception or a corrupted response",
        "Worker {who} 500: GPU OOM、CUDA error、Python exception或响应包损坏",
        _CALLED,
        _CallMeaning(
            _ambiguous,
            (
                (Cause.WORKER_ERROR, Weight.HINT),
                (Cause.GPU_MEMORY, Weight.HINT),
                (Cause.GPU_CONTEXT, Weight.HINT),
                (Cause.NETWORK, Weight.HINT),
            ),
            together=False,
        ),
    ),
    Rule(
        "32c",
        "Worker {who}: GPU out of memory: {error}",
        "Worker {who}: GPU内存不足: {error}",
        _CALLED,
        _CallMeaning(
            _out_of_memory,
            (
                (Cause.GPU_MEMORY, Weight.FAIR),
                (Cause.GPU_NOT_RELEASED, Weight.HINT),
            ),
            together=False,
        ),
    ),
    Rule(
        "32d",
        "Worker {who}: CUDA error: {error}",
        "Worker {who}: CUDA错误: {error}",
        _CALLED,
        _CallMeaning(
            _cuda_error, ((Cause.GPU_CONTEXT, Weight.FAIR), (Cause.WORKER_ERROR, Weight.HINT)), together=False
        ),
    ),
    Rule(
        "32e",
        "Worker {who} answered 522: network slow",
        "Worker {who} 522: 网络传输慢",
        _CALLED,
        _CallMeaning(_status(NETWORK_SLOW), ((Cause.NETWORK_SLOW, Weight.FAIR), (Cause.CPU_CONTENTION, Weight.HINT))),
    ),
    Rule(
        "32f",
        "Worker {who} answered 523: worker timeout",
        "Worker {who} 523: Worker处理超时",
        _CALLED,
        _CallMeaning(
            _status(WORKER_TIMEOUT), ((Cause.WORKER_HANG, Weight.FAIR), (Cause.STRAGGLER, Weight.WEAK)), together=False
        ),
    ),
    Rule(
        "33a",
        "Worker {who} could not read the request → data corrupted in transit: {error}",
        "Worker {who} 反序列化失败 → 数据损坏（网络丢包）: {error}",
        _CALLED,
        _CallMeaning(_deserialise, ((Cause.NETWORK, Weight.FAIR), (Cause.WORKER_ERROR, Weight.WEAK)), together=False),
    ),
    Rule(
        "33b",
        "Worker {who}: the method raised → worker-internal error: {error}",
        "Worker {who} method() → Worker内部错误: {error}",
        _CALLED,
        _CallMeaning(_method, ((Cause.WORKER_ERROR, Weight.STRONG), (Cause.APPLICATION, Weight.WEAK)), together=False),
    ),
    Rule(
        "33c",
        "Worker {who} could not write the result → host memory: {error}",
        "Worker {who} 序列化结果失败 → 结果过大（内存不足）: {error}",
        _CALLED,
        _CallMeaning(
            _serialise_memory, ((Cause.HOST_MEMORY, Weight.STRONG), (Cause.WORKER_ERROR, Weight.HINT)), together=False
        ),
    ),
    Rule(
        "33d",
        "Worker {who} could not write the result: {error}",
        "Worker {who} 序列化结果失败: {error}",
        _CALLED,
        _CallMeaning(
            _serialise_other, ((Cause.WORKER_ERROR, Weight.FAIR), (Cause.HOST_MEMORY, Weight.HINT)), together=False
        ),
    ),
    Rule(
        "34",
        "Worker {who}: the connection broke; TCP keepalive (60 s, 9 probes) may have ended a long call: no proof "
        "of a hung worker",
        "Worker {who} ConnectionError → TCP KeepAlive可能先于应用层超时，不能证明worker hang",
        _CALLED,
        _CallMeaning(
            _broken,
            (
                (Cause.NETWORK, Weight.WEAK),
                (Cause.WORKER_CRASH, Weight.WEAK),
                (Cause.WORKER_HANG, Weight.HINT),
            ),
        ),
    ),
    Rule(
        "34r",
        "Worker {who} refused the connection → no process listens there",
        "Worker {who} 拒绝连接 → worker down",
        _CALLED,
        _CallMeaning(_refused, ((Cause.WORKER_CRASH, Weight.FAIR), (Cause.NETWORK, Weight.WEAK))),
    ),
)
