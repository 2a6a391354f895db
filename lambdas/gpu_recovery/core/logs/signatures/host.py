"""Log signatures of the host: shared memory, limits, memory, disks, and the kernel."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_WARNING = LineRole.WARNING

_S = LineKind.SHM_EXHAUSTED
_add("joblib", _S, "joblib will operate in serial mode", r"errno 28.{0,60}joblib will operate in serial mode", _WARNING)
_add("PyTorch", LineKind.OS_LIMIT, "shared memory", r"shared memory.{0,120}too many open files")
_add("PyTorch", _S, "bus error", r"(?:worker|dataloader).{0,60}bus error|bus error.{0,40}(?:worker|dataloader)")
_add(
    "PyTorch",
    _S,
    "/torch_|shared memory|shm|torch_",
    r"(?:unable to|failed to|cannot|could not|error).{0,60}(?:</?torch_\w+>|/torch_\d|shared memory (?:object"
    r"|segment|file))|(?:open|mmap|write|resize|allocate).{0,60}</?torch_\w+|(?:out of|insufficient|not enough"
    r"|no space).{0,24}(?:shared memory|\bshm\b|/dev/shm)|/dev/shm.{0,200}(?:no space left|errno 28"
    r"|cannot allocate|failed|error)|(?:no space left|failed|errno 28).{0,80}/dev/shm"
    r"|\bshm\w*.{0,60}(?:no space left|posix_fallocate|ftruncate.{0,20}fail)",
    whole=True,
)
_add(
    "PyTorch",
    _S,
    "shared memory|unable to resize file|shared memory manager",
    r"unable to resize file.{0,80}(?:right size|no space)|out of shared memory|shared memory (?:is )?(?:exhausted"
    r"|exceeded|full)",
)

_L = LineKind.OS_LIMIT
_add(
    "kernel",
    _L,
    "too many open files|errno 24|emfile|file-max|errno 23|ancdata|enfile",
    r"too many open files|\[errno 2[34]\]|\bemfile\b|\benfile\b|file-max limit|received \d+ items of ancdata",
)
_add(
    "kernel",
    _L,
    "resource temporarily unavailable|errno 11]|eagain",
    r"(?:thread|fork|clone|pthread|process|spawn|exec|blas|omp|system:11|blockingioerror|os error 11"
    r"|errno 11).{0,160}resource temporarily unavailable|resource temporarily unavailable.{0,40}(?:system:11|fork"
    r"|thread|os error 11)|blockingioerror: \[errno 11\]|errno 11\]",
)
_add(
    "kernel",
    _L,
    "thread|fork|omp: error #34",
    r"can't start new thread|pthread_create.{0,40}(?:failed|error|returned)|(?:unable|failed|cannot"
    r"|can't) to (?:create|start|allocate|spawn).{0,40}\bthreads?\b|thread creation failed|fork rejected by pids"
    r"|fork: (?:retry|cannot)|omp: error #34|(?:failed|unable|cannot) to fork",
)
_add(
    "OpenBLAS",
    _L,
    "blas_thread_init",
    r"blas_thread_init: (?:rlimit_nproc \d|ensure that your address space and process count limits)",
    whole=True,
)
_add("kubelet", _L, "pids|pidpressure", r"low on resource: pids|pidpressure")
_add("kernel", _L, "inotify", r"inotify.{0,40}(?:limit|instances|watches).{0,40}|(?:limit|no space).{0,60}inotify")
_add(
    "kernel",
    _L,
    "nf_conntrack|conntrack|neighbour|neighbor|pid_max|pids.max|user limit|ulimit|max user processes",
    r"(?:nf_)?conntrack.{0,24}table full|neighbou?r.{0,12}table overflow|\b(?:pid_max|pids\.max"
    r"|ulimit)\b.{0,40}(?:reach|exceed|too low)|(?:reached|exceeded).{0,40}(?:ulimit|pids\.max|max user processes)",
)

_P = LineKind.PORT_IN_USE
_add(
    "kernel",
    _P,
    "in use|eaddrinuse|already allocated|failed to bind|failed to listen|errno 98|already|bind for",
    r"address (?:is )?already in use|\beaddrinuse\b|port is already (?:allocated|in use)|\[errno 98\]"
    r"|socket has failed to (?:bind|listen)|port \d+ (?:is )?(?:already|currently) (?:in use|used|taken|occupied)"
    r"|bind for \S{1,40} failed",
    whole=True,
)

_C = LineRole.CONFIRMATION
_H = LineKind.HOST_OOM
_add(
    "kernel",
    _H,
    "oom|killed process|memory cgroup|kill|memory: usage|out-of-memory detected",
    r"invoked oom-killer|oom-kill:constraint|(?:memory cgroup )?out of memory: kill\w*"
    r"|killed process \d+.{0,160}(?:total-vm|anon-rss|\()|oom_reaper: reaped|killed as a result of limit of"
    r"|\boom[-_ ]kill(?: event|ed| event\(s\)|_event|s\b|er killed)|oom[-_ ]kill\w* event|earlyoom.{0,60}(?:kill"
    r"|sending|low memory! at or below sig)|^[\w-]{1,24}-kernel: out-of-memory detected|systemd-oomd.{0,40}kill"
    r"|under memory pressure.{0,60}oom|killed by the oom killer|result '?oom-kill"
    r"|killing due to memory pressure|memory: usage (\d+)kb, limit \1kb|system oom encountered|oomkilling",
    _C,
)
_add("systemd", _H, "memory pressure for", r"systemd-oomd.{0,20}: memory pressure for .{0,120} > ", _WARNING)
_add(
    "ECS agent",
    _H,
    "died due to oom|job killed|memory usage limit|memory budget|memory limit|memlimit|exceeded limit"
    "|ray-oom-prevention|oomkilled",
    r"died due to oom\b|term_memlimit|memory usage limit|exceeded \d+% memory budget"
    r"|job killed: (?:mem|vmem|pmem|pvmem)\b|beyond (?:the )?'?(?:virtual|physical)'? memory limit"
    r"|exceeding memory limits|ray-oom-prevention|exceeded k8s pod memory limits",
    _C,
    whole=True,
)
_add(
    "kubelet",
    _H,
    "resource: memory|memorypressure|reclaim memory",
    r"low on resource: memory|\[?memorypressure\b(?!.{0,24}\bfalse)|attempting to reclaim memory",
    _C,
)
_add(
    "Ray",
    _H,
    "memory low at node|memory usage threshold|memory pressure (oom)",
    r"system memory low at node|exceeds the memory usage threshold|killed due to memory pressure \(oom\)",
    _C,
    whole=True,
)
_add(
    "Slurm",
    _H,
    "oom|memory limit|out of memory|out_of_memory|container|memory usage exceeded|out_of_me",
    r"oom[ -]?killed(?!\"? ?[:=] ?\"?false)|tasks? [\d,-]{1,80}: out of memory|exceed\w* (?:job "
    r"|step )?memory limit|exceeded virtual memory limit"
    r"|state.{0,12}out_of_me\w*|memory limit exceeded|out[ _]?of[ _]?memory(?:error)?: ?container"
    r"|container killed due to memory|job's? memory usage exceeded",
    _C,
)
_add(
    "container runtime",
    _H,
    "oomkill|oom-kill|outofmemory",
    r"oom-?killed(?!\"? ?[:=] ?\"?false)|\boutofmemory\b.{0,60}(?:container|task|process)"
    r"|outofmemoryerror: container",
    _C,
)
_add(
    "Ray",
    _H,
    "memory",
    r"ray\.exceptions\.outofmemoryerror|(?:killed|workers?).{0,60}due to (?:the node running low on memory"
    r"|memory pressure)|node (?:was )?running low on memory|memory monitor.{0,40}kill",
    _C,
)
_add(
    "PyTorch",
    _H,
    "alloc|mremap|defaultcpuallocator|memoryerror|bad_alloc|unable to allocate|cannot allocate memory"
    "|outofmemoryerror: java|insufficient memory|jemalloc|not enough memory|errno 12]|mmap|out of host memory"
    "|realloc",
    r"defaultcpuallocator|\bmemoryerror\b|\w*arraymemoryerror|std::bad_alloc"
    r"|unable to allocate \d[\d.]* ?[kmgtp]i?b|\[errno 12\]|cannot allocate memory|java\.lang\.outofmemoryerror"
    r"|(?:mmap|malloc|calloc|realloc|mremap)\w* (?:failed|of \d+ bytes failed)|not enough memory: you tried"
    r"|not enough (?:host |system |cpu )?memory|out of host memory|insufficient memory for the java"
    r"|<jemalloc>: .{0,40}out of memory",
)
_add("kernel", _H, "page allocation failure", r"page allocation failure")

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

_K = LineKind.NODE_KERNEL
_add("IOMMU", _K, "fault addr|io_page_fault", r"dmar: .{0,60}fault addr|event logged \[io_page_fault", _WARNING)
_add("kernel", _K, "general protection fault, probably", r"general protection fault, probably", whole=True)
_add(
    "kernel",
    _K,
    "invalid context, skipping",
    r"detected invalid context, skipping",
    _WARNING,
)
_add(
    "kernel",
    _K,
    "lockup|blocked for more than|blocked on a|hung_task|stall|starved",
    r"(?:soft|hard) lockup|task \S{1,80} blocked for more than|hung_task|rcu.{0,40}(?:stall|starved)"
    r"|blocked for more than \d+ seconds|\btask \S{1,80} blocked on an? (?:semaphore|mutex|rw-?sem\w*)\b",
)
_add(
    "kernel",
    _K,
    "panic|kernel bug|bug:|oops|null pointer|paging request|protection fault|divide error|unable to handle",
    r"kernel panic|kernel bug at|\bbug: (?!.{0,20}report)(?:unable|kernel|scheduling|bad|workqueue|sleeping|kasan"
    r"|soft|hard)|\boops: |kernel null pointer|unable to handle (?:kernel )?(?:page fault|paging|null)"
    r"|divide error: 0000|general protection fault(?:,|: 0000| in kernel|.{0,30}\[#\d)",
)
_add(
    "kernel",
    _K,
    "hardware error|machine check|mce:|edac|memory read error|memory scrubbing|aer|pcie|pcieport|nmi|pciehp|dpc:"
    "|ue memory write error|memory failure",
    r"\[hardware error\]|machine check|\bmce: .{0,60}(?:error|exception|bank)|\bedac\b.{0,80}(?:ue|error)"
    r"|ue memory (?:read|scrubbing|write) error|\baer: .{0,60}(?:error|fatal|uncorrect|fail)"
    r"|pcie (?:bus )?error|pcie.{0,24}(?:link down|fatal error|uncorrectable)|dpc: containment event"
    r"|memory failure: 0x|pciehp: slot.{0,24}(?:link down|card not present|power fault)|\bnmi: .{0,40}(?:error"
    r"|unknown|iock"
    r"|pci)|uhhuh\. nmi received|\bpcieport\b.{0,80}(?:error|fail|link down)",
)
_add(
    "kernel",
    _K,
    "warning: cpu: |unregister_netdevice|watchdog|netdev|bmc|ipmi|taint|rip: 0010|end kernel panic|list_del|list_add",
    r"\bwarning: cpu: \d+ pid: \d+ at |unregister_netdevice: waiting|netdev watchdog|\brip: 0010:|end kernel panic"
    r"|\blist_(?:del|add) corruption"
    r"|comm: .{0,40} (?:not )?tainted|netdev watchdog|watchdog: (?:bug"
    r"|watchdog detected|cpu)|(?:bmc|ipmi).{0,40}(?:fail|error|critical)|watchdog did not stop",
)
_add(
    "Slurm",
    _K,
    "node fail|node_fail|not responding|not respond|ready|kubelet stopped posting",
    r"\bnode[ _]fail(?:ure|ed)?\b|(?:slurmctld|slurmd|srun|kubelet).{0,80}node\w* .{0,40}not respond"
    r"|kubelet stopped posting|nodenotready|node is not ready",
)

SIGNATURES = tuple(_ALL.rows)
