"""Log signatures of container images and runtimes: pulls, unpacking, creation and start of containers."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_C = LineKind.CONTAINER_IMAGE
_add("ECS", _C, "cannotpull|cannotstart|cannotcreate|cannotinspect", r"cannot(?:pull|start|create|inspect)\w*error")

_add(
    "ECS",
    _C,
    "cannotpull|cannotstart|cannotcreate|cannotinspect|containererror|pull",
    r"cannot(?:pull|start|create|inspect)\w*(?:error|container)|(?:cannot|can't) pull (?:the )?(?:container|image)",
)
_add(
    "Kubernetes",
    _C,
    "imagepull|errimage|invalidimage|createcontainer|runcontainererror",
    r"imagepullbackoff|errimage\w+|invalidimagename|createcontainer(?:config)?error|runcontainererror",
)
_add(
    "Docker",
    _C,
    "manifest|pull|image|layer|registry|toomanyrequests|repository|auth|httpreaderseeker|crane:",
    r"manifest (?:unknown|for \S{1,200} not found|invalid)|no matching manifest|pull access denied|(?:failed|error"
    r"|unable|cannot|could not).{0,16} (?:to )?(?:pull|extract|register|unpack|resolve|inspect|import|load"
    r"|download)\w*\b.{0,24}(?<!vbios )\b(?:images?|layers?|reference|tar|docker|rootfs)\b|toomanyrequests"
    r"|repository .{0,80}does not exist"
    r"|\bimage .{0,200}(?:not found(?:: manifest)?|does not exist|no such image)|no such image"
    r"|error pulling image|pull rate limit|image platform .{0,60}does not match"
    r"|filesystem layer verification failed|httpreaderseeker|registry\S{0,80}.{0,60}(?:unauthorized|denied|timeout"
    r"|connection refused|no basic auth|i/o timeout|client\.timeout|x509)|no basic auth credentials"
    r"|(?:unauthorized|denied): .{0,60}(?:repository|access|authentication|requested)|error: layer|crane: ",
)
_add(
    "Docker",
    _C,
    "oci runtime|exec format|runc|container process|error response from daemon|containerd|create"
    "|executable file not found",
    r"oci runtime (?:create|exec|start)\w* failed|exec format error|runc (?:create|run|exec) failed"
    r"|container process is already dead|error response from daemon|failed to create (?:shim|containerd|task)"
    r"|containerd.{0,40}(?:failed|error).{0,40}(?:container|task|sandbox)|exec: .{0,80}executable file not found",
)
_add(
    "Slurm",
    _C,
    "pyxis|enroot|singularity|apptainer|could not open image",
    r"pyxis:.{0,80}(?:fail|error|couldn't|could not|unable)|enroot.{0,60}(?:fail|error)|(?:singularity|apptainer"
    r"|fatal:).{0,80}(?:could not open image|unable to (?:pull|handle|build|open)|failed to (?:pull|get|mount|open"
    r"|create|open))",
)

SIGNATURES = tuple(_ALL.rows)
