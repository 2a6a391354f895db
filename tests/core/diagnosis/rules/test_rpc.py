"""Rows 22-35: what the stages of a call say."""

from __future__ import annotations

import pytest
from gpu_recovery.core.diagnosis.observations import RpcReport, RpcStage
from gpu_recovery.core.diagnosis.rules.rpc import RETRIES_MAX, RULES, is_retryable
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind, Weight

from tests.core.diagnosis.small_cases import (
    AT_S,
    case_of,
    cluster,
    found_by,
    judged,
    late,
    of_row,
    raised,
    returned,
    rows,
)

TOPOLOGY = cluster(nodes=4, workers=2)
W0 = Scope.of(ScopeKind.WORKER, "w0")


def call(**given: object) -> RpcReport:
    """A call to w0."""
    return RpcReport(report_id="call", at_s=AT_S, worker="w0", **given)  # type: ignore[arg-type]


BODY = "header received, body stuck, suspected large transfer or packet loss"
TABLE = {
    "22": (
        call(connect_s=5.5, status=200),
        Cause.NETWORK_SLOW,
        "Worker w0 connection slow (5.5 s) → suspected network latency",
        "Worker w0 连接慢 → 疑似网络延迟",
    ),
    "23": (
        late("w0", RpcStage.CONNECT),
        Cause.NETWORK,
        "Worker w0 connection timed out → network unreachable or worker down",
        "Worker w0 连接超时 → 网络不可达或worker down",
    ),
    "24": (
        late("w0", RpcStage.SEND),
        Cause.NETWORK,
        "Worker w0 send timed out → insufficient network bandwidth",
        "Worker w0 发送超时 → 网络带宽不足",
    ),
    "25": (
        call(header_s=61.0, status=200),
        Cause.WORKER_HANG,
        "Worker w0 response header slow (61.0 s) → suspected worker hang",
        "Worker w0 响应头慢 → 疑似worker处理hang",
    ),
    "26": (
        late("w0", RpcStage.HEADER),
        Cause.WORKER_HANG,
        "Worker w0 response header timed out → connection established but no answer, suspected worker hang / OOM",
        "Worker w0 响应头超时 → 已建立连接但worker无响应，疑似worker hang/OOM",
    ),
    "27": (
        call(header_s=0.1, body_s=1.1, status=200),
        None,
        "Worker w0 data transfer slow → insufficient bandwidth or data too large",
        "Worker w0 数据传输慢 → 网络带宽不足或数据过大",
    ),
    "27+": (
        call(header_s=0.1, body_s=6.0, status=200),
        Cause.NETWORK_SLOW,
        "Worker w0 data transfer slow, and it took 6.0 s",
        "Worker w0 数据传输慢，用时6.0秒",
    ),
    "28": (
        late("w0", RpcStage.BODY),
        Cause.NETWORK,
        f"Worker w0 data receive timed out → {BODY}",
        "Worker w0 数据接收超时 → 已收到header，疑似大数据传输或网络丢包",
    ),
    "29": (
        call(connect_s=0.5, send_s=1.0, header_s=2.0, failed_at=RpcStage.BODY, timed_out=True),
        None,
        "RPC diagnosis for w0: connect_time=0.50, send_time=1.00, response_header_time=2.00, "
        "failure_stage=response_data",
        "RPC diagnosis for w0: connect_time=0.50, send_time=1.00, response_header_time=2.00, "
        "failure_stage=response_data",
    ),
    "30a": (
        late("w0", RpcStage.HEADER),
        None,
        "w0: worker-internal failure: failure_stage=response_header → restart that worker",
        "Worker内部故障: failure_stage=response_header",
    ),
    "30b": (
        late("w0", RpcStage.SEND),
        None,
        "w0: network failure: failure_stage=send → a standby worker, or wait for the network",
        "网络故障: failure_stage=send",
    ),
    "32a": (
        raised("w0", status=408),
        Cause.NETWORK_SLOW,
        "Worker w0 answered 408: the request came too slowly; it may be sent again",
        "Worker w0 408: 请求发送太慢，可重试",
    ),
    "32b": (
        raised("w0"),
        Cause.WORKER_ERROR,
        "Worker w0 answered 500: GPU OOM, CUDA error, Python exception or a corrupted response",
        "Worker w0 500: GPU OOM、CUDA error、Python exception或响应包损坏",
    ),
    "32c": (
        raised("w0", status=520, error="oom"),
        Cause.GPU_MEMORY,
        "Worker w0: GPU out of memory: oom",
        "Worker w0: GPU内存不足: oom",
    ),
    "32d": (
        raised("w0", status=521, error="e"),
        Cause.GPU_CONTEXT,
        "Worker w0: CUDA error: e",
        "Worker w0: CUDA错误: e",
    ),
    "32e": (
        raised("w0", status=522),
        Cause.NETWORK_SLOW,
        "Worker w0 answered 522: network slow",
        "Worker w0 522: 网络传输慢",
    ),
    "32f": (
        raised("w0", status=523),
        Cause.WORKER_HANG,
        "Worker w0 answered 523: worker timeout",
        "Worker w0 523: Worker处理超时",
    ),
    "33a": (
        raised("w0", server_phase="deserialise", error="e"),
        Cause.NETWORK,
        "Worker w0 could not read the request → data corrupted in transit: e",
        "Worker w0 反序列化失败 → 数据损坏（网络丢包）: e",
    ),
    "33b": (
        raised("w0", server_phase="method", error="ValueError: x"),
        Cause.WORKER_ERROR,
        "Worker w0: the method raised → worker-internal error: ValueError: x",
        "Worker w0 method() → Worker内部错误: ValueError: x",
    ),
    "33c": (
        raised("w0", server_phase="serialise", error="MemoryError"),
        Cause.HOST_MEMORY,
        "Worker w0 could not write the result → host memory: MemoryError",
        "Worker w0 序列化结果失败 → 结果过大（内存不足）: MemoryError",
    ),
    "33d": (
        raised("w0", server_phase="serialise", error="TypeError"),
        Cause.WORKER_ERROR,
        "Worker w0 could not write the result: TypeError",
        "Worker w0 序列化结果失败: TypeError",
    ),
    "34": (
        call(connection_error=True, failed_at=RpcStage.HEADER),
        Cause.NETWORK,
        "Worker w0: the connection broke; TCP keepalive (60 s, 9 probes) may have ended a long call: no proof of a "
        "hung worker",
        "Worker w0 ConnectionError → TCP KeepAlive可能先于应用层超时，不能证明worker hang",
    ),
    "34r": (
        call(connection_error=True, failed_at=RpcStage.CONNECT),
        Cause.WORKER_CRASH,
        "Worker w0 refused the connection → no process listens there",
        "Worker w0 拒绝连接 → worker down",
    ),
}
"""By row: a call that it is about, the cause it speaks for most, and what it says."""


@pytest.mark.parametrize("row", TABLE)
def test_a_row_says_its_sentence_and_speaks_for_its_cause(row: str) -> None:
    """In both languages; where it speaks for nobody, it says so."""
    report, cause, english, chinese = TABLE[row]
    found = of_row(found_by(RULES, [report], TOPOLOGY), row)
    assert {(one.english, one.chinese) for one in found} == {(english, chinese)}
    assert max(found, key=lambda one: one.weight).cause is cause
    assert {one.scope for one in found} == {W0}


def test_the_table_is_complete() -> None:
    """Every rule of the family is in it."""
    assert set(TABLE) == {rule.row for rule in RULES}


@pytest.mark.parametrize("row", [row for row in TABLE if TABLE[row][1] is not None])
def test_row_35_every_verdict_has_a_rival(row: str) -> None:
    """Only the sum of sending, working and receiving is seen: no match stands alone, none is certain."""
    report, cause, _, _ = TABLE[row]
    found = of_row(found_by(RULES, [report], TOPOLOGY), row)
    assert len({one.cause for one in found}) > 1
    verdict = judged([report], TOPOLOGY)
    assert verdict.cause is cause or not verdict.decided
    assert verdict.rivals
    assert verdict.confidence < 0.99


@pytest.mark.parametrize("row", ["23", "24", "26", "28"])
def test_rows_23_to_28_a_time_out_is_decided_by_its_stage(row: str) -> None:
    """The stage tells network and worker apart well enough to act."""
    report, cause, _, _ = TABLE[row]
    verdict = judged([report], TOPOLOGY)
    assert (verdict.cause, verdict.scope, verdict.decided) == (cause, W0, True)


def test_row_30_what_is_done() -> None:
    """A worker that hangs is left out with its machine; a worker's network is tried again."""
    assert judged([late("w0", RpcStage.HEADER)], TOPOLOGY).remedy == "LEAVE_OUT"
    assert judged([late("w0", RpcStage.CONNECT)], TOPOLOGY).remedy == "RESTART"


@pytest.mark.parametrize(
    ("report", "row"),
    [
        (call(connect_s=5.0, status=200), "22"),
        (call(header_s=60.0, status=200), "25"),
        (call(header_s=1.0, body_s=10.0, status=200), "27"),
        (call(header_s=0.4, body_s=5.0, status=200), "27+"),
    ],
)
def test_a_threshold_itself_is_not_beyond_it(report: RpcReport, row: str) -> None:
    """The specified comparisons are strict."""
    assert row not in rows(found_by(RULES, [report]))


def test_row_25_a_header_that_never_came_is_not_slow() -> None:
    """How long somebody waited in vain is no time of an answer."""
    found = found_by(RULES, [late("w0", RpcStage.HEADER, header_s=600.0), late("w1", RpcStage.SEND, header_s=600.0)])
    assert "25" not in rows(found)


def test_row_27_any_body_is_slow_beside_an_instant_header_but_seconds_decide() -> None:
    """As specified ten milliseconds are slow after a header in none."""
    found = found_by(RULES, [call(header_s=0.0, body_s=0.01, status=200)])
    assert "27" in rows(found)
    assert "27+" not in rows(found)


def test_row_31_the_final_variants_are_in_force() -> None:
    """A header time-out blames the worker, a slow header no network; a body time-out the network, no straggler."""
    slow = found_by(RULES, [call(header_s=120.0, status=200)])
    assert not {one.cause for one in slow} & {Cause.NETWORK, Cause.NETWORK_SLOW}
    header = judged([late("w0", RpcStage.HEADER)])
    body = judged([late("w0", RpcStage.BODY)])
    assert (header.cause, body.cause) == (Cause.WORKER_HANG, Cause.NETWORK)
    assert Cause.STRAGGLER not in {one.cause for one in body.rivals}


def test_row_32_only_a_408_may_be_sent_again() -> None:
    """Three times; a 500 and an answer may not."""
    assert [code for code in (200, 408, 500, 520, 521, 522, 523) if is_retryable(code)] == [408]
    assert RETRIES_MAX == 3


def test_row_32_a_500_alone_is_undecided() -> None:
    """It may be any of four things."""
    verdict = judged([raised("w0")])
    assert not verdict.decided
    causes = {verdict.cause, *(one.cause for one in verdict.rivals)}
    assert causes == {Cause.WORKER_ERROR, Cause.GPU_MEMORY, Cause.GPU_CONTEXT, Cause.NETWORK}


@pytest.mark.parametrize(
    ("error", "row"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30 GiB", "32c"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "32d"),
        ("KeyError: 'reward'", "33b"),
    ],
)
def test_row_33_an_error_of_the_gpu_out_of_a_method_is_one_of_the_gpu(error: str, row: str) -> None:
    """What the proposed codes would have said is read from the text."""
    found = rows(found_by(RULES, [raised("w0", server_phase="method", error=error)]))
    assert found & {"32b", "32c", "32d", "33b"} == {row}


def test_row_34_a_broken_connection_is_no_proof_of_a_hang() -> None:
    """The hang is named, as the least of three."""
    found = of_row(found_by(RULES, [TABLE["34"][0]]), "34")
    weights = {one.cause: one.weight for one in found}
    assert weights[Cause.WORKER_HANG] == Weight.HINT < weights[Cause.NETWORK]
    assert not judged([TABLE["34"][0]]).decided


def test_a_call_that_returned_in_time_speaks_for_nobody() -> None:
    """Its object is all that is said."""
    assert rows(found_by(RULES, [returned("w0")])) == {"29"}


def test_a_call_without_a_name_or_a_number_is_borne() -> None:
    """Every field may be missing, and no number need be one."""
    nobody = RpcReport(report_id="x", at_s=AT_S, failed_at=RpcStage.HEADER, timed_out=True, header_s=float("nan"))
    found = of_row(found_by(RULES, [nobody]), "26")
    assert found[0].english.startswith("Worker unknown ")
    assert case_of([nobody]).all(RpcReport)[0].header_s is None


def test_a_worker_is_known_by_its_rank() -> None:
    """A report that names only the rank is about the worker that has it."""
    report = RpcReport(report_id="x", at_s=AT_S, rank=3, failed_at=RpcStage.HEADER, timed_out=True)
    assert judged([report], TOPOLOGY).scope == Scope.of(ScopeKind.WORKER, "w3")
