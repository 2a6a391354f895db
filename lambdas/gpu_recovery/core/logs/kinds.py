"""Kinds and roles of log lines, classes of failures, and the retry policy of each class."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class LineKind(StrEnum):
    """What a log line reports."""

    BENIGN = "benign"
    USER_ERROR_CONFIG = "user_error_config"
    USER_ERROR_DEPENDENCY = "user_error_dependency"
    USER_ERROR_CHECKPOINT = "user_error_checkpoint"
    NUMERICAL_NAN = "numerical_nan"
    DEVICE_ASSERT = "device_assert"
    COLLECTIVE_MISMATCH = "collective_mismatch"
    CUDA_OOM = "cuda_oom"
    PROCESS_CRASH = "process_crash"
    INSUFFICIENT_RESOURCES = "insufficient_resources"
    HOST_OOM = "host_oom"
    SHM_EXHAUSTED = "shm_exhausted"
    OS_LIMIT = "os_limit"
    PORT_IN_USE = "port_in_use"
    STORAGE_FULL = "storage_full"
    STORAGE_IO = "storage_io"
    RDMA_MEMLOCK_CONFIG = "rdma_memlock_config"
    DRIVER_ENVIRONMENT = "driver_environment"
    CONTAINER_IMAGE = "container_image"
    SCHEDULER_PREEMPT = "scheduler_preempt"
    SCHEDULER_TIME_LIMIT = "scheduler_time_limit"
    PROCESS_KILLED_UNKNOWN = "process_killed_unknown"
    HARDWARE_GPU_ECC = "hardware_gpu_ecc"
    HARDWARE_GPU_LOST = "hardware_gpu_lost"
    HARDWARE_GPU_RESET = "hardware_gpu_reset"
    HARDWARE_NVLINK = "hardware_nvlink"
    HARDWARE_THERMAL = "hardware_thermal"
    RUNTIME_ERROR_CUDA = "runtime_error_cuda"  # a CUDA error that names no hardware
    XID_APPLICATION = "xid_application"  # an XID that the application causes
    XID_CASCADE = "xid_cascade"  # an XID that follows another
    NODE_KERNEL = "node_kernel"
    NETWORK_RDMA = "network_rdma"
    NETWORK_PEER_EXIT = "network_peer_exit"  # a peer's end, seen from this side
    NETWORK_EXTERNAL = "network_external"  # beyond the cluster
    RENDEZVOUS_TIMEOUT = "rendezvous_timeout"
    COLLECTIVE_TIMEOUT = "collective_timeout"


class LineRole(StrEnum):
    """What a line means for the search of the cause."""

    ROOT = "root"  # may be the cause
    CASCADE = "cascade"  # a consequence of another failure: not the cause while any rank has a root
    CONFIRMATION = "confirmation"  # confirms what other lines show; the cause only if no root is found
    WARNING = "warning"  # a state or a warning after which the program went on: a note
    ADVICE = "advice"  # a suggestion or assumption of the program that printed the line: never the cause


class LogClass(StrEnum):
    """The origin of a failure."""

    RESOURCES = "insufficient resources"
    USER = "user error"
    RUNTIME = "runtime error"  # of the application or its limits
    UNKNOWN = "unknown"
    HARDWARE = "hardware or node"
    CASCADE = "cascade"
    NETWORK = "network or a peer's death"
    EXTERNAL = "external dependency"
    STORAGE = "storage"
    STORAGE_RESOURCES = "storage or resources"
    ENVIRONMENT = "node environment"
    NUMERICAL = "numerical"
    SCHEDULER = "infrastructure policy"
    NONE = "none"


_KINDS: Mapping[LogClass, tuple[LineKind, ...]] = {
    LogClass.RESOURCES: (LineKind.INSUFFICIENT_RESOURCES,),
    LogClass.USER: (
        LineKind.USER_ERROR_CONFIG,
        LineKind.USER_ERROR_CHECKPOINT,
        LineKind.USER_ERROR_DEPENDENCY,
        LineKind.DEVICE_ASSERT,
        LineKind.COLLECTIVE_MISMATCH,
    ),
    LogClass.RUNTIME: (
        LineKind.XID_APPLICATION,
        LineKind.RUNTIME_ERROR_CUDA,
        LineKind.PROCESS_CRASH,
        LineKind.CUDA_OOM,
        LineKind.HOST_OOM,
        LineKind.SHM_EXHAUSTED,
        LineKind.OS_LIMIT,
        LineKind.PORT_IN_USE,
        LineKind.RDMA_MEMLOCK_CONFIG,
    ),
    LogClass.UNKNOWN: (LineKind.PROCESS_KILLED_UNKNOWN,),
    LogClass.HARDWARE: (
        LineKind.HARDWARE_GPU_LOST,
        LineKind.HARDWARE_GPU_ECC,
        LineKind.HARDWARE_GPU_RESET,
        LineKind.HARDWARE_NVLINK,
        LineKind.HARDWARE_THERMAL,
        LineKind.NODE_KERNEL,
    ),
    LogClass.CASCADE: (LineKind.XID_CASCADE,),
    LogClass.NETWORK: (
        LineKind.NETWORK_RDMA,
        LineKind.NETWORK_PEER_EXIT,
        LineKind.COLLECTIVE_TIMEOUT,
        LineKind.RENDEZVOUS_TIMEOUT,
    ),
    LogClass.EXTERNAL: (LineKind.NETWORK_EXTERNAL, LineKind.CONTAINER_IMAGE),
    LogClass.STORAGE: (LineKind.STORAGE_IO,),
    LogClass.STORAGE_RESOURCES: (LineKind.STORAGE_FULL,),
    LogClass.ENVIRONMENT: (LineKind.DRIVER_ENVIRONMENT,),
    LogClass.NUMERICAL: (LineKind.NUMERICAL_NAN,),
    LogClass.SCHEDULER: (LineKind.SCHEDULER_PREEMPT, LineKind.SCHEDULER_TIME_LIMIT),
    LogClass.NONE: (LineKind.BENIGN,),
}
CLASSES: Mapping[LineKind, LogClass] = {kind: log_class for log_class, kinds in _KINDS.items() for kind in kinds}
"""The class of failures of each kind."""

_POLICIES: Mapping[LogClass, str] = {
    LogClass.RESOURCES: "wait 60 s, then start the next attempt",
    LogClass.USER: "no automatic retry",
    LogClass.RUNTIME: "one restart",
    LogClass.UNKNOWN: "look for evidence: the stop reason of ECS, the kernel log",
    LogClass.HARDWARE: "drain, reboot and check the instance; run again elsewhere",
    LogClass.CASCADE: "follow the error that came before",
    LogClass.NETWORK: "look for a root cause on the other ranks first, then test the network in pairs",
    LogClass.EXTERNAL: "retry, with growing intervals",
    LogClass.STORAGE: "retry; failures on all instances mean shared storage, on one instance local storage",
    LogClass.STORAGE_RESOURCES: "free space first, then retry",
    LogClass.ENVIRONMENT: "reboot or replace the instance",
    LogClass.NUMERICAL: "no automatic retry; repeat the step elsewhere: if it passes, suspect data corruption",
    LogClass.SCHEDULER: "queue again",
    LogClass.NONE: "nothing",
}
_EXCEPTIONS: Mapping[LineKind, str] = {
    LineKind.SCHEDULER_TIME_LIMIT: "no automatic retry: the job would reach its limit again",
    LineKind.CUDA_OOM: "one restart, if no other process on the GPU and no lost event explains it",
    LineKind.HOST_OOM: "one restart, if no other process on the instance explains it",
}


def policy_of(kind: LineKind) -> str:
    """Return the retry policy for failures of this kind, as text."""
    return _EXCEPTIONS.get(kind, _POLICIES[CLASSES[kind]])
