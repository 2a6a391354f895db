"""Log signatures of Kubernetes: kubelet, its schedulers and autoscalers, Kueue and Volcano.

Most are reasons and messages of events. A mount or a pod sandbox that fails is tried again, so it is only a warning.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_WARNING = LineRole.WARNING

_add(
    "kubelet",
    LineKind.HOST_OOM,
    "systemoom|[memorypressure|taskoom|reclaim memory|resource: memory",
    r"\bsystemoom\b|node had condition: \[memorypressure|\btaskoom\b|attempting to reclaim memory"
    r"|low on resource: memory",
    LineRole.CONFIRMATION,
)
_add(
    "kubelet",
    LineKind.STORAGE_FULL,
    "low on resource|[diskpressure|attempting to reclaim|local ephemeral storage",
    r"low on resource: (?:ephemeral-storage|nodefs|imagefs|containerfs|inodes)|node had condition: \[diskpressure"
    r"|attempting to reclaim (?:inodes|ephemeral-storage|nodefs|imagefs)|exceeded its local ephemeral storage limit",
    whole=True,
)
_add(
    "kubelet",
    LineKind.STORAGE_FULL,
    "imagegcfailed|required amount of images",
    r"\bimagegcfailed\b|failed to garbage collect required amount of images",
    _WARNING,
)
_add("kubelet", LineKind.OS_LIMIT, "resource: pids|[pidpressure", r"low on resource: pids|\[pidpressure\]")
_add(
    "kubelet",
    LineKind.USER_ERROR_CONFIG,
    "configmap|secret",
    r"\b(?:configmap|secret) \"[^\"]{1,200}\" not found",
    _WARNING,
    stated=True,
)
_add(
    "kubelet",
    LineKind.STORAGE_IO,
    "failedmount|failedattachvolume|failedmapvolume|mountvolume|attach or mount volumes|multi-attach",
    r"\bfailed(?:mount|attachvolume|mapvolume)\b|\bmountvolume\.\w{1,24} failed for volume|unable to attach or mount"
    r" volumes|\bmulti-attach error for volume",
    _WARNING,
)
_add(
    "Kubernetes",
    LineKind.SCHEDULER_PREEMPT,
    "from interruption message|preempted by|evict|reason: |in order to admit|marking for deletion|node scale down"
    "|shutdown event|preempting to accommodate|drain|disrupt|nodeshutdown",
    r"\binitiating delete (?:for \w{1,16} )?from interruption message|\bperforming (?:immediate )?eviction for node"
    r"|\breason: {1,12}preempting\s{0,4}$|\bpreempted in order to admit|\bpreempted by (?:pod )?\S{1,200} on node"
    r"|\bevictionbyevictionapi\b|\bevicting pod \S|\bpod is evicted, because of|\b(?:evicted"
    r"|preempting) to accommodate a|\bmarking for deletion pod |\bdeleting pod for node scale down"
    r"|\bshutdown manager detected new shutdown event\b|\bevicteddueto(?:preempted|clusterqueuestopped"
    r"|localqueuestopped)|\b(?:pod|job|workload|task) .{0,200}was evicted (?:by|due to|because)|\bjob was evicted\b"
    r"|\bdisrupt(?:ing|ion-terminating) node",
)
_add(
    "Kubernetes",
    LineKind.SCHEDULER_TIME_LIMIT,
    "deadline|duration|failed to finish within|execution time|execution timeout",
    r"\breason: {1,12}deadlineexceeded\s{0,4}$|active on the node longer than the specified deadline"
    r"|\bstep exceeded its deadline|\bmax duration limit exceeded|\b(?:task|pipeline)run"
    r" \S{1,200} failed to finish within|\bexecution timeout \[\S{1,40}\] expired|exceeding the maximum execution time"
    r"|\bjob was active longer than specified deadline",
)
_add(
    "Kubernetes",
    LineKind.INSUFFICIENT_RESOURCES,
    "provision any more instances|enough resource|topology|exceeded quota|unavailable|resource fit failed|podsready"
    "|tasks for gang|instance type|incompatible with|could not schedule pod|failed to schedule pod|matching devices"
    "|node group size|allows to fit",
    r"\bcannot provision any more instances|\bnode didn't have enough resource: |\btopologyaffinityerror\b"
    r"|cannot be allocated with topology locality|\bis forbidden: exceeded quota|\d+/\d+ nodes are unavailable"
    r"|node\(s\) resource fit failed|allows to fit only \d+ out of|\bexceeded the podsready timeout"
    r"|not enough valid tasks for gang|\bno instance type (?:satisfied|which|met)|all"
    r" available instance types exceed limits|incompatible with (?:nodepool|provisioner)|could not schedule pod"
    r"|failed to schedule pod|insufficient matching devices|max node group size reached",
)
_add(
    "kubelet",
    LineKind.CONTAINER_IMAGE,
    "failedcreatepodsandbox|create pod sandbox",
    r"\bfailedcreatepodsandbox\b|failed to create pod sandbox",
    _WARNING,
)
_add(
    "kubelet",
    LineKind.CONTAINER_IMAGE,
    "back-off pulling|errimageneverpull|imageinspecterror|registryunavailable|signaturevalidationfailed|image tag"
    "|inspect image|starterror",
    r"\bback-off pulling image|\berrimageneverpull\b|\bimageinspecterror\b|\bregistryunavailable\b"
    r"|\bsignaturevalidationfailed\b|failed to apply default image tag|\bfailed to inspect image|\bstarterror\b",
)

_add("kubelet", LineKind.NODE_KERNEL, "kernel has deadlock", r"\bkernel has deadlock\b")

SIGNATURES = tuple(_ALL.rows)
