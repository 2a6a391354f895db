"""Rows 11-13 and 15-17: who is slow, who stands still, and when enough have answered.

Row 11, the words: a *straggler* still answers health checks and returns in the end; *network delay* is a connection
that is up while data does not move; a *hang* is a connection that is up with neither an answer nor progress.
Row 14, the tree of calls, is in `patterns`. Row 16's 2σ is published as specified; the guard beside it decides, and
calls are compared with calls of the same method. A slow rank is often an uneven pipeline stage and no slow machine
(StragglerAnalysis traces: reference, part 2): workers of one stage that are slow on several instances say so.
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


def enough(done: int, total: int, by: Thresholds) -> bool:
    """Row 17: whether `done` of `total` calls are enough to go on without the rest.

    done: calls that returned a result. An exception is not one: as specified the wait ends with the first of them, and
    counts it as done. Raises ValueError for counts that cannot be.
    """
    if not 0 <= done <= total:
        raise ValueError(f"{done} of {total} calls cannot be done")
    return done >= by.calls_done_ratio * total


def _heartbeat_failed(case: Case) -> Iterator[Match]:
    """Row 12. An answer that is an error came through the network, so the worker is the rival."""
    for one in case.all(ProgressReport):
        if one.status != OK:
            at = at_worker(case, one)
            rival = Cause.WORKER_ERROR if one.status > 0 else Cause.WORKER_CRASH
            values = {"who": name_of(case, one), "status": one.status}
            yield Match(Cause.NETWORK, at, Weight.WEAK, (one.report_id,), values)
            yield Match(rival, at, Weight.HINT, (one.report_id,), values)


def _steps(case: Case) -> dict[str, list[ProgressReport]]:
    """The heartbeats of each worker that said how far it is, the oldest first."""
    found: dict[str, list[ProgressReport]] = {}
    for one in case.all(ProgressReport):
        if one.value is not None and one.status == OK:
            found.setdefault(worker_of(case, one), []).append(one)
    return found


def _regressed(case: Case) -> Iterator[Match]:
    """Row 13. A worker that began again would show the same."""
    for name, beats in _steps(case).items():
        for before, after in pairwise(beats):
            if (after.value or 0.0) < (before.value or 0.0):
                values = {"who": name, "before": before.value, "after": after.value}
                evidence = (before.report_id, after.report_id)
                yield Match(Cause.STRAGGLER, worker_scope(name), Weight.WEAK, evidence, values)
                yield Match(Cause.WORKER_CRASH, worker_scope(name), Weight.HINT, evidence, values)


@dataclass(frozen=True, slots=True)
class _Still:
    """A worker whose last heartbeats all said the same."""

    name: str
    value: float
    since_s: float
    until_s: float
    evidence: tuple[str, ...]


def _still(case: Case) -> list[_Still]:
    found = []
    for name, beats in _steps(case).items():
        same = list(reversed(beats))
        count = next((n for n, one in enumerate(same) if one.value != same[0].value), len(same))
        if count > case.thresholds.stalled_heartbeats:
            oldest, newest = same[count - 1], same[0]
            evidence = (oldest.report_id, newest.report_id)
            found.append(_Still(name, newest.value or 0.0, oldest.at_s, newest.at_s, evidence))
    return found


def _stalled(case: Case) -> Iterator[Match]:
    """Row 13's missing half. Where everybody stands still, whoever is behind the others is the one they wait for."""
    still = _still(case)
    everybody = len(still) > 1 and len(still) == len(_steps(case))
    behind = min((one.value for one in still), default=0.0)
    if everybody and all(one.value == behind for one in still):
        return
    for one in still:
        at = worker_scope(one.name)
        values = {"who": one.name, "value": one.value, "for_s": one.until_s - one.since_s}
        waits = everybody and one.value > behind
        weight = Weight.HINT if waits else _of_a_stall(one.until_s - one.since_s, case.thresholds)
        yield Match(Cause.WORKER_HANG, at, weight, one.evidence, values, follows=waits)
        yield Match(Cause.STRAGGLER, at, Weight.HINT, one.evidence, values, follows=waits)


def _of_a_stall(for_s: float, by: Thresholds) -> float:
    if for_s >= by.stalled_s:
        return Weight.STRONG
    return Weight.FAIR if for_s >= by.header_slow_s else Weight.WEAK


def _all_stalled(case: Case) -> Iterator[Match]:
    """All stand still at the same place: nobody in particular can be named."""
    still = _still(case)
    if len(still) < 2 or len(still) != len(_steps(case)) or len({one.value for one in still}) > 1:
        return
    for_s = min(one.until_s for one in still) - max(one.since_s for one in still)
    values = {"count": len(still), "value": still[0].value, "for_s": for_s}
    evidence = tuple(one_id for one in still for one_id in one.evidence)
    yield Match(Cause.WORKER_HANG, JOB, min(_of_a_stall(for_s, case.thresholds), Weight.FAIR), evidence, values)
    yield Match(Cause.NETWORK, JOB, Weight.HINT, evidence, values)


def _took(case: Case) -> Iterator[Match]:
    """Row 15: the last call of each worker and method."""
    last = {(worker_of(case, one), one.method): one for one in case.all(CallTiming)}
    for (name, method), one in sorted(last.items()):
        values = {"who": name, "method": method, "seconds": one.seconds}
        yield Match(None, worker_scope(name), evidence=(one.report_id,), values=values)


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the workers took on average for one method, in seconds, and where each of them is."""

    means: Mapping[str, float]
    stages: Mapping[str, int]
    instances: Mapping[str, str]
    evidence: Mapping[str, tuple[str, ...]]


def _calls(case: Case, by_method: bool) -> dict[str, _Calls]:
    """By method; all methods together, under "", as the specified rule has it. What took no time is no call."""
    timings: dict[str, dict[str, list[CallTiming]]] = {}
    for one in case.all(CallTiming):
        if one.seconds > 0.0 and worker_of(case, one):
            of_method = timings.setdefault(one.method if by_method else "", {})
            of_method.setdefault(worker_of(case, one), []).append(one)
    return {
        method: _Calls(
            {name: mean([one.seconds for one in ones]) for name, ones in of.items()},
            {name: one.stage for name, ones in of.items() for one in ones if one.stage is not None},
            {name: case.topology.instance_of(ones[-1]) for name, ones in of.items()},
            {name: tuple(one.report_id for one in ones) for name, ones in of.items()},
        )
        for method, of in sorted(timings.items())
    }


def _two_sigma(case: Case) -> Iterator[Match]:
    """Row 16 as it is specified, over all methods."""
    for calls in _calls(case, by_method=False).values():
        overall = mean(list(calls.means.values()))
        for name in beyond_sigma(calls.means, case.thresholds.sigma):
            slowness = (calls.means[name] - overall) / overall * 100
            values = {"who": name, "avg": calls.means[name], "slowness": slowness}
            yield Match(None, worker_scope(name), evidence=calls.evidence[name], values=values)


def _not_decidable(case: Case) -> Iterator[Match]:
    """With how few workers neither rule can find anybody."""
    for calls in _calls(case, by_method=False).values():
        count = len(calls.means)
        if not sigma_decides(count, case.thresholds.sigma):
            guard = "the guard decides" if count >= GUARD_MIN else "nor by the guard"
            chinese = "由保护规则判定" if count >= GUARD_MIN else "保护规则也无法判定"
            evidence = tuple(one_id for ids in calls.evidence.values() for one_id in ids)
            values = {"count": count, "sigma": case.thresholds.sigma, "guard": guard, "chinese": chinese}
            yield Match(None, evidence=evidence, values=values)


def _guard(case: Case) -> Iterator[Match]:
    """Row 16, repaired. Whoever is slow with its whole stage is a hint only."""
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
    """The stages most of whose two or more workers are slower than the workers of all other stages, with those."""
    found = {}
    for stage in sorted(set(calls.stages.values())):
        own = {name for name, at in calls.stages.items() if at == stage}
        others = [calls.means[name] for name, at in calls.stages.items() if at != stage]
        if len(own) < 2 or len(others) < 2:
            continue
        limit = guard_limit(others, by)
        slow = tuple(sorted(name for name in own if calls.means[name] > limit))
        if len(slow) >= by.rack_most_ratio * len(own):
            found[stage] = slow
    return found


def _uneven_stage(case: Case) -> Iterator[Match]:
    """A stage that is slow on several instances has more to do; on one, that instance may be slow as well."""
    for method, calls in _calls(case, by_method=True).items():
        for stage, names in _slow_stages(calls, case.thresholds).items():
            places = {calls.instances[name] or name for name in names}
            evidence = tuple(one_id for name in names for one_id in calls.evidence[name])
            values = {"stage": stage, "method": method, "count": len(names), "places": len(places)}
            if len(places) > 1:
                yield Match(Cause.UNEVEN_STAGE, JOB, Weight.STRONG, evidence, values)
                continue
            yield Match(Cause.UNEVEN_STAGE, JOB, Weight.WEAK, evidence, values)
            at = instance_scope(case, names[0], calls.instances[names[0]])
            yield Match(Cause.STRAGGLER, at, Weight.WEAK, evidence, values)


def _timed_out(case: Case) -> Iterator[Match]:
    """Row 17: more than a fifth of the workers' last calls ran out of time. Calls that raised are no time-outs.

    One late call is that worker's alone. Their rival: all of them are merely slow.
    """
    last = {worker_of(case, one): one for one in case.all(RpcReport)}
    late = [one for one in last.values() if one.timed_out]
    if len(late) > 1 and not enough(len(last) - len(late), len(last), case.thresholds):
        values = {"percent": 100 * (1 - case.thresholds.calls_done_ratio), "late": len(late), "total": len(last)}
        evidence = tuple(one.report_id for one in late)
        yield Match(Cause.NETWORK, JOB, Weight.WEAK, evidence, values)
        yield Match(Cause.STRAGGLER, JOB, Weight.HINT, evidence, values)


_BEAT, _CALL = (ProgressReport,), (CallTiming,)
RULES: tuple[Rule, ...] = (
    Rule("12", "{who}: heartbeat failed → network delay", "Heartbeat失败 → 网络延迟", _BEAT, _heartbeat_failed),
    Rule(
        "13",
        "{who}: progress regressed from {before:g} to {after:g} → worker straggler",
        "进度倒退 → Worker长尾",
        _BEAT,
        _regressed,
    ),
    Rule(
        "13+",
        "{who}: no progress beyond {value:g} for {for_s:.0f} s → worker stalled",
        "{who}: 进度停在{value:g}，已{for_s:.0f}秒 → Worker停滞",
        _BEAT,
        _stalled,
    ),
    Rule(
        "13j+",
        "all {count} workers stand still at {value:g}, for {for_s:.0f} s",
        "全部{count}个worker停在{value:g}，已{for_s:.0f}秒 → 任务停滞",
        _BEAT,
        _all_stalled,
    ),
    Rule("15", "Worker {who} {method} took {seconds:.2f}s", "Worker {who} {method} took {seconds:.2f}s", _CALL, _took),
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
