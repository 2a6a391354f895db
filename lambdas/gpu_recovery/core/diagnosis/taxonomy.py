"""Terms of a diagnosis: causes, scopes, remedies, probes and weights."""

from __future__ import annotations

from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass


class Cause(StrEnum):
    """Cause of a failure."""

    GPU_FAULT = "GPU_FAULT"  # hardware: ECC, fallen off the bus, NVLink, a probe that fails
    GPU_CONTEXT = "GPU_CONTEXT"  # a CUDA error that names no hardware
    DRIVER = "DRIVER"  # driver, fabric manager or container toolkit
    NODE_FAULT = "NODE_FAULT"  # the instance: kernel, host memory hardware, disk
    NETWORK = "NETWORK"  # between workers, or between a worker and its caller
    NETWORK_SLOW = "NETWORK_SLOW"  # the network works, but slowly
    RDMA = "RDMA"  # InfiniBand or EFA
    METADATA_SERVER = "METADATA_SERVER"  # the server between both sides of a weight synchronisation
    CALLER = "CALLER"  # the controller, or all workers at once
    WORKER_HANG = "WORKER_HANG"
    WORKER_CRASH = "WORKER_CRASH"
    WORKER_ERROR = "WORKER_ERROR"  # the worker answered with its own error
    WORKER_STARTUP = "WORKER_STARTUP"
    STRAGGLER = "STRAGGLER"  # the worker works, but slower than its peers
    UNEVEN_STAGE = "UNEVEN_STAGE"  # a pipeline stage that has more work; no instance is slow
    GPU_MEMORY = "GPU_MEMORY"  # the program asks for more than a GPU has
    HOST_MEMORY = "HOST_MEMORY"
    CPU_CONTENTION = "CPU_CONTENTION"
    EVENT_UNDELIVERED = "EVENT_UNDELIVERED"
    EVENT_UNPROCESSED = "EVENT_UNPROCESSED"
    GPU_NOT_RELEASED = "GPU_NOT_RELEASED"  # another process still holds the GPU's memory
    LOCK_HELD = "LOCK_HELD"
    APPLICATION = "APPLICATION"  # the program's own error; it would happen again
    CONFIGURATION = "CONFIGURATION"
    NUMERICAL = "NUMERICAL"  # NaN or divergence; silent data corruption is its rival
    RESOURCES = "RESOURCES"  # fewer GPUs than the program wants
    STORAGE = "STORAGE"
    EXTERNAL = "EXTERNAL"  # outside the cluster: a hub, a registry
    PREEMPTED = "PREEMPTED"  # a scheduler ended the run
    UNKNOWN = "UNKNOWN"


class ScopeKind(StrEnum):
    """Kind of place that a cause has in the run."""

    GPU = "gpu"
    RANK = "rank"
    WORKER = "worker"
    INSTANCE = "instance"
    RACK = "rack"
    JOB = "job"


SHOWN_MAX = 8
"""Upper bound of the names in the text of a scope."""


@frozen_dataclass()
class Scope:
    """Place of a cause: names of one kind, sorted, each once. The whole job has no names."""

    kind: ScopeKind
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: ScopeKind, *names: str) -> Scope:
        """Scope of these names, in any order."""
        return cls(kind, tuple(sorted(set(names))))

    def __lt__(self, other: Scope) -> bool:
        return (self.kind, self.names) < (other.kind, other.names)

    def __str__(self) -> str:
        shown = ", ".join(self.names[:SHOWN_MAX])
        more = f" and {len(self.names) - SHOWN_MAX} more" if len(self.names) > SHOWN_MAX else ""
        return f"{self.kind} {shown}{more}" if self.names else str(self.kind)


JOB = Scope(ScopeKind.JOB)
"""Scope of the whole job."""


class Remedy(StrEnum):
    """Action that follows a decided diagnosis."""

    FAIL = "FAIL"
    RESTART = "RESTART"
    WAIT = "WAIT"
    LEAVE_OUT = "LEAVE_OUT"
    CHECK = "CHECK"
    RELEASE = "RELEASE"
    PERSON = "PERSON"
    NOTHING = "NOTHING"

    @property
    def sentence(self) -> str:
        """What gpu-recovery does, as one sentence for operators and users."""
        return REMEDY_SENTENCES[self][0]

    @property
    def chinese(self) -> str:
        """The same sentence in Chinese."""
        return REMEDY_SENTENCES[self][1]


REMEDY_SENTENCES: dict[Remedy, tuple[str, str]] = {
    Remedy.FAIL: (
        "The job ends as FAILED and is not started again, because the same program would fail again.",
        "作业以 FAILED 结束, 不再重启: 同一程序会再次失败。",
    ),
    Remedy.RESTART: (
        "The job is started again. No instance is faulty, so no instance is checked or left out.",
        "重新启动作业。不归咎于任何实例, 因此不检查也不避开任何实例。",
    ),
    Remedy.WAIT: (
        "The job is started again a little later. No instance is checked.",
        "稍后重新启动作业。不检查任何实例。",
    ),
    Remedy.LEAVE_OUT: (
        "The job is started again without these instances. They are not rebooted.",
        "避开这些实例重新启动作业。不重启这些实例。",
    ),
    Remedy.CHECK: (
        "A health check tests the GPUs of these instances. An instance is rebooted or replaced only if it fails.",
        "对这些实例的 GPU 做健康检查。只有未通过检查的实例才会被重启或替换。",
    ),
    Remedy.RELEASE: (
        "The process that holds the resource is ended, and the job is started again.",
        "结束占有资源的进程, 然后重新启动作业。",
    ),
    Remedy.PERSON: (
        "The job ends. An operator must remove the cause before the job is submitted again.",
        "作业结束。须先由运维人员排除原因, 再重新提交作业。",
    ),
    Remedy.NOTHING: ("Nothing is done.", "不做任何处理。"),
}
"""What gpu-recovery does by each remedy, in English and Chinese. E-mails, reports and the API take their text here."""


class Probe(StrEnum):
    """Probe that can decide an undecided diagnosis, the cheapest first."""

    SELF_REPORT = "self-report"  # ask the worker for its state
    KERNEL_LOG = "kernel log"
    DCGM = "DCGM r1"
    PAIRWISE = "pairwise allgather"
    REBOOT = "reboot"


class Weight:
    """Support of one match for its cause, in log-odds: 2.2 is nine to one."""

    PROOF = 4.6
    STRONG = 3.0
    FAIR = 2.2
    WEAK = 1.1
    HINT = 0.5
