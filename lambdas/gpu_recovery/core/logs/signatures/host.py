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
    "/torch_|shared memory|shared-memory|shm|torch_",
    r"(?:unable to|failed to|cannot|could not|error).{0,60}(?:</?torch_\w+>|/torch_\d|shared memory (?:object"
    r"|segment|file))|\b(?:unable|failed|cannot|could not)(?: to)? (?:initiali[sz]e|create|allocate|resize|extend"
    r"|increase|grow|expand|truncate|reserve) (?:\w{1,16} ){0,2}shared[- ]memory (?:key|region|pool|block|area|arena)"
    r"|\bshared[- ]memory\b.{0,80}\bno space left|\bobject store size \(.{1,24}\) exceeds /dev/shm size"
    r"|(?:open|mmap|write|resize|allocate).{0,60}</?torch_\w+|(?:out of|insufficient|not enough"
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

_add(
    "Ray",
    _S,
    "objectstorefullerror|object store is full",
    r"\bobjectstorefullerror\b|\bplasma object store is full",
)
_add(
    "multiprocessing",
    _S,
    "no space left on device: '/|no space left on device: \"/",
    r"no space left on device: [\"']/(?:psm|sem|mp-|torch|pymp)[\w.-]",
)
_add(
    "Open MPI",
    _S,
    "shared memory|create_and_attach|shmget|shm_region|/dev/shm",
    r"create_and_attach: unable|unable to create shared memory|\bshmget\b.{0,80}(?:no space left|failed)|not enough"
    r" space for /dev/shm|/dev/shm is full|increase the shared memory pool size|shared memory segment .{0,120}no space"
    r" left",
)

_L = LineKind.OS_LIMIT
_add(
    "kernel",
    _L,
    "tcp: |file watchers|session key|/sys/fs/cgroup|max_map_count|limit exceeded|aio-max-nr|io_setup|code: 11",
    r"\btcp: (?:out of memory --|too many orphaned sockets)|system limit for number of file watchers"
    r"|(?:create session key|session keyring).{0,60}quota exceeded|/sys/fs/cgroup\S{0,400}: no space left"
    r"|max_map_count \[?\d+\]? is too low|\b(?:file size|cpu time) limit exceeded|\bio_setup\b.{0,24}(?:fail"
    r"|resource temporarily)|\(os \{ code: 11,|ioerror\(os \{ code: 11,",
    whole=True,
)
_add(
    "kernel",
    _L,
    "too many open files|errno 24|emfile|file-max|errno 23|ancdata|enfile|out of system resource|file descriptors"
    "|errno 105|no buffer space|enobufs",
    r"\baccept(?:4|\(\))? out of system resource|\b(?:out of|no more|no free|run out of|ran out of|exhausted)"
    r" (?:the )?(?:available )?file descriptors|\[errno 105\]|\bno buffer space available|\benobufs\b"
    r"|too many open files|\[errno 2[34]\]|\bemfile\b|\benfile\b|file-max limit|received \d+ items of ancdata",
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
    "thread|fork|omp: error #",
    r"can't start new thread|pthread_create.{0,40}(?:failed|error|returned)|(?:unable|failed|cannot"
    r"|can't) to (?:create|start|allocate|spawn).{0,40}\bthreads?\b|thread creation failed|fork rejected by pids"
    r"|fork: (?:retry|cannot)(?! allocate memory)|omp: error #(?:34|178)|(?:failed|unable|cannot) to"
    r" fork(?!.{0,40}cannot allocate)",
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
    "in use|eaddrinuse|addrinuse|already allocated|failed to bind|failed to listen|errno 98|already|bind for",
    r"\baddress (?:is )?(?:already )?in use|\baddrinuse\b|\bport (?:is |was )?already (?:taken|occupied|bound)"
    r"|\bsocket \S{1,60} (?:is )?already in use|\beaddrinuse\b"
    r"|port (?:is )?already (?:allocated|in use)|\[errno 98\]|socket has failed to (?:bind|listen)"
    r"|port \d+ (?:is )?(?:already|currently) (?:in use|used|taken|occupied)|bind for \S{1,40} failed",
    whole=True,
)
_add(
    "servers",
    _P,
    "in use|already used|already bound|taken|occupied|busy|not available|unavailable|listening|already running on"
    "|forwarding failed|already another",
    r"\bports? (?:number )?[\[('\"]?\d{2,5}\b[\])'\"]?,? ?(?:(?:to|and|-|through) \d{2,5} )?(?:on \S{1,60} )?(?:is"
    r"|are|was|were) (?:all |already |currently |still )?(?:in use|already used|already bound|taken|occupied|busy"
    r"|not available|unavailable)\b|\bports from \d{2,5} to \d{2,5} (?:are|is) (?:all )?(?:in use|taken|occupied)"
    r"|\b(?:something|another (?:process|server|instance|program)) is already (?:running|listening) on (?:port )?\S"
    r"|\bremote port forwarding failed for listen port|\balready another .{1,40} (?:running|listening) on port",
)
_add(
    "servers",
    _P,
    "free port|available port|empty port|open port|unused port|valid port|usable port|free tcp port|10048]"
    "|only one usage of each socket address|is running on the same address|server running on port|free network port"
    "|available network port|free ports|available ports|to bind",
    r"\b(?:no|cannot find|can't find|could not find|couldn't find|unable to find|failed to find|unable to get"
    r"|could not get|failed to get|failed to allocate|not enough|found no)(?: an?| any| the)? (?:more )?(?:free"
    r"|available|empty|open|unused|valid|usable) (?:tcp |udp |network )?ports?\b|\b(?:errno|winerror) 10048\]"
    r"|\bonly one usage of each socket address|another instance of \w{1,24} is running on the same address"
    r"|\banother \w{1,24} server running on port"
    r"|\b(?:failed|unable|not) to bind\b.{0,60}[ '\"(@](?:\d{1,3}(?:\.\d{1,3}){3}|\[?::\]?|localhost|\*):\d{2,5}\b"
    r"(?!.{0,80}(?:cannot assign|permission denied))",
    whole=True,
)

_add(
    "servers",
    _P,
    "another process is utilizing it|is trying to start at|is trying to use a port|connection in use|could not bind "
    "|failed to bind |cannot listen to port|ports are in use|the grpc server. the specified port"
    "|failed to add port to server|no address added out of",
    r"on port \S{1,12}, but another process is utilizing it|is trying to start at \S{1,60}, but is already running"
    r"|is trying to use a port number \d|\bconnection in use: \(|\b(?:could not|failed to) bind (?:to )?(?:address"
    r"|port|http|tcp|socket|[\d\[*])(?!.{0,120}(?:cannot assign|permission denied))|\bcannot listen to port: \d"
    r"|required ports are in use|failed to start the grpc server\. the specified port|failed to add port to server"
    r"|no address added out of total \d",
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
    r"|\boom[-_ ]kill(?: event|ed| event\(s\)|_event|s\b|er killed)|oom[-_ ]kill\w* event|earlyoom.{0,60}(?:killing"
    r"|sending sig\w{3,5} to process|low memory! at or below sig)|^[\w-]{1,24}-kernel: out-of-memory detected"
    r"|systemd-oomd.{0,40}\bkill(?:ed|ing)\b|under memory pressure.{0,60}oom|killed by the oom killer"
    r"|result '?oom-kill|killing due to memory pressure|memory: usage (\d+)kb, limit \1kb|system oom encountered"
    r"|oomkilling",
    _C,
)
_add(
    "kernel",
    _H,
    "to reclaim memory|no killable|memory.oom.group|oom_reaper|memory cgroup stats|slub: "
    "|enough memory for the allocation|marked /|oom killer|oom-killed",
    r"\bprocess killed to reclaim memory|out of memory and no killable processes|killed due to memory\.oom\.group"
    r"|oom_reaper: unable to reap|^\s{0,8}memory cgroup stats for /|\bslub: unable to allocate memory"
    r"|bytes: \d+ not enough memory for the allocation|\bmarked /\S{1,300} for killing|\boom killer killed\b"
    r"|\(possibly oom-killed\)",
    _C,
    whole=True,
)
_add(
    "job tools",
    _H,
    "oom event|oom-event|oom_event|out of memory event|out-of-memory event",
    r"\b(?:found|detected|received|got|caught|saw) (?:an? |the |[1-9]\d{0,5} )?(?:oom[- _]"
    r"|out[ -]of[ -]memory )events?\b",
    _C,
)
_add(
    "schedulers",
    _H,
    "exceeds job hard limit|gone over|memory limit of",
    r"exceeds job hard limit \"?(?:h_vmem|h_rss|h_data|s_vmem)|gone over (?:cgroup )?memory limit",
    _C,
)
_add(
    "container runtime",
    _H,
    "container oom|status=oom|oom killer|oom'd|oom-killed",
    r"\bcontainer oom \w|\bstatus=oom\b|\bwas killed by (?:the )?oom killer|\boom'd\b|\bwas oom-killed\b",
    _C,
)
_add(
    "runtimes",
    _H,
    "of size|out of memory error: failed|insufficient memory)|errno=12|alloc failed|running out of memory|has"
    " insufficient memory",
    r"\b(?:re|m|c)?alloc of size \d+ failed|out of memory error: failed to allocate|\b(?:failed"
    r"|unable) to allocate data of size|insufficient memory\)|\(errno=12\)|\balloc failed: cannot allocate|node (?:is "
    r"|was )?running out of memory|\bnode has insufficient memory",
)
_add(
    "runtimes",
    _H,
    "arrowmemoryerror|memory allocation of|runtime: out of memory|heap out of memory|libgomp: out of memory|xmalloc"
    "|xrealloc|memory exhausted|rayoutofmemoryerror|of the memory on node|fork: cannot allocate",
    r"\barrowmemoryerror\b|\bmemory allocation of \d+ bytes failed|\bruntime: out of memory|heap out of memory"
    r"|\blibgomp: out of memory|\bx(?:m|re)alloc: cannot allocate|\bvirtual memory exhausted|\brayoutofmemoryerror\b"
    r"|more than \d+% of the memory on node|\bfork: cannot allocate memory",
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
    r"oom[ -]?killed(?!\"? ?[:=] ?\"?false)|tasks? [\d,-]{1,80}: out of memory|exceed\w* (?:job |step )?memory limit"
    r"|exceeded virtual memory limit|state.{0,12}out_of_me\w*|memory limit exceeded"
    r"|out[ _]?of[ _]?memory(?:error)?: ?container|container killed due to memory|job's? memory usage exceeded",
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
    r"defaultcpuallocator|\bmemoryerror\b|\w*arraymemoryerror|std::bad_alloc|unable to allocate \d[\d.]* ?[kmgtp]i?b"
    r"|\[errno 12\]|cannot allocate memory|java\.lang\.outofmemoryerror|(?:mmap|malloc|calloc|realloc"
    r"|mremap)\w* (?:failed|of \d+ bytes failed)|not enough memory: you tried|not enough (?:host |system |cpu )?memory"
    r"|out of host memory|insufficient memory for the java|<jemalloc>: .{0,40}out of memory",
)
_add("kernel", _H, "page allocation failure", r"page allocation failure")

SIGNATURES = tuple(_ALL.rows)
