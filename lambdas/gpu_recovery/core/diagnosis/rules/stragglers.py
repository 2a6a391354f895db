"""Straggler rules: slow workers, stalled workers, and the wait for a part of the calls.

The rules run after a failure (a detected hang included) or on request (`gpu-recovery diagnose`). No function looks for
stragglers while a job runs. Rows 11-13 and 15-17 of the fault catalogue, docs/diagnosis.md.

Terms of row 11. A *straggler* answers health checks and returns in the end. *Network delay* is a connection that is
up while no data moves. A *hang* is a connection that is up without an answer and without progress.

Row 14, the tree of calls, is in `failure_patterns`. The 2σ rule of row 16 is published as specified, and the guard
beside it decides. Calls are compared with calls of the same method.

A slow rank is often an uneven pipeline stage and no slow instance (StragglerAnalysis traces: reference, part 2). Slow
workers of one stage on several instances are the sign of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import CallTiming, ProgressReport, RpcReport
from gpu_recovery.core.diagnosis.outliers import (
    GUARD_MIN,
    beyond_guard,
    beyond_sigma,
    guard_limit,
    mean,
    median,
    sigma_decides,
)
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import at_worker, instance_scope, name_of, worker_of, worker_scope
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Weight
from gpu_recovery.core.diagnosis.thresholds import Thresholds

OK = 200
"""HTTP status of an answer without an error."""


def enough(done: int, total: int, by: Thresholds) -> bool:
    """Whether `done` of `total` calls are enough to continue without the rest (row 17).

    Args:
        done: calls that returned a result. A call that raised is not done. The specified rule counts it as done and
            ends its wait at the first exception.

    Raises:
        ValueError: the counts are impossible.
    """
    if not 0 <= done <= total:
        raise ValueError(f"{done} of {total} calls cannot be done")
    return done >= by.calls_done_ratio * total


def _heartbeat_failed(case: Case) -> Iterator[Match]:
    """Row 12. An answer with an error came through the network, so an error of the worker is the rival."""
    for report in case.all(ProgressReport):
        if report.status != OK:
            at = at_worker(case, report)
            rival = Cause.WORKER_ERROR if report.status > 0 else Cause.WORKER_CRASH
            values = {"who": name_of(case, report), "status": report.status}
            yield Match(Cause.NETWORK, at, Weight.WEAK, (report.report_id,), values)
            yield Match(rival, at, Weight.HINT, (report.report_id,), values)


def _progress_by_worker(case: Case) -> dict[str, list[ProgressReport]]:
    """Progress heartbeats with a value, by worker, the oldest first."""
    by_worker: dict[str, list[ProgressReport]] = {}
    for report in case.all(ProgressReport):
        if report.value is not None and report.status == OK:
            by_worker.setdefault(worker_of(case, report), []).append(report)
    return by_worker


def _regressed(case: Case) -> Iterator[Match]:
    """Row 13. A worker that restarted shows the same."""
    for name, heartbeats in _progress_by_worker(case).items():
        for before, after in pairwise(heartbeats):
            if (after.value or 0.0) < (before.value or 0.0):
                values = {"who": name, "before": before.value, "after": after.value}
                evidence = (before.report_id, after.report_id)
                yield Match(Cause.STRAGGLER, worker_scope(name), Weight.WEAK, evidence, values)
                yield Match(Cause.WORKER_CRASH, worker_scope(name), Weight.HINT, evidence, values)


@dataclass(frozen=True, slots=True)
class _Stall:
    """A worker with the same value in all of its last heartbeats. Times are Unix seconds."""

    name: str
    value: float
    since_s: float
    until_s: float
    evidence: tuple[str, ...]


def _stalls(case: Case) -> list[_Stall]:
    stalls = []
    for name, heartbeats in _progress_by_worker(case).items():
        newest_first = list(reversed(heartbeats))
        count = next(
            (index for index, heartbeat in enumerate(newest_first) if heartbeat.value != newest_first[0].value),
            len(newest_first),
        )
        if count > case.thresholds.stalled_heartbeats:
            oldest, newest = newest_first[count - 1], newest_first[0]
            evidence = (oldest.report_id, newest.report_id)
            stalls.append(_Stall(name, newest.value or 0.0, oldest.at_s, newest.at_s, evidence))
    return stalls


def _stalled(case: Case) -> Iterator[Match]:
    """Workers without progress, which row 13 leaves out.

    If every worker is stalled, the others wait for the worker with the least progress.
    """
    stalls = _stalls(case)
    all_stalled = len(stalls) > 1 and len(stalls) == len(_progress_by_worker(case))
    behind = min((stall.value for stall in stalls), default=0.0)
    if all_stalled and all(stall.value == behind for stall in stalls):
        return
    for stall in stalls:
        at = worker_scope(stall.name)
        values = {"who": stall.name, "value": stall.value, "for_s": stall.until_s - stall.since_s}
        waits = all_stalled and stall.value > behind
        weight = Weight.HINT if waits else _stall_weight(stall.until_s - stall.since_s, case.thresholds)
        yield Match(Cause.WORKER_HANG, at, weight, stall.evidence, values, follows=waits)
        yield Match(Cause.STRAGGLER, at, Weight.HINT, stall.evidence, values, follows=waits)


def _stall_weight(for_s: float, by: Thresholds) -> float:
    if for_s >= by.stalled_s:
        return Weight.STRONG
    return Weight.FAIR if for_s >= by.header_slow_s else Weight.WEAK


def _all_stalled(case: Case) -> Iterator[Match]:
    """All workers are stalled at the same value, so no single worker can be named."""
    stalls = _stalls(case)
    if len(stalls) < 2 or len(stalls) != len(_progress_by_worker(case)) or len({stall.value for stall in stalls}) > 1:
        return
    for_s = min(stall.until_s for stall in stalls) - max(stall.since_s for stall in stalls)
    values = {"count": len(stalls), "value": stalls[0].value, "for_s": for_s}
    evidence = tuple(report_id for stall in stalls for report_id in stall.evidence)
    yield Match(Cause.WORKER_HANG, JOB, min(_stall_weight(for_s, case.thresholds), Weight.FAIR), evidence, values)
    yield Match(Cause.NETWORK, JOB, Weight.HINT, evidence, values)


def _durations(case: Case) -> Iterator[Match]:
    """Row 15: the last call of each worker and method."""
    last = {(worker_of(case, timing), timing.method): timing for timing in case.all(CallTiming)}
    for (name, method), timing in sorted(last.items()):
        values = {"who": name, "method": method, "seconds": timing.seconds}
        yield Match(None, worker_scope(name), evidence=(timing.report_id,), values=values)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Mean seconds of each worker for one method, with its pipeline stage and its instance."""

    means: Mapping[str, float]
    stages: Mapping[str, int]
    instances: Mapping[str, str]
    evidence: Mapping[str, tuple[str, ...]]


def _calls(case: Case, by_method: bool) -> dict[str, _Calls]:
    """Calls by method; under "" all methods together, as the specified rule has them. Calls of 0 s are skipped."""
    timings: dict[str, dict[str, list[CallTiming]]] = {}
    for timing in case.all(CallTiming):
        if timing.seconds > 0.0 and worker_of(case, timing):
            of_method = timings.setdefault(timing.method if by_method else "", {})
            of_method.setdefault(worker_of(case, timing), []).append(timing)
    return {
        method: _Calls(
            {name: mean([timing.seconds for timing in of_worker]) for name, of_worker in by_worker.items()},
            {
                name: timing.stage
                for name, of_worker in by_worker.items()
                for timing in of_worker
                if timing.stage is not None
            },
            {name: case.topology.instance_of(of_worker[-1]) for name, of_worker in by_worker.items()},
            {name: tuple(timing.report_id for timing in of_worker) for name, of_worker in by_worker.items()},
        )
        for method, by_worker in sorted(timings.items())
    }


def _two_sigma(case: Case) -> Iterator[Match]:
    """Row 16 as specified, over all methods."""
    for calls in _calls(case, by_method=False).values():
        overall = mean(list(calls.means.values()))
        for name in beyond_sigma(calls.means, case.thresholds.sigma):
            slowness = (calls.means[name] - overall) / overall * 100
            values = {"who": name, "avg": calls.means[name], "slowness": slowness}
            yield Match(None, worker_scope(name), evidence=calls.evidence[name], values=values)


def _not_decidable(case: Case) -> Iterator[Match]:
    """Note that too few workers reported for the rules of row 16."""
    for calls in _calls(case, by_method=False).values():
        count = len(calls.means)
        if not sigma_decides(count, case.thresholds.sigma):
            guard = "the guard decides" if count >= GUARD_MIN else "nor by the guard"
            chinese = "由保护规则判定" if count >= GUARD_MIN else "保护规则也无法判定"
            evidence = tuple(report_id for ids in calls.evidence.values() for report_id in ids)
            values = {"count": count, "sigma": case.thresholds.sigma, "guard": guard, "chinese": chinese}
            yield Match(None, evidence=evidence, values=values)


def _guard(case: Case) -> Iterator[Match]:
    """Row 16, repaired. A worker that is slow together with its whole stage is only a hint."""
    for method, calls in _calls(case, by_method=True).items():
        uneven = {name for names in _slow_stages(calls, case.thresholds).values() for name in names}
        flagged = set(beyond_guard(calls.means, case.thresholds))
        for stage in {calls.stages[name] for name in uneven}:
            peers = {name: calls.means[name] for name in calls.means if calls.stages.get(name) == stage}
            inside = set(beyond_guard(peers, case.thresholds))
            uneven -= inside
            flagged |= inside
        middle = median(list(calls.means.values()))
        for name in sorted(flagged):
            values = {"who": name, "method": method, "avg": calls.means[name], "median": middle}
            weight = Weight.HINT if name in uneven else Weight.FAIR
            at = instance_scope(case, name, calls.instances[name])
            yield Match(Cause.STRAGGLER, at, weight, calls.evidence[name], values)


def _slow_stages(calls: _Calls, by: Thresholds) -> dict[int, tuple[str, ...]]:
    """Stages where most of at least two workers are slower than the workers of all other stages, with those workers."""
    slow_stages = {}
    for stage in sorted(set(calls.stages.values())):
        own = {name for name, at in calls.stages.items() if at == stage}
        others = [calls.means[name] for name, at in calls.stages.items() if at != stage]
        if len(own) < 2 or len(others) < 2:
            continue
        limit = guard_limit(others, by)
        slow = tuple(sorted(name for name in own if calls.means[name] > limit))
        if len(slow) >= by.rack_most_ratio * len(own):
            slow_stages[stage] = slow
    return slow_stages


def _uneven_stage(case: Case) -> Iterator[Match]:
    """A stage that is slow on several instances has more work than the others.

    A stage that is slow on a single instance may be slow because of that instance.
    """
    for method, calls in _calls(case, by_method=True).items():
        for stage, names in _slow_stages(calls, case.thresholds).items():
            places = {calls.instances[name] or name for name in names}
            evidence = tuple(report_id for name in names for report_id in calls.evidence[name])
            values = {"stage": stage, "method": method, "count": len(names), "places": len(places)}
            if len(places) > 1:
                yield Match(Cause.UNEVEN_STAGE, JOB, Weight.STRONG, evidence, values)
                continue
            yield Match(Cause.UNEVEN_STAGE, JOB, Weight.WEAK, evidence, values)
            at = instance_scope(case, names[0], calls.instances[names[0]])
            yield Match(Cause.STRAGGLER, at, Weight.WEAK, evidence, values)


def _timed_out(case: Case) -> Iterator[Match]:
    """Row 17: more than a fifth of the workers' last calls timed out. A call that raised is no time-out.

    One late call concerns its worker alone. The rival is that all late workers are merely slow. A call that returned
    may be reported by its duration alone.
    """
    last = {worker_of(case, call): call for call in case.all(RpcReport)}
    returned = {worker_of(case, timing): timing.at_s for timing in case.all(CallTiming)}
    late = [call for name, call in last.items() if call.timed_out and returned.get(name, call.at_s) <= call.at_s]
    total = len(last.keys() | returned.keys())
    if len(late) > 1 and not enough(total - len(late), total, case.thresholds):
        values = {"percent": 100 * (1 - case.thresholds.calls_done_ratio), "late": len(late), "total": total}
        evidence = tuple(call.report_id for call in late)
        yield Match(Cause.NETWORK, JOB, Weight.WEAK, evidence, values)
        yield Match(Cause.STRAGGLER, JOB, Weight.HINT, evidence, values)


_PROGRESS, _CALL = (ProgressReport,), (CallTiming,)
RULES: tuple[Rule, ...] = (
    Rule("12", "{who}: heartbeat failed → network delay", "Heartbeat失败 → 网络延迟", _PROGRESS, _heartbeat_failed),
    Rule(
        "13",
        "{who}: progress regressed from {before:g} to {after:g} → worker straggler",
        "进度倒退 → Worker长尾",
        _PROGRESS,
        _regressed,
    ),
    Rule(
        "13+",
        "{who}: no progress beyond {value:g} for {for_s:.0f} s → worker stalled",
        "{who}: 进度停在{value:g}，已{for_s:.0f}秒 → Worker停滞",
        _PROGRESS,
        _stalled,
    ),
    Rule(
        "13j+",
        "all {count} workers stand still at {value:g}, for {for_s:.0f} s",
        "全部{count}个worker停在{value:g}，已{for_s:.0f}秒 → 任务停滞",
        _PROGRESS,
        _all_stalled,
    ),
    Rule(
        "15",
        "Worker {who} {method} took {seconds:.2f}s",
        "Worker {who} {method} took {seconds:.2f}s",
        _CALL,
        _durations,
    ),
    Rule(
        "16",
        "Detected stragglers: worker_id={who}, avg_duration={avg:.2f}s, slowness={slowness:.1f}%",
        "长尾worker: worker_id={who}, avg_duration={avg:.2f}s, slowness={slowness:.1f}%",
        _CALL,
        _two_sigma,
    ),
    Rule(
        "16n",
        "not decidable with {count} workers by {sigma:g}σ; {guard}",
        "{count}个worker无法用{sigma:g}σ判定；{chinese}",
        _CALL,
        _not_decidable,
    ),
    Rule(
        "16+",
        "{who} took {avg:.2f} s for {method}, the others {median:.2f} s: a straggler",
        "{who} {method} 平均{avg:.2f}秒，中位数{median:.2f}秒 → 长尾worker",
        _CALL,
        _guard,
    ),
    Rule(
        "16s+",
        "stage {stage} is slow in {method}: {count} workers on {places} instances",
        "流水线阶段{stage}的{method}慢：{count}个worker，{places}个实例 → 阶段负载不均",
        _CALL,
        _uneven_stage,
    ),
    Rule(
        "17",
        "more than {percent:.0f} % of workers timed out ({late} of {total}) → suspected network failure",
        "超过{percent:.0f}% worker超时 → 疑似网络故障",
        (RpcReport,),
        _timed_out,
    ),
)
