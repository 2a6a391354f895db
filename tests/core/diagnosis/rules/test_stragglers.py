"""Rows 12, 13 and 15-17: slowness, standstill, and enough answers."""

from __future__ import annotations

import random

import pytest
from gpu_recovery.core.diagnosis.case import Topology
from gpu_recovery.core.diagnosis.observations import CallTiming, Observation, ProgressReport
from gpu_recovery.core.diagnosis.outliers import beyond_guard, beyond_sigma, sigma_decides
from gpu_recovery.core.diagnosis.rules.stragglers import RULES, enough
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

from tests.core.diagnosis.small_cases import AT_S, BY, cluster, found_by, judged, late, of_row, raised, returned, rows


def took(worker: str, seconds: float, method: str = "train", stage: int | None = None) -> CallTiming:
    """A call of a worker."""
    return CallTiming(
        report_id=f"took-{worker}-{method}-{seconds}",
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
    reports = [took(f"w{n}", 1.5 if n == 3 else 1.0 + n / 100) for n in range(8)]
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
    assert ("nor by the guard" in said.english) is (count < 3)
    assert bool(of_row(found, "16+")) is (count >= 3)


def test_row_16_six_workers_are_decidable() -> None:
    """From there on a deviation of more than two is possible."""
    assert not sigma_decides(5, 2.0)
    assert sigma_decides(6, 2.0)
    reports = [took(f"w{n}", 10.0 if n == 0 else 1.0) for n in range(6)]
    assert rows(found_by(RULES, reports)) >= {"16", "16+"}
    assert "16n" not in rows(found_by(RULES, reports))


@pytest.mark.parametrize("count", [4, 8, 64])
def test_row_16_the_guard_raises_hardly_any_false_alarm(count: int) -> None:
    """Of 2,000 windows of ordinary noise in 0.13 % at most; where 2σ can decide it raises one in a tenth and more."""
    drawn = random.Random(count)
    windows = [{f"w{n}": drawn.lognormvariate(0, 0.05) for n in range(count)} for _ in range(2_000)]
    assert sum(bool(beyond_guard(values, BY)) for values in windows) <= 0.0013 * len(windows)
    assert (sum(bool(beyond_sigma(values, BY.sigma)) for values in windows) > 0.1 * len(windows)) is (count > 5)


@pytest.mark.parametrize("count", range(1, 40))
def test_row_16_equal_workers_are_never_stragglers(count: int) -> None:
    """Not by rounding either."""
    values = {f"w{n}": 0.1 for n in range(count)}
    assert not beyond_sigma(values, BY.sigma)
    assert not beyond_guard(values, BY)


def test_row_16_a_small_effect_is_no_straggler() -> None:
    """Twenty per cent beyond very even peers is far in deviations, and matters to nobody."""
    assert not beyond_guard({f"w{n}": 1.2 if n == 0 else 1.0 for n in range(16)}, BY)
    assert beyond_guard({f"w{n}": 1.3 if n == 0 else 1.0 for n in range(16)}, BY) == ["w0"]


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
    weights = {one.scope.names: one.weight for one in of_row(found, "16+")}
    assert weights["n7",] == Weight.FAIR
    assert weights["n6",] == Weight.HINT


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
