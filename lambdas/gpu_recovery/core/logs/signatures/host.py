"""Log signatures of the host: shared memory, limits, ports and memory."""

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

SIGNATURES = tuple(_ALL.rows)
