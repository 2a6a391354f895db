"""Worker telemetry rules: each request of a worker, and the worker's health every ten seconds.

Rows 36-40 of the fault catalogue, docs/diagnosis.md.

Row 38 is `observations.WorkerHealth`: posted every 10 s with a time-out of 5 s, in gigabytes and percent. The
sentences of row 40 are those of the first match, for each worker with a call that timed out.

"Never reported" means a failed start only if other workers report and no other observation came from this worker. If
no worker reports, the program has no reporter.

A worker that reports good health may still hang: another thread sends the report.
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
    """Last observation of each state, by worker and request."""
    by_request: dict[tuple[str, str], dict[RequestState, RequestReport]] = {}
    for report in case.all(RequestReport):
        by_request.setdefault((worker_of(case, report), report.request_id), {})[report.state] = report
    return by_request


def _unanswered(case: Case) -> dict[tuple[str, str], RpcReport]:
    """Calls without an answer, by worker and request."""
    calls = (call for call in case.all(RpcReport) if call.request_id and has_no_answer(call))
    return {(worker_of(case, call), call.request_id): call for call in calls}


def _raised(case: Case) -> Iterator[Match]:
    """Row 36: the worker itself reports that it failed."""
    for (name, _), states in sorted(_requests(case).items()):
        error = states.get(RequestState.ERROR)
        if error is not None:
            values = {"who": name, "type": error.error_type or "error", "error": error.error}
            at, evidence = worker_scope(name), (error.report_id,)
            yield Match(Cause.WORKER_ERROR, at, Weight.FAIR, evidence, values)
            yield Match(Cause.APPLICATION, at, Weight.HINT, evidence, values)


def _answer_lost(case: Case) -> Iterator[Match]:
    """The worker finished, but its caller received no answer. So the way back is the cause."""
    requests = _requests(case)
    for key, call in sorted(_unanswered(case).items()):
        done = requests.get(key, {}).get(RequestState.DONE)
        if done is not None:
            evidence = (done.report_id, call.report_id)
            yield Match(Cause.NETWORK, at_worker(case, call), Weight.STRONG, evidence, {"who": key[0]})


def _is_open(states: dict[RequestState, RequestReport]) -> bool:
    return set(states) == {RequestState.START}


def _started(case: Case) -> Iterator[Match]:
    """Row 37: a note only. It does not weaken the hypothesis of a network fault."""
    for (name, _), states in sorted(_requests(case).items()):
        if _is_open(states):
            evidence = (states[RequestState.START].report_id,)
            yield Match(None, worker_scope(name), evidence=evidence, values={"who": name})


def _not_finished(case: Case) -> Iterator[Match]:
    """The worker started on an unanswered request, and neither finished nor failed."""
    calls = _unanswered(case)
    for key, states in sorted(_requests(case).items()):
        call = calls.get(key)
        if call is not None and _is_open(states):
            evidence = (states[RequestState.START].report_id, call.report_id)
            at = at_place(case, call)
            cause = once(Cause.WORKER_HANG, at)
            yield Match(cause, at, Weight.WEAK if cause else 0.0, evidence, {"who": key[0]})


def _no_telemetry(case: Case) -> Iterator[Match]:
    """A request without telemetry, in a program where workers send telemetry."""
    requests = _requests(case)
    if not requests:
        return
    for key, call in sorted(_unanswered(case).items()):
        if key not in requests:
            values = {"who": key[0]}
            yield Match(Cause.NETWORK, at_place(case, call), Weight.WEAK, (call.report_id,), values)
            yield Match(Cause.WORKER_CRASH, at_place(case, call), Weight.HINT, (call.report_id,), values)


def _memory_low(case: Case) -> Iterator[Match]:
    """Row 39: a note only. A program may fill the memory without a failure."""
    for health in case.all(WorkerHealth):
        if health.memory_free_gb is not None and health.memory_free_gb < case.thresholds.memory_low_gb:
            yield Match(
                None, at_worker(case, health), evidence=(health.report_id,), values={"who": name_of(case, health)}
            )


def _cpu_overload(case: Case) -> Iterator[Match]:
    for health in case.all(WorkerHealth):
        if (health.cpu_percent or 0.0) > case.thresholds.cpu_overload_percent:
            yield Match(
                None, at_worker(case, health), evidence=(health.report_id,), values={"who": name_of(case, health)}
            )


@dataclass(frozen=True, slots=True)
class _Health:
    """Health of a worker with a call that timed out.

    letter: letter of the first sentence of row 40 that matches.
    silent_s: seconds since the worker's last health report.
    """

    call: RpcReport
    last: WorkerHealth | None
    letter: str
    silent_s: float = 0.0


def _health_of_late(case: Case) -> list[_Health]:
    last = {worker_of(case, health): health for health in case.all(WorkerHealth)}
    late = {worker_of(case, call): call for call in case.all(RpcReport) if call.timed_out and worker_of(case, call)}
    healths = []
    for name, call in sorted(late.items()):
        health = last.get(name)
        if health is None:
            healths.append(_Health(call, None, "a"))
            continue
        silent_s = max(case.at_s - health.at_s, 0.0)
        healths.append(_Health(call, health, _row_letter(health, silent_s, case), silent_s))
    return healths


def _row_letter(health: WorkerHealth, silent_s: float, case: Case) -> str:
    if silent_s > case.thresholds.silent_s:
        return "b"
    if health.memory_free_gb is not None and health.memory_free_gb < case.thresholds.memory_out_gb:
        return "c"
    return "d" if (health.cpu_percent or 0.0) > case.thresholds.cpu_overload_percent else "e"


def _never_reported(case: Case) -> Iterator[Match]:
    """Row 40's first sentence. It supports a cause only if the start of the worker can have failed."""
    reporting = bool(case.all(WorkerHealth))
    known = {
        worker_of(case, report) for kind in (RequestReport, ProgressReport, CallTiming) for report in case.all(kind)
    }
    known |= {worker_of(case, call) for call in case.all(RpcReport) if not has_no_answer(call)}
    for late in _health_of_late(case):
        if late.letter != "a":
            continue
        believed = reporting and worker_of(case, late.call) not in known
        yield _match(case, late, Cause.WORKER_STARTUP if believed else None, Weight.FAIR)
        if believed:
            yield _match(case, late, Cause.NETWORK, Weight.HINT)


def _match(case: Case, late: _Health, cause: Cause | None, weight: float) -> Match:
    evidence = (late.call.report_id, *((late.last.report_id,) if late.last else ()))
    values = {"who": name_of(case, late.call), "silent_s": late.silent_s}
    at = at_place(case, late.call) if cause in _CAUSES_OF_PLACES else at_worker(case, late.call)
    return Match(cause, at, weight if cause else 0.0, evidence, values)


_CAUSES_OF_PLACES = frozenset({Cause.NETWORK, Cause.WORKER_CRASH})
"""Causes that a whole place may have. Memory, processor and start concern the worker alone."""


def _timed_out(letter: str, *supported: tuple[Cause, float]) -> Callable[[Case], Iterator[Match]]:
    def find(case: Case) -> Iterator[Match]:
        for late in _health_of_late(case):
            if late.letter == letter:
                for cause, weight in supported:
                    yield _match(case, late, cause, weight)

    return find


_REQUEST, _CALLED, _OWN = (RequestReport,), (RpcReport,), (WorkerHealth,)
RULES: tuple[Rule, ...] = (
    Rule("36", "Worker {who}: {type}: {error}", "Worker {who} processing_error: {type}: {error}", _REQUEST, _raised),
    Rule(
        "36+",
        "Worker {who} completed the request, and its response was not delivered → network failure",
        "Worker {who} 已处理完成但响应未送达 → 网络故障",
        _REQUEST,
        _answer_lost,
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
        "Worker {who} started processing the request, and did not complete it",
        "Worker {who} 已开始处理但未结束 → 疑似worker hang",
        _REQUEST,
        _not_finished,
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
        _never_reported,
    ),
    Rule(
        "40b",
        "{who}: no report of the worker for {silent_s:.0f} s → suspected process crash or network cut",
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
