"""Log signatures of process ends: killed, crashed, or failed by an exception.

Processes that end because another process ended are included.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_CASCADE = LineRole.CASCADE
_U = LineKind.USER_ERROR_CONFIG

_X = LineKind.PROCESS_CRASH
_add(
    "engines",
    _X,
    "engine core|enginecore|worker proc|hit an exception|engine process|enginedead|engine loop|engine is dead"
    "|background loop|background task|scheduler is dead|runner process|child process|llmengine"
    "|worker failed with error|llama runner",
    r"\b(?:engine ?core|worker) proc\w* \S{1,80} died unexpectedly|engine ?core.{0,60}(?:died|dead"
    r"|initialization failed"
    r"|fatal error|failed to start)|\b(?:scheduler|detokenizer\w*|tokenizer\w*|tpworker\w*) hit an exception"
    r"|engine process failed to start|(?:async)?enginedeaderror|engine (?:loop )?is dead|background loop has errored"
    r"|engine background task failed"
    r"|scheduler is dead|mqllmengine terminated|worker failed with error .{0,200}stack trace"
    r"|runner process has terminated(?!: signal: killed)|llama runner (?:process )?(?:terminated"
    r"|no longer running)(?!.{0,24}signal: killed)"
    r"|child process (?:died|unexpectedly failed)",
    generic=True,
)

_K = LineKind.PROCESS_KILLED_UNKNOWN
_add(
    "Ray",
    _K,
    "actordied|actor died|workercrashed|rayactorerror|worker died|worker exit|workers died"
    "|actorunavailable|process died|owner died|ownerdied|localrayletdied|unexpectedly",
    r"actordiederror|\bactor (?:\S{1,80} )?(?:has )?died|workercrashederror|rayactorerror|actorunavailableerror"
    r"|\bworkers? (?:process(?:es)? )?(?:has |have |was |were )?(?:died|unexpectedly (?:exit|died))"
    r"|worker exits unexpectedly|worker exit type|process(?:es)? (?:has |have )?died|owner\w*died\w*|localrayletdied",
    whole=True,
)
_add(
    "shell",
    _K,
    "sigkill|exit|return code|status 9|status 137|signal|returncode|killed|status"
    "|已杀死|強制終了|getötet|processus arrêté",
    r"signals\.sigkill|\bsigkill\b(?!_handler)|(?:exit ?code|return ?code|status|exitcode"
    r"|returncode)\s{0,2}[:=]?\s{0,2}\(?(?:137|-9|9)\b|signal ?(?:9|: ?9|kill)\b|killed by signal|(?:exited|exits?"
    r"|exit) .{0,24}(?:137|-9)\b|^\s{0,8}killed\s{0,4}$|\bline \d+:\s+\d+ killed\b|tasks? \d[-,\d]{0,80}: killed"
    r"|(?:it/s|s/it)\]\s{0,4}killed\s*$|exited \(137\)|signal: killed\b|^make: .{1,80}\] killed"
    r"|\bexit status .{0,80}\bwas: 137\b|runner has received a shutdown signal"
    r"|^\s{0,8}(?:已杀死|強制終了|getötet|processus arrêté|terminado \(killed\))\s*$"
    r"|killed\s+(?:python|torchrun|bash|accelerate|deepspeed|mpirun|srun)|(?:process|worker|child"
    r"|rank)\w*.{0,40} (?:was|were|got|been) killed\b",
)
_add(
    "PyTorch",
    _K,
    "unexpected|terminated abruptly|unknown reason|raylet is terminated",
    r"(?:exited|died|terminated|quit) unexpectedly|unexpectedly (?:exit|terminat|die)\w*|terminated abruptly"
    r"|raylet is terminated|terminated for an unknown reason",
    whole=True,
)

_add(
    "kernel",
    _X,
    "segfault|segmentation fault|sigsegv|trap|traps:|invalid opcode ip",
    r"\bsegfault\b|segmentation fault|\bsigsegv\b|\btrap (?:invalid opcode|divide error|int3)"
    r"|traps: \S{1,80}.{0,40}(?:trap|general protection)|invalid opcode ip",
)
_add(
    "Python",
    _X,
    "exit|fatal python error|core dumped|sigabrt|sigbus|sigfpe|sigill|bus error|illegal instruction"
    "|floating point exception|aborted|signal 6|signal 4|signal 7|signal 8|signal 11|exitcode: -"
    "|exit code 13|code -|signal|return|terminated with -",
    r"fatal python error|\bcore dumped\b|\bsig(?:abrt|bus|fpe|ill)\b|\bbus error\b|illegal instruction(?! param)"
    r"|floating point exception|^\s{0,8}aborted\b|\baborted \(core|signal:? ?(?:6|4|7|8|11)\b"
    r"|exit ?code {0,3}:? ?-(?:4"
    r"|6|7|8|11)\b|exit ?code {0,3}:? ?(?:132|134|135|136|139)\b|\bterminated with -(?:4|6|7|8|11)\b"
    r"|\bsignal: \w{3,16}.{0,20} \((?:4|6|7|8|11)\)|(?:return|exit) ?code ?[=:]? ?-(?:4|6|7|8|11)\b"
    r"|task \d+: aborted",
)
_add(
    "C++",
    _X,
    "assert|aborted at|panicked at|panic: |fatal error|llvm error|signal (|forwardasync|fatal error in",
    r"internal assert failed|\*\*\* aborted at \d+|ggml_assert\(|\bthread '.{1,60}' panicked at|^\s{0,8}panic: "
    r"|^\s{0,8}fatal error: (?:unexpected"
    r" signal|runtime|all goroutines)|\bllvm error: |fatal error has been detected by the java"
    r"|\bassertion [`'].{1,200}' failed"
    r"|^\s{0,8}signal \(\d+\) received|encountered an error in forwardasync|fatal error in p?mpi_",
    whole=True,
)
_add(
    "shells in other languages",
    _X,
    "核心已转储|核心已傾印|段错误|已放弃|总线错误|コアダンプ|코어 덤프|세그멘테이션 오류"
    "|стек памяти сброшен|ошибка сегментирования|speicherabzug geschrieben|speicherzugriffsfehler|core' generado"
    "|core dump creato|imagem do núcleo gravada|zrzut pamięci|erreur de segmentation|violación de segmento"
    "|falha de segmentação|errore di segmentazione",
    r"核心已(?:转储|傾印)|^\s{0,8}(?:段错误|已放弃|总线错误)|コアダンプ|코어 덤프|세그멘테이션 오류|стек памяти сброшен"
    r"|ошибка сегментирования|speicherabzug geschrieben|speicherzugriffsfehler|core' generado|core dump creato"
    r"|imagem do núcleo gravada|zrzut pamięci|erreur de segmentation|violación de segmento|falha de segmentação"
    r"|errore di segmentazione",
)
_add(
    "glibc",
    _X,
    "free()|malloc()|malloc(): |corruption|corrupted|munmap_chunk|stack smashing|realloc(): "
    "|double free|buffer overflow|malloc_consolidate():",
    r"double free or corruption|\b(?:free|malloc|realloc|munmap_chunk|malloc_consolidate|_int_free)\(\): "
    r"|corrupted (?:size|double-linked|unsorted)|stack smashing detected|buffer overflow detected|heap corruption",
)
_add(
    "C++",
    _X,
    "received sigquit from a child|terminate called|libc++abi: terminating|pure virtual|unhandled exception"
    "|process received signal"
    "|received signal"
    "|check failed|check failure|mpi_abort|fatal error in|non-ok-status",
    r"received sigquit from a child proces|terminate called|libc\+\+abi: terminating|pure virtual method called"
    r"|process received signal"
    r"|\bmpi_abort was invoked"
    r"|\babort\(-?\d+\).{0,60}fatal error in|application called mpi_abort|unhandled exception: (?!.{0,20}std)"
    r"|check failure stack trace|\bf\d{4} .{0,80}check failed"
    r"|(?:^|: )f \S{1,160}:\d+\] (?:check failed|non-ok-status)",
    _CASCADE,
)
_add(
    "torch elastic",
    _X,
    "childfailederror|exitcode|exit code|return code|exited with|failed (exit|return|processraisedexception",
    r"childfailederror|failed \(exitcode: ?\d+|exit ?code {0,3}[:=]? ?\(?[1-9]\d{0,2}\b"
    r"|return ?code ?[:=]? ?[1-9]\d{0,2}\b|exited with (?:exit )?(?:code|status) [1-9]"
    r"|returned non-zero exit status|exits with return code = [1-9]|processraisedexception",
    _CASCADE,
    soft=True,
    generic=True,
)

_add("C++", _X, "what():", r"^\s{0,8}what\(\): {1,4}\S", _CASCADE, generic=True)

# All other exceptions count as errors of the program.
_EXCEPTION = (
    r"^\s{0,8}(?:[\w.]{1,160}\.)?(?:[a-z_]\w{0,80}(?:error|exception)|keyboardinterrupt|systemexit"
    r"|\w{1,80}errorgroup)"
    r"(?:\(|: |:?\s{0,4}$)"
)
_add(
    "Python",
    LineKind.PROCESS_CRASH,
    "raytaskerror|raytaskerror(|remote_traceback|processexitedexception",
    r"raytaskerror|processexitedexception",
    _CASCADE,
    generic=True,
)
_add(
    "Python",
    _U,
    "error|exception|keyboardinterrupt|systemexit",
    rf"{_EXCEPTION}(?!.{{0,200}}\bretry)",
    soft=True,
    generic=True,
    whole=True,
)

SIGNATURES = tuple(_ALL.rows)
