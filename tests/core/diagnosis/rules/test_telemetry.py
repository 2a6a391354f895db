"""Rows 36-40: what workers say of themselves."""

from __future__ import annotations

import pytest
from gpu_recovery.core.diagnosis.observations import RequestReport, RequestState, RpcStage, WorkerHealth
from gpu_recovery.core.diagnosis.rules.telemetry import RULES
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind

from tests.core.diagnosis.small_cases import AT_S, cluster, found_by, judged, late, of_row, returned, rows

START, DONE, ERROR = RequestState.START, RequestState.DONE, RequestState.ERROR
W0 = Scope.of(ScopeKind.WORKER, "w0")
TOPOLOGY = cluster(nodes=4, workers=2)


def tells(worker: str, state: RequestState, request: str = "q1", **more: str) -> RequestReport:
    """A worker's telemetry of a request."""
    return RequestReport(
        report_id=f"{worker}-{request}-{state}", at_s=AT_S - 30, worker=worker, request_id=request, state=state, **more
    )  # type: ignore[arg-type]


def healthy(worker: str, free: float | None = 20.0, cpu: float | None = 30.0, age_s: float = 5.0) -> WorkerHealth:
    """A worker's report of itself."""
    return WorkerHealth(
        report_id=f"health-{worker}-{age_s}", at_s=AT_S - age_s, worker=worker, memory_free_gb=free, cpu_percent=cpu
    )


CALL = late("w0", RpcStage.HEADER, request_id="q1")
TABLE = {
    "36": (
        [tells("w0", ERROR, error_type="KeyError", error="'x'")],
        Cause.WORKER_ERROR,
        "Worker w0: KeyError: 'x'",
        "Worker w0 processing_error: KeyError: 'x'",
    ),
    "36+": (
        [CALL, tells("w0", START), tells("w0", DONE)],
        Cause.NETWORK,
        "Worker w0 completed the request, and its response was not delivered → network failure",
        "Worker w0 已处理完成但响应未送达 → 网络故障",
    ),
    "37a": (
        [tells("w0", START)],
        None,
        "Worker w0 started processing: not a network problem",
        "Worker w0 已开始处理，不是网络问题",
    ),
    "37a+": (
        [CALL, tells("w0", START)],
        Cause.WORKER_HANG,
        "Worker w0 started processing the request, and did not complete it",
        "Worker w0 已开始处理但未结束 → 疑似worker hang",
    ),
    "37b": (
        [CALL, tells("w1", DONE, "q2")],
        Cause.NETWORK,
        "Worker w0: no telemetry → suspected network interruption",
        "Worker w0 无telemetry，疑似网络中断",
    ),
    "39a": ([healthy("w0", free=0.9)], None, "Worker w0 GPU memory low", "Worker w0 GPU memory low"),
    "39b": ([healthy("w0", cpu=96.0)], None, "Worker w0 CPU overload", "Worker w0 CPU overload"),
    "40a": (
        [CALL, healthy("w1")],
        Cause.WORKER_STARTUP,
        "w0: worker never reported health → suspected startup failure",
        "Worker从未上报健康状态 → 疑似启动失败",
    ),
    "40b": (
        [CALL, healthy("w0", age_s=75.0)],
        Cause.WORKER_CRASH,
        "w0: no report of the worker for 75 s → suspected process crash or network cut",
        "Worker 75秒未上报 → 疑似进程crash或网络断连",
    ),
    "40c": (
        [CALL, healthy("w0", free=0.05)],
        Cause.GPU_MEMORY,
        "w0: worker GPU OOM → suspected inference batch too large",
        "Worker GPU OOM → 疑似推理batch过大",
    ),
    "40d": (
        [CALL, healthy("w0", cpu=99.0)],
        Cause.CPU_CONTENTION,
        "w0: worker CPU overload → suspected resource contention",
        "Worker CPU overload → 疑似资源争用",
    ),
    "40e": (
        [CALL, healthy("w0")],
        Cause.NETWORK,
        "w0: worker health normal → suspected network delay",
        "Worker健康状态正常，疑似网络延迟",
    ),
}
"""By row: reports that it is about, the cause that it speaks for most, and what it says."""


@pytest.mark.parametrize("row", TABLE)
def test_a_row_says_its_sentence_and_speaks_for_its_cause(row: str) -> None:
    """In both languages."""
    reports, cause, english, chinese = TABLE[row]
    found = of_row(found_by(RULES, reports, TOPOLOGY), row)
    assert {(one.english, one.chinese) for one in found} == {(english, chinese)}
    assert max(found, key=lambda one: one.weight).cause is cause
    assert {one.scope for one in found} == {W0}


def test_the_table_is_complete() -> None:
    """Every rule of the family is in it."""
    assert set(TABLE) == {rule.row for rule in RULES}


def test_row_36_a_request_that_ended_is_not_open() -> None:
    """A start with an end says nothing of a hang, and no error is found where there was none."""
    for end in (DONE, ERROR):
        found = rows(found_by(RULES, [CALL, tells("w0", START), tells("w0", end)]))
        assert not found & {"37a", "37a+", "37b"}
    assert "36" not in rows(found_by(RULES, [tells("w0", DONE)]))


def test_row_37_a_start_that_was_seen_lowers_nothing_and_speaks_for_the_hang() -> None:
    """What speaks for the network keeps its weight; the hang has more than it."""
    before = judged([CALL], TOPOLOGY)
    after = judged([CALL, tells("w0", START)], TOPOLOGY)
    assert (after.cause, after.scope) == (Cause.WORKER_HANG, W0)
    network = [{one.cause: one.score for one in verdict.rivals}[Cause.NETWORK] for verdict in (before, after)]
    assert network[0] == network[1]
    assert after.confidence > before.confidence
    assert after.decided


def test_row_37_a_start_alone_is_a_call_under_way() -> None:
    """A rollout may take minutes: without a call that failed nobody hangs."""
    assert judged([tells("w0", START)], TOPOLOGY).cause is Cause.UNKNOWN


def test_row_37_a_start_of_another_request_is_not_this_one() -> None:
    """The request's name joins telemetry and call."""
    assert "37a+" not in rows(found_by(RULES, [CALL, tells("w0", START, "q0")]))


def test_row_37_no_telemetry_says_nothing_where_nobody_sends_any() -> None:
    """A program without telemetry is not a network that is down."""
    assert "37b" not in rows(found_by(RULES, [CALL]))
    assert "37b" not in rows(found_by(RULES, [returned("w0", request_id="q1"), tells("w1", DONE, "q2")]))


@pytest.mark.parametrize(("free", "cpu"), [(1.0, 95.0), (None, None)])
def test_row_39_a_threshold_itself_is_not_beyond_it(free: float | None, cpu: float | None) -> None:
    """Nor is what nobody measured."""
    assert not found_by(RULES, [healthy("w0", free=free, cpu=cpu)])


def test_row_40_the_first_match_wins() -> None:
    """Silent, out of memory, overloaded: one sentence for each worker, in that order."""
    for health, row in (
        (healthy("w0", free=0.05, cpu=99.0, age_s=61.0), "40b"),
        (healthy("w0", free=0.05, cpu=99.0), "40c"),
        (healthy("w0", free=0.1, cpu=99.0), "40d"),
        (healthy("w0", free=0.1, cpu=95.0, age_s=60.0), "40e"),
    ):
        found = rows(found_by(RULES, [CALL, health]))
        assert {one for one in found if one.startswith("40")} == {row}


def test_row_40_the_latest_report_of_the_worker_counts() -> None:
    """Whatever it said before."""
    found = rows(found_by(RULES, [CALL, healthy("w0", free=0.05, age_s=20.0), healthy("w0", age_s=5.0)]))
    assert "40e" in found
    assert "40c" not in found


def test_row_40_only_a_worker_whose_call_ran_out_of_time_is_asked_about() -> None:
    """A silent worker that nobody calls may be done."""
    found = rows(found_by(RULES, [returned("w0"), healthy("w0", age_s=500.0)]))
    assert not {one for one in found if one.startswith("40")}


def test_row_40_never_reported_is_believed_of_a_worker_nobody_heard_of() -> None:
    """It is published always; where nobody reports, or the worker was heard of otherwise, it accuses nobody."""
    for reports in ([CALL], [CALL, healthy("w1"), tells("w0", DONE, "q0")]):
        found = of_row(found_by(RULES, reports), "40a")
        assert [one.cause for one in found] == [None]
        assert found[0].chinese == "Worker从未上报健康状态 → 疑似启动失败"


def test_row_40_memory_that_is_used_up_outranks_the_hang() -> None:
    """A header that does not come is what an out-of-memory worker looks like."""
    verdict = judged([CALL, healthy("w0", free=0.05)], TOPOLOGY)
    assert (verdict.cause, verdict.scope) == (Cause.GPU_MEMORY, W0)


def test_row_40_good_health_does_not_rule_out_a_hang() -> None:
    """The reporter is another thread than the one that hangs."""
    assert judged([CALL, healthy("w0")], TOPOLOGY).cause is Cause.WORKER_HANG


def test_a_silent_worker_that_cannot_be_reached_is_the_network_before_a_crash() -> None:
    """Both rows name both; the time-out of the connection leans to the network."""
    verdict = judged([late("w0"), healthy("w0", age_s=120.0)], TOPOLOGY)
    assert verdict.cause is Cause.NETWORK
    assert verdict.rivals[0].cause is Cause.WORKER_CRASH
