"""Log line rules (`core.logs`): a cause for each kind of log line, and its rival.

A cascade is only a consequence. A confirmation adds weight to the cause that it confirms. Advice supports no cause. A
warning is only a note, because the program went on after it. The first root in time has a little more weight than later
roots, because the first fault often causes the others.

A sentence that several ranks write is one match with several observations, because all of them may report one event.

A GPU out of memory is an error of the program only if no other observation explains it (row 46 of the fault
catalogue, docs/diagnosis.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.misleading_oom import explained_ooms
from gpu_recovery.core.diagnosis.observations import LogFinding
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight
from gpu_recovery.core.identifiers import FILE_PATH
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_normalization import read

LINE_MAX = 300
"""Characters of a line that a sentence quotes."""
SOURCE = "core.logs"
"""Source of these rules, as documents name it."""
_LOCAL = ("/tmp", "/var", "/dev", "/run", "/root", "/proc", "/local", "/scratch", "/opt/dlami", "/mnt/nvme")
"""Beginnings of paths that are an instance's own storage."""
_SHARED = ("checkpoint", "ckpt", "/fsx", "/efs", "/lustre", "/nfs", "/shared", "/s3")
"""Parts of paths that are shared storage: a job goes on from its checkpoint on any machine."""
_NUMBER = re.compile(r"(?:0x)?[0-9a-f]*\d[0-9a-f]*")
_EVIDENCE = (LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE, LineRole.WARNING)
"""Roles of lines that support a cause."""
_PLACED = frozenset(
    {
        Cause.GPU_FAULT,
        Cause.GPU_CONTEXT,
        Cause.DRIVER,
        Cause.NODE_FAULT,
        Cause.RDMA,
        Cause.WORKER_CRASH,
        Cause.HOST_MEMORY,
        Cause.STORAGE,
        Cause.WORKER_STARTUP,
    }
)
"""Causes with the scope of the instance that wrote the log. Other causes have the scope of the job."""


_OF_THE_PROGRAM = frozenset(
    {Cause.APPLICATION, Cause.CONFIGURATION, Cause.GPU_MEMORY, Cause.HOST_MEMORY, Cause.NUMERICAL}
)
"""Causes with which a rank ends by itself, so that the other ranks wait for it."""


@dataclass(frozen=True, slots=True)
class _KindMeaning:
    """Meaning of a kind of log line: its cause and weight, its rival, and its words in both languages."""

    cause: Cause
    weight: float
    english: str
    chinese: str
    rival: Cause | None = None


_MEANINGS: Mapping[LineKind, _KindMeaning] = {
    LineKind.USER_ERROR_CONFIG: _KindMeaning(
        Cause.CONFIGURATION, Weight.FAIR, "configuration or input", "配置或输入有误"
    ),
    LineKind.USER_ERROR_DEPENDENCY: _KindMeaning(
        Cause.CONFIGURATION, Weight.STRONG, "a library is missing", "缺少依赖库"
    ),
    LineKind.USER_ERROR_CHECKPOINT: _KindMeaning(
        Cause.APPLICATION, Weight.FAIR, "the checkpoint does not load", "检查点无法加载", Cause.STORAGE
    ),
    LineKind.NUMERICAL_NAN: _KindMeaning(
        Cause.NUMERICAL, Weight.STRONG, "NaN or divergence", "出现 NaN 或发散", Cause.GPU_FAULT
    ),
    LineKind.DEVICE_ASSERT: _KindMeaning(
        Cause.APPLICATION, Weight.STRONG, "an assertion on the GPU failed", "GPU 端断言失败"
    ),
    LineKind.COLLECTIVE_MISMATCH: _KindMeaning(
        Cause.APPLICATION, Weight.STRONG, "ranks call different collectives", "各 rank 的集合通信不一致"
    ),
    LineKind.CUDA_OOM: _KindMeaning(Cause.GPU_MEMORY, Weight.STRONG, "the GPU is out of memory", "GPU 显存不足"),
    LineKind.PROCESS_CRASH: _KindMeaning(
        Cause.WORKER_CRASH, Weight.FAIR, "a process crashed", "进程崩溃", Cause.APPLICATION
    ),
    LineKind.INSUFFICIENT_RESOURCES: _KindMeaning(Cause.RESOURCES, Weight.STRONG, "too few resources", "资源不足"),
    LineKind.HOST_OOM: _KindMeaning(Cause.HOST_MEMORY, Weight.STRONG, "the host is out of memory", "主机内存不足"),
    LineKind.SHM_EXHAUSTED: _KindMeaning(Cause.CONFIGURATION, Weight.STRONG, "shared memory is full", "共享内存不足"),
    LineKind.OS_LIMIT: _KindMeaning(
        Cause.CONFIGURATION, Weight.FAIR, "a limit of the system is reached", "达到操作系统限制"
    ),
    LineKind.PORT_IN_USE: _KindMeaning(
        Cause.WORKER_STARTUP, Weight.FAIR, "a port is taken", "端口被占用", Cause.CONFIGURATION
    ),
    LineKind.STORAGE_FULL: _KindMeaning(Cause.STORAGE, Weight.STRONG, "a disk or quota is full", "磁盘或配额已满"),
    LineKind.STORAGE_IO: _KindMeaning(Cause.STORAGE, Weight.FAIR, "storage fails", "存储读写失败"),
    LineKind.RDMA_MEMLOCK_CONFIG: _KindMeaning(
        Cause.CONFIGURATION, Weight.FAIR, "memory cannot be registered", "内存注册失败 (memlock)", Cause.RDMA
    ),
    LineKind.DRIVER_ENVIRONMENT: _KindMeaning(
        Cause.DRIVER, Weight.STRONG, "driver or its environment", "驱动或其环境异常"
    ),
    LineKind.CONTAINER_IMAGE: _KindMeaning(
        Cause.EXTERNAL, Weight.FAIR, "a container does not start", "容器或镜像无法启动", Cause.CONFIGURATION
    ),
    LineKind.SCHEDULER_PREEMPT: _KindMeaning(Cause.PREEMPTED, Weight.STRONG, "preempted", "被抢占"),
    LineKind.SCHEDULER_TIME_LIMIT: _KindMeaning(
        Cause.CONFIGURATION, Weight.STRONG, "it reached its time limit", "达到时间限制"
    ),
    LineKind.PROCESS_KILLED_UNKNOWN: _KindMeaning(
        Cause.WORKER_CRASH, Weight.WEAK, "killed, for an unknown reason", "进程被杀, 原因未知", Cause.HOST_MEMORY
    ),
    LineKind.HARDWARE_GPU_ECC: _KindMeaning(Cause.GPU_FAULT, Weight.STRONG, "an ECC error", "ECC 错误"),
    LineKind.HARDWARE_GPU_LOST: _KindMeaning(Cause.GPU_FAULT, Weight.STRONG, "a GPU is lost", "GPU 丢失"),
    LineKind.HARDWARE_GPU_RESET: _KindMeaning(Cause.GPU_FAULT, Weight.STRONG, "a GPU must be reset", "GPU 需要重置"),
    LineKind.HARDWARE_NVLINK: _KindMeaning(Cause.GPU_FAULT, Weight.STRONG, "an NVLink error", "NVLink 错误"),
    LineKind.HARDWARE_THERMAL: _KindMeaning(Cause.GPU_FAULT, Weight.WEAK, "too hot", "过热", Cause.STRAGGLER),
    LineKind.RUNTIME_ERROR_CUDA: _KindMeaning(
        Cause.GPU_CONTEXT, Weight.FAIR, "a CUDA error", "未指明硬件的 CUDA 错误", Cause.APPLICATION
    ),
    LineKind.XID_APPLICATION: _KindMeaning(
        Cause.APPLICATION, Weight.FAIR, "an XID that applications cause", "应用引起的 XID", Cause.GPU_FAULT
    ),
    LineKind.XID_CASCADE: _KindMeaning(
        Cause.GPU_FAULT, Weight.WEAK, "an XID that follows another", "由其他 XID 引发的 XID"
    ),
    LineKind.NODE_KERNEL: _KindMeaning(
        Cause.NODE_FAULT, Weight.FAIR, "the kernel of the host reports an error", "节点内核异常"
    ),
    LineKind.NETWORK_RDMA: _KindMeaning(Cause.RDMA, Weight.FAIR, "RDMA fails", "RDMA 故障", Cause.WORKER_CRASH),
    LineKind.NETWORK_PEER_EXIT: _KindMeaning(
        Cause.NETWORK, Weight.WEAK, "a peer has disconnected", "对端退出", Cause.WORKER_CRASH
    ),
    LineKind.NETWORK_EXTERNAL: _KindMeaning(
        Cause.EXTERNAL, Weight.FAIR, "a service outside the cluster", "集群外部服务故障"
    ),
    LineKind.RENDEZVOUS_TIMEOUT: _KindMeaning(
        Cause.NETWORK, Weight.WEAK, "ranks could not connect to each other", "rank 之间未能会合", Cause.WORKER_STARTUP
    ),
    LineKind.COLLECTIVE_TIMEOUT: _KindMeaning(
        Cause.NETWORK, Weight.WEAK, "a collective timed out", "集合通信超时", Cause.WORKER_HANG
    ),
}


def _findings(case: Case, *roles: LineRole) -> Iterator[tuple[LogFinding, LineKind, _KindMeaning]]:
    """Log findings of these roles with a known kind, the oldest first. Unknown kinds are skipped."""
    known = {kind.value: kind for kind in _MEANINGS}
    for report in case.all(LogFinding):
        kind = known.get(report.kind)
        if kind is not None and report.role in roles:
            yield report, kind, _MEANINGS[kind]


def _scope(case: Case, report: LogFinding, cause: Cause) -> Scope:
    if report.kind == LineKind.STORAGE_FULL and case.computed_once(_full_storage_is_shared):
        return JOB
    instance = case.topology.instance_of(report) if cause in _PLACED else ""
    return Scope.of(ScopeKind.INSTANCE, instance) if instance else JOB


def _full_storage_is_shared(case: Case) -> bool:
    """Return whether the storage that is full belongs to no single instance.

    The evidence is the path of a checkpoint, which another machine must be able to read, a path of a shared file
    system, or full storage on several instances. A path below `_LOCAL` is an instance's own.
    """
    found = _findings(case, LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE)
    reports = [report for report, kind, _ in found if kind is LineKind.STORAGE_FULL]
    paths = [match[0].lower() for report in reports if (match := FILE_PATH.search(report.line))]
    if any(path.startswith(_LOCAL) for path in paths):
        return False
    named = any(word in path for path in paths for word in _SHARED)
    return named or len({case.topology.instance_of(report) for report in reports}) > 1


def _values(report: LogFinding) -> dict[str, str]:
    return {"who": report.reporter or "the job", "line": report.line[:LINE_MAX]}


def _note(report: LogFinding, *more: str) -> Match:
    return Match(None, JOB, 0.0, (report.report_id, *more), _values(report))


def _match(case: Case, report: LogFinding, meaning: _KindMeaning, cause: Cause, weight: float) -> Match:
    scope = _scope(case, report, cause)
    return Match(cause, scope, weight, (report.report_id,), _values(report), follows=report.role == LineRole.CASCADE)


def _finder(kind: LineKind) -> Callable[[Case], Iterator[Match]]:
    """Function of the rule of one kind. Each line supports its cause, and with less weight its rival."""

    def find(case: Case) -> Iterator[Match]:
        ooms = case.computed_once(explained_ooms) if kind is LineKind.CUDA_OOM else {}
        for report, line_kind, meaning in _findings(case, *_EVIDENCE):
            if line_kind is not kind or _is_exception(report):
                continue
            if report.role == LineRole.WARNING:
                yield _note(report)
                continue
            explained = ooms.get(report.report_id)
            if explained is not None:  # a note only: the explanation supports the cause
                yield _note(report, *explained.evidence)
                continue
            if report.generic:  # may repeat a fault that another observation names
                yield replace(_match(case, report, meaning, meaning.cause, Weight.WEAK), follows=True)
                continue
            yield _match(case, report, meaning, meaning.cause, meaning.weight)
            if meaning.rival is not None:
                yield _match(case, report, meaning, meaning.rival, min(Weight.HINT, meaning.weight / 2))

    return find


def _is_exception(report: LogFinding) -> bool:
    """Return whether the line is an exception of the program that no signature explains, such as a KeyError."""
    return report.generic and report.kind == LineKind.USER_ERROR_CONFIG


def program_errors(case: Case) -> Iterator[tuple[LogFinding, bool]]:
    """Yield the first errors of the program itself, and whether each is an exception that no signature explains."""
    for report, _, meaning in _findings(case, LineRole.ROOT):
        if _is_exception(report) or (meaning.cause in _OF_THE_PROGRAM and not report.generic):
            yield report, report.generic


def _exceptions(case: Case) -> Iterator[Match]:
    """An exception of the program itself. It may repeat a fault that another observation names."""
    for report, _, meaning in _findings(case, *_EVIDENCE):
        if _is_exception(report):
            yield replace(_match(case, report, meaning, Cause.APPLICATION, Weight.WEAK), follows=True)


def _confirmed(case: Case) -> Iterator[Match]:
    """A line that confirms another finding adds weight to its cause."""
    for report, kind, meaning in _findings(case, LineRole.CONFIRMATION):
        if kind is not LineKind.CUDA_OOM:
            yield _match(case, report, meaning, meaning.cause, Weight.WEAK)


def _first_root(case: Case) -> Iterator[Match]:
    """The first root in time. Later errors may be its consequences."""
    explained = case.computed_once(explained_ooms)
    for report, _, meaning in _findings(case, LineRole.ROOT):
        if not report.generic and report.report_id not in explained:
            yield _match(case, report, meaning, meaning.cause, Weight.HINT)
            return


def _each_sentence_once(find: Callable[[Case], Iterable[Match]]) -> Callable[[Case], Iterator[Match]]:
    """Return `find` with the matches of one sentence joined: the first match, with the observations of all of them.

    Sentences are the same if they differ only in numbers and in the marks of ranks and hosts.
    """

    def find_once(case: Case) -> Iterator[Match]:
        of_sentence: dict[tuple[object, ...], Match] = {}
        for match in find(case):
            sentence = _NUMBER.sub("#", read(match.values["line"]).whole)
            key = (match.cause, match.scope, match.weight, match.follows, sentence)
            first = of_sentence.get(key)
            of_sentence[key] = match if first is None else replace(first, evidence=(*first.evidence, *match.evidence))
        yield from of_sentence.values()

    return find_once


def _rule(kind: LineKind, meaning: _KindMeaning) -> Rule:
    english, chinese = f"{{who}}: {meaning.english}: {{line}}", f"{{who}}: {meaning.chinese}: {{line}}"
    return Rule(f"log {kind}", english, chinese, (LogFinding,), _each_sentence_once(_finder(kind)), SOURCE)


RULES: tuple[Rule, ...] = (
    *(_rule(kind, meaning) for kind, meaning in _MEANINGS.items()),
    Rule(
        "log exception",
        "{who}: an exception of the program: {line}",
        "{who}: 程序抛出异常: {line}",
        (LogFinding,),
        _each_sentence_once(_exceptions),
        SOURCE,
    ),
    Rule(
        "log confirmed",
        "{who}: confirmed: {line}",
        "{who}: 已确认: {line}",
        (LogFinding,),
        _each_sentence_once(_confirmed),
        SOURCE,
    ),
    Rule(
        "log first", "{who}: the first error: {line}", "{who}: 最早的错误: {line}", (LogFinding,), _first_root, SOURCE
    ),
)
