"""Rows 7-10: weight synchronisation, and NCCL's log."""

from __future__ import annotations

import pytest
from gpu_recovery.core.diagnosis.observations import NcclReport, WeightSyncReport
from gpu_recovery.core.diagnosis.rules.weight_sync import RULES, is_collective_timeout, is_fabric_fault, is_peer_or_link
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind

from tests.core.diagnosis.small_cases import AT_S, cluster, found_by, judged, of_row, rows

TOPOLOGY = cluster(nodes=4, workers=2)


def sync(worker: str, upload_s: float | None = 1.0, download_s: float | None = 1.0) -> WeightSyncReport:
    """One synchronisation."""
    return WeightSyncReport(
        report_id=f"sync-{worker}", at_s=AT_S, worker=worker, serialize_s=2.0, upload_s=upload_s, download_s=download_s
    )


def line(text: str, worker: str = "w0") -> NcclReport:
    """A line of NCCL's log."""
    return NcclReport(report_id=f"line-{worker}-{text[:9]}", at_s=AT_S, worker=worker, line=text)


def test_row_7_the_parts_are_said() -> None:
    """Those that are known; a report without any says nothing."""
    found = of_row(found_by(RULES, [sync("w0", download_s=None)]), "7")
    assert [one.english for one in found] == ["Weight sync profile: serialize 2.00, upload 1.00"]
    assert found[0].chinese == found[0].english
    assert not found_by(RULES, [WeightSyncReport(report_id="x", at_s=AT_S)])


def test_row_8_a_slow_upload_is_the_train_side_or_the_server() -> None:
    """More than 60 s; 60 are not."""
    assert "8" not in rows(found_by(RULES, [sync("w0", upload_s=60.0)]))
    found = of_row(found_by(RULES, [sync("w0", upload_s=61.0)]), "8")
    assert found[0].chinese == "上传慢 → 疑似train端网络故障或MetaServer慢"
    assert found[0].english == "slow upload (61.0 s) → suspected train-side network failure or slow MetaServer"
    verdict = judged([sync("w0", upload_s=61.0)])
    assert (verdict.cause, verdict.scope) == (Cause.NETWORK_SLOW, Scope.of(ScopeKind.WORKER, "w0"))
    assert [one.cause for one in verdict.rivals] == [Cause.METADATA_SERVER]


def test_row_9_a_slow_download_is_the_rollout_side_or_the_server() -> None:
    """More than 60 s; 60 are not."""
    assert "9" not in rows(found_by(RULES, [sync("w0", download_s=60.0)]))
    found = of_row(found_by(RULES, [sync("w0", download_s=61.0)]), "9")
    assert found[0].chinese == "下载慢 → 疑似rollout端网络故障或MetaServer慢"
    assert found[0].english == "slow download (61.0 s) → suspected rollout-side network failure or slow MetaServer"
    assert "9+" not in rows(found_by(RULES, [sync("w0", download_s=61.0)]))


@pytest.mark.parametrize(
    "reports", [[sync("w0", 90.0, 90.0)], [sync("w0", upload_s=90.0), sync("w4", download_s=90.0)]]
)
def test_row_9_both_ways_slow_is_what_they_have_in_common(reports: list[WeightSyncReport]) -> None:
    """Whether one worker says so or one on each side."""
    verdict = judged(reports, TOPOLOGY)
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.METADATA_SERVER, JOB, True)
    assert of_row(verdict.findings, "9+")[0].english == (
        "1 uploads and 1 downloads are slow: what they have in common is the MetaServer"
    )


def test_row_9_many_slow_workers_do_not_drown_the_server() -> None:
    """Sixty-four slow uploads are sixty-four places of one rival."""
    reports = [sync(f"w{n}", upload_s=90.0) for n in range(64)] + [sync("w64", download_s=90.0)]
    verdict = judged(reports)
    assert (verdict.cause, verdict.decided) == (Cause.METADATA_SERVER, True)


@pytest.mark.parametrize(
    ("text", "row", "said"),
    [
        ("NCCL Timeout after 600 s", "10a", "NCCL timeout detected"),
        ("an Error occurred", "10b", "NCCL error detected"),
        ("IB port FAILED", "10c", "RDMA failure detected"),
        ("distributed init possibly failed to load libnccl.so", "10c", "RDMA failure detected"),
    ],
)
def test_row_10_the_word_match_is_published_as_specified(text: str, row: str, said: str) -> None:
    """Whatever the case of the letters; it speaks for nobody."""
    found = of_row(found_by(RULES, [line(text)]), row)
    assert [(one.english, one.chinese, one.cause) for one in found] == [(f"{said}: {text}", f"{said}: {text}", None)]


RDMA = (
    "NCCL WARN NET/IB : Got async event : port error",
    "transport/net_ib.cc:91 NCCL WARN NET/IB : mlx5_2:1 Got async event : device fatal error",
    "misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Bad address errno 14",
    "NCCL WARN Call to ibv_modify_qp failed with error No such device",
    "infiniband efa_0: Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12",
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
    "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
    "mlx5_core 0000:12:00.0 ens1f0np0: Link down",
    "mlx5_core 0000:12:00.0: mlx5_cmd_check:810: CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), "
    "syndrome (0x0), err(-22)",
    "NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. RC: -22, Error: Invalid argument",
)
PEER = (
    "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<51026> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
    "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 32, vendor err 129",
    "NCCL WARN Net : Connection closed by remote peer, or connection reset by peer",
    "misc/socket.cc:538 NCCL WARN socketStartConnect: Connect to 10.0.0.2<47000> failed : Connection refused",
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "libfabric:451707:efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA addr: "
    "fi_addr_efa://[fe80::1]:0:1 Peer EFA addr: fi_addr_efa://[fe80::2]:0:2",
    "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.18.1",
)
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000)"
    " ran for 600060 milliseconds before timing out.",
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
    "Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582",
)
MEMORY_LIMIT = (
    "misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory errno 12",
    "infiniband mlx5_0: create_mkey_callback:131:(pid 2298062): async reg mr failed. status -12",
)
HARMLESS = (
    "NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
    "NCCL INFO NCCL_ASYNC_ERROR_HANDLING set by environment to 1.",
    "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so), using internal implementation",
    "NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory",
    "NCCL INFO Failed to open libibverbs.so[.1]",
    "NCCL INFO NET/IB : No device found.",
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
    "NCCL INFO comm 0x557fe785f7a0 rank 36 nranks 64 cudaDev 4 busId 9b000 - Init COMPLETE",
    "libfabric:462:efa:core:rxr_info_to_rxr():506<warn> FI_HMEM capability requires RDMA, which this device does not "
    "support.",
    "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), err(-22)",
    "the distributed job possibly failed to load libcudart",
    "torch.distributed.elastic: failed to import the library possibly missing",
    "net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<58683> collective mismatch error, local size 496640",
    "init_process_group(timeout=1800)",
    "loading the configuration failed with error 3",
)


@pytest.mark.parametrize("text", RDMA)
def test_row_10_real_lines_of_a_broken_fabric_are_recognised(text: str) -> None:
    """Adapters, ports and queues that name a fault of their own: that machine's."""
    assert is_fabric_fault(text)
    assert not is_peer_or_link(text)
    verdict = judged([line(text)], TOPOLOGY)
    assert (verdict.cause, verdict.scope) == (Cause.RDMA, Scope.of(ScopeKind.INSTANCE, "n0"))
    assert verdict.findings[0].english.startswith("w0: RDMA fault: ")
    assert verdict.findings[0].chinese.startswith("w0: RDMA故障: ")


@pytest.mark.parametrize("text", MEMORY_LIMIT)
def test_row_10_memory_that_may_not_be_registered_is_a_limit(text: str) -> None:
    """No adapter is broken, and no machine is left out for it."""
    verdict = judged([line(text)], TOPOLOGY)
    assert (verdict.cause, verdict.scope) == (Cause.CONFIGURATION, Scope.of(ScopeKind.INSTANCE, "n0"))
    assert verdict.findings[0].english.startswith("w0 may not register so much memory with its adapter")
    assert verdict.findings[0].chinese.startswith("w0 注册内存失败")


@pytest.mark.parametrize("text", PEER)
def test_row_10_a_lost_peer_is_a_consequence_that_names_the_network(text: str) -> None:
    """The peer may have died: whatever is found elsewhere goes before it."""
    assert is_peer_or_link(text)
    found = of_row(found_by(RULES, [line(text)]), "10b+")
    assert [(one.cause, one.scope, one.follows) for one in found] == [(Cause.NETWORK, JOB, True)]
    assert found[0].english.startswith("w0 lost its peer or the way to it: ")
    assert found[0].chinese.startswith("w0 与对端断开 → 对端退出或链路故障: ")


@pytest.mark.parametrize("text", TIMEOUT)
def test_row_10_a_collective_that_timed_out_is_a_consequence(text: str) -> None:
    """Some rank did not come."""
    assert is_collective_timeout(text)
    found = of_row(found_by(RULES, [line(text)]), "10a+")
    assert [(one.cause, one.follows) for one in found] == [(Cause.NETWORK, True)]
    assert found[0].english == "w0 timed out in a collective: the network, or a rank that did not join"
    assert found[0].chinese == "w0 等待集合通信超时 → 网络故障或有rank未到达"


@pytest.mark.parametrize("text", HARMLESS)
def test_row_10_harmless_lines_speak_for_nobody(text: str) -> None:
    """Among them those with `lib…`, `distributed` and `possibly` that the specified match takes for InfiniBand."""
    assert not [one for one in found_by(RULES, [line(text)]) if one.cause]


def test_row_10_a_broken_adapter_goes_before_a_thousand_time_outs() -> None:
    """Everybody waits for the one whose port is down."""
    reports = [line(TIMEOUT[0], f"w{n}") for n in range(8)] + [line(RDMA[0], "w5")]
    verdict = judged(reports, TOPOLOGY)
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.RDMA, Scope.of(ScopeKind.INSTANCE, "n2"), True)
