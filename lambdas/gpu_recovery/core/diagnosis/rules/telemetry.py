"""Rows 36-40: what a worker says of itself, request by request and every ten seconds.

Row 38 is `reports.WorkerHealth`: posted every 10 s with a time-out of 5 s, gigabytes and percent. Row 40's sentences
are those of the first match for each worker whose call ran out of time. "Never reported" accuses the start of a worker
only where others do report and nothing else was ever heard of this one: where nobody reports, there is no reporter. A
worker that reports good health may hang all the same: its reporter is another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.failure_pattern import has_no_answer
from gpu_recovery.core.diagnosis.observations import (
    CallTiming,
    ProgressReport,
    RequestReport,
    RequestState,
    RpcReport,
    WorkerHealth,
)
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import at_place, at_worker, name_of, once, worker_of, worker_scope
from gpu_recovery.core.diagnosis.taxonomy import Cause, Weight


def _requests(case: Case) -> dict[tuple[str, str], dict[RequestState, RequestReport]]:
    """By worker and request: its last report of each state."""
    found: dict[tuple[str, str], dict[RequestState, RequestReport]] = {}
    for one in case.all(RequestReport):
        found.setdefault((worker_of(case, one), one.request_id), {})[one.state] = one
    return found


def _unanswered(case: Case) -> dict[tuple[str, str], RpcReport]:
    """By worker and request: the calls that nobody answered."""
    calls = (one for one in case.all(RpcReport) if one.request_id and has_no_answer(one))
    return {(worker_of(case, one), one.request_id): one for one in calls}


def _raised(case: Case) -> Iterator[Match]:
    """Row 36: the worker says itself that it failed."""
    for (name, _), states in sorted(_requests(case).items()):
        error = states.get(RequestState.ERROR)
        if error is not None:
            values = {"who": name, "type": error.error_type or "error", "error": error.error}
            at, evidence = worker_scope(name), (error.report_id,)
            yield Match(Cause.WORKER_ERROR, at, Weight.FAIR, evidence, values)
            yield Match(Cause.APPLICATION, at, Weight.HINT, evidence, values)


def _done_unheard(case: Case) -> Iterator[Match]:
    """The worker was done, and its caller never heard of it: what is left is the way back."""
    requests = _requests(case)
    for key, call in sorted(_unanswered(case).items()):
        done = requests.get(key, {}).get(RequestState.DONE)
        if done is not None:
            evidence = (done.report_id, call.report_id)
            yield Match(Cause.NETWORK, at_worker(case, call), Weight.STRONG, evidence, {"who": key[0]})


def _is_open(states: dict[RequestState, RequestReport]) -> bool:
    return set(states) == {RequestState.START}


def _started(case: Case) -> Iterator[Match]:
    """Row 37: it takes nothing from the network's hypothesis; it is said."""
    for (name, _), states in sorted(_requests(case).items()):
        if _is_open(states):
            evidence = (states[RequestState.START].report_id,)
            yield Match(None, worker_scope(name), evidence=evidence, values={"who": name})


def _started_unheard(case: Case) -> Iterator[Match]:
    """It began with what its caller waited for in vain, and neither finished nor failed."""
    calls = _unanswered(case)
    for key, states in sorted(_requests(case).items()):
        call = calls.get(key)
        if call is not None and _is_open(states):
            evidence = (states[RequestState.START].report_id, call.report_id)
            at = at_place(case, call)
            cause = once(Cause.WORKER_HANG, at)
            yield Match(cause, at, Weight.WEAK if cause else 0.0, evidence, {"who": key[0]})


def _no_telemetry(case: Case) -> Iterator[Match]:
    """A request that no telemetry is known of, from a program whose workers do send it."""
    requests = _requests(case)
    if not requests:
        return
    for key, call in sorted(_unanswered(case).items()):
        if key not in requests:
            values = {"who": key[0]}
            yield Match(Cause.NETWORK, at_place(case, call), Weight.WEAK, (call.report_id,), values)
            yield Match(Cause.WORKER_CRASH, at_place(case, call), Weight.HINT, (call.report_id,), values)


def _memory_low(case: Case) -> Iterator[Match]:
    """Row 39. Memory that a program fills is no failure: it is said, and speaks for nobody."""
    for one in case.all(WorkerHealth):
        if one.memory_free_gb is not None and one.memory_free_gb < case.thresholds.memory_low_gb:
            yield Match(None, at_worker(case, one), evidence=(one.report_id,), values={"who": name_of(case, one)})


def _cpu_overload(case: Case) -> Iterator[Match]:
    for one in case.all(WorkerHealth):
        if (one.cpu_percent or 0.0) > case.thresholds.cpu_overload_percent:
            yield Match(None, at_worker(case, one), evidence=(one.report_id,), values={"who": name_of(case, one)})


@dataclass(frozen=True, slots=True)
class _Health:
    """What is known of the health of a worker whose call ran out of time. `letter`: row 40's first match."""

    call: RpcReport
    last: WorkerHealth | None
    letter: str
    silent_s: float = 0.0


def _health(case: Case) -> list[_Health]:
    last = {worker_of(case, one): one for one in case.all(WorkerHealth)}
    late = {worker_of(case, one): one for one in case.all(RpcReport) if one.timed_out and worker_of(case, one)}
    found = []
    for name, call in sorted(late.items()):
        health = last.get(name)
        if health is None:
            found.append(_Health(call, None, "a"))
            continue
        silent_s = max(case.at_s - health.at_s, 0.0)
        found.append(_Health(call, health, _letter(health, silent_s, case), silent_s))
    return found


def _letter(health: WorkerHealth, silent_s: float, case: Case) -> str:
    if silent_s > case.thresholds.silent_s:
        return "b"
    if health.memory_free_gb is not None and health.memory_free_gb < case.thresholds.memory_out_gb:
        return "c"
    return "d" if (health.cpu_percent or 0.0) > case.thresholds.cpu_overload_percent else "e"


def _never(case: Case) -> Iterator[Match]:
    """Row 40's first sentence, and whether it may be believed."""
    reporting = bool(case.all(WorkerHealth))
    heard = {worker_of(case, one) for kind in (RequestReport, ProgressReport, CallTiming) for one in case.all(kind)}
    heard |= {worker_of(case, one) for one in case.all(RpcReport) if not has_no_answer(one)}
    for one in _health(case):
        if one.letter != "a":
            continue
        believed = reporting and worker_of(case, one.call) not in heard
        yield _match(case, one, Cause.WORKER_STARTUP if believed else None, Weight.FAIR)
        if believed:
            yield _match(case, one, Cause.NETWORK, Weight.HINT)


def _match(case: Case, one: _Health, cause: Cause | None, weight: float) -> Match:
    evidence = (one.call.report_id, *((one.last.report_id,) if one.last else ()))
    values = {"who": name_of(case, one.call), "silent_s": one.silent_s}
    at = at_place(case, one.call) if cause in _OF_PLACES else at_worker(case, one.call)
    return Match(cause, at, weight if cause else 0.0, evidence, values)


_OF_PLACES = frozenset({Cause.NETWORK, Cause.WORKER_CRASH})
"""What a whole place may have; memory, processor and start are a worker's own."""


def _timed_out(letter: str, *speaks: tuple[Cause, float]) -> Callable[[Case], Iterator[Match]]:
    def find(case: Case) -> Iterator[Match]:
        for one in _health(case):
            if one.letter == letter:
                for cause, weight in speaks:
                    yield _match(case, one, cause, weight)

    return find


_REQUEST, _CALLED, _OWN = (RequestReport,), (RpcReport,), (WorkerHealth,)
RULES: tuple[Rule, ...] = (
    Rule("36", "Worker {who}: {type}: {error}", "Worker {who} processing_error: {type}: {error}", _REQUEST, _raised),
    Rule(
        "36+",
        "Worker {who} was done, and its answer never came: the way back",
        "Worker {who} 已处理完成但响应未送达 → 网络故障",
        _REQUEST,
        _done_unheard,
    ),
    Rule(
        "37a",
        "Worker {who} started processing: not a network problem",
        "Worker {who} 已开始处理，不是网络问题",
        _REQUEST,
        _started,
    ),
    Rule(
        "37a+",
        "Worker {who} began with the request that was waited for in vain, and did not end it",
        "Worker {who} 已开始处理但未结束 → 疑似worker hang",
        _REQUEST,
        _started_unheard,
    ),
    Rule(
        "37b",
        "Worker {who}: no telemetry → suspected network interruption",
        "Worker {who} 无telemetry，疑似网络中断",
        _CALLED,
        _no_telemetry,
    ),
    Rule("39a", "Worker {who} GPU memory low", "Worker {who} GPU memory low", _OWN, _memory_low),
    Rule("39b", "Worker {who} CPU overload", "Worker {who} CPU overload", _OWN, _cpu_overload),
    Rule(
        "40a",
        "{who}: worker never reported health → suspected startup failure",
        "Worker从未上报健康状态 → 疑似启动失败",
        _CALLED,
        _never,
    ),
    Rule(
        "40b",
        "{who}: worker silent for {silent_s:.0f} s → suspected process crash or network cut",
        "Worker {silent_s:.0f}秒未上报 → 疑似进程crash或网络断连",
        _CALLED,
        _timed_out("b", (Cause.WORKER_CRASH, Weight.WEAK), (Cause.NETWORK, Weight.WEAK)),
    ),
    Rule(
        "40c",
        "{who}: worker GPU OOM → suspected inference batch too large",
        "Worker GPU OOM → 疑似推理batch过大",
        _CALLED,
        _timed_out("c", (Cause.GPU_MEMORY, Weight.STRONG), (Cause.GPU_NOT_RELEASED, Weight.HINT)),
    ),
    Rule(
        "40d",
        "{who}: worker CPU overload → suspected resource contention",
        "Worker CPU overload → 疑似资源争用",
        _CALLED,
        _timed_out("d", (Cause.CPU_CONTENTION, Weight.FAIR)),
    ),
    Rule(
        "40e",
        "{who}: worker health normal → suspected network delay",
        "Worker健康状态正常，疑似网络延迟",
        _CALLED,
        _timed_out("e", (Cause.NETWORK, Weight.HINT)),
    ),
)
