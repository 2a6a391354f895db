"""What fails between ranks: NCCL, gloo, c10d, libfabric and EFA, InfiniBand, Ray; and between us and the world."""

from __future__ import annotations

from .kinds import Kind, Role
from .signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_CASCADE = Role.CASCADE

_M = Kind.COLLECTIVE_MISMATCH
_add("NCCL", _M, "mismatch", r"collective mismatch|mismatch\w* (?:between )?collective|collective.{0,60}(?:mismatch|did not match)|mismatch.{0,40}collective")
_add("NCCL", _M, "message truncated|is running collective", r"message truncated ?:|rank \d+ is running collective:.{0,400}but rank|collectivefingerprint.{0,200}but rank")
_add("PyTorch", _M, "tensor sizes|tensors to have|same size|same shape", r"(?:all|gathered|output) tensors?.{0,60}must (?:have|be).{0,30}same (?:size|shape).{0,60}(?:rank|process)|rank.{0,40}different (?:size|shape|number of)")

_K = Kind.RDMA_MEMLOCK_CONFIG
_add("libibverbs", _K, "memlock|locked memory", r"rlimit_memlock|memlock.{0,40}(?:low|limit|too small|insufficient|\d{2,})|max locked memory|locked memory.{0,40}(?:limit|exceed|unlimited|low)", whole=True)
_add("libibverbs", _K, "reg_mr|reg mr|create_qp|create_cq|alloc_pd|comp_channel|memory regist|register mem|mr_reg", r"(?:reg_mr\w*|reg mr|create_qp|create_cq|comp_channel|fi_mr_reg\w*|memory regist\w*|register mem\w*).{0,160}(?:cannot allocate memory|\benomem\b|status -12|err(?:or|no)?[ =:-]{1,3}12\b)|cannot allocate memory.{0,60}(?:reg_mr|memory regist)")
_add("libibverbs", _K, "reg_mr|fi_mr_reg|regmr", r"(?:ibv_reg_mr\w*|fi_mr_reg\w*|regmr).{0,60}(?:fail|error|unable)|(?:fail\w*|unable).{0,40}(?:ibv_reg_mr|fi_mr_reg)")
_add("OpenMPI", _K, "register", r"only allow registering part of|unable to register.{0,30}memory|(?:failed|failure) to register (?:user )?(?:memory|buffer|mr)")

_X = Kind.NETWORK_EXTERNAL
_add("urllib3", _X, "httpsconnectionpool|httpconnectionpool|max retries exceeded|newconnectionerror", r"https?connectionpool\(|max retries exceeded with url|newconnectionerror")
_add("resolver", _X, "name resolution|resolve host|name or service|getaddrinfo|nodename nor", r"temporary failure in name resolution|could not resolve host|couldn't resolve host|failed to resolve|name or service not known(?!.{0,40}(?:c10d|master|29500))|nodename nor servname|getaddrinfo.{0,20}(?:failed|enotfound|eai_again)", soft=True)
_add("Hugging Face", _X, "huggingface|hf.co|hfhubhttperror|localentrynotfound|offline mode", r"(?:connect|reach|timed? ?out|load this file|resolv|server error|too many requests|5\d\d |429|unavailable).{0,120}(?:huggingface\.co|hf\.co)|(?:huggingface\.co|hf\.co).{0,200}(?:connection error|timed? ?out|refused|unreachable|unavailable|5\d\d server|429 client|too many requests|reset)|hfhubhttperror: ?(?:5\d\d|429)|localentrynotfounderror|offline mode is enabled", whole=True)
_add("HTTP", _X, "server error|too many requests|service unavailable|gateway|httperror", r"\b(?:5\d\d server error|50[234][ :]{1,2}(?:bad gateway|service|gateway)|429[ :]{1,2}(?:client error|too many requests))|http ?error:? ?(?:429|50[0234])|too many requests for url|http status (?:code )?(?:429|50[0234])", soft=True)
_add("requests", _X, "requests.exceptions|httpx.|urllib|aiohttp.|chunkedencoding|incompleteread|connecttimeout|readtimeout|http.client|protocolerror", r"requests\.exceptions\.(?:\w*connection|\w*timeout|ssl|proxy|chunked|retry)\w*|(?:httpx|httpcore)\.(?:connect|read|remote|pool|network|proxy)\w*|urllib\.error\.urlerror|urllib3\.exceptions\.\w+|aiohttp\.client_exceptions\.\w*(?:connect|timeout|disconnect|oserror|ssl|payload)\w*|chunkedencodingerror|incompleteread\(|\b(?:connecttimeout|readtimeout)(?:error)?\b|remotedisconnected|protocolerror: ?\(")
_add("wandb", _X, "wandb|mlflow|clearml|tensorboard.dev|comet", r"(?:wandb|mlflow|clearml|comet).{0,80}(?:network error|commerror|connection ?error|timed? ?out|timeout|failed to connect|50\d|unreachable|unavailable|retry loop|could not connect|error communicating)")
_add("AWS", _X, "botocore|clienterror|amazonaws|slowdown|requesttimeout|s3", r"(?:endpointconnection|connecttimeout|readtimeout|connectionclosed|httpclient|proxyconnection|ssl)error: .{0,40}|could not connect to the endpoint url|\((?:slowdown|requesttimeout|serviceunavailable|internalerror|throttling\w*|requestlimitexceeded|503|500)\) when calling|please reduce your request rate|error downloading.{0,60}\bs3\b|\bs3\b.{0,60}(?:timed? ?out|connection reset|slowdown|unreachable)", whole=True)
_add("git", _X, "unable to access|ssl:|ssl_error|certificate verify|sslerror|rpc failed|unable to reach|network is unreachable", r"unable to access 'https?://|certificate[ _]verify[ _]failed|ssl_error_syscall|sslerror\(|\bsslerror:|ssl: [a-z_]{6,}|rpc failed; (?:http|curl)|network is unreachable")
_add("curl", _X, "curl", r"\bcurl: \((?:5|6|7|18|28|35|52|56|92)\)")

_V = Kind.RENDEZVOUS_TIMEOUT
_add("c10d", _V, "client socket", r"client socket has timed out|client socket has failed to connect.{0,160}(?:errno: 11[0-3]|connection refused|timed out|no route)", _CASCADE)
_add("c10d", _V, "store", r"(?:store based barrier|store_based_barrier|tcpstore|c10d store|filestore|distributed store|prefixstore|hashstore|->get\(|kvstore|key-value store).{0,400}(?:timed? ?out|timeout after|socket timeout|has failed)|connection to the c10d store has failed|diststoreerror", _CASCADE, whole=True)
_add("c10d", _V, "wait timeout|waiting for clients|socket timeout|clients joined|waiting for socket", r"\bwait timeout after \d+|timed out.{0,40}waiting for clients|\bsocket timeout\b|\d+/\d+ clients joined|timeout waiting for (?:key|socket)", _CASCADE, soft=True)
_add("torch elastic", _V, "rendezvous", r"rendezvous(?:timeout|connection|closed|state|graceful)\w*error|rendezvous.{0,80}(?:timed? ?out|has failed|failed to|expired|not complete)|(?:timed? ?out|failed).{0,40}rendezvous", _CASCADE, soft=True)
_add("PyTorch", _V, "initializing process group|init_process_group|process group", r"timed out initializing process group|(?:init_process_group|init process group|initiali[sz]\w+ (?:the )?process group).{0,80}(?:timed? ?out|timeout expired|failed to connect)", _CASCADE)
_add("Ray", _V, "gcs|ray", r"(?:failed|unable|timed? ?out|cannot).{0,40}(?:connect|reach|wait|register)\w*.{0,24}\bgcs\b|gcs.{0,60}(?:timed? ?out|unavailable|failed to connect)|ray.{0,40}(?:failed to start|cluster.{0,20}not ready).{0,40}(?:timed? ?out|seconds)|timed out waiting for.{0,60}(?:ray|gcs|raylet|node)", _CASCADE, soft=True)
_add("NCCL", _V, "bootstrap|call to connect|socketpollconnect|ncclsocket|socket.cc", r"(?:bootstrap\w*|call to connect|socketpollconnect|socket\.cc).{0,160}(?:connection timed out|timed? ?out|no route to host|host is unreachable|network is unreachable)", _CASCADE, soft=True)
_add("MPI", _V, "timed out|timeout", r"(?:barrier|worker|master|coordinator|workers?|peers?|nodes?) .{0,24}(?:failed to )?(?:join|start|connect|register|initialize)\w* .{0,40}(?:timed out|within \d+|timeout)|deadline_exceeded: barrier|coordination service.{0,80}(?:timed? ?out|deadline)|timed? ?out.{0,40}(?:join|connect|waiting for (?:all )?(?:workers|nodes|peers|ranks|master))", _CASCADE, soft=True)

_P = Kind.PORT_IN_USE
_add("kernel", _P, "in use|eaddrinuse|already allocated|failed to bind|errno 98", r"address (?:is )?already in use|\beaddrinuse\b|port is already (?:allocated|in use)|\[errno 98\]|socket has failed to (?:bind|listen)|port \d+ (?:is )?(?:already|currently) (?:in use|used|taken|occupied)|bind for \S{1,40} failed", whole=True)

_R = Kind.NETWORK_RDMA
_add("NCCL", _R, "net/ib", r"net/ibp?\b.{0,60}(?:got completion|async (?:fatal )?(?:event|error)|unable|fail|error|fatal|timed? ?out|invalid)(?!.{0,40}using internal)")
_add("libibverbs", _R, "ibv_|rdma_|ucp_|uct_|ibv_wc|mlx5dv", r"\b(?:ibv|rdma|mlx5dv)_\w{3,40}.{0,80}(?:fail|error|timed? ?out|unable|invalid)|ibv_wc_(?!success)\w+|fail\w* (?:to|in|at)? ?.{0,20}\b(?:ibv|rdma|ucp|uct)_\w+")
_add("NCCL", _R, "async event|ib_verbs|ibvwrap", r"got (?:an )?async(?:hronous)? (?:fatal )?event|ibvwrap\.\w+:\d+ nccl warn")
_add("libfabric", _R, "net/ofi", r"net/ofi.{0,160}(?:completed with error|fail|unable|couldn't|could not|error|timed? ?out|invalid)(?!.{0,60}(?:tuner|optional|using internal|fallback))", soft=True)
_add("libfabric", _R, "efa", r"\befa_\w+\(\):\d+<(?:warn|error)>.{0,200}(?:\berr(?:or)?\b|fail|unresponsive|unreachable|timed? ?out|invalid)|\binfiniband (?:efa|mlx|bnxt|irdma)\w*:.{0,80}(?:fail|error|timed? ?out|timeout)|\befa\b.{0,60}(?:fail\w* to|fatal|unreachable|completion error|unresponsive|admin (?:queue|command).{0,30}(?:timeout|fail)|lost|keep[- ]?alive|reset|not respond)|efa.{0,16}(?:device|interface).{0,30}(?:not found|no |fail)")
_add("libfabric", _R, "libfabric|fi_", r"\bfi_(?:\w{2,40})\b.{0,80}(?:fail|error[: ]|unable)|libfabric.{0,120}(?:fatal|fail|unresponsive receiver|unreachable|unrecoverable)|unresponsive receiver", soft=True)
_add("kernel", _R, "mlx5|mlx4|infiniband|bnxt_re|irdma|ib_core", r"\bmlx[45]\w*\b.{0,120}(?:insufficient power|port module event\[error\]|cable (?:error|unplugged)|high temperature|link down|health|fatal|assert_var|syndrome|timed? ?out|timeout|dropp|fail|error|unplugged)(?!.{0,60}(?:active|access_reg))|\b(?:bnxt_re|irdma|ib_core)\b.{0,80}(?:fail|error|timed? ?out|down)")
_add("UCX", _R, "ucx", r"\bucx\s+error\b|ucx.{0,40}(?:transport retry|endpoint timeout|connection reset|unreachable)|ucxerror")
_add("InfiniBand", _R, "infiniband|rdma|openib|\bib|hca|roce|qp |retry count|work request", r"(?:infiniband|rdma|openib|\bib\d|\bhca\b|roce)\b.{0,80}(?:link (?:is )?down|port (?:is )?down|port error|failed|failure|timed? ?out|unreachable|flap|retry exceeded|fatal|disconnected)|transport retry counter? exceeded|retry count(?:er)? exceeded|work request flushed|remote access error|local qp operation|(?:failed|unable|error).{0,40}\b(?:infiniband|rdma|roce)\b|no (?:active )?(?:ib|infiniband|rdma) (?:device|port)s? (?:found|available)", soft=True)
_add("InfiniBand", _R, "link_downed|symbol_error|port_rcv|link downed", r"(?:link_downed|link downed|symbol_error|port_rcv_errors).{0,40}(?:increas|exceed|->|> ?\d)")

_T = Kind.COLLECTIVE_TIMEOUT
_add("c10d", _T, "watchdog", r"watchdog.{0,30}(?:caught|got stuck|timed? ?out|timeout)|detected by watchdog|watchdog thread terminated with exception", _CASCADE, soft=True)
_add("c10d", _T, "nccl operations|data inconsistency", r"nccl operations have (?:failed|timed out)|avoid data inconsistency,? we are taking the entire process down", _CASCADE, whole=True)
_add("c10d", _T, "timeout|timed out|timed-out", r"timeout at nccl work|\bwork ?\w{0,8}\(seqnum=.{0,200}timed? ?out|collective (?:operation )?timeout|global timeout from another rank|dump signal due to.{0,40}timeout|heartbeat monitor timed out|timed out waiting \d+ ?ms for|timeout waiting for op\b|timed? ?out.{0,30}(?:all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|collective|allgather|alltoall)|(?:all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|collective|alltoall)\w*\b.{0,60}(?:timed? ?out|timeout (?:occurred|error|reached|expired|after))|last enqueued (?:nccl )?work|in blocking wait|operation timed out.{0,40}nccl|nccl.{0,60}(?:timed? ?out|timeout (?:occurred|error|detected|reached|exceeded))", _CASCADE, soft=True)
_add("c10d", _T, "monitoredbarrier|monitored barrier", r"monitored ?barrier.{0,80}(?:\d+ ?ms|timed? ?out|fail)|failed to pass monitored ?barrier", _CASCADE)
_add("c10d", _T, "async exception|async error|asynchronous error", r"raised the following async exception|async(?:hronous)? error.{0,40}(?:collective|nccl)|nccl.{0,40}async(?:hronous)? error", _CASCADE)
_add("Horovod", _T, "stalled|waiting for remainder|stall", r"waiting for remainder of ranks|stalled (?:ops|ranks|tensors)|missing ranks", _CASCADE)
_add("c10d", _T, "communicator was aborted|comm.*abort|aborted", r"nccl communicator .{0,40}was aborted|nccl.{0,40}(?:was|has been) aborted", _CASCADE, soft=True)
_add("XLA", _T, "stuck", r"(?:collective|rendezvous|nccl).{0,80}(?:stuck|hung|has not (?:arrived|joined))|this thread has been waiting for .{0,60}and may be stuck", _CASCADE, whole=True)

_E = Kind.NETWORK_PEER_EXIT
_add("NCCL", _E, "nccl", r"nccl warn.{0,160}(?:connection closed|connection reset|connection refused|broken pipe|remote peer|remote process|proxy (?:call|service)|socket|retcode|peer)|nccl ?remote ?error|unhandled system error|ncclsystemerror|nccl error.{0,60}(?:remote|system error|connection)|nccl.{0,60}remote process exited", _CASCADE, soft=True, whole=True)
_add("gloo", _E, "gloo|connection closed by peer|closed by remote peer", r"gloo.{0,160}(?:connection closed|reset by peer|connect|broken pipe|read error|write error)|connection closed by (?:remote )?peer", _CASCADE, soft=True)
_add("c10d", _E, "tcpstore|socketimpl|c10d|should dump|recvvalue|sendbytes|recvbytes|0 bytes|writebytes", r"(?:tcpstore|socketimpl|c10d|recvvalue|sendbytes|recvbytes|recvvector).{0,200}(?:broken pipe|connection (?:was )?(?:likely )?(?:closed|reset)|reset by peer|shut ?down|got 0 bytes|failed|remote server)|failed to check the .{0,4}should dump|failed to recv, got 0 bytes", _CASCADE, soft=True, whole=True)
_add("c10d", _E, "store->get|ncclcommunicator", r"store->get.{0,80}(?:reset by peer|broken pipe|closed)", _CASCADE, whole=True)
_add("Python", _E, "connectionreseterror|brokenpipeerror|connectionabortederror|connectionrefusederror|errno 104|errno 32", r"(?:connectionreset|brokenpipe|connectionaborted|connectionrefused)error\b|\[errno (?:104|32|103)\]", _CASCADE, soft=True)
_add("Ray", _E, "marked dead|missed too many|node is dead|nodediederror|heartbeats|raylet", r"marked dead|missed too many heartbeats|nodediederror|(?:raylet|ray node|node with).{0,60}(?:died|is dead|was terminated|disconnected|crashed)|lost connection.{0,30}(?:raylet|gcs|node)", _CASCADE)
_add("torch elastic", _E, "closing signal|sigterm|remote peer|killing subprocess|sigkill_handler", r"(?:sending|received|closing) .{0,40}\bsig(?:term|int)\b|closing signal sig\w+|got signal: ?15|signal ?15 \(?sigterm|signalexception: .{0,80}(?:sigterm|: 15)|exitcode: ?-15\b|killing subprocess \d+|sigterm (?:received|caught)|terminated by signal 15", _CASCADE)
_add("torch elastic", _E, "peer|remote host", r"(?:peer|remote) (?:process |rank |worker |node )(?:\d+ )?(?:has )?(?:exited|died|terminated|failed|disconnected|crashed)|lost (?:connection|contact) (?:to|with) (?:rank|worker|peer|node|task)|(?:ssl|tls) connection to.{0,30}peer", _CASCADE, soft=True)
_add("gRPC", _E, "grpc|status.unavailable|statuscode.unavailable|failed to connect to all addresses|socket closed", r"statuscode\.unavailable|status(?:code)? ?[.=:] ?unavailable|unavailable: (?:failed to connect|socket closed|connection reset)|failed to connect to all addresses|grpc.{0,40}socket closed", _CASCADE, soft=True)

SIGNATURES = tuple(_ALL.rows)
