"""Straggler rules: slow workers, stalled workers, and the wait for a part of the calls.

The rules run after a failure (a detected hang included) or on request (`gpu-recovery diagnose`). No function looks for
stragglers while a job runs. Rows 11-13 and 15-17 of the fault catalogue, docs/diagnosis.md.

Terms of row 11. A *straggler* answers health checks and returns in the end. *Network delay* is a connection that is
up while no data moves. A *hang* is a connection that is up without an answer and without progress.

Row 14, the tree of calls, is in `failure_patterns`. The 2σ rule of row 16 is published as specified, and the guard
beside it decides. Calls are compared with calls of the same method.

A slow rank is often no slow instance. Three causes are published with traces ("Understanding Stragglers in Large Model
Training Using What-if Analysis", arXiv 2505.05713; github.com/ByteDance-Seed/StragglerAnalysis):

- One slow worker (trace AR) is slower than its peers in all calls.
- Uneven sequences (trace SE): the seconds differ from call to call, and no worker is slower in all calls. The noise of
  the calls is measured, and a note says how many calls are needed.
- An uneven pipeline stage (trace ST), most often the last, which also computes the loss: all its workers are slow.
  Workers are compared with the workers of their own stage. Without stages in the reports, the workers at the end of the
  rank order stand for the last stage, because the pipeline is the outermost dimension of ranks in Megatron-LM.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import CallTiming, ProgressReport, RpcReport
from gpu_recovery.core.diagnosis.outliers import (
    GUARD_MIN,
    beyond_sigma,
    compare,
    mean,
    median,
    sigma_decides,
    slow_groups,
)
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import at_worker, instance_scope, name_of, worker_of, worker_scope
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Weight
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

OK = 200
"""HTTP status of an answer without an error."""
_NUMBER = re.compile(r"\d{1,9}$")
STAGE_MOST_RATIO = 0.8
"""Ratio of the last workers that must be slow, so that they may be a stage."""


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


@frozen_dataclass()
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


@frozen_dataclass()
class _Calls:
    """Seconds and mean seconds of each worker for one method, with its pipeline stage, its instance and its rank."""

    seconds: Mapping[str, Sequence[float]]
    means: Mapping[str, float]
    stages: Mapping[str, int]
    instances: Mapping[str, str]
    ranks: Mapping[str, int]
    evidence: Mapping[str, tuple[str, ...]]

    def by_stage(self) -> dict[int, dict[str, Sequence[float]]]:
        """Seconds of the workers with a stage, by stage."""
        groups: dict[int, dict[str, Sequence[float]]] = {}
        for name, stage in sorted(self.stages.items()):
            groups.setdefault(stage, {})[name] = self.seconds[name]
        return groups


def _calls(case: Case, by_method: bool) -> dict[str, _Calls]:
    """Calls by method; under "" all methods together, as the specified rule has them. Calls of 0 s are skipped."""
    timings: dict[str, dict[str, list[CallTiming]]] = {}
    for timing in case.all(CallTiming):
        if timing.seconds > 0.0 and worker_of(case, timing):
            of_method = timings.setdefault(timing.method if by_method else "", {})
            of_method.setdefault(worker_of(case, timing), []).append(timing)
    return {
        method: _Calls(
            {name: [timing.seconds for timing in of_worker] for name, of_worker in by_worker.items()},
            {name: mean([timing.seconds for timing in of_worker]) for name, of_worker in by_worker.items()},
            {
                name: timing.stage
                for name, of_worker in by_worker.items()
                for timing in of_worker
                if timing.stage is not None
            },
            {name: case.topology.instance_of(of_worker[-1]) for name, of_worker in by_worker.items()},
            {name: rank for name, of_worker in by_worker.items() if (rank := _rank(case, name, of_worker)) is not None},
            {name: tuple(timing.report_id for timing in of_worker) for name, of_worker in by_worker.items()},
        )
        for method, by_worker in sorted(timings.items())
    }


def _rank(case: Case, name: str, of_worker: Sequence[CallTiming]) -> int | None:
    """Rank of a worker: that of the topology, else that of its calls, else the number at the end of its name."""
    known, number = case.topology.workers.get(name), _NUMBER.search(name)
    if known is not None and known.rank is not None:
        return known.rank
    return int(number[0]) if of_worker[-1].rank is None and number else of_worker[-1].rank


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
            by_guard = any(slow.decides for _, slow in case.computed_once(_slow_calls).values())
            guard = "the guard decides" if by_guard else "nor by the guard"
            chinese = "由保护规则判定" if by_guard else "保护规则也无法判定"
            evidence = tuple(report_id for ids in calls.evidence.values() for report_id in ids)
            values = {"count": count, "sigma": case.thresholds.sigma, "guard": guard, "chinese": chinese}
            yield Match(None, evidence=evidence, values=values)


@frozen_dataclass()
class _SlowCalls:
    """Result of the comparison of one method.

    alone: workers that are slower than their peers.
    stages: slow stages of the reports, each with its slow workers.
    tail: workers at the end of the rank order that are slow and may be the last stage, if no stages are reported.
    noise: relative standard deviation of a call.
    decides: whether the guard decides about every worker; `calls` are the calls of each worker with which it would.
    """

    alone: tuple[str, ...]
    stages: Mapping[int, tuple[str, ...]]
    tail: tuple[str, ...]
    noise: float
    decides: bool
    calls: int


def _slow_calls(case: Case) -> dict[str, tuple[_Calls, _SlowCalls]]:
    """Comparison of the workers by method. A worker of a stage with enough workers is compared within its stage."""
    by, found = case.thresholds, {}
    for method, calls in _calls(case, by_method=True).items():
        groups = calls.by_stage()
        at = {name: stage for stage, group in groups.items() if len(group) >= GUARD_MIN for name in group}
        peers = compare({name: calls.seconds[name] for name in at}, by, at)
        overall = compare(calls.seconds, by)
        stages = dict(slow_groups(groups, by))
        for stage, group in groups.items():
            named = tuple(name for name in overall.slow if name in group)
            if len(named) > 1 and len(named) >= STAGE_MOST_RATIO * len(group):
                stages.setdefault(stage, named)
        tail = () if calls.stages else _tail(calls, overall.slow)
        inside = compare({name: calls.seconds[name] for name in tail}, by).slow
        uneven = {name for names in stages.values() for name in names} | {*tail} - {*inside}
        alone = {*peers.slow, *(name for name in overall.slow if name not in at and name not in uneven)}
        results = [result for result, counts in ((peers, at), (overall, len(at) < len(calls.means))) if counts]
        noise, needed = max(result.noise for result in results), max(result.calls for result in results)
        decides = all(result.decides for result in results)
        found[method] = calls, _SlowCalls(tuple(sorted(alone)), stages, tail, noise, decides, needed)
    return found


def _tail(calls: _Calls, slow: Collection[str]) -> tuple[str, ...]:
    """Last workers, if most of them are slow, and if their number divides the number of all workers.

    Empty if a worker has no rank, or if one of the slow workers stands elsewhere. One worker alone is no stage.
    """
    if len(slow) < 2 or len(calls.ranks) < len(calls.means):
        return ()
    order = sorted(calls.means, key=lambda name: (calls.ranks[name], name))
    for size in range(2, len(order) // 2 + 1):
        last = order[-size:]
        if len(order) % size == 0 and set(slow) <= set(last) and len(slow) >= STAGE_MOST_RATIO * size:
            return tuple(sorted(last))
    return ()


def _guard(case: Case) -> Iterator[Match]:
    """Row 16, repaired."""
    for method, (calls, slow) in case.computed_once(_slow_calls).items():
        for name in slow.alone:
            stage = calls.stages.get(name)
            peers = [value for peer, value in calls.means.items() if calls.stages.get(peer) == stage]
            middle = median(peers if len(peers) >= GUARD_MIN else list(calls.means.values()))
            values = {"who": name, "method": method, "avg": calls.means[name], "median": middle}
            at = instance_scope(case, name, calls.instances[name])
            yield Match(Cause.STRAGGLER, at, Weight.FAIR, calls.evidence[name], values)


def _uneven_stage(case: Case) -> Iterator[Match]:
    """A slow stage has more work than the others, unless one instance makes it slow."""
    for method, (calls, slow) in case.computed_once(_slow_calls).items():
        last = max(calls.stages.values(), default=0)
        for stage, names in slow.stages.items():
            values = {"stage": stage, "method": method}
            every = {name for name, at in calls.stages.items() if at == stage}
            yield from _stage_or_instance(case, calls, names, every, values, Weight.STRONG, is_last=stage == last)


def _last_workers(case: Case) -> Iterator[Match]:
    """The last workers are slow, and the reports have no stages: a long last stage, or a slow instance."""
    for method, (calls, slow) in case.computed_once(_slow_calls).items():
        if slow.tail:
            values = {"method": method, "total": len(calls.means)}
            yield from _stage_or_instance(case, calls, slow.tail, {*slow.tail}, values, Weight.FAIR, is_last=True)


def _stage_or_instance(
    case: Case,
    calls: _Calls,
    names: Collection[str],
    stage: Collection[str],
    values: Mapping[str, Any],
    weight: float,
    *,
    is_last: bool,
) -> Iterator[Match]:
    """Name the stage of these slow workers as the cause. If its workers are all workers of one instance, that is a
    rival.

    A slow instance does not slow down a part of its workers, and two instances seldom become slow at once. In the study
    of `StragglerAnalysis` the last stage was a more frequent cause than a slow instance.

    Args:
        stage: all workers of the stage.
        weight: weight of the stage if no instance is a rival.
        is_last: whether it is the last stage.
    """
    evidence = tuple(report_id for name in names for report_id in calls.evidence[name])
    places = {calls.instances[name] or name for name in names}
    at_places = {name for name in calls.means if (calls.instances[name] or name) in places}
    values = {**values, "count": len(names), "places": len(places)}
    if len(places) > 1 or not at_places <= set(stage):
        yield Match(Cause.UNEVEN_STAGE, JOB, weight, evidence, values)
        return
    yield Match(Cause.UNEVEN_STAGE, JOB, Weight.WEAK, evidence, values)
    first = min(names)
    at = instance_scope(case, first, calls.instances[first])
    yield Match(Cause.STRAGGLER, at, Weight.HINT if is_last else Weight.WEAK, evidence, values)


def _uneven_calls(case: Case) -> Iterator[Match]:
    """Note that the seconds of one method differ from call to call, as they do with uneven sequences."""
    for method, (calls, slow) in case.computed_once(_slow_calls).items():
        is_named = bool(slow.alone or slow.stages or slow.tail)
        if len(calls.means) < GUARD_MIN or (slow.decides and (is_named or slow.noise < case.thresholds.uneven_noise)):
            continue
        made = min(map(len, calls.seconds.values()))
        english, chinese = "no worker is slower in all of them", "没有worker持续偏慢"
        if not slow.decides:
            english = f"{made} of each worker are too few to name a straggler, {slow.calls} would do"
            chinese = f"每个worker仅{made}次，不足以判定长尾，需{slow.calls}次"
        evidence = tuple(report_id for ids in calls.evidence.values() for report_id in ids)
        values = {"method": method, "percent": 100 * slow.noise, "english": english, "chinese": chinese}
        yield Match(None, evidence=evidence, values=values)


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
        "16t+",
        "the last {count} of {total} workers are slow in {method}, on {places} instances: a long last stage of the "
        "pipeline, or a slow instance; report `stage` to tell them apart",
        "{method}: 最后{count}个worker慢（共{total}个，{places}个实例）→ 流水线末段过长或实例慢，上报stage可区分",
        _CALL,
        _last_workers,
    ),
    Rule(
        "16v+",
        "calls of {method} differ by {percent:.0f} % from one another, as with uneven sequences; {english}",
        "{method}耗时逐次波动{percent:.0f}%（如序列长度不均）；{chinese}",
        _CALL,
        _uneven_calls,
    ),
    Rule(
        "17",
        "more than {percent:.0f} % of workers timed out ({late} of {total}) → suspected network failure",
        "超过{percent:.0f}% worker超时 → 疑似网络故障",
        (RpcReport,),
        _timed_out,
    ),
)
