"""The words of a diagnosis: causes, where they are, what to do about them, and what would tell more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What is wrong, in one word."""

    GPU_FAULT = "GPU_FAULT"  # hardware: ECC, fallen off the bus, NVLink, a probe that fails
    GPU_CONTEXT = "GPU_CONTEXT"  # a CUDA error that names no hardware
    DRIVER = "DRIVER"  # driver, fabric manager or container toolkit
    NODE_FAULT = "NODE_FAULT"  # the machine itself: kernel, host memory hardware, disk
    NETWORK = "NETWORK"  # between workers, or between them and who calls them
    NETWORK_SLOW = "NETWORK_SLOW"  # it works, but slowly
    RDMA = "RDMA"  # InfiniBand or EFA
    METADATA_SERVER = "METADATA_SERVER"  # what both sides of a weight synchronisation have in common
    CALLER = "CALLER"  # the controller, or everything at once
    WORKER_HANG = "WORKER_HANG"
    WORKER_CRASH = "WORKER_CRASH"
    WORKER_ERROR = "WORKER_ERROR"  # it answered with an error of its own
    WORKER_STARTUP = "WORKER_STARTUP"
    STRAGGLER = "STRAGGLER"  # it works, but slower than its peers
    UNEVEN_STAGE = "UNEVEN_STAGE"  # a pipeline stage that has more to do: no machine is slow
    GPU_MEMORY = "GPU_MEMORY"  # the program asks for more than a GPU has
    HOST_MEMORY = "HOST_MEMORY"
    CPU_CONTENTION = "CPU_CONTENTION"
    EVENT_UNDELIVERED = "EVENT_UNDELIVERED"
    EVENT_UNPROCESSED = "EVENT_UNPROCESSED"
    GPU_NOT_RELEASED = "GPU_NOT_RELEASED"  # somebody else still holds the GPU's memory
    LOCK_HELD = "LOCK_HELD"
    APPLICATION = "APPLICATION"  # the program's own error: it would happen again
    CONFIGURATION = "CONFIGURATION"
    NUMERICAL = "NUMERICAL"  # NaN or divergence; silent corruption is its rival
    RESOURCES = "RESOURCES"  # fewer GPUs than the program wants
    STORAGE = "STORAGE"
    EXTERNAL = "EXTERNAL"  # beyond the cluster: a hub, a registry
    PREEMPTED = "PREEMPTED"  # whoever schedules ended it
    UNKNOWN = "UNKNOWN"


class ScopeKind(StrEnum):
    """How much of the run a cause is about."""

    GPU = "gpu"
    RANK = "rank"
    WORKER = "worker"
    INSTANCE = "instance"
    RACK = "rack"
    JOB = "job"


SHOWN_MAX = 8
"""So many names of a scope are said."""


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """Where a cause is: the names of `kind`, in order, each once; none for the job as a whole."""

    kind: ScopeKind
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: ScopeKind, *names: str) -> Scope:
        """The scope of these names, whatever their order."""
        return cls(kind, tuple(sorted(set(names))))

    def __str__(self) -> str:
        shown = ", ".join(self.names[:SHOWN_MAX])
        more = f" and {len(self.names) - SHOWN_MAX} more" if len(self.names) > SHOWN_MAX else ""
        return f"{self.kind} {shown}{more}" if self.names else str(self.kind)


JOB = Scope(ScopeKind.JOB)


class Remedy(StrEnum):
    """What is done about a cause."""

    FAIL = "FAIL"  # the program would fail again: say so, with the line
    RESTART = "RESTART"  # the same again; no machine is to blame
    WAIT = "WAIT"  # again, a little later
    LEAVE_OUT = "LEAVE_OUT"  # again, without the machines of the scope; nothing is rebooted
    CHECK = "CHECK"  # the machines of the scope are suspected: check them first, then repair what fails
    RELEASE = "RELEASE"  # end whoever holds what another waits for
    PERSON = "PERSON"  # nothing that we may do
    NOTHING = "NOTHING"


class Probe(StrEnum):
    """What could be looked at next, the cheapest first."""

    SELF_REPORT = "self-report"  # ask the worker what it is doing
    KERNEL_LOG = "kernel log"
    DCGM = "DCGM r1"
    PAIRWISE = "pairwise allgather"
    REBOOT = "reboot"


class Weight:
    """How much one match of a rule speaks for its cause, in log-odds: 2.2 is nine to one."""

    PROOF = 4.6
    STRONG = 3.0
    FAIR = 2.2
    WEAK = 1.1
    HINT = 0.5
