"""Rows 22-35: one remote call, stage by stage.

Row 29's object is published for the last call of each worker, row 30's two actions for each that failed (what is
done: `remedies`). Row 31's earlier variants are conflicts and give way to rows 25-28: a header time-out of 30 s that
blames the network; a header beyond 100 s that does; a body whose total is ten headers; a body time-out that blames the
worker. Row 27 has no floor: any body is slow beside a header that was there at once. It is published; what decides asks
for seconds as well. Row 32: 200 is an answer, 408 may be sent again, 500 says nothing of who is to blame; one time-out
for all stages is what rows 22-28 replace. Row 34: TCP's keepalive may end a long call first, so that a connection that
broke is no proof of a worker that hangs. Row 35: only the sum of sending, working and receiving is seen. Every match
here names its rival by a second one with less weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.failure_pattern import has_failed
from gpu_recovery.core.diagnosis.misleading_oom import OK, explained_ooms, is_answered, is_out_of_memory
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import at_place, at_worker, name_of, once, worker_of
from gpu_recovery.core.diagnosis.taxonomy import Cause, Weight

REQUEST_TIMEOUT, INTERNAL_ERROR = 408, 500
CUDA_ERROR, NETWORK_SLOW, WORKER_TIMEOUT = 521, 522, 523
"""Row 32's proposed codes."""
RETRIES_MAX = 3

Find = Callable[[Case], Iterator[Match]]
Asks = Callable[[RpcReport, Case], bool]


def is_retryable(status: int) -> bool:
    """Row 32: whether a call that ended with this HTTP status may be sent again, up to 3 times."""
    return status == REQUEST_TIMEOUT


@dataclass(frozen=True, slots=True)
class _CallMeaning:
    """For whom a call speaks, and how much: the cause first, then its rivals."""

    asks: Asks
    causes: tuple[tuple[Cause, float], ...]
    seconds: str = ""
    together: bool = True
    """Whether it is a failure that a whole place may have (`pattern`), and not the worker's own."""

    def __call__(self, case: Case) -> Iterator[Match]:
        for one in case.all(RpcReport):
            if not self.asks(one, case):
                continue
            at = at_place(case, one) if self.together else at_worker(case, one)
            values = {"who": name_of(case, one), "seconds": getattr(one, self.seconds) if self.seconds else None}
            values |= {"status": one.status, "error": one.error}
            for cause, weight in self.causes or ((None, 0.0),):
                of = once(cause, at)
                yield Match(of, at, weight if of else 0.0, (one.report_id,), values)


def _late(stage: RpcStage) -> Asks:
    return lambda one, case: one.failed_at is stage and one.timed_out


def _connect_slow(one: RpcReport, case: Case) -> bool:
    return one.failed_at is not RpcStage.CONNECT and (one.connect_s or 0.0) > case.thresholds.connect_slow_s


def _header_slow(one: RpcReport, case: Case) -> bool:
    """A header that came, late."""
    came = one.failed_at in (None, RpcStage.BODY)
    return came and (one.header_s or 0.0) > case.thresholds.header_slow_s


def _body_slow(one: RpcReport, case: Case) -> bool:
    if one.body_s is None or one.header_s is None or one.failed_at is not None:
        return False
    return one.body_s > case.thresholds.body_slow_ratio * one.header_s


def _body_slow_and_long(one: RpcReport, case: Case) -> bool:
    return _body_slow(one, case) and (one.body_s or 0.0) > case.thresholds.body_slow_s


def _diagnosis_of(one: RpcReport) -> str:
    """Row 29's object, without what is not known."""
    known = {
        "connect_time": one.connect_s,
        "send_time": one.send_s,
        "response_header_time": one.header_s,
        "response_data_time": one.body_s,
    }
    said = [f"{name}={seconds:.2f}" for name, seconds in known.items() if seconds is not None]
    return ", ".join([*said, *([f"failure_stage={one.failed_at}"] if one.failed_at else [])])


def _object(case: Case) -> Iterator[Match]:
    for one in {worker_of(case, one): one for one in case.all(RpcReport)}.values():
        values = {"who": name_of(case, one), "diagnosis": _diagnosis_of(one)}
        yield Match(None, at_worker(case, one), evidence=(one.report_id,), values=values)


def _action(is_of_worker: bool) -> Find:
    """Row 30: a worker's failure is one that came back, or a header that did not come."""

    def find(case: Case) -> Iterator[Match]:
        for one in case.all(RpcReport):
            worker = one.failed_at is RpcStage.HEADER or one.status not in (None, OK) or bool(one.server_phase)
            if has_failed(one) and worker is is_of_worker:
                values = {"who": name_of(case, one), "diagnosis": _diagnosis_of(one)}
                yield Match(None, at_worker(case, one), evidence=(one.report_id,), values=values)

    return find


def _is_cuda_error(one: RpcReport) -> bool:
    return one.status == CUDA_ERROR or ("CUDA" in one.error and not is_out_of_memory(one))


def _out_of_memory(one: RpcReport, case: Case) -> bool:
    """One that means what it says (row 46): else what explains it speaks."""
    return is_answered(one) and is_out_of_memory(one) and one.report_id not in case.computed_once(explained_ooms)


def _cuda_error(one: RpcReport, case: Case) -> bool:
    return is_answered(one) and _is_cuda_error(one)


def _status(code: int) -> Asks:
    return lambda one, case: one.status == code


def _ambiguous(one: RpcReport, case: Case) -> bool:
    """A 500 that says nothing more."""
    return one.status == INTERNAL_ERROR and not one.server_phase and not _names_gpu(one)


def _names_gpu(one: RpcReport) -> bool:
    return is_out_of_memory(one) or _is_cuda_error(one)


def _deserialise(one: RpcReport, case: Case) -> bool:
    return one.server_phase == "deserialise"


def _method(one: RpcReport, case: Case) -> bool:
    """An error of the GPU that comes out of a method is told by rows 32c and 32d."""
    return one.server_phase == "method" and not _names_gpu(one)


def _serialise_memory(one: RpcReport, case: Case) -> bool:
    return one.server_phase == "serialise" and "MemoryError" in one.error


def _serialise_other(one: RpcReport, case: Case) -> bool:
    return one.server_phase == "serialise" and "MemoryError" not in one.error


def _broken(one: RpcReport, case: Case) -> bool:
    return one.connection_error and one.failed_at is not RpcStage.CONNECT


def _refused(one: RpcReport, case: Case) -> bool:
    return one.connection_error and one.failed_at is RpcStage.CONNECT


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
    Rule("29", "RPC diagnosis for {who}: {diagnosis}", "RPC diagnosis for {who}: {diagnosis}", _CALLED, _object),
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
        "Worker {who} refused the connection → nobody listens there",
        "Worker {who} 拒绝连接 → worker down",
        _CALLED,
        _CallMeaning(_refused, ((Cause.WORKER_CRASH, Weight.FAIR), (Cause.NETWORK, Weight.WEAK))),
    ),
)
