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
    r"|no).{0,12}(?:free )?disk space|not enough (?:free )?space|insufficient free space|diskpressure|(?:file ?system"
    r"|disk|volume).{0,40}(?:9[5-9]|100) ?% (?:full|used)",
    whole=True,
)

_add(
    "kernel",
    _F,
    "no space left|error 28|error -28|error = -28|rc = -28|out-of-data-space|limit reached|block quota exceeded"
    "|file quota exceeded",
    r"\b(?:btrfs|ext[234]|xfs|lustre\w*|ost|thin)\b.{0,200}(?:errno=-28|error =? ?-?28\b|rc = -28\b)|out-of-data-space"
    r"|write failed, (?:user|group|project) (?:file|block) (?:limit reached|quota exceeded)",
)
_add(
    "programs",
    _F,
    "blocks instead of|database space exceeded|thin pool has|wrote only|space left in|local disk|watermark"
    "|write to output filesystem|free disk space|target location",
    r"\bwrite error: wrote \d+ blocks instead of|\bmvcc: database space exceeded|\bthin pool has \d+ free (?:data"
    r"|metadata) blocks which is less|\bwrote only \d+ of \d+ bytes|not enough space left in /|\blocal disk is full"
    r"|local disk's utilization is over capacity|\bdisk watermark \[\S{1,16}\] exceeded"
    r"|failed to write to output filesystem",
)

_I = LineKind.STORAGE_IO
_add(
    "kernel",
    LineKind.NODE_KERNEL,
    "corruption|structure needs cleaning|errno 117|os error 117|checksum|deleted inode|bad header|bad extra_isize"
    "|invalid magic|internal error xfs|crc error|corrupt leaf|transid verify|bad tree block",
    r"\b(?:xfs|ext[234]-fs|btrfs|jbd2|f2fs)\b.{0,120}(?:corruption|checksum (?:invalid|error|mismatch)|deleted inode"
    r"|bad (?:header|extra_isize|entry|block)|invalid magic|internal error xfs|metadata crc error|corrupt leaf"
    r"|transid verify failed|bad tree block)|structure needs cleaning|\[errno 117\]|\(os error 117\)",
)
_add(
    "kernel",
    _I,
    "errno 5]|errno 116]|errno 107]|errno 30]|errno 121]|errno 512]|errno 523]|os error|[errno",
    r"\[errno (?:5|116|107|30|121|108|70|112|74|512|523|524)\]|\(os error (?:5|95|116|107|30|121|108)\)",
)
_add(
    "kernel",
    _I,
    "stale|input/output error|endpoint|read-only|remote i/o",
    r"stale (?:nfs )?file handle|\binput/output error|transport endpoint is not connected|(?<!errors=)(?:remounting"
    r"|remounted).{0,40}read-only|read-only file system|remote i/o error|cannot send after transport endpoint shutdown",
)
_add(
    "kernel",
    _I,
    "i/o|nvme|blk_update|sector|beyond end|aborting journal|aborted journal|journal has aborted"
    "|unrecovered read error|no available path|critical|journal|medium",
    r"buffer i/o error|blk_update_request|i/o error,? (?:dev|while|on|in|reading|writing)"
    r"|\bnvme\d?\w*.{0,100}(?:timeout|reset|fail|disabl|abort|error(?!s=)|controller is down|not ready"
    r"|change power state|removing)(?!.{0,30}successful)|no available path|metadata i/o error|end_request: i/o"
    r"|critical (?:target|medium|space) error|medium error|unrecovered read error|(?:unreadable"
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
    "kernel",
    _I,
    "i/o failure|blockmissingexception|event on md device|exception emask|failing path|data will be lost"
    "|libceph: |ceph: mds|sense key|detected io errors|afs: ",
    r"\bpool \S{1,80} has encountered an .{0,24}i/o failure|\bblockmissingexception\b|\b(?:fail"
    r"|degradedarray)\w* event on md device|\bata\d[\d.]{0,4}: exception emask|\bmultipath: .{0,24}failing path"
    r"|should not happen!! data will be lost|\blibceph: \w{3}\d+ .{0,80}(?:socket (?:closed|error)|down\b"
    r"|connect error)|\bceph: mds\d+ (?:hung|rejected|reconnect denied)|\bsense key : (?:medium|hardware) error"
    r"|detected io errors while flushing",
)
_add(
    "mount",
    _I,
    "mount.nfs|mount.lustre|mount.efs|mount.ceph|mount.gluster|mount.cifs|superblock on|wrong fs type",
    r"\bmount\.(?:nfs4?|lustre|efs|ceph|glusterfs|cifs): (?!timeout set|trying |warning)|can't read superblock on"
    r"|\bmount: .{1,200}wrong fs type, bad option",
)
_add(
    "mountpoint-s3",
    _I,
    "mountpoint_s3",
    r"\bmountpoint_s3\S{0,60}: .{0,120}(?:failed with errno|failed: )",
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
    r"lustreerror|(?<![/\w.@-])(?:lustre|beegfs|gpfs|ceph|libceph|fsx|weka\w*|mmfs\w*|glusterfs|efs"
    r"|efs-utils)\b.{0,120}(?:fail|error|timed? ?out|not responding|evict|lost|unreachable|unavailable|disconnect"
    r"|hung|io error|i/o)",
)
_add(
    "kernel",
    _I,
    "i/o|scsi|ata|sd |disk|superblock|command:|error at byte offset",
    r"(?:\bata\d|\bscsi\b|\bsd [\d:]+|\bsd[a-z]\b).{0,80}(?:fail|error(?!s=)|timeout|offlin|reset|rejecting)"
    r"|disk failure|superblock.{0,40}(?:error|fail|corrupt)|failed command: (?:read|write)"
    r"|\b(?:read|write) error at byte offset \d",
)

SIGNATURES = tuple(_ALL.rows)
