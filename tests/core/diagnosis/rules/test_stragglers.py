"""Rows 12, 13 and 15-17: slowness, standstill, and enough answers."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.case import Topology
from gpu_recovery.core.diagnosis.observations import CallTiming, Observation, ProgressReport
from gpu_recovery.core.diagnosis.outliers import Calls, beyond_sigma, compare, sigma_decides
from gpu_recovery.core.diagnosis.rule import RuleFinding
from gpu_recovery.core.diagnosis.rules.stragglers import RULES, enough
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

from benchmarks.stragglers import NOISES, STAGED_MIN, count_windows
from tests.core.diagnosis.small_cases import AT_S, BY, cluster, found_by, judged, late, of_row, raised, returned, rows


def took(worker: str, seconds: float, method: str = "train", stage: int | None = None, call: int = 0) -> CallTiming:
    """A call of a worker."""
    return CallTiming(
        report_id=f"took-{worker}-{method}-{seconds}-{call}",
        at_s=AT_S,
        worker=worker,
        method=method,
        seconds=seconds,
        stage=stage,
    )


def beats(worker: str, *values: float | None, status: int = 200, every_s: float = 5.0) -> list[Observation]:
    """Heartbeats, the last of them now."""
    return [
        ProgressReport(
            report_id=f"beat-{worker}-{n}",
            at_s=AT_S - (len(values) - 1 - n) * every_s,
            worker=worker,
            value=value,
            status=status,
        )
        for n, value in enumerate(values)
    ]


# -- row 12, 13 --------------------------------------------------------------------------------------------------------


def test_row_12_a_heartbeat_that_is_not_answered_is_the_network() -> None:
    """And the worker is its rival."""
    found = found_by(RULES, beats("w0", None, status=503))
    assert {one.cause for one in of_row(found, "12")} == {Cause.NETWORK, Cause.WORKER_ERROR}
    assert of_row(found, "12")[0].chinese == "Heartbeat失败 → 网络延迟"
    assert of_row(found, "12")[0].english == "w0: heartbeat failed → network delay"
    unheard = found_by(RULES, beats("w0", None, status=0))
    assert {one.cause for one in unheard} == {Cause.NETWORK, Cause.WORKER_CRASH}


def test_row_13_progress_that_falls_is_a_straggler() -> None:
    """The sentence is the specified one; a worker that began again is the rival."""
    found = of_row(found_by(RULES, beats("w0", 5, 6, 4)), "13")
    assert {one.cause for one in found} == {Cause.STRAGGLER, Cause.WORKER_CRASH}
    assert found[0].english == "w0: progress regressed from 6 to 4 → worker straggler"
    assert found[0].chinese == "进度倒退 → Worker长尾"
    assert "13" not in rows(found_by(RULES, beats("w0", 4, 5, 6)))


def test_row_13_progress_that_stands_still_is_a_stall() -> None:
    """Three heartbeats after the first with the same value; not before, and not once it moves again."""
    moving = beats("w1", 1, 2, 3, 4, 5)
    assert "13+" not in rows(found_by(RULES, [*beats("w0", 4, 7, 7, 7), *moving]))
    found = of_row(found_by(RULES, [*beats("w0", 4, 7, 7, 7, 7), *moving]), "13+")
    assert {(one.cause, one.scope.names) for one in found} == {
        (Cause.WORKER_HANG, ("w0",)),
        (Cause.STRAGGLER, ("w0",)),
    }
    assert found[0].english == "w0: no progress beyond 7 for 15 s → worker stalled"
    assert "13+" not in rows(found_by(RULES, [*beats("w0", 7, 7, 7, 7, 8), *moving]))


def test_row_13_a_longer_stall_says_more() -> None:
    """Fifteen seconds may be a long call; ten minutes are not. A stall of exactly a limit counts as the longer one."""
    weights = [
        max(one.weight for one in of_row(found_by(RULES, beats("w0", *[7] * 5, every_s=every_s)), "13+"))
        for every_s in (5.0, 20.0, 149.0, 150.0, 200.0)
    ]
    assert weights == [Weight.WEAK, Weight.FAIR, Weight.FAIR, Weight.STRONG, Weight.STRONG]


def test_row_13_of_workers_that_all_stand_still_the_one_behind_is_named() -> None:
    """The others wait for it."""
    reports = [one for n in range(4) for one in beats(f"w{n}", *[6 if n == 2 else 7] * 5, every_s=200.0)]
    verdict = judged(reports)
    assert (verdict.cause, verdict.scope) == (Cause.WORKER_HANG, Scope.of(ScopeKind.WORKER, "w2"))
    assert verdict.decided


def test_row_13_workers_that_all_stand_still_at_one_place_are_a_stalled_job() -> None:
    """Nobody in particular is to blame."""
    found = found_by(RULES, [one for n in range(4) for one in beats(f"w{n}", *[7] * 5, every_s=200.0)])
    assert rows(found) == {"13j+"}
    assert {(one.cause, one.scope) for one in found} == {(Cause.WORKER_HANG, JOB), (Cause.NETWORK, JOB)}


# -- rows 15, 16 -------------------------------------------------------------------------------------------------------


def test_row_15_the_last_call_of_each_method_is_said() -> None:
    """In the words of the specification."""
    found = of_row(found_by(RULES, [took("w0", 1.234), took("w0", 2.0, "rollout")]), "15")
    assert {one.english for one in found} == {"Worker w0 train took 1.23s", "Worker w0 rollout took 2.00s"}
    assert {one.cause for one in found} == {None}


def test_row_16_two_sigma_is_published_but_the_guard_decides() -> None:
    """Ordinary noise: somebody among 64 is beyond 2σ, and nobody is a straggler."""
    drawn = random.Random(3)
    reports = [took(f"w{n}", drawn.lognormvariate(0, 0.05)) for n in range(64)]
    found = found_by(RULES, reports)
    assert of_row(found, "16")
    assert not of_row(found, "16+")
    assert judged(reports).cause is Cause.UNKNOWN


def test_row_16_the_specified_sentence_names_mean_and_slowness() -> None:
    """`(avg − overall) / overall · 100` %."""
    found = of_row(found_by(RULES, [took(f"w{n}", 1.0) for n in range(9)] + [took("w9", 2.0)]), "16")
    assert [one.english for one in found] == ["Detected stragglers: worker_id=w9, avg_duration=2.00s, slowness=81.8%"]
    assert found[0].cause is None


def test_row_16_a_straggler_is_found_at_its_machine() -> None:
    """Where nobody knows the machine it is the worker."""
    reports = [took(f"w{n}", 1.5 if n == 3 else 1.0 + n / 200) for n in range(8)]
    found = of_row(found_by(RULES, reports, cluster(4, 2)), "16+")
    assert [(one.cause, one.scope) for one in found] == [(Cause.STRAGGLER, Scope.of(ScopeKind.INSTANCE, "n1"))]
    assert [one.scope for one in of_row(found_by(RULES, reports), "16+")] == [Scope.of(ScopeKind.WORKER, "w3")]


def test_row_16_two_equal_stragglers_of_eight_are_found_by_the_guard_only() -> None:
    """They stretch the standard deviation so far that neither is beyond it."""
    reports = [took(f"w{n}", 1.6 if n in (3, 6) else 1.0 + n / 200) for n in range(8)]
    found = found_by(RULES, reports)
    assert not of_row(found, "16")
    assert {one.scope.names for one in of_row(found, "16+")} == {("w3",), ("w6",)}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_row_16_says_that_it_cannot_decide_with_few_workers(count: int) -> None:
    """No value can be more than √(n−1) deviations away, however slow it is."""
    reports = [took(f"w{n}", 1_000.0 if n == 0 else 1.0) for n in range(count)]
    found = found_by(RULES, reports)
    assert not of_row(found, "16")
    said = of_row(found, "16n")[0]
    assert said.english.startswith(f"not decidable with {count} workers")
    assert ("nor by the guard" in said.english) is (count < 4)
    assert bool(of_row(found, "16+")) is (count >= 4)


def test_row_16_six_workers_are_decidable() -> None:
    """From there on a deviation of more than two is possible."""
    assert not sigma_decides(5, 2.0)
    assert sigma_decides(6, 2.0)
    reports = [took(f"w{n}", 10.0 if n == 0 else 1.0) for n in range(6)]
    assert rows(found_by(RULES, reports)) >= {"16", "16+"}
    assert "16n" not in rows(found_by(RULES, reports))


@pytest.mark.parametrize("count", range(1, 40))
@pytest.mark.parametrize("calls", [1, 3])
def test_row_16_equal_workers_are_never_stragglers(count: int, calls: int) -> None:
    """Not by rounding either."""
    values = {f"w{n}": 0.1 for n in range(count)}
    assert not beyond_sigma(values, BY.sigma)
    assert not compare(repeated(values, calls), BY).slow


def repeated(seconds: dict[str, float], calls: int) -> Calls:
    """The same seconds in each of some calls."""
    return {name: [taken] * calls for name, taken in seconds.items()}


def test_row_16_a_small_effect_is_no_straggler() -> None:
    """Twenty per cent beyond very even peers matters to nobody; with one call each, even more is asked for."""
    for calls, none, some in ((4, 1.2, 1.3), (1, 1.44, 1.46)):
        assert not compare(repeated({f"w{n}": none if n == 0 else 1.0 for n in range(16)}, calls), BY).slow
        assert compare(repeated({f"w{n}": some if n == 0 else 1.0 for n in range(16)}, calls), BY).slow == ("w0",)


def test_row_16_an_uneven_load_of_the_workers_is_no_straggler() -> None:
    """Workers with different shares of the work: their calls are even, and the last is at the end of a wide spread."""
    shares = {f"w{n}": [1.0 + 0.06 * n + 0.001 * call for call in range(8)] for n in range(16)}
    assert compare(shares, BY).decides and not compare(shares, BY).slow


def test_row_16_one_long_call_is_no_straggler() -> None:
    """A pause in one of four calls makes the mean a third longer, and the calls uneven."""
    calls = {f"w{n}": [1.0 + (n + call) % 3 / 500 for call in range(4)] for n in range(8)}
    calls["w3"][2] *= 2.4
    assert sum(calls["w3"]) / 4 > BY.guard_slowness
    assert not compare(calls, BY).slow


def test_row_16_calls_are_compared_with_calls_of_the_same_method() -> None:
    """A worker that saves a checkpoint is not slower than one that trains."""
    reports = [took(f"w{n}", 1.0 + n / 100) for n in range(8)] + [took("w0", 60.0, "save")]
    found = found_by(RULES, reports)
    assert of_row(found, "16")
    assert not of_row(found, "16+")


def pipeline(slow: dict[str, float], stages: int = 4, per_stage: int = 4) -> list[Observation]:
    """Workers w0, w1, … in stages one after another; `slow`: how much longer some take."""
    return [
        took(f"w{n}", slow.get(f"w{n}", 1.0) * (1.0 + (n % 3) / 100), stage=n // per_stage)
        for n in range(stages * per_stage)
    ]


PIPELINE: Topology = cluster(nodes=8, workers=2)
"""Stages of four workers, on two instances each."""


def test_row_16_a_stage_that_is_slow_on_several_instances_is_uneven() -> None:
    """No machine is blamed for having more to do."""
    verdict = judged(pipeline({f"w{n}": 1.54 for n in (12, 13, 14, 15)}), PIPELINE)
    assert (verdict.cause, verdict.scope, verdict.remedy) == (Cause.UNEVEN_STAGE, JOB, "NOTHING")
    assert verdict.decided
    assert of_row(verdict.findings, "16s+")[0].english == "stage 3 is slow in train: 4 workers on 2 instances"


def test_row_16_one_slow_worker_of_a_stage_is_its_machine() -> None:
    """Its neighbours in the stage keep pace."""
    verdict = judged(pipeline({"w12": 1.54}), PIPELINE)
    assert (verdict.cause, verdict.scope) == (Cause.STRAGGLER, Scope.of(ScopeKind.INSTANCE, "n6"))


def test_row_16_a_slow_worker_within_an_uneven_stage_is_found_as_well() -> None:
    """It is slow beside its own stage."""
    found = found_by(RULES, pipeline({"w12": 1.5, "w13": 1.5, "w14": 1.5, "w15": 4.0}), PIPELINE)
    assert of_row(found, "16s+")
    assert [(one.scope.names, one.weight) for one in of_row(found, "16+")] == [(("n7",), Weight.FAIR)]


def test_row_16_a_slow_stage_on_one_instance_may_be_either() -> None:
    """Both are named, and neither is decided."""
    topology = cluster(nodes=4, workers=4)
    verdict = judged(pipeline({f"w{n}": 1.6 for n in (12, 13, 14, 15)}), topology)
    causes = {verdict.cause, *(one.cause for one in verdict.rivals)}
    assert causes == {Cause.STRAGGLER, Cause.UNEVEN_STAGE}
    assert not verdict.decided


def test_row_16_two_stages_are_told_apart_although_each_is_half() -> None:
    """Half of the workers are beyond no median; the stages are compared with one another."""
    found = found_by(RULES, pipeline({f"w{n}": 1.6 for n in (4, 5, 6, 7)}, stages=2), cluster(4, 2))
    assert [one.cause for one in of_row(found, "16s+")] == [Cause.UNEVEN_STAGE]


TRACES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "traces" / "straggler_analysis.json").read_text(encoding="utf-8")
)["traces"]
"""Three published traces, each with a known cause: seconds of every rank in 10 to 16 steps."""


def replayed(name: str, calls: int, with_stage: bool) -> list[Observation]:
    """The calls of the first steps of a trace, as training code reports them."""
    trace = TRACES[name]
    return [
        CallTiming(
            report_id=f"{method}-{step}-{n}",
            at_s=AT_S + step / 100,
            worker=f"w{n}",
            method=method,
            seconds=seconds,
            stage=trace["stages"][n] if with_stage else None,
        )
        for method in ("forward-compute", "backward-compute")
        for step, of_ranks in enumerate(trace[method][:calls])
        for n, seconds in enumerate(of_ranks)
    ]


@pytest.mark.parametrize("with_stage", [True, False])
@pytest.mark.parametrize("calls", [1, 4, 10])
def test_the_published_causes_of_slow_ranks_are_told_apart(calls: int, with_stage: bool) -> None:
    """AR: one slow worker. SE: uneven sequences and an uneven stage. ST: a long last stage, also without `stage`."""
    one = judged(replayed("AR", calls, with_stage), cluster(4, 4))
    assert (one.cause, one.scope, one.decided) == (Cause.STRAGGLER, Scope.of(ScopeKind.INSTANCE, "n0"), True)
    assert {finding.evidence[0].rpartition("-")[2] for finding in one.findings} == {"0"}
    sequences = judged(replayed("SE", calls, with_stage), cluster(8, 8))
    assert sequences.cause is (Cause.UNEVEN_STAGE if with_stage else Cause.UNKNOWN)
    assert not of_row(sequences.findings, "16+")
    assert with_stage or of_row(sequences.informational, "16v+")
    last = judged(replayed("ST", calls, with_stage), cluster(2, 4))
    assert (last.cause, last.scope, last.decided) == (Cause.UNEVEN_STAGE, JOB, True)


@pytest.mark.parametrize("with_stage", [True, False])
@pytest.mark.parametrize("calls", [1, 4, 10])
def test_a_long_last_stage_on_an_instance_of_its_own_blames_no_instance(calls: int, with_stage: bool) -> None:
    """A slow instance looks the same, so nothing is decided; the stage is the more probable cause."""
    verdict = judged(replayed("ST", calls, with_stage), cluster(4, 2))
    assert (verdict.cause, verdict.decided) == (Cause.UNEVEN_STAGE, False)
    assert [(one.cause, one.scope.names) for one in verdict.rivals] == [(Cause.STRAGGLER, ("n3",))]


def test_most_of_a_stage_on_an_instance_of_its_own_may_be_the_instance() -> None:
    """Four of its five workers are slow; the fifth runs there as well, so the instance stays a rival."""
    reports = [
        took(f"w{n}", (1.7 if n in (5, 6, 7, 8) else 1.0) + n % 3 / 400, stage=n // 5, call=call)
        for n in range(20)
        for call in range(4)
    ]
    verdict = judged(reports, cluster(4, 5))
    assert {verdict.cause, *(one.cause for one in verdict.rivals)} >= {Cause.UNEVEN_STAGE, Cause.STRAGGLER}
    assert not verdict.decided


@pytest.mark.parametrize("workers_last", [2, 4, 8])
def test_the_last_workers_are_a_stage_wherever_they_run(workers_last: int) -> None:
    """Without `stage`: part of an instance, or several instances. The same workers elsewhere are slow workers."""
    reports = [took(f"w{n}", (1.7 if n >= 24 - workers_last else 1.0) + n % 5 / 400) for n in range(24)]
    for per_instance in (12, 1):
        verdict = judged(reports, cluster(24 // per_instance, per_instance))
        assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.UNEVEN_STAGE, JOB, True)
        found = of_row(verdict.findings, "16t+")
        assert f"the last {workers_last} of 24 workers are slow in train" in found[0].english
    moved = [took(f"w{n}", (1.7 if 6 <= n < 6 + workers_last else 1.0) + n % 5 / 400) for n in range(24)]
    assert judged(moved, cluster(24, 1)).cause is Cause.STRAGGLER
    alone = [took(f"w{n}", (1.7 if n == 23 else 1.0) + n % 5 / 400) for n in range(24)]
    assert judged(alone, cluster(12, 2)).scope == Scope.of(ScopeKind.INSTANCE, "n11")


def test_a_straggler_within_the_last_workers_is_found_as_well() -> None:
    """It is slow beside the other last workers."""
    reports = [
        took(f"w{n}", seconds * (4.0 if n == 22 else 1.7 if n >= 18 else 1.0), call=call)
        for n in range(24)
        for call, seconds in enumerate((1.0, 1.01, 0.99, 1.0))
    ]
    found = found_by(RULES, reports, cluster(12, 2))
    assert [one.scope.names for one in of_row(found, "16+")] == [("n11",)]
    assert of_row(found, "16t+")


def test_a_worker_is_compared_with_its_own_stage() -> None:
    """Half of the time of the other stage, and half more than its peers."""
    reports = [
        took(f"w{n}", seconds * (1.0 if n < 8 else 2.0) * (1.5 if n == 2 else 1.0), stage=n // 8, call=call)
        for n in range(16)
        for call, seconds in enumerate((1.0, 1.01, 0.99, 1.0))
    ]
    found = of_row(found_by(RULES, reports, cluster(8, 2)), "16+")
    assert [one.scope.names for one in found] == [("n1",)]
    assert "the others 1.00 s" in found[0].english


def test_calls_that_are_too_few_for_their_noise_name_nobody_and_say_how_many_would_do() -> None:
    """Sequences of different lengths; the sentence names the noise and the calls that are needed."""
    drawn = random.Random(5)
    seconds = {n: [drawn.lognormvariate(0, 0.14) * (1.5 if n == 3 else 1.0) for _ in range(16)] for n in range(16)}

    def window(calls: int) -> list[RuleFinding]:
        return found_by(RULES, [took(f"w{n}", seconds[n][call], call=call) for n in range(16) for call in range(calls)])

    few = window(2)
    assert not of_row(few, "16+")
    (said,) = of_row(few, "16v+")
    match = re.fullmatch(
        r"calls of train differ by (\d+) % from one another, as with uneven sequences; "
        r"2 of each worker are too few to name a straggler, (\d+) would do",
        said.english,
    )
    assert match is not None and 8 <= int(match[1]) <= 20 and 4 <= int(match[2]) <= 16
    assert [one.scope.names for one in of_row(window(16), "16+")] == [("w3",)]


# -- the rates of the guard ------------------------------------------------------------------------------------------


def is_within(count: int, windows: int, rate: float) -> bool:
    """Whether so many hits, or more, are no sign of a rate above `rate` (one chance in 100 of a wrong alarm)."""
    below = sum(
        math.exp(
            math.lgamma(windows + 1)
            - math.lgamma(hits + 1)
            - math.lgamma(windows - hits + 1)
            + hits * math.log(rate)
            + (windows - hits) * math.log1p(-rate)
        )
        for hits in range(count)
    )
    return 1 - below > 0.01


def expects_rates(noise: str, calls: int, count: int, windows: int) -> None:
    """False alarms in at most one window of 1,000; a straggler is found in 95 % wherever the guard may speak."""
    counts = count_windows(noise, calls, count, windows)
    for alarms in ("guard_false_alarms", "staged_false_alarms"):
        assert is_within(counts[alarms], windows, BY.guard_alarms), counts
    speaks = calls == 16 or noise.startswith("even")
    if speaks:
        found = ("guard_found", "staged_found") if count >= STAGED_MIN else ("guard_found",)
        assert all(is_within(windows - counts[name], windows, 1 - BY.guard_power) for name in found), counts
        assert counts["guard_decides"] > 0.9 * windows
    else:
        assert counts["guard_decides"] < 0.3 * windows
        assert counts["guard_found"] < 0.3 * windows


EACH_NOISE = pytest.mark.parametrize("noise", NOISES)


@EACH_NOISE
@pytest.mark.parametrize(("calls", "count"), [(1, 4), (1, 16), (4, 8), (16, 4)])
def test_the_guard_keeps_its_rates_in_some_windows(noise: str, calls: int, count: int) -> None:
    """With 0.5 % and 14 % of noise; with too few calls for the noise it says nothing."""
    expects_rates(noise, calls, count, 200)


@EACH_NOISE
@pytest.mark.full
@pytest.mark.parametrize("calls", [1, 4, 16])
@pytest.mark.parametrize(("count", "windows"), [(4, 20_000), (8, 10_000), (16, 8_000), (64, 4_000), (256, 1_000)])
def test_the_guard_keeps_its_rates(noise: str, calls: int, count: int, windows: int) -> None:
    """The same in many windows, for 4 to 256 workers."""
    expects_rates(noise, calls, count, windows)


@pytest.mark.parametrize("count", [8, 64])
def test_two_sigma_raises_the_alarms_that_the_guard_does_not(count: int) -> None:
    """The specified rule names somebody in a tenth of the windows of eight workers, and in most of 64."""
    counts = count_windows("even calls, 0.5 %", 4, count, 100)
    assert counts["guard_false_alarms"] == 0 and counts["two_sigma_false_alarms"] >= (5 if count == 8 else 50)


# -- row 17 ------------------------------------------------------------------------------------------------------------


def test_row_17_four_fifths_are_enough() -> None:
    """And an early exception ends no wait: it is not a call that is done."""
    assert enough(8, 10, BY)
    assert not enough(7, 10, BY)
    assert not enough(1, 10, BY)
    assert enough(0, 0, BY)


@pytest.mark.parametrize(("done", "total"), [(-1, 4), (5, 4)])
def test_row_17_counts_that_cannot_be_are_refused(done: int, total: int) -> None:
    """Somebody counted wrong."""
    with pytest.raises(ValueError, match="cannot be done"):
        enough(done, total, BY)


def test_row_17_more_than_a_fifth_out_of_time_suspects_the_network() -> None:
    """A fifth is not more than a fifth."""
    fifth = [late("w0"), *(returned(f"w{n}") for n in range(1, 5))]
    assert "17" not in rows(found_by(RULES, fifth))
    assert "17" not in rows(found_by(RULES, [late("w0")]))
    found = of_row(found_by(RULES, [*fifth, late("w1", at_s=AT_S)]), "17")
    assert {one.cause for one in found} == {Cause.NETWORK, Cause.STRAGGLER}
    assert found[0].chinese == "超过20% worker超时 → 疑似网络故障"
    assert found[0].english == "more than 20 % of workers timed out (2 of 5) → suspected network failure"


def test_row_17_exceptions_are_no_time_outs() -> None:
    """Workers that answer with errors are not a network's failure."""
    assert "17" not in rows(found_by(RULES, [raised(f"w{n}") for n in range(5)]))
