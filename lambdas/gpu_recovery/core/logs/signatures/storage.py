"""Log signatures of storage: full disks and quotas, failing disks and file systems."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_WARNING = LineRole.WARNING

_F = LineKind.STORAGE_FULL
_add(
    "Ray",
    _F,
    "object creation will fail",
    r"is over \d+% full.{0,200}object creation will fail",
    _WARNING,
    whole=True,
)
_add(
    "kubelet",
    _F,
    "ephemeral|emptydir|freediskspacefailed",
    r"low on resource: ephemeral-storage|ephemeral[- ](?:local )?storage.{0,40}exceed"
    r"|exceed\w* .{0,40}ephemeral[- ]storage|reclaim ephemeral-storage|emptydir volume.{0,160}exceeds the limit"
    r"|freediskspacefailed",
    whole=True,
)
_add(
    "kernel",
    _F,
    "no space left|enospc|errno 28|storagefull|disk quota|errno 122|edquot|quota exceeded|disk full|disk is full",
    r"no space left on device|\benospc\b|\[errno 28\]|storagefull|disk quota exceeded|\[errno 122\]|\bedquot\b"
    r"|\bdisk (?:is )?full\b|(?:disk|storage|file ?system|block|inode|user|group) quota (?:exceeded|reached)"
    r"|database or disk is full|quota exceeded.{0,40}(?:disk|file|storage)",
)
_add(
    "PyTorch",
    _F,
    "file write failed|unexpected pos|disk space|free space|diskpressure|ephemeral|% full|not enough|system",
    r"file write failed|unexpected pos \d+ vs \d+|(?:not enough|insufficient|out of|low on"
    r"|no).{0,12}(?:free )?disk space|not enough (?:free )?space|insufficient free space|diskpressure"
    r"|(?:file ?system|disk|volume).{0,40}(?:9[5-9]"
    r"|100) ?% (?:full|used)",
    whole=True,
)

_I = LineKind.STORAGE_IO
_add(
    "kernel",
    LineKind.NODE_KERNEL,
    "corruption|structure needs cleaning|errno 117|os error 117|checksum|deleted inode|bad header|bad extra_isize"
    "|invalid magic",
    r"\b(?:xfs|ext[234]-fs|btrfs|jbd2|f2fs)\b.{0,120}(?:corruption|checksum (?:invalid|error|mismatch)|deleted inode"
    r"|bad (?:header|extra_isize|entry|block)|invalid magic)|structure needs cleaning|\[errno 117\]|\(os error 117\)",
)
_add(
    "kernel",
    _I,
    "errno 5]|errno 116]|errno 107]|errno 30]|errno 121]|errno 512]|errno 523]|os error|[errno",
    r"\[errno (?:5|116|107|30|121|108|70|512|523)\]|\(os error (?:5|95|116|107|30|121|108)\)",
)
_add(
    "kernel",
    _I,
    "stale|input/output error|endpoint|read-only|remote i/o",
    r"stale (?:nfs )?file handle|\binput/output error|transport endpoint is not connected|(?:remounting"
    r"|remounted).{0,40}read-only|read-only file system|remote i/o error"
    r"|cannot send after transport endpoint shutdown",
)
_add(
    "kernel",
    _I,
    "i/o|nvme|blk_update|sector|beyond end|aborting journal|aborted journal|journal has aborted"
    "|unrecovered read error|no available path|critical|journal|medium",
    r"buffer i/o error|blk_update_request|i/o error,? (?:dev|while|on|in|reading|writing)"
    r"|\bnvme\d?\w*.{0,100}(?:timeout|reset|fail|disabl|abort|error|controller is down|not ready"
    r"|removing)(?!.{0,30}successful)|no available path|metadata i/o error|end_request: i/o|critical (?:target|medium"
    r"|space) error|medium error|unrecovered read error|(?:unreadable"
    r"|uncorrectable).{0,40}sectors?|beyond end of device|abort\w+ journal|journal has aborted|rejecting i/o to",
)
_add(
    "kernel",
    _I,
    "nfs",
    r"\bnfs\w*: (?:server|state manager|lock).{0,120}(?:not responding|timed out|fail|error|expired|lost)"
    r"|nfs4_reclaim_open_state|nfs\w*.{0,60}(?:lock reclaim failed|stale|not responding|server error)"
    r"|\bnfs_(?:lock_and_join_requests|wb_all|page_async_flush|writepages_callback)\b"
    r"|mount\.nfs.{0,60}(?:timed out|fail|refused|denied)",
)
_add(
    "kernel",
    _I,
    "ext4|ext3|xfs|btrfs|md/raid|jbd2|raid|zfs|overlayfs|squashfs|fuse|): delayed block|-fs error"
    "|): failed|): error|): i/o",
    r"\bext[234]-fs (?:error|\(\S{1,40}\): (?:error|failed|i/o|delayed block))|\bjbd2.{0,60}(?:error|abort)"
    r"|\bxfs\b.{0,80}(?:shut(?:ting)? ?down|corrupt|error|i/o|fail)|\bbtrfs.{0,40}(?:error|critical|corrupt)"
    r"|md/raid.{0,80}(?:fail|error)|\braid\b.{0,40}(?:degraded|failed)|\bzfs\b.{0,60}(?:fault|degraded|i/o"
    r"|suspend)|(?:squashfs|overlayfs) error",
)
_add(
    "mount",
    _I,
    "mount error|lnet|stream writer|mount-s3|s3fs|goofys|received from s3",
    r"\bmount error(?: ?\(?\d+| ?[=:])|\blnet(?:error)?\b.{0,200}(?:timed out|timeout|error|fail|\bdown\b)"
    r"|stream writer in error status|async error received from s3 and not recoverable|(?:mount-s3|s3fs"
    r"|goofys).{0,120}(?:fail|error)",
)
_add(
    "parallel file systems",
    _I,
    "lustre|beegfs|gpfs|ceph|fsx|weka|mmfs|glusterfs|efs",
    r"lustreerror|\b(?:lustre|beegfs|gpfs|ceph|libceph|fsx|weka\w*|mmfs\w*|glusterfs|efs"
    r"|efs-utils)\b.{0,120}(?:fail|error|timed? ?out|not responding|evict|lost|unreachable|unavailable|disconnect"
    r"|hung|io error|i/o)",
)
_add(
    "kernel",
    _I,
    "i/o|scsi|ata|sd |disk|superblock|command:|error at byte offset",
    r"(?:\bata\d|\bscsi\b|\bsd [\d:]+|\bsd[a-z]\b).{0,80}(?:fail|error|timeout|offlin|reset|rejecting)"
    r"|disk failure|superblock.{0,40}(?:error|fail|corrupt)|failed command: (?:read|write)"
    r"|\b(?:read|write) error at byte offset \d",
)

SIGNATURES = tuple(_ALL.rows)
