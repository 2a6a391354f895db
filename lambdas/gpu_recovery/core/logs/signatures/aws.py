"""Log signatures of AWS: stopped reasons of ECS and Batch, capacity and interruptions of EC2, mounts of EFS."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_add(
    "ECS",
    LineKind.STORAGE_IO,
    "efs",
    r"\bresourceinitializationerror: .{0,80}\befs\b|\bfailed to resolve \"\S{1,80}\.efs\.\S{1,60}\"",
)
_add(
    "ECS",
    LineKind.CONTAINER_IMAGE,
    "registry auth|timeouterror: could not transition|containerruntimeerror|taskstoppedbeforepull",
    r"\bunable to pull (?:secrets or )?registry auth|\b(?:docker|containerruntime)timeouterror: could not transition"
    r"|\bcontainerruntimeerror: |\btaskstoppedbeforepullbeginerror",
)
_add(
    "ECS",
    LineKind.NETWORK_EXTERNAL,
    "resourceinitializationerror",
    r"\bresourceinitializationerror: .{0,300}(?:connection issue|i/o timeout|deadline exceeded|request canceled"
    r"|connection reset|no such host)",
)
_add(
    "EC2",
    LineKind.SCHEDULER_PREEMPT,
    'spot|"action"|instance-terminated|instance-stopped|marked-for|rebalance recommendation|"eventtype"',
    r"\byour spot task was interrupted|\bspotinterruption(?:error)?\b|\"action\": ?\"(?:terminate|stop|hibernate)\", ?"
    r"\"time\"|\binstance-(?:terminated|stopped)-(?:by-\w{2,20}|no-capacity|capacity-\w{2,20}|launch-group-constraint)"
    r"|\bmarked-for-(?:termination|stop)\b|\bec2 spot instance interruption warning|\bec2 instance rebalance"
    r" recommendation|\bspotinstancetermination\b|\"eventtype\": ?\"preempt\"",
)
_add(
    "node termination handler",
    LineKind.SCHEDULER_PREEMPT,
    "spot-itn-|interrupted at|cordoned at|event received|will occur between|successfully cordoned"
    "|lifecycle state received|spot itn received",
    r"\bspot-itn-[0-9a-f]{6}|\binstance (?:\S{1,40} )?will be (?:interrupted|cordoned) at "
    r"|\b(?:asg lifecycle termination|ec2 state change|aws health scheduled change) event received|\bspot itn received"
    r"|\btarget lifecycle state received|\bwill occur between .{1,80} and .{1,80} because "
    r"|\bnode successfully cordoned\b",
)
_add(
    "EC2",
    LineKind.INSUFFICIENT_RESOURCES,
    "launch following nodes|ec2 capacity|insufficientfreeaddresses|capacityexceeded|unfulfillablecapacity"
    "|requested instance type|spot capacity|job_resource_requirement|compute_environment_max_resource"
    "|insufficient_instance_capacity",
    r"\bfailed to launch following nodes|\blimited ec2 capacity|\binsufficientfreeaddressesinsubnet\b"
    r"|\breservationcapacityexceeded\b|\bunfulfillablecapacity\b|\brequested instance type"
    r" .{1,60}is not supported in your requested availability zone|\bno spot capacity available"
    r"|\bmisconfiguration:(?:job_resource_requirement|compute_environment_max_resource)"
    r"|\binsufficient_instance_capacity\b",
)
_add(
    "EC2",
    LineKind.NODE_KERNEL,
    "check failed|status checks",
    r"\b(?:instance|system) (?:reachability|status) check failed|\binstance status checks? (?:has |have )?failed",
)

SIGNATURES = tuple(_ALL.rows)
