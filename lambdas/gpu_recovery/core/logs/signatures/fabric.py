"""Log signatures of the fabric: NCCL, libibverbs, libfabric and EFA, UCX, the kernel."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_M = LineKind.COLLECTIVE_MISMATCH
_add(
    "NCCL",
    _M,
    "mismatch|did not match",
    r"collective mismatch|mismatch\w* (?:between )?collective|collective.{0,60}(?:mismatch|did not match)"
    r"|mismatch.{0,40}collective",
)
_add(
    "NCCL",
    _M,
    "message truncated|mismatched collective|is running collective|collectivefingerprint",
    r"message truncated ?:|mismatched collective|rank \d+ is running collective:.{0,400}but rank"
    r"|collectivefingerprint.{0,200}but rank",
)
_add(
    "PyTorch",
    _M,
    "tensor sizes|tensors to have|same size|same shape|different",
    r"(?:all|gathered|output) tensors?.{0,60}must (?:have|be).{0,30}same (?:size|shape).{0,60}(?:rank|process)"
    r"|rank.{0,40}different (?:size|shape|number of)",
)

_K = LineKind.RDMA_MEMLOCK_CONFIG
_add(
    "libibverbs",
    _K,
    "memlock|locked memory",
    r"rlimit_memlock is|memlock.{0,40}(?:low|limit|too small|insufficient|\d{2,})|set max locked memory"
    r"|max locked memory.{0,24}(?:too (?:low|small)|insufficient)|locked memory.{0,24}(?:\blimit(?! is"
    r" unlimited)|exceed|too low|is low)",
    whole=True,
)
_add(
    "libibverbs",
    _K,
    "severely limit memory|getrlimit(rlimit_memlock|register mr|register shm mr|register dmabuf|add mr to map",
    r"this will severely limit memory registrations|getrlimit\(rlimit_memlock\) failed"
    r"|\befa_\w{2,60}\(\):\d{1,5}<warn> .{0,16}(?:unable|could not) (?:to )?"
    r"(?:register (?:shm )?(?:mr|dmabuf)|add mr to map)",
    whole=True,
)
_add(
    "libibverbs",
    _K,
    "ib failure|reg_mr|reg mr|create_qp|create_cq|alloc_pd|comp_channel|memory regist|register mem|mr_reg|create qp"
    "|create cq|memoryregion::regist",
    r"(?:\bib failure|reg_mr\w*|reg mr|create_qp|create_cq|comp_channel|fi_mr_reg\w*|memory regist\w*"
    r"|register mem\w*|create (?:qp|cq)|memoryregion::regist\w*).{0,160}(?:cannot allocate memory|\benomem\b"
    r"|status -12|err(?:or|no)?[ =:-]{1,3}12\b)"
    r"|cannot allocate memory.{0,60}(?:reg_mr|memory regist)",
)
_add(
    "UCX",
    _K,
    "cannot allocate memory|enomem|[12]|allocate mr|register mr|some locked memory",
    r"\b(?:ibv|mlx5dv|efadv|rdma)_\w{2,60}(?:\(.{0,160}?\))?:? (?:call )?(?:failed|error|returned).{0,60}"
    r"(?:cannot allocate memory|\benomem\b)|\bcreate (?:rc|uc|ud|dc|xrc|dci|dct) (?:qp|srq)\b.{0,200}: cannot allocate"
    r" memory"
    r"|\bfailed to (?:create|allocate|register|alloc|reg) (?:an? )?(?:\w{1,12} )?(?:qp|cq|srq|pd|mr|mrs"
    r"|completion queue|queue pair|protection domain|memory region|completion channel)\b"
    r".{0,120}(?:cannot allocate memory|\benomem\b|\[12\])|\bcouldn't (?:allocate|register) mr\b"
    r"|\bmem(?:ory)? registration failed.{0,60}cannot allocate memory|\block(?:ed)? memory: cannot allocate memory"
    r"|\btrying to allocate some locked memory",
)
_add(
    "libibverbs",
    _K,
    "reg_mr|fi_mr_reg|regmr",
    r"(?:ibv_reg_mr\w*|fi_mr_reg\w*|regmr).{0,60}(?:fail|error|unable)|(?:fail\w*|unable).{0,40}(?:ibv_reg_mr"
    r"|fi_mr_reg)",
)
_add(
    "OpenMPI",
    _K,
    "register",
    r"only allow registering part of|unable to register.{0,30}memory|(?:failed"
    r"|failure) to register (?:user )?(?:memory|buffer|mr)",
)

_R = LineKind.NETWORK_RDMA
_WARNING = LineRole.WARNING
_add(
    "NCCL",
    _R,
    "non-fatal async event",
    r"got non-fatal async event(?!.{0,24}port error)",
    _WARNING,
)
_add(
    "kernel",
    _R,
    "insufficient power|cable unplugged|link down|link is down|link status",
    r"\bmlx[45]\w*\b.{0,120}(?:insufficient power|cable unplugged|\blink (?:is )?down)"
    r"|\b(?:nic link is down|link status definitely down|e(?:ns|np|th)\w{1,20}:? link (?:is )?down)",
    _WARNING,
)
_add(
    "NCCL",
    _R,
    "communicator encountered a fatal error|gin error detected|doca failure|doca error|net/ib",
    r"nccl warn (?:communicator encountered a fatal error|gin error detected|doca (?:failure|error) \d)"
    r"|nccl warn net/ib ?: ?.{0,60}(?:unknown completion|unsupported completion|incompatible devices|no usable gid"
    r"|expected a '|successful completion|probing attempts|marked as failed|replacement qp|functional device)",
    whole=True,
)
_add("OpenMPI", _R, "openfabrics", r"no openfabrics connection schemes|initializing an openfabrics device", _WARNING)
_add(
    "HPC-X",
    _R,
    "pml_ucx.c:|mtl_ofi|mtl ofi|hcol|sharp_|mad_rpc|umad port",
    r"\bpml_ucx\.c:\d{1,5} {1,4}error: |\bmtl[_ ]ofi\b.{0,120}(?:failed|econnrefused|timed out)"
    r"|\bhcol\w{0,2} library init failed|\bsharp_\w{2,24} {1,4}error\b|\bmad_rpc\b.{0,40}failed"
    r"|can't open umad port",
)
_add(
    "libmlx5",
    _R,
    "got completion with error|dump error cqe|dump_cqe|completion with error|failed status",
    r"\bgot completion with error|\bdump(?:_cqe| error cqe)|completion with error at|failed status \d+: wr_id",
)
_add(
    "libfabric",
    _R,
    "cxi|cassini|ptlte_not_found|undeliverable|ofi_handle_cq_error|ofi poll failed|retry_cnt_exceeded|hsn",
    r"\bcxip?_?\w*.{0,80}(?:undeliverable|not_found|timed? ?out|fail|write error)"
    r"|\bcassini\b.{0,40}\boverflow detected|ptlte_not_found|undeliverable"
    r"|ofi_handle_cq_error|ofi poll failed|retry_cnt_exceeded|\bhsn\d.{0,60}\b(?:down|error|fail)",
)
_add(
    "UCX",
    _R,
    "ib_mlx5_log|ud endpoint|remote operation error|mlx5_|transport retry count",
    r"ib_mlx5_log\.c:\d+ |ud endpoint.{0,60}timeout|(?:remote (?:operation|access|invalid request)"
    r"|local (?:protection"
    r"|length|qp operation)).{0,24} on mlx5_\d|transport retry count\w* exceeded",
)
_add(
    "perftest",
    _R,
    "modify qp|connect the hca|ib device|no ib port",
    r"failed to modify qp|unable to connect the hca|\bno ib port \S{1,40} is active|couldn't get ib device"
    r"|no ib devices? (?:found|detected)",
)
_add("mlx5", _R, "mlx5_core", r"mlx5_core.{0,120}(?:no done completion|device's health compromised|cmd_exec_timeout)")
_add(
    "Mooncake",
    _R,
    "complete transfers|transfer_task|rdma_endpoint|rdma_context|worker_pool",
    r"failed to complete transfers|(?:transfer_task|rdma_endpoint|rdma_context"
    r"|worker_pool)\.cpp:\d+\] .{0,80}(?:fail|error|timed? ?out)",
)
_add(
    "NCCL",
    _R,
    "net/ib|net_ib.cc",
    r"net/ibp?\b.{0,60}(?:got completion|async (?:fatal )?(?:event|error)|unable|fail|error|fatal|timed? ?out"
    r"|invalid)(?!.{0,40}using internal)|\bnet_ib\.cc:\d+ nccl warn .{0,60}\bfatal error",
)
_add(
    "libibverbs",
    _R,
    "ibv_|rdma_|ucp_|uct_|ibv_wc|mlx5dv",
    r"\b(?:ibv|rdma|mlx5dv)_\w{3,40}.{0,80}(?:fail|error|timed? ?out|unable|invalid)|ibv_wc_(?!success)\w+"
    r"|fail\w* (?:to|in|at)? ?.{0,20}\b(?:ibv|rdma|ucp|uct)_\w+",
)
_add(
    "NCCL",
    _R,
    "async event|ib_verbs|ibvwrap",
    r"got (?:an )?async(?:hronous)? (?:fatal )?event|ibvwrap\.\w+:\d+ nccl warn",
)
_add(
    "libfabric",
    _R,
    "net/ofi",
    r"net/ofi.{0,160}(?:completed with error|fail|unable|couldn't|could not|error|timed? ?out"
    r"|invalid)(?!.{0,60}(?:tuner|optional|, using|using internal|fallback))",
    soft=True,
)
_add(
    "libfabric",
    _R,
    "net/ofi",
    r"net/ofi .{0,24}(?:unexpected (?:null|completion|type|status|result|number|communicator)|null op_context"
    r"|on inactive communicator|queue full|for non-existent|insufficient libfabric devices|already has an active"
    r"|valid free list|no freelist items|no ids available|inflight requests)",
    soft=True,
)
_add(
    "libfabric",
    _R,
    "efa_",
    r"\befa_\w{2,60}\(\):\d{1,5}<warn> .{0,16}(?:unable to (?!close|deregister|configure)\w|cannot (?:post|alloc)"
    r"|[rt]x entries exhausted|packet entries exhausted|pool exhausted|unhandled (?:opcode|cq type)"
    r"|unknown (?:packet|operation)|\w{1,12} \w{1,8} size mismatch|unable to write)",
    whole=True,
)
_add(
    "kernel",
    _R,
    "efa device isn't ready|efa_com|transmit timeout|multicast join failed|bnxt_en|error (timeout",
    r"\bthe efa device isn't ready|\befa_com\b.{0,24}failed to|\bib\w{1,12}: (?:transmit timeout|multicast join failed)"
    r"|\bbnxt_en .{0,60}error \(timeout: ",
)
_add(
    "libfabric",
    _R,
    "efa|infiniband",
    r"\befa_\w+\(\):\d+<(?:warn|error)>.{0,200}(?:\berr(?:or)?\b|fail|unresponsive|unreachable|timed? ?out"
    r"|invalid)|\binfiniband (?:efa|mlx|bnxt|irdma)\w*:.{0,80}(?:fail|error|timed? ?out|timeout)"
    r"|\befa\b.{0,60}(?:fail\w* to|fatal|unreachable|completion error|unresponsive|admin (?:queue"
    r"|command).{0,30}(?:timeout|fail)|lost|keep[- ]?alive|reset|not respond)|efa.{0,16}(?:device"
    r"|interface).{0,30}(?:not found|no |fail)",
)
_add(
    "libfabric",
    _R,
    "libfabric|fi_|unresponsive receiver",
    r"\bfi_(?:\w{2,40})\b.{0,80}(?:fail|error[: ]|unable)|libfabric.{0,120}(?:fatal|fail|unresponsive receiver"
    r"|unreachable|unrecoverable)|unresponsive receiver",
    soft=True,
)
_add(
    "kernel",
    _R,
    "mlx5|mlx4|infiniband|bnxt_re|irdma|ib_core",
    r"\bmlx[45]\w*\b.{0,120}(?:insufficient power|port module event\[error\]|cable (?:error|unplugged)"
    r"|high temperature|link down|health|fatal|assert_var|syndrome|timed? ?out|timeout|fail|error"
    r"|unplugged)(?!.{0,60}(?:active|access_reg))|\b(?:bnxt_re|irdma|ib_core)\b.{0,80}(?:fail|error|timed? ?out"
    r"|down)",
)
_add(
    "UCX",
    _R,
    "ucx",
    r"\bucx\s+error\b|ucx.{0,40}(?:transport retry|endpoint timeout|connection reset|unreachable)|ucxerror",
)
_add(
    "kernel",
    _R,
    "libibverbs: fatal|bnxt_en|probe of",
    r"libibverbs: fatal|\bbnxt_en\b.{0,60}(?:firmware (?:reset|fatal|exception)|tx timeout)"
    r"|\bprobe of \S{0,24}(?:roce|mlx5|rdma|efa)\S{0,12} failed",
)
_add(
    "iproute2",
    _R,
    "state down|port_down",
    r"\blink \w{2,20}/\d{1,3} .{0,160}\bstate down\b|\bnet/ibp?\b.{0,80}port_down",
    _WARNING,
)
_add(
    "NVSHMEM",
    _R,
    "for transport|ibgda|ibrc|ibdevx|nvshmem",
    r"init failed for (?:remote )?transport: (?:ib|ucx|libfabric)"
    r"|\b(?:ibgda|ibrc|ibdevx|nvshmem)\w{0,24}\.(?:cpp|c|cu|h):"
    r"\S{0,80} .{0,80}(?:non-zero status|null value|failed|unable)",
)
_add(
    "InfiniBand",
    _R,
    "infiniband|rdma|openib| ib|hca|roce|qp |retry count|work request|ib device|remote access error|ib port",
    r"(?:infiniband|rdma|openib|\bib\d|\bhca\b|roce)\b(?!-[\w.-]{1,60}: ).{0,80}(?:link (?:is )?down"
    r"|port (?:is )?down|port error"
    r"|failed|failure|timed? ?out|unreachable|flap|retry exceeded|fatal|disconnected)"
    r"|transport retry counter? exceeded|retry count(?:er)? exceeded|work request flushed|remote access error"
    r"|local qp operation|(?:failed|unable|error).{0,40}\b(?:infiniband|rdma|roce)\b|no (?:active )?(?:ib"
    r"|infiniband|rdma) (?:device|port)s? (?:found|available)",
    soft=True,
)
_add(
    "InfiniBand",
    _R,
    "link_downed|symbol_error|port_rcv|link downed",
    r"(?:link_downed|link downed|symbol_error|port_rcv_errors).{0,40}(?:increas|exceed|->|> ?\d)",
)

SIGNATURES = tuple(_ALL.rows)
