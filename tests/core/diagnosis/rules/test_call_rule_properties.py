"""What holds of any reports of calls, progress, weights, telemetry and collectives, however odd they are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from gpu_recovery.core.diagnosis.case import History
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.observations import (
    CallTiming,
    FlightReport,
    NcclReport,
    Observation,
    PairReport,
    ProgressReport,
    RequestReport,
    RequestState,
    RpcReport,
    RpcStage,
    WeightSyncReport,
    WorkerHealth,
)
from gpu_recovery.core.diagnosis.rule import RuleFinding, findings
from gpu_recovery.core.diagnosis.rules import collectives, failure_patterns, rpc, stragglers, telemetry, weight_sync
from gpu_recovery.core.diagnosis.taxonomy import Cause
from hypothesis import given
from hypothesis import strategies as st

from tests.core.diagnosis.small_cases import AT_S, case_of, cluster

FAMILIES = (weight_sync, stragglers, failure_patterns, rpc, telemetry, collectives)
RULES = tuple(rule for family in FAMILIES for rule in family.RULES)
TOPOLOGY = cluster(nodes=3, workers=2, racks=2)

ODD = st.sampled_from([None, 0.0, -1.0, 0.05, 3.0, 61.0, 700.0, float("nan"), float("inf"), -float("inf")])
SOME = st.sampled_from([0.0, -2.0, 0.5, 1.0, 90.0, float("nan"), float("inf")])
TEXT = st.sampled_from(
    ["", "{x}", "{0}", "NET/IB port error", "timeout", "CUDA out of memory", "MemoryError", "ib fail"]
)
WHO: dict[str, st.SearchStrategy[Any]] = {
    "at_s": st.integers(0, 1_000).map(lambda age: AT_S - age),
    "worker": st.sampled_from(["", "w0", "w1", "w2", "w3", "w4", "w5", "stranger"]),
    "rank": st.sampled_from([None, 0, 1, 5, 99]),
    "instance_id": st.sampled_from(["", "n0", "n9"]),
}
KINDS: tuple[tuple[type[Observation], dict[str, st.SearchStrategy[Any]]], ...] = (
    (
        RpcReport,
        {
            "connect_s": ODD,
            "send_s": ODD,
            "header_s": ODD,
            "body_s": ODD,
            "timed_out": st.booleans(),
            "failed_at": st.sampled_from([None, *RpcStage]),
            "connection_error": st.booleans(),
            "error": TEXT,
            "status": st.sampled_from([None, 0, 200, 408, 500, 520, 521, 522, 523]),
            "server_phase": st.sampled_from(["", "deserialise", "method", "serialise", "else"]),
            "request_id": st.sampled_from(["", "q"]),
        },
    ),
    (ProgressReport, {"value": ODD, "status": st.sampled_from([0, 200, 503])}),
    (CallTiming, {"method": TEXT, "seconds": SOME, "stage": st.sampled_from([None, 0, 1])}),
    (WeightSyncReport, {"serialize_s": ODD, "upload_s": ODD, "download_s": ODD}),
    (WorkerHealth, {"memory_free_gb": ODD, "cpu_percent": ODD}),
    (
        RequestReport,
        {
            "request_id": st.sampled_from(["", "q"]),
            "state": st.sampled_from(RequestState),
            "error": TEXT,
        },
    ),
    (NcclReport, {"line": TEXT}),
    (
        FlightReport,
        {
            "group": st.sampled_from(["a", "b"]),
            "members": st.sampled_from([(), (0, 1), (0, 1, 5, 99)]),
            "last_enqueued": st.sampled_from([None, 1, 2]),
            "last_completed": st.sampled_from([None, 1, 2]),
        },
    ),
    (
        PairReport,
        {
            "round": st.integers(1, 2),
            "passed": st.booleans(),
            "seconds": ODD,
            "instances": st.sampled_from([(), ("n0",), ("n0", "n1"), ("n1", "n2"), ("n0", "n2")]),
        },
    ),
)
ANY = st.one_of([st.builds(kind, report_id=st.just(""), **WHO, **more) for kind, more in KINDS])
WINDOW = st.lists(ANY, max_size=14).map(
    lambda reports: [replace(one, report_id=f"r{n}") for n, one in enumerate(reports)]
)


def found(reports: list[Observation]) -> tuple[RuleFinding, ...]:
    """What the families' rules find."""
    return findings(RULES, case_of(reports, TOPOLOGY))


def verdict(reports: list[Observation]) -> Diagnosis:
    """The verdict of the families' rules."""
    return diagnose(reports, TOPOLOGY, History(), AT_S, rules=RULES)


@given(WINDOW, st.randoms())
def test_any_reports_are_borne_in_any_order(reports: list[Observation], shuffled: random.Random) -> None:
    """What is missing or no number crashes nothing; the order in which reports come changes nothing."""
    again = list(reports)
    shuffled.shuffle(again)
    assert found(again) == found(reports)
    assert verdict(again) == verdict(reports)


@given(WINDOW)
def test_what_is_found_cites_reports_that_were_given(reports: list[Observation]) -> None:
    """No evidence, no finding; a finding that speaks for nobody weighs nothing, and nothing is surer than proof."""
    given_ids = {one.report_id for one in reports}
    for one in found(reports):
        assert one.evidence
        assert set(one.evidence) <= given_ids
        assert (one.weight == 0.0) or one.cause is not None
        assert 0.0 <= one.weight <= 4.6
        assert one.english
        assert one.chinese


@given(WINDOW)
def test_confidences_share_less_than_the_whole(reports: list[Observation]) -> None:
    """There is always something that nobody has thought of."""
    of = verdict(reports)
    assert of.confidence + sum(one.confidence for one in of.rivals) < 1.001
    assert of.confidence < 1.0


@given(WINDOW, st.data())
def test_a_report_that_is_told_again_lowers_nobody(reports: list[Observation], data: st.DataObject) -> None:
    """The same call once more under another name takes nothing from what it speaks for."""
    repeatable = [one for one in reports if isinstance(one, RpcReport | NcclReport | WeightSyncReport | WorkerHealth)]
    if not repeatable:
        return
    twice = replace(data.draw(st.sampled_from(repeatable)), report_id="twice")
    before = {(one.row, one.cause, one.scope): one.weight for one in found(reports)}
    supported = {
        (one.row, one.cause, one.scope) for one in found([*reports, twice]) if "twice" in one.evidence and one.cause
    }
    after = {(one.row, one.cause, one.scope): one.weight for one in found([*reports, twice])}
    for key in supported & set(before):
        assert after[key] >= before[key] - 1e-9, key


def test_nothing_reported_is_nothing_found() -> None:
    """And nothing is the matter, as far as anybody knows."""
    assert not found([])
    assert verdict([]).cause is Cause.UNKNOWN
