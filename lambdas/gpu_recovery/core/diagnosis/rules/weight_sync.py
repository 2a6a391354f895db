"""Weight synchronisation rules: the seconds of each part, and lines of NCCL's own log.

Rows 7-10 of the fault catalogue, docs/diagnosis.md. In the program that the catalogue describes, "nccl" means HTTP
to and from a single server that holds the weights in memory. If both the uploads and the downloads are slow, that
server is the common part (row 9).

The word match of row 10 is published as specified. It takes `lib…` and `distributed` for InfiniBand and misses most
real lines of InfiniBand. The rules beside it decide, by the lines that NCCL, libfabric and the kernel really write.

A time-out, a closed connection and a completion with a time-out may also mean that the peer died. So they are
consequences of any other finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import NcclReport, WeightSyncReport
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import at_worker, instance_scope, name_of, worker_of
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, Weight

_PARTS = ("serialize_s", "upload_s", "download_s", "deserialize_s")

_COLLECTIVE_TIMEOUT = re.compile(
    r"(?:collective\s+)?operation\s+time(?:d\s+)?out|\bran for \d+ milliseconds before timing out"
    r"|\btimed out waiting \d+ ?ms\b|\bwatchdog\b.{0,80}\btimed?[ -]?out\b|\btimeout\b.{0,40}\bdetected by watchdog\b",
    re.IGNORECASE,
)
_PEER_OR_LINK = re.compile(
    r"\bcompletion\b.{0,80}\b(?:status|error)[ =]+(?:4|5|9|12)\b|\bremote process exited\b"
    r"|\bconnection (?:closed by|reset by|refused)\b|\bnetwork error\b"
    r"|\bunhandled system error\b|\bpeer EFA addr\b|\bremote error\b|\bnccl(?:System|Remote|Internal)Error\b",
    re.IGNORECASE,
)
_FABRIC = re.compile(
    r"\bNET/(?:IB\w*|OFI)\b|\bibv_\w+|\bmlx[45]_\w+|\binfiniband\b|\blibfabric\b|\befa(?:_|:)|\bRDMA\b|\brxr_|\bfi_\w+"
    r"|\bib_\w+:|\broce\b",
    re.IGNORECASE,
)
_FABRIC_BROKEN = re.compile(
    r"\basync(?:hronous)? event\b.{0,60}\b(?:port error|port_err|device fatal|qp fatal|lid change|err\w*)"
    r"|\b(?:port|link)\b.{0,24}\b(?:down|error|inactive)\b|\bmodule event\b|\binsufficient power\b"
    r"|\bfail(?:ed|ure)?\b.{0,80}\b(?:err(?:or|no)?[ =:(]*-?\d+|status[ =:]*-?\d+|timed out|no such device)"
    r"|\b(?:call to )?ibv_\w+ failed\b|\bfailed to process command\b|\bhealth compromised\b|\bfatal\b"
    r"|\bunable to (?:register|post|create)\b",
    re.IGNORECASE,
)
_REGISTERS = re.compile(r"\breg(?:_|\s)mr\b|_reg_mr\b|mkey|\bregister memory\b", re.IGNORECASE)
_NO_MEMORY = re.compile(r"\bcannot allocate memory\b|\b(?:errno|status|err)[ =:(]*-?12\b", re.IGNORECASE)
_HARMLESS = re.compile(
    r"\bset by environment\b|\bno such file\b|\bcannot open shared object\b|\bnot found\b|\busing internal\b"
    r"|\bACCESS_REG\b|\bfalling back\b|\bdoes not support\b|\bcollective mismatch\b",
    re.IGNORECASE,
)


def _profile(case: Case) -> Iterator[Match]:
    """Row 7: seconds of the last synchronisation of each worker."""
    last = {worker_of(case, report): report for report in case.all(WeightSyncReport)}
    for report in last.values():
        known = {part[:-2]: getattr(report, part) for part in _PARTS if getattr(report, part) is not None}
        if known:
            timings = ", ".join(f"{part} {seconds:.2f}" for part, seconds in known.items())
            yield Match(None, at_worker(case, report), evidence=(report.report_id,), values={"timings": timings})


def _slow_upload(case: Case) -> Iterator[Match]:
    for report in _slow(case, "upload_s", case.thresholds.upload_slow_s):
        yield from _one_side(case, report, "upload_s")


def _slow_download(case: Case) -> Iterator[Match]:
    for report in _slow(case, "download_s", case.thresholds.download_slow_s):
        yield from _one_side(case, report, "download_s")


def _slow(case: Case, part: str, limit_s: float) -> list[WeightSyncReport]:
    return [report for report in case.all(WeightSyncReport) if (getattr(report, part) or 0.0) > limit_s]


def _one_side(case: Case, report: WeightSyncReport, part: str) -> Iterator[Match]:
    """The network of the slow worker. The server is the rival."""
    values = {"seconds": getattr(report, part)}
    yield Match(Cause.NETWORK_SLOW, at_worker(case, report), Weight.FAIR, (report.report_id,), values)
    yield Match(Cause.METADATA_SERVER, JOB, Weight.WEAK, (report.report_id,), values)


def _slow_both_ways(case: Case) -> Iterator[Match]:
    """Uploads and downloads are both slow. The server is their common part."""
    up = _slow(case, "upload_s", case.thresholds.upload_slow_s)
    down = _slow(case, "download_s", case.thresholds.download_slow_s)
    if up and down:
        evidence = tuple(report.report_id for report in (*up, *down))
        values = {"up": len(set(up)), "down": len(set(down))}
        yield Match(Cause.METADATA_SERVER, JOB, Weight.STRONG, evidence, values)


def _specified_timeout(case: Case) -> Iterator[Match]:
    yield from _specified_lines(case, lambda line: "timeout" in line)


def _specified_error(case: Case) -> Iterator[Match]:
    yield from _specified_lines(case, lambda line: "error" in line)


def _specified_rdma(case: Case) -> Iterator[Match]:
    yield from _specified_lines(case, lambda line: "ib" in line and "fail" in line)


def _specified_lines(case: Case, matches: Callable[[str], bool]) -> Iterator[Match]:
    for report in case.all(NcclReport):
        if matches(report.line.lower()):
            yield Match(None, at_worker(case, report), evidence=(report.report_id,), values={"line": report.line})


def is_collective_timeout(line: str) -> bool:
    """Whether the watchdog of a collective timed out. A parameter with "timeout" in its name does not count."""
    return not _HARMLESS.search(line) and bool(_COLLECTIVE_TIMEOUT.search(line))


def is_peer_or_link(line: str) -> bool:
    """Whether the line says that the peer, or the link to it, is lost."""
    return not _HARMLESS.search(line) and bool(_PEER_OR_LINK.search(line)) and not is_fabric_fault(line)


def is_fabric_fault(line: str) -> bool:
    """Whether InfiniBand or EFA names a fault of its own: an adapter, a port, a queue that cannot be made."""
    if _HARMLESS.search(line) or is_memory_limit(line):
        return False
    return bool(_FABRIC.search(line)) and bool(_FABRIC_BROKEN.search(line))


def is_memory_limit(line: str) -> bool:
    """Whether memory could not be registered with the adapter.

    The cause is the limit on locked memory, and not the adapter.
    """
    return bool(_REGISTERS.search(line)) and bool(_NO_MEMORY.search(line))


def _collective_timeout(case: Case) -> Iterator[Match]:
    """A consequence: this rank or another did not take part in the collective."""
    for report in case.all(NcclReport):
        if is_collective_timeout(report.line):
            yield Match(
                Cause.NETWORK, JOB, Weight.WEAK, (report.report_id,), {"who": name_of(case, report)}, follows=True
            )


def _peer_or_link(case: Case) -> Iterator[Match]:
    for report in case.all(NcclReport):
        if is_peer_or_link(report.line):
            values = {"who": name_of(case, report), "line": report.line}
            yield Match(Cause.NETWORK, JOB, Weight.FAIR, (report.report_id,), values, follows=True)


def _fabric(case: Case) -> Iterator[Match]:
    for report in case.all(NcclReport):
        if is_fabric_fault(report.line):
            values = {"who": name_of(case, report), "line": report.line}
            yield Match(Cause.RDMA, _instance(case, report), Weight.STRONG, (report.report_id,), values)
            yield Match(Cause.NETWORK, _instance(case, report), Weight.HINT, (report.report_id,), values)


def _memory_limit(case: Case) -> Iterator[Match]:
    for report in case.all(NcclReport):
        if is_memory_limit(report.line):
            values = {"who": name_of(case, report), "line": report.line}
            yield Match(Cause.CONFIGURATION, _instance(case, report), Weight.FAIR, (report.report_id,), values)
            yield Match(Cause.RDMA, _instance(case, report), Weight.HINT, (report.report_id,), values)


def _instance(case: Case, report: NcclReport) -> Scope:
    return instance_scope(case, worker_of(case, report), case.topology.instance_of(report))


_SYNC, _NCCL = (WeightSyncReport,), (NcclReport,)
RULES: tuple[Rule, ...] = (
    Rule("7", "Weight sync profile: {timings}", "Weight sync profile: {timings}", _SYNC, _profile),
    Rule(
        "8",
        "slow upload ({seconds:.1f} s) → suspected train-side network failure or slow MetaServer",
        "上传慢 → 疑似train端网络故障或MetaServer慢",
        _SYNC,
        _slow_upload,
    ),
    Rule(
        "9",
        "slow download ({seconds:.1f} s) → suspected rollout-side network failure or slow MetaServer",
        "下载慢 → 疑似rollout端网络故障或MetaServer慢",
        _SYNC,
        _slow_download,
    ),
    Rule(
        "9+",
        "{up} uploads and {down} downloads are slow: what they have in common is the MetaServer",
        "{up}次上传和{down}次下载都慢 → 共同点是MetaServer",
        _SYNC,
        _slow_both_ways,
    ),
    Rule("10a", "NCCL timeout detected: {line}", "NCCL timeout detected: {line}", _NCCL, _specified_timeout),
    Rule("10b", "NCCL error detected: {line}", "NCCL error detected: {line}", _NCCL, _specified_error),
    Rule("10c", "RDMA failure detected: {line}", "RDMA failure detected: {line}", _NCCL, _specified_rdma),
    Rule(
        "10a+",
        "{who} timed out in a collective: the network, or a rank that did not join",
        "{who} 等待集合通信超时 → 网络故障或有rank未到达",
        _NCCL,
        _collective_timeout,
    ),
    Rule(
        "10b+",
        "{who} lost its peer or the way to it: {line}",
        "{who} 与对端断开 → 对端退出或链路故障: {line}",
        _NCCL,
        _peer_or_link,
    ),
    Rule("10c+", "{who}: RDMA fault: {line}", "{who}: RDMA故障: {line}", _NCCL, _fabric),
    Rule(
        "10m+",
        "{who} may not register so much memory with its adapter: a limit on locked memory: {line}",
        "{who} 注册内存失败 → 锁定内存上限（memlock）: {line}",
        _NCCL,
        _memory_limit,
    ),
)
