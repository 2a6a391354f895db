"""What lines of logs say (`core.logs`): a cause for each kind of line, and the rival that it must be told apart from.

A cascade only follows; a confirmation adds to what it confirms; advice says nothing. The first root in time has a
little more weight than those after it: what breaks first breaks the rest. A GPU that is out of memory is the program's
doing only where nothing explains it away (row 46).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.misleading_oom import explained_ooms
from gpu_recovery.core.diagnosis.observations import LogFinding
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight
from gpu_recovery.core.logs.kinds import Kind, Role

LINE_MAX = 300
"""So much of a line is quoted."""
SOURCE = "core.logs"
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
"""The causes that are on the machine whose log it is; any other is the job's."""


@dataclass(frozen=True, slots=True)
class _Says:
    """What a kind speaks for, how much, what else it may be, and the words for it."""

    cause: Cause
    weight: float
    english: str
    chinese: str
    rival: Cause | None = None


_SAYS: Mapping[Kind, _Says] = {
    Kind.USER_ERROR_CONFIG: _Says(Cause.CONFIGURATION, Weight.FAIR, "configuration or input", "配置或输入有误"),
    Kind.USER_ERROR_DEPENDENCY: _Says(Cause.CONFIGURATION, Weight.STRONG, "a library is missing", "缺少依赖库"),
    Kind.USER_ERROR_CHECKPOINT: _Says(
        Cause.APPLICATION, Weight.FAIR, "the checkpoint does not load", "检查点无法加载", Cause.STORAGE
    ),
    Kind.NUMERICAL_NAN: _Says(Cause.NUMERICAL, Weight.STRONG, "NaN or divergence", "出现 NaN 或发散", Cause.GPU_FAULT),
    Kind.DEVICE_ASSERT: _Says(Cause.APPLICATION, Weight.STRONG, "an assertion on the GPU failed", "GPU 端断言失败"),
    Kind.COLLECTIVE_MISMATCH: _Says(
        Cause.APPLICATION, Weight.STRONG, "ranks call different collectives", "各 rank 的集合通信不一致"
    ),
    Kind.CUDA_OOM: _Says(Cause.GPU_MEMORY, Weight.STRONG, "the GPU is out of memory", "GPU 显存不足"),
    Kind.PROCESS_CRASH: _Says(Cause.WORKER_CRASH, Weight.FAIR, "a process crashed", "进程崩溃", Cause.APPLICATION),
    Kind.INSUFFICIENT_RESOURCES: _Says(Cause.RESOURCES, Weight.STRONG, "too few resources", "资源不足"),
    Kind.HOST_OOM: _Says(Cause.HOST_MEMORY, Weight.STRONG, "the machine is out of memory", "主机内存不足"),
    Kind.SHM_EXHAUSTED: _Says(Cause.CONFIGURATION, Weight.STRONG, "shared memory is full", "共享内存不足"),
    Kind.OS_LIMIT: _Says(Cause.CONFIGURATION, Weight.FAIR, "a limit of the system is reached", "达到操作系统限制"),
    Kind.PORT_IN_USE: _Says(Cause.WORKER_STARTUP, Weight.FAIR, "a port is taken", "端口被占用", Cause.CONFIGURATION),
    Kind.STORAGE_FULL: _Says(Cause.STORAGE, Weight.STRONG, "a disk or quota is full", "磁盘或配额已满"),
    Kind.STORAGE_IO: _Says(Cause.STORAGE, Weight.FAIR, "storage fails", "存储读写失败"),
    Kind.RDMA_MEMLOCK_CONFIG: _Says(
        Cause.CONFIGURATION, Weight.FAIR, "memory cannot be registered", "内存注册失败 (memlock)", Cause.RDMA
    ),
    Kind.DRIVER_ENVIRONMENT: _Says(Cause.DRIVER, Weight.STRONG, "driver or its environment", "驱动或其环境异常"),
    Kind.CONTAINER_IMAGE: _Says(
        Cause.EXTERNAL, Weight.FAIR, "a container does not start", "容器或镜像无法启动", Cause.CONFIGURATION
    ),
    Kind.SCHEDULER_PREEMPT: _Says(Cause.PREEMPTED, Weight.STRONG, "preempted", "被抢占"),
    Kind.SCHEDULER_TIME_LIMIT: _Says(Cause.CONFIGURATION, Weight.STRONG, "its time limit ended it", "达到时间限制"),
    Kind.PROCESS_KILLED_UNKNOWN: _Says(
        Cause.WORKER_CRASH, Weight.WEAK, "killed, nobody says why", "进程被杀, 原因未知", Cause.HOST_MEMORY
    ),
    Kind.HARDWARE_GPU_ECC: _Says(Cause.GPU_FAULT, Weight.STRONG, "an ECC error", "ECC 错误"),
    Kind.HARDWARE_GPU_LOST: _Says(Cause.GPU_FAULT, Weight.STRONG, "a GPU is lost", "GPU 丢失"),
    Kind.HARDWARE_GPU_RESET: _Says(Cause.GPU_FAULT, Weight.STRONG, "a GPU must be reset", "GPU 需要重置"),
    Kind.HARDWARE_NVLINK: _Says(Cause.GPU_FAULT, Weight.STRONG, "an NVLink error", "NVLink 错误"),
    Kind.HARDWARE_THERMAL: _Says(Cause.GPU_FAULT, Weight.WEAK, "too hot", "过热", Cause.STRAGGLER),
    Kind.RUNTIME_ERROR_CUDA: _Says(
        Cause.GPU_CONTEXT, Weight.FAIR, "a CUDA error", "未指明硬件的 CUDA 错误", Cause.APPLICATION
    ),
    Kind.XID_APPLICATION: _Says(
        Cause.APPLICATION, Weight.FAIR, "an XID that applications cause", "应用引起的 XID", Cause.GPU_FAULT
    ),
    Kind.XID_CASCADE: _Says(Cause.GPU_FAULT, Weight.WEAK, "an XID that follows another", "由其他 XID 引发的 XID"),
    Kind.NODE_KERNEL: _Says(Cause.NODE_FAULT, Weight.FAIR, "the machine's kernel complains", "节点内核异常"),
    Kind.NETWORK_RDMA: _Says(Cause.RDMA, Weight.FAIR, "RDMA fails", "RDMA 故障", Cause.WORKER_CRASH),
    Kind.NETWORK_PEER_EXIT: _Says(Cause.NETWORK, Weight.WEAK, "a peer is gone", "对端退出", Cause.WORKER_CRASH),
    Kind.NETWORK_EXTERNAL: _Says(Cause.EXTERNAL, Weight.FAIR, "beyond the cluster", "集群外部服务故障"),
    Kind.RENDEZVOUS_TIMEOUT: _Says(
        Cause.NETWORK, Weight.WEAK, "ranks did not find each other", "rank 之间未能会合", Cause.WORKER_STARTUP
    ),
    Kind.COLLECTIVE_TIMEOUT: _Says(
        Cause.NETWORK, Weight.WEAK, "a collective timed out", "集合通信超时", Cause.WORKER_HANG
    ),
}


def _findings(case: Case, *roles: Role) -> Iterator[tuple[LogFinding, Kind, _Says]]:
    """The findings of these roles whose kind speaks for anything, the oldest first. Unknown words are passed over."""
    known = {kind.value: kind for kind in _SAYS}
    for report in case.all(LogFinding):
        kind = known.get(report.kind)
        if kind is not None and report.role in roles:
            yield report, kind, _SAYS[kind]


def _scope(case: Case, report: LogFinding, cause: Cause) -> Scope:
    instance = case.topology.instance_of(report) if cause in _PLACED else ""
    return Scope.of(ScopeKind.INSTANCE, instance) if instance else JOB


def _match(case: Case, report: LogFinding, says: _Says, cause: Cause, weight: float) -> Match:
    values = {"who": report.who or "the job", "line": report.line[:LINE_MAX]}
    scope = _scope(case, report, cause)
    return Match(cause, scope, weight, (report.report_id,), values, follows=report.role == Role.CASCADE)


def _finder(kind: Kind) -> Callable[[Case], Iterator[Match]]:
    """The rule of one kind: each line speaks for its cause, and less for the rival."""

    def find(case: Case) -> Iterator[Match]:
        ooms = case.once(explained_ooms) if kind is Kind.CUDA_OOM else {}
        for report, found, says in _findings(case, Role.ROOT, Role.CONFIRMATION, Role.CASCADE):
            if found is not kind:
                continue
            explained = ooms.get(report.report_id)
            if explained is not None:  # said, but it speaks for nobody: what explains it does
                values = {"who": report.who or "the job", "line": report.line[:LINE_MAX]}
                yield Match(None, JOB, 0.0, (report.report_id, *explained.evidence), values)
                continue
            if report.generic:  # it is as likely the voice of what somebody else's report names
                yield replace(_match(case, report, says, says.cause, Weight.WEAK), follows=True)
                continue
            yield _match(case, report, says, says.cause, says.weight)
            if says.rival is not None:
                yield _match(case, report, says, says.rival, min(Weight.HINT, says.weight / 2))

    return find


def _confirmed(case: Case) -> Iterator[Match]:
    """A line that proves what is seen elsewhere adds to it."""
    for report, kind, says in _findings(case, Role.CONFIRMATION):
        if kind is not Kind.CUDA_OOM:
            yield _match(case, report, says, says.cause, Weight.WEAK)


def _came_first(case: Case) -> Iterator[Match]:
    """The first root in time: what comes after it may be its consequence."""
    explained = case.once(explained_ooms)
    for report, _, says in _findings(case, Role.ROOT):
        if not report.generic and report.report_id not in explained:
            yield _match(case, report, says, says.cause, Weight.HINT)
            return


def _rule(kind: Kind, says: _Says) -> Rule:
    english, chinese = f"{{who}}: {says.english}: {{line}}", f"{{who}}: {says.chinese}: {{line}}"
    return Rule(f"log {kind}", english, chinese, (LogFinding,), _finder(kind), SOURCE)


RULES: tuple[Rule, ...] = (
    *(_rule(kind, says) for kind, says in _SAYS.items()),
    Rule("log confirmed", "{who}: confirmed: {line}", "{who}: 已确认: {line}", (LogFinding,), _confirmed, SOURCE),
    Rule(
        "log first", "{who}: the first error: {line}", "{who}: 最早的错误: {line}", (LogFinding,), _came_first, SOURCE
    ),
)
