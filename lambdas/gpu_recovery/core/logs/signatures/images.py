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
    r"|download)\w*\b.{0,24}(?<!vbios )\b(?:images?|layers?|reference|tar|docker|rootfs)\b"
    r"|toomanyrequests(?!exception)|repository .{0,80}does not exist|\bimage"
    r" \"?(?!state)\S{1,200}?\"?:?(?: \S{1,20}){0,2}? (?:not found|does not exist)|no such image|error pulling image"
    r"|pull rate limit|image platform .{0,60}does not match|filesystem layer verification failed|httpreaderseeker"
    r"|registry\S{0,80}.{0,60}(?:unauthorized|denied|timeout|connection refused|no basic auth|i/o timeout"
    r"|client\.timeout|x509)|no basic auth credentials|(?:unauthorized|denied): .{0,60}(?:repository|access"
    r"|authentication|requested)|error: layer|crane: ",
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
    "Docker",
    _C,
    "no image found in|manifest"
    "|denied: requested|reference format|oauth token|anonymous token|commit digest|extraction snapshot"
    "|parent snapshot|content digest|unexpected status|pulling from host|resolve reference|unknown blob|media type"
    "|mediatype|failed to authorize",
    r"\bno match for platform in manifest|\bno image found in (?:image index|manifest list) for|layers from manifest"
    r" don't match|manifest verification failed|\bdenied: requested access to the resource"
    r"|\binvalid reference format|failed to fetch (?:oauth|anonymous) token|\bunexpected commit digest sha"
    r"|failed to prepare extraction snapshot|parent snapshot \S{1,120} does not exist|content digest sha\S{1,90}: not"
    r" found|unexpected status (?:code |from \w{2,6} request to )https?://\S{1,200}/v2/|\bpulling from host \S{1,120}"
    r" failed|failed to resolve reference \"|\bunknown blob\b|unsupported (?:manifest )?media ?type|failed to"
    r" authorize:",
)
_add(
    "runc",
    _C,
    "to rootfs at|set in config.json failed|container init|crun: |attempted to invoke|starting container process",
    r"\berror mounting \"[^\"]{1,300}\" to rootfs at|chdir to cwd .{1,200} set in config\.json failed"
    r"|\berror during container init: |\bstarting container process caused|\bcrun: (?!warning)|oci runtime attempted"
    r" to invoke",
)
_add(
    "containerd",
    _C,
    "pullimage|createcontainer|startcontainer|runpodsandbox|create failed|generate container|source metadata"
    "|reauthenticate|reading manifest|parsing image name|squashfs image|exec user process caused",
    r"level=(?:error|fatal) .{0,24}\b(?:pullimage|createcontainer|startcontainer|runpodsandbox)\b"
    r"|\bcontainer create failed: |\bfailed to generate container \"|failed to resolve source metadata"
    r"|authorization token has expired. reauthenticate|\breading manifest \S{1,160} in |\berror parsing image name"
    r"|failed to mount squashfs image|\bexec user process caused",
)
_add(
    "Podman",
    _C,
    "initializing source|short-name|image not known|unable to copy from source|container storage|image configuration"
    "|writing blob",
    r"\berror: (?:initializing source |short-name \"|unable to copy from source |creating container storage"
    r"|parsing image configuration|writing blob|.{0,200}: image not known)",
)
_add(
    "enroot",
    _C,
    "[error] ",
    r"^\s{0,8}\[error\] (?:url https?://\S{1,300} returned error code: \d|failed to mount: /|invalid image (?:format"
    r"|reference)|could not (?:retrieve digest|parse digest|process json input|parse authentication realm)|checksum"
    r" validation failed|unsupported authentication method|no such file or directory: \S{1,300}\.sqsh)",
)
_add("Apptainer", _C, "fatal:   ", r"^\s{0,4}fatal: {3}[\w\"](?!.{0,200}no space left)")
_add(
    "Slurm",
    _C,
    "pyxis|enroot|singularity|apptainer|could not open image",
    r"pyxis:.{0,80}(?:fail|error|couldn't|could not|unable)|enroot.{0,60}(?:fail|error)|(?:singularity|apptainer"
    r"|fatal:).{0,80}(?:could not open image|unable to (?:pull|handle|build|open)|failed to (?:pull|get|mount|open"
    r"|create|open))",
)

SIGNATURES = tuple(_ALL.rows)
