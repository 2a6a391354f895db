"""Log signatures of crashes: what the C library, compilers, MPI launchers and inference engines print at the end.

The last rows are exceptions of libraries whose class or status code gives their meaning, independent of their text.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_CASCADE = LineRole.CASCADE

_X = LineKind.PROCESS_CRASH
_add(
    "glibc",
    _X,
    "fatal glibc error|*: terminated|tcache_thread_shutdown|break adjusted to free|inconsistency detected by ld.so"
    "|general protection fault",
    r"^\s{0,8}fatal glibc error: |\*\*\* .{4,60} \*\*\*: terminated|\btcache_thread_shutdown\(\): "
    r"|\bbreak adjusted to free malloc space|inconsistency detected by ld\.so: "
    r"|\S{1,40}\[\d{1,8}\]:? general protection fault",
)
_add(
    "Open MPI",
    _X,
    "signal code: |failing at address: |caught signal |backtrace (tid:",
    r"(?:^|\] )(?:signal code: \w|failing at address: )|\bcaught signal \d{1,2} \(|={4} backtrace \(tid: ",
)
_add(
    "PyTorch",
    _X,
    "killed by signal: ",
    r"is killed by signal: (?:segmentation|aborted|illegal|floating|bus)",
    whole=True,
)
_add(
    "Triton",
    _X,
    "passmanager::run failed|ptx codegen error|ptxas |subprocexception|inductorerror|cicc|died due to signal",
    r"passmanager::run failed|internal triton ptx codegen error|\bptxas (?:fatal|terminated|died|failed)"
    r"|\bsubproc_pool\.subprocexception|\binductorerror: |'(?:cicc|ptxas)' died due to signal",
)
_add(
    "TensorRT-LLM",
    _X,
    "[tensorrt-llm][error]|executor worker|event loop|hang detected",
    r"\[tensorrt-llm\]\[error\] .{0,40}assertion failed|\bexecutor worker (?:returned error|died)"
    r"|\[trt-llm\] \[e\] (?:error in event loop|hang detected)",
    whole=True,
)
_add(
    "vLLM",
    _X,
    "worker_proc|workerproc|output_handler|executor failed|is already dead|has failed, terminating|rpc call to"
    "|dp coordinator|engine core processes|worker failed with error|vllmworkerprocess|timeouterror"
    "|hit an exception|background process",
    r"\bworkerproc (?:hit an exception|failed to start|initialization failed)|\boutput_handler failed"
    r"|\bexecutor failed\.|\bengine is already dead|\b\w{2,12}engine (?:is already dead|has failed, terminating)"
    r"|\brpc call to \S{1,80}.{0,200} timed out|\bdp coordinator process failed"
    r"|waiting for engine core processes to|\bvllmworkerprocess pid \d{1,8} died"
    r"|\bworker failed with error '|\[(?:core|multiproc_executor)\.py:\d{1,5}\] timeouterror",
    generic=True,
    whole=True,
)
_add(
    "SGLang",
    _X,
    "hit an exception|sigquit received.|scheduler died|dataparallelcontroller|warmup error|pyspy dump"
    "|from detokenizer|crashed with exit code",
    r"\b[a-z_]{4,60} hit an exception(?:: |\.|\s{0,4}$)|\bsigquit received\. .{0,40}(?:child|frame=)"
    r"|\bscheduler died during initiali[sz]ation"
    r"|\bscheduler or dataparallelcontroller \d{1,8} terminated with|\binitiali[sz]ation failed\. warmup error"
    r"|couldn't get a response from detokenizer|\bsubprocess \S{1,60} \(pid=\d{1,8}\) crashed with exit code",
    generic=True,
    whole=True,
)
_add(
    "SGLang",
    _X,
    "with code -|with status -|with exit code -",
    r"\bexited with (?:exit )?(?:code|status) -(?:4|6|7|8|11)\b",
)
_add(
    "MPI",
    _X,
    "mpi_errors_are_fatal|error occurred in mpi_|*** mpi_err_|assertion failed in file |mpich error [rank"
    "|bad status: |workergroupfailure|attempts left; will restart",
    r"\*\*\* mpi_errors_are_fatal|\*\*\* an error occurred in mpi_|\*\*\* mpi_err_\w{2,24}: "
    r"|assertion failed in file \S{1,160} at line|\bmpich error \[rank|\bcheck failed: .{0,80}bad status: "
    r"|workergroupfailureexception|worker group (?:failed|unhealthy)\. \d{1,4}/\d{1,4} attempts left; will restart",
    _CASCADE,
    generic=True,
)
_add(
    "MPI",
    _X,
    "bad termination of|mpirun|prterun|mpiexec|per user-direction",
    r"bad termination of one of your application"
    r"|\b(?:mpirun|prterun|mpiexec) (?:noticed|detected) that(?!.{0,200} signal 9\b)"
    r"|\b(?:mpirun|prterun|mpiexec) has exited due to process rank|returned a non-zero exit code\.? per user-direction",
    _CASCADE,
    generic=True,
)

# -- exceptions by their class or status code --------------------------------------------------------------------------

_add(
    "Python", _X, "timeouterror", r"^\s{0,8}(?:[\w.]{1,120}\.)?timeouterror(?:: |:?\s{0,4}$)", generic=True, whole=True
)
_add(
    "Python",
    _X,
    "eoferror|cancellederror",
    r"^\s{0,8}(?:[\w.]{1,120}\.)?(?:eof|cancelled)error(?:: |:?\s{0,4}$)",
    _CASCADE,
    generic=True,
    whole=True,
)
_add("Ray", _X, "raysystemerror: ", r"\braysystemerror: ", _CASCADE, generic=True)
_add(
    "Ray", LineKind.RENDEZVOUS_TIMEOUT, "gettimeouterror: ", r"\bgettimeouterror: ", _CASCADE, whole=True, generic=True
)
_add(
    "PyTorch",
    LineKind.NETWORK_PEER_EXIT,
    "disterror: |distnetworkerror: |distbackenderror: ",
    r"\bdist(?:network|backend)?error: ",
    _CASCADE,
    whole=True,
    generic=True,
)
_add(
    "PyTorch",
    LineKind.COLLECTIVE_TIMEOUT,
    " processgroup",
    r"\[[ef](?:\d{3,4} [\d:.]{8,24})? processgroup[a-z]{0,8}\.cpp:\d{1,5}\]",
    _CASCADE,
    whole=True,
    generic=True,
)
_add("PyTorch", LineKind.RUNTIME_ERROR_CUDA, "acceleratorerror: ", r"\bacceleratorerror: ", generic=True)
_add(
    "JAX",
    LineKind.RUNTIME_ERROR_CUDA,
    "runtimeerror: internal: ",
    r"\b(?:xla|jax)runtimeerror: internal: ",
    generic=True,
)
_add(
    "JAX",
    LineKind.NETWORK_PEER_EXIT,
    "runtimeerror: unavailable: |runtimeerror: aborted: ",
    r"\b(?:xla|jax)runtimeerror: (?:unavailable|aborted): ",
    _CASCADE,
    generic=True,
)
_add(
    "JAX",
    LineKind.RENDEZVOUS_TIMEOUT,
    "runtimeerror: deadline_exceeded: ",
    r"\b(?:xla|jax)runtimeerror: deadline_exceeded: ",
    _CASCADE,
    generic=True,
)

SIGNATURES = tuple(_ALL.rows)
