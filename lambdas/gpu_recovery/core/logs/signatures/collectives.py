"""Log signatures of failures between ranks, in the wording of NCCL, gloo, c10d and Ray."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_CASCADE = LineRole.CASCADE

_WARNING = LineRole.WARNING

_E = LineKind.NETWORK_PEER_EXIT
_add(
    "c10d",
    _E,
    "retrying",
    r"(?:tcp client|client socket|connect\w*).{0,200}retrying.{0,120}(?:reset by peer|refused|broken pipe)",
    _WARNING,
    whole=True,
)
_add(
    "c10d",
    _E,
    "reset by peer|broken pipe|got 0 bytes|likely closed",
    r"(?:tcpstore|socketimpl|c10d|recvvalue|sendbytes|recvbytes|recvvector).{0,240}(?:broken pipe|reset by peer"
    r"|got 0 bytes|likely closed)|rpc error message: .{0,40}(?:reset by peer|broken pipe)"
    r"|^runtimeerror: broken pipe\s*$",
    _CASCADE,
    whole=True,
)
_add("JAX", _E, "heartbeat timeout", r"\btask \S{0,80}/task:\d+ heartbeat timeout", _CASCADE, whole=True)

_V = LineKind.RENDEZVOUS_TIMEOUT
_add(
    "gloo",
    _V,
    "connectfullmesh|timed out connecting|getkeyvalue|store->get() got error|getting socket times out|waited",
    r"connectfullmesh failed|timed out connecting: so_error|getkeyvalue\(\) timed out|store->get\(\) got error"
    r"|getting socket times out|timeout waiting for (?:rx|incoming connection) \(waited",
    _CASCADE,
    whole=True,
)
_add(
    "c10d",
    _V,
    "client socket",
    r"client socket has timed out|client socket has failed to connect.{0,160}(?:errno: 11[0-3]|connection refused"
    r"|timed out|no route)",
    _CASCADE,
)
_add(
    "c10d",
    _V,
    "store|->get(",
    r"(?:store based barrier|store_based_barrier|tcpstore|c10d store|filestore|distributed store|prefixstore"
    r"|hashstore|->get\(|kvstore|key-value store).{0,400}(?:timed[ -]out|timeout(?! ?[=:(\w])|has failed)"
    r"|connection to the c10d store has failed|diststoreerror",
    _CASCADE,
    whole=True,
)
_add(
    "c10d",
    _V,
    "connect() timed out|wait timeout|waiting for clients|socket timeout|clients joined"
    "|waiting for socket|timeout waiting for key",
    r"connect\(\) timed out|\bwait timeout after \d+|timed out.{0,40}waiting for clients|\bsocket timeout\b"
    r"|\d+/\d+ clients joined|timeout waiting for (?:key|socket)",
    _CASCADE,
    soft=True,
)
_add(
    "torch elastic",
    _V,
    "rendezvous",
    r"rendezvous(?:timeout|connection|closed|state|graceful)\w*error|rendezvous.{0,80}(?:(?:timed[ -]out"
    r"|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|has failed"
    r"|failed to|expired|not complete)|(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))"
    r"|failed).{0,40}rendezvous",
    _CASCADE,
    soft=True,
)
_add(
    "PyTorch",
    _V,
    "initializing process group|init_process_group|process group",
    r"timed out initializing process group|(?:init_process_group|init process group"
    r"|initiali[sz]\w+ (?:the )?process group).{0,80}(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_"
    r"|s\b))|timeout expired|failed to connect)",
    _CASCADE,
)
_add(
    "Ray",
    _V,
    "gcs|ray|timed out waiting for",
    r"(?:failed|unable|(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|cannot).{0,40}(?:connect"
    r"|reach|wait|register)\w*.{0,24}\bgcs\b"
    r"|gcs.{0,60}(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|unavailable|failed to connect)"
    r"|ray.{0,40}(?:failed to start"
    r"|cluster.{0,20}not ready).{0,40}(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|seconds)"
    r"|timed out waiting for.{0,60}(?:ray|gcs|raylet|node)",
    _CASCADE,
    soft=True,
)
_add(
    "NCCL",
    _V,
    "bootstrap|call to connect|socketpollconnect|ncclsocket|socket.cc|socket.h",
    r"(?:bootstrap\w*|call to connect|socketpollconnect|socket\.cc|socket\.h).{0,160}"
    r"(?:connection timed out|(?:timed[ -]out"
    r"|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))"
    r"|no route to host|host is unreachable|network is unreachable)",
    _CASCADE,
    soft=True,
)
_add(
    "MPI",
    _V,
    "timed out|timeout|barrier|coordination service|initialize clique|cluster registration",
    r"(?:barrier|worker|master|coordinator|workers?|peers?|nodes?) .{0,24}(?:failed to )?(?:join|start|connect"
    r"|register|initialize)\w* .{0,40}(?:timed out|within \d+|timeout)|deadline_exceeded: barrier"
    r"|cluster registration failed|this thread has been waiting for .initialize clique\b"
    r"|coordination service.{0,80}(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|deadline)"
    r"|(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b)).{0,40}(?:join|connect"
    r"|waiting for (?:all )?(?:workers|nodes|peers|ranks|tasks|master))",
    _CASCADE,
    soft=True,
)

_T = LineKind.COLLECTIVE_TIMEOUT
_add(
    "HCCL",
    _T,
    "hccl|notify register|watchdog hang|flight recorder dump",
    r"hccl operations have (?:failed|timed out)|\bhccl \w{1,20} task timeout|notify register.{0,120}times? out"
    r"|processgroup\w* watchdog hang"
    r"|observed flight recorder dump signal",
    _CASCADE,
    whole=True,
)
_add(
    "c10d",
    _T,
    "watchdog",
    r"failure detected by watchdog"
    r"|watchdog(?!_timeout[\"']?[=:]).{0,30}(?:caught|got stuck|timed[ -]out|timeout(?![\"']?[=:]))"
    r"|detected by watchdog|no heartbeat of its watchdog"
    r"|watchdog thread terminated with exception",
    _CASCADE,
    soft=True,
)
_add(
    "c10d",
    _T,
    "nccl operations|data inconsistency",
    r"nccl operations have (?:failed|timed out)|avoid data inconsistency,? we are taking the entire process down",
    _CASCADE,
    whole=True,
)
_add(
    "c10d",
    _T,
    "timeout|timed out|timed-out|in blocking wait|last enqueued",
    r"timeout at nccl work|\bwork ?\w{0,8}\(seqnum=.{0,200}(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_"
    r"|s\b))|collective (?:operation )?timeout"
    r"|global timeout from another rank|dump signal due to.{0,40}timeout|heartbeat monitor timed out"
    r"|timed out waiting \d+ ?ms for|timeout waiting for op\b|(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set"
    r"|\d)|_|s\b)).{0,30}(?:all_?reduce|all_?gather"
    r"|reduce_?scatter|broadcast|barrier|collective|allgather|alltoall)|(?:all_?reduce|all_?gather|reduce_?scatter"
    r"|broadcast|barrier|collective|alltoall)\w*\b.{0,60}(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)"
    r"|_|s\b))|timeout (?:occurred|error|reached|expired"
    r"|after))|last enqueued (?:nccl )?work|in blocking wait|operation timed out.{0,40}nccl"
    r"|nccl.{0,60}(?:(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|timeout (?:occurred|error"
    r"|detected|reached|exceeded))",
    _CASCADE,
    soft=True,
)
_add(
    "c10d",
    _T,
    "monitoredbarrier|monitored barrier",
    r"monitored ?barrier.{0,80}(?:\d+ ?ms|(?:timed[ -]out|timeout(?! ?[=:(]| (?:to|of|is|set|\d)|_|s\b))|fail)"
    r"|failed to pass monitored ?barrier",
    _CASCADE,
)
_add(
    "c10d",
    _T,
    "async exception|async error|asynchronous error",
    r"raised the following async exception|async(?:hronous)? error.{0,40}(?:collective|nccl)"
    r"|nccl.{0,40}async(?:hronous)? error",
    _CASCADE,
)
_add(
    "Horovod",
    _T,
    "stalled|waiting for remainder|stall|missing ranks",
    r"waiting for remainder of ranks|stalled (?:ops|ranks|tensors)|missing ranks",
    _CASCADE,
)
_add(
    "c10d",
    _T,
    "communicator was aborted|comm.*abort|aborted",
    r"nccl communicator .{0,40}was aborted|nccl.{0,40}(?:was|has been) aborted",
    _CASCADE,
    soft=True,
)
_add(
    "XLA",
    _T,
    "stuck|collective",
    r"(?:collective|rendezvous|nccl).{0,80}(?:stuck|hung|has not (?:arrived|joined))"
    r"|this thread has been waiting for .{0,60}and may be stuck",
    _CASCADE,
    whole=True,
)

_add(
    "NCCL",
    _E,
    "nccl|unhandled system error|call to|ncclsocket|socketprogress|polling for opid|proxy call|[service thread]",
    r"nccl warn(?!.{0,80}(?:version mismatch|socket interface|invalid config)).{0,160}(?:connection (?:closed|reset"
    r"|refused)|broken pipe|remote peer|remote process|proxy call|closing connection|retcode|by peer"
    r"|proxy service.{0,80}(?:fail|error)"
    r"|\w{0,24}(?:socket|accept|\buds)\w{0,24}\b.{0,80}(?:fail|error|closed|abort|invalid|refused|retry count"
    r"|wrong socket state|unexpected|not ready))"
    r"|(?:socketprogress\w*|call to (?:recv|send|connect|accept|poll)).{0,160}(?:failed|error)"
    r".{0,24}(?:reset by peer|broken pipe|refused|closed|abort)"
    r"|nccl ?remote ?error|unhandled system error"
    r"|socket (?:recv|send) failed while polling for opid|proxy call to rank \d+ failed"
    r"|\[service thread\] (?:error encountered|accept failed|could not receive)"
    r"|ncclsystemerror|nccl error.{0,60}(?:remote|system error|connection)|nccl.{0,200}remote process exited",
    _CASCADE,
    soft=True,
    whole=True,
)
_add(
    "gloo",
    _E,
    "gloo|connection closed by peer|closed by remote peer|pair closure",
    r"gloo.{0,160}(?:connection closed|reset by peer|connect(?!ed to )|broken pipe|read error|write error)"
    r"|connection closed by (?:remote )?peer|timeout caused pair closure",
    _CASCADE,
    soft=True,
)
_add(
    "c10d",
    _E,
    "tcpstore|socketimpl|c10d|should dump|recvvalue|sendbytes|recvbytes|0 bytes|writebytes|broken pipe",
    r"(?:tcpstore|socketimpl|c10d|recvvalue|sendbytes|recvbytes|recvvector).{0,200}(?:broken pipe"
    r"|connection (?:was )?(?:likely )?(?:closed|reset)|reset by peer|shut ?down|got 0 bytes|failed|remote server)"
    r"|failed to check the .{0,4}should dump|failed to recv, got 0 bytes",
    _CASCADE,
    soft=True,
    whole=True,
)
_add(
    "c10d",
    _E,
    "store->get|ncclcommunicator",
    r"store->get.{0,80}(?:reset by peer|broken pipe|closed)",
    _CASCADE,
    whole=True,
)
_add(
    "Python",
    _E,
    "connectionreseterror|brokenpipeerror|connectionabortederror|connectionrefusederror|errno 104|errno 32|[errno 103]",
    r"(?:connectionreset|brokenpipe|connectionaborted|connectionrefused)error\b|\[errno (?:104|32|103)\]",
    _CASCADE,
    soft=True,
)
_add(
    "JAX",
    _E,
    "another task died|distributed service detected|remote task has failed|leader task|different incarnation",
    r"another task died|jax distributed service detected (?:fatal errors|missing heartbeats)"
    r"|the remote task has failed|\bthe leader task (?:was preempted/)?(?:died|has died)"
    r"|tried to connect with a different incarnation",
    _CASCADE,
    whole=True,
)
_add(
    "Ray",
    _E,
    "owner has|owner's",
    r"\bowner has (?:died|exited)|\bowner's (?:node|worker process) has (?:crashed|exited|died)",
    _CASCADE,
)
_add(
    "Ray",
    _E,
    "marked dead|missed too many|node is dead|nodediederror|heartbeats|raylet|lost connection",
    r"marked dead|missed too many heartbeats|nodediederror|(?:\braylet|ray node|node with id)\b.{0,60}(?:died"
    r"|is dead|was terminated|disconnected|crashed)|lost connection.{0,30}(?:raylet|gcs|node)",
    _CASCADE,
)
_add(
    "torch elastic",
    _E,
    "closing signal|got signal|sigterm|remote peer|killing subprocess|sigkill_handler|signal|exitcode|sending",
    r"(?:sending|received|closing) .{0,40}\bsig(?:term|int)\b(?!/sigkill)|closing signal sig\w+|got signal: ?15"
    r"|signal ?15 \(?sigterm|signalexception: .{0,80}(?:sigterm|: 15)|exitcode {0,3}: ?-15\b|killing subprocess \d+"
    r"|sigterm (?:received|caught)|terminated by signal 15",
    _CASCADE,
    whole=True,
)
_add(
    "torch elastic",
    _E,
    "peer|remote host|rank|lost connection to worker|lost connection to node|lost connection to task|remote process",
    r"(?:peer|remote) (?:process |rank |worker |node )(?:\d+ )?(?:has )?(?:exited|died|terminated|failed"
    r"|disconnected|crashed)|lost (?:connection|contact) (?:to|with) (?:rank|worker|peer|node|task)|(?:ssl"
    r"|tls) connection to.{0,30}peer",
    _CASCADE,
    soft=True,
)
_add(
    "sockets",
    _E,
    "by peer|by remote host|by host|tensorpipe|rpc agent|remote server|lost communication|unexpectedly disconnected"
    "|software caused|pmix error|handshakeplugin",
    r"handshakeplugin: .{0,60}connection refused|pmix error: (?:unreachable|lost[- _]connection)"
    r"|(?<!client: )\bconnection (?:was )?(?:forcibly )?(?:reset"
    r"|closed|aborted) by (?:remote )?(?:peer"
    r"|host)(?! \[preauth)"
    r"|\bconnection to \S{1,80} closed by remote host|rpc agent for \S{1,40} encountered error when reading"
    r"|remote server \S{1,120} closed|lost communication with (?:a )?(?:remote )?(?:daemon|node|process|peer)"
    r"|has unexpectedly disconnected|software caused connection abort",
    _CASCADE,
    soft=True,
)
_add(
    "gRPC",
    _E,
    "grpc|status.unavailable|statuscode.unavailable|failed to connect to all addresses|socket closed|unavailable:",
    r"statuscode\.unavailable|status(?:code)? ?[.=:] ?unavailable|unavailable: (?:failed to connect|socket closed"
    r"|connection reset)|failed to connect to all addresses|grpc.{0,40}socket closed",
    _CASCADE,
    soft=True,
)

SIGNATURES = tuple(_ALL.rows)
