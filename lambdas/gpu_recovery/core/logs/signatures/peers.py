"""Log signatures of peers: ranks, nodes and actors that a program names as gone, out of step, or not reachable.

They precede the families whose words such sentences contain: name servers, hosts, storage, shared memory.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_CASCADE = LineRole.CASCADE

_M = LineKind.COLLECTIVE_MISMATCH
_add(
    "PyTorch",
    _M,
    "collectives differ in|same model across all ranks|appears not to match|differs across ranks"
    "|op.preamble|model across all ranks",
    r"collectives differ in the following aspects|expects same model across all ranks, but rank"
    r"|appears not to match (?:sizes|strides|dtypes?) of the same param|forward order differs across ranks"
    r"|op\.preamble\.\w{1,12} (?:==|<=) op\.",
)
_add(
    "Horovod",
    _M,
    "another rank",
    r"\bone rank (?:sent|had|did|specified|performed) .{1,160}\bbut another rank|\bone rank sent .{1,160}another rank",
)
_add("NCCL", _M, "registration check failed", r"nccl warn coll \w{1,24} size .{0,60}registration check failed")
_add("NCCL", _M, "bootstrap root", r"nccl warn bootstrap root : mismatch in")
_add("MPI", _M, "message truncated|mpi_err_truncate", r"mpi_err_truncate|<warn> message truncated! from peer")

_V = LineKind.RENDEZVOUS_TIMEOUT
_add(
    "c10d",
    _V,
    "network addresses of (",
    r"network addresses of \(.{1,260}\) cannot be retrieved \(gai error",
    _CASCADE,
)
_add("gloo", _V, "wait timeout for key", r"\bwait timeout for key\(s\)", _CASCADE, whole=True)
_add("gloo", _V, "connect timeout", r"/gloo/\S{1,60}:\d{1,5}\] connect timeout", _CASCADE)
_add("Ray", _V, "not registered within the timeout", r"not registered within the timeout.{0,60}hanging", _CASCADE)
_add(
    "Ray",
    LineKind.PROCESS_KILLED_UNKNOWN,
    "not registered within the timeout",
    r"not registered within the timeout.{0,40}process is dead",
    whole=True,
)

_add(
    "Open MPI",
    _V,
    "btl_tcp_|tcp connect to a peer",
    r"\bbtl_tcp_\w{4,20}\.c:.{0,240}no route to host|failed to tcp connect to a peer mpi process",
    _CASCADE,
)
_add("torch elastic", _V, "waiting on exit barrier", r"error waiting on exit barrier\. elapsed", _CASCADE, whole=True)
_add("JAX", _V, "coordination service", r"deadline[ _]exceeded.{0,60}coordination service", _CASCADE)

_T = LineKind.COLLECTIVE_TIMEOUT
_add("gloo", _T, "read timeout|write timeout", r"/gloo/\S{1,60}:\d{1,5}\] (?:read|write) timeout", _CASCADE, whole=True)
_add(
    "c10d",
    _T,
    # "preparing to dump debug info" is noise: PyTorch also writes it when the wrapper of a rank asks for a dump.
    "waiting for send/recv from rank|received a dump signal|desync debug: |gil induced hang",
    r"errors while waiting for send/recv from rank|received a dump signal (?:due to|from)"
    r"|\bdesync debug: .{0,40}didn't join|possible gil induced hang",
    _CASCADE,
)
_add("DeepEP", _T, "deepep", r"\bdeepep\b.{0,60} timeout (?:check failed|for|\()|\bdeepep\b.{0,60} timeout, ", _CASCADE)

_E = LineKind.NETWORK_PEER_EXIT
_add(
    "gloo",
    _E,
    "/gloo/",
    r"/gloo/\S{1,60}:\d{1,5}\] (?:socket (?:unexpectedly )?closed|writev? |ssl_\w{4,16}\b|poll return"
    r"|handshake was not|missing pair|unexpected (?:opcode|state|completion))",
    _CASCADE,
    whole=True,
)
_add(
    "Ray",
    _E,
    "node has died|due to node failure|objectfetchtimedout|objectlosterror|objectreconstruction",
    r"\bits node has died(?!.{0,200}preempt)|have been lost due to node failure"
    r"|objectfetchtimedouterror|\bobjectlosterror|\bobjectreconstructionfailed\w*error",
    _CASCADE,
    whole=True,
)
_add(
    "Ray",
    _E,
    "register worker to raylet|more than set timeout|got termination signal|horovod has been shut down"
    "|stopped sending heartbeats",
    r"\bgot termination signal: |failed to register worker to raylet|\brpc ran for more than set timeout"
    r"|\bhorovod has been shut down"
    r"|tasks are unhealthy \(stopped sending heartbeats\)",
    _CASCADE,
    whole=True,
)
_add(
    "SGLang",
    _V,
    "in kvpoll.bootstrapping",
    r"timed out .{0,40}in kvpoll\.bootstrapping",
    _CASCADE,
    whole=True,
)
_add(
    "SGLang",
    _E,
    "kvcache from prefill instance|connection with prefill instance|nixl_err_remote_disconnect",
    r"failed to get kvcache from prefill instance|losing connection with prefill instance|nixl_err_remote_disconnect",
    _CASCADE,
    whole=True,
)
_add("NIXL", LineKind.NETWORK_RDMA, "nixl_err_backend", r"\bnixl_err_backend\b")
_add("HCCL", _T, "call hccl api failed", r"\bdist call hccl api failed", _CASCADE)
_add(
    "CANN",
    LineKind.RUNTIME_ERROR_CUDA,
    "error code",
    r"(?:\bacl\b|inner error).{0,120}error code(?: is|:) ?5070\d\d\b",
    whole=True,
)
_add(
    "Open MPI",
    _E,
    "rte daemon has|pmix_err_|btl_tcp_|pair of mpi processes|complete a tcp connection",
    r"\b[op]rte daemon has unexpectedly failed|\bpmix_err_(?:lost_connection|unreach)"
    r"|\bbtl_tcp_\w{4,20}\.c:.{0,240}(?:connection refused|reset by peer|broken pipe|unexpected process identifier)"
    r"|pair of mpi processes are unable to reach|unable to complete a tcp connection to another process",
    _CASCADE,
    whole=True,
)
_add(
    "UCX",
    _E,
    "ucx",
    r"\bucx\s{1,4}(?:error|diag) .{0,200}(?:connection reset by remote peer|connection refused|broken pipe"
    r"|remote (?:peer )?(?:closed|disconnected))",
    _CASCADE,
)
_add("UCX", LineKind.SHM_EXHAUSTED, "/dev/shm|shmget", r"\bucx\s{1,4}error .{0,160}(?:/dev/shm|\bshmget\()", whole=True)
_add("UCX", LineKind.RUNTIME_ERROR_CUDA, "ucx", r"\bucx\s{1,4}error .{0,16}\bcu(?:da)?[a-z]\w{3,40}\(.{0,120}failed")

SIGNATURES = tuple(_ALL.rows)
