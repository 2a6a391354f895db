"""Signatures of harmless lines that look like errors, and of lines that only give advice."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_FINE = Signatures()
_ADVICE = Signatures()
_B = LineKind.BENIGN


def _fine(source: str, needs: str, pattern: str) -> None:
    _FINE.add(source, _B, needs, pattern, whole=True)


def _advice(source: str, needs: str, pattern: str) -> None:
    _ADVICE.add(source, _B, needs, pattern, LineRole.ADVICE, whole=True)


_fine("NCCL", "nccl info", r"\bnccl info\b")
_fine("NCCL", "nccl trace|nccl version", r"\bnccl trace\b|^\s{0,8}nccl version\b")
_fine("libfabric", "<info>|<debug>|<trace>", r"<(?:info|debug|trace)>")
_fine(
    "libfabric",
    "fi_hmem|using internal|libnccl-net|libnccl-tuner|net/plugin|tuner|libnccl|plugin",
    r"fi_hmem capability requires|using internal (?:net|tuner|network)|no plugin found|(?:libnccl-net"
    r"|libnccl-tuner|libnccl-profiler)\S{0,20}.{0,80}(?:no such file|not found|cannot open|could not find)"
    r"|could not find: libnccl|failed to find ncclnetplugin",
)
_fine(
    "mlx5",
    "access_reg|link active|link up|op_mod",
    r"\baccess_reg\b.{0,60}failed|\blink (?:active|up)\b|port: ?\d+ link active",
)
_fine(
    "libfabric",
    "hmem_init|dlopen|hmem iface",
    r"\w{0,40}hmem_init\w{0,12}(?:\(\))?.{0,40}fail|<(?:info|warn)>.{0,40}failed to dlopen"
    r"|hmem iface \S{1,40} not supported",
)
_fine(
    "driver",
    "non-fatal|gsp-rm logs|trace crash|heartbeat not timed out|watchdog timeout forced",
    r"nvrm:.{0,200}\(non-fatal\)|no gsp-rm logs will be printed|gsp trace crash|heartbeat not timed out"
    r"|rc watchdog timeout forced to",
)
_fine(
    "kernel",
    "corrected|correctable|receiver error|rxerr|bad tlp|bad dllp|badtlp|baddllp|rollover|nonfatalerr|corrinterr",
    r"severity=correct(?:ed|able)\b|\baer: .{0,60}(?<!un)correct(?:ed|able)\b.{0,40}|\bseverity: corrected"
    r"|(?:pcieport|nvme|pci|nvidia|mlx5_core|efa|aer:)\b.{0,60}\[ ?\d{1,2}\] (?:receiver error|rxerr|bad ?tlp"
    r"|bad ?dllp|rollover|nonfatalerr|correctedinterr|corrinterr)|(?<!un)corrected error\(s\)",
)
_fine("cuBLAS", "unable to register", r"unable to register cu(?:blas|fft|dnn) factory")
_fine("ray", "won`t affect ray|won't affect ray", r"won[`']t affect ray")
_fine("Lightning", "time limit reached. elapsed", r"time limit reached\. elapsed time")
_fine("kernel", "shutdown timeout set", r"shutdown timeout set to")
_fine("pip", "dependency resolver does not", r"pip's dependency resolver does not currently")
_fine("TensorFlow", "dynamic library", r"could not load dynamic library")
_fine("vLLM", "import from vllm._", r"failed to import from vllm\._")
_fine("libfabric", "initialize rdma protocol", r"net/ofi failed to initialize rdma protocol")
_fine("kubelet", "pressure", r"\b(?:memory|disk|pid)-?pressure(?:\s{1,12}false|:no(?:schedule|execute))\b")
_fine("acpi", "acpi ", r"\bacpi (?:bios )?(?:error|warning|exception)\b")
_fine(
    "shell",
    "max locked memory|open files|max user processes|max memory size|virtual memory",
    r"^\s{0,8}(?:max locked memory|open files|max user processes|max memory size|virtual memory)\s{1,40}\(",
)
_fine("Slurm", "--state|states: [", r"\s--states?[= ]\w|\bstates: \[")
_fine("Slurm", "step creation", r"step creation (?:temporarily|still) disabled, retrying")
_fine(
    "gloo",
    "connected to",
    r"\bis connected to 0 peer ranks\. expected number of connected peer ranks is ?: ?0\b"
    r"|\bis connected to (\d+) peer ranks\. expected number of connected peer ranks is ?: ?\1\b",
)
_fine(
    "libibverbs",
    "libibverbs: warning",
    r"libibverbs: warning: couldn't (?:load driver '\S{1,80}': .{0,120}cannot open shared object|open config dir)",
)
_fine("vLLM", "preempted request|request preempted", r"preempted request \S{1,80} has been resumed")
_fine("vLLM", "signal=sigint", r"\[shutdown\] .{0,60}\bsignal=sigint\b")
_fine("driver", "nv_warn_nothing_to_do", r"nv_warn_nothing_to_do")
_fine("NFS", "nfs: server", r"nfs: server \S{1,200} ok\b")
_fine("c10d", "address family not supported|errno: 97", r"errno: 97\b|address family not supported")
_fine(
    "training loops",
    "number of nan iterations",
    r"^(?!.*(?:loss|norm)\w*:? {0,4}(?:[-+]?nan|[-+]?inf)\b)(?=.*number of nan iterations: {0,8}0\b)",
)
_fine(
    "loss scaling",
    "loss scale|loss_scale|overflow",
    r"^(?!.*(?:\bnan\b|\binf\b|already at minimum|minimum loss scale)).*(?:overflow!.{0,80}(?:skipping step|reducing)"
    r"|gradient overflow\.? .{0,40}skipping step.{0,60}reducing loss scale to [1-9]\d*(?:\.\d+)?(?!\d*e-)\b)",
)
_fine(
    "Keras",
    "improved from inf|did not improve|best|improved from",
    r"(?:improved from|did not improve from|best\w*[ :=]{1,3}) ?-?inf\b",
)
_fine(
    "NumPy",
    "runtimewarning",
    r"runtimewarning: (?:invalid value|overflow|divide by zero|mean of empty|all-nan|degrees of freedom)",
)
_fine(
    "Python",
    "futurewarning|deprecat|userwarning: the |pendingdeprecation|fyi",
    r"\b(?:pending)?(?:future|deprecation)\w*warning\b|\bdeprecat(?:ed|ion)\b.{0,160}(?:removed|use |instead"
    r"|future|favou?r)|\[w\d{0,4} .{0,80}deprecat",
)
_fine(
    "everybody",
    "error|fail|no oom|0 error|errors: 0|error: 0|no nan|no xid|0 failed|failed: 0|no fault|no failures|0 failures"
    "|recovered|no issues|0 failure|anomal|0 nan|0 xid",
    r"\bno (?:\w+ )?(?:oom\w*|errors|nans?|xids?|faults?|failures?|issues?|problems?"
    r"|anomal\w+)\b(?! message)(?:.{0,24}(?:found|detected|seen|occurred|so far|reported|during)|\s*[.!)]|\s*$)"
    r"|\bwithout (?:any )?errors?\b|\b(?:errors|failures|failed) ?[:=] ?0\b(?!\.)"
    r"|(?<!gpu )(?<!rank )(?<!device )(?<!node )(?<![.:_-])\b0 (?:errors?|failures?|nan|xid)\b"
    r"|(?<![a-z] )(?<![.:])\b0 failed\b",
)
_fine("urllib3", "retrying (", r"\bretrying \(retry\((?!total=0\b)")
_fine(
    "everybody",
    "resumed|succeeded|successfully|success|connected|connection re",
    r"\b(?:re)?connect(?:ed|ion) (?:re-?established|successful|succeeded|ok)\b|\bsuccessfully (?:loaded|saved"
    r"|connected|initiali[sz]ed|recovered|resumed|restored|reset|started|joined|registered|finished)"
    r"|retry succeeded|reset successful|completed successfully",
)
_fine(
    "settings",
    "timeout|timelimit|_error|on_error|max_restarts|nan_",
    r"^(?=.{0,80}(?:timeout|timelimit|_error|max_restarts|nan_))\s{0,8}(?:export |set |env "
    r"|-x )?-{0,2}[a-z][\w.-]{1,60}\s?(?:=|\.{3,80})\s?[\"']?[\w.:/-]{1,80}[\"']?[,;]?\s{0,4}$",
)
_fine(
    "c10d",
    "initialization options|environment:|timeout(ms)|processgroupnccl created|torch_nccl|processgroup"
    "|async_error_handling|use_high_priority|enable_timing",
    r"processgroup\w*.{0,60}(?:initiali[sz]ation options|created|created with|environments?:)"
    r"|processgroup\w* preparing to dump debug info"
    r"|(?:\w+_)?timeout(?:\(ms\))?: ?\d+,? .{0,40}(?:use_high_priority|async_error_handling|enable_timing)"
    r"|torch_nccl_async_error_handling.{0,20}(?:set|: ?\d|=|default)|^\W{0,4}torch_nccl\w+ ?(?:set to|: ?\d|= ?\d)",
)
_fine(
    "Ray",
    "object store is using /tmp|dashboard|metrics head|prometheus|metrics",
    r"object store is using /tmp instead|(?<!component )dashboard.{0,40}(?:not started|agent|is not available)"
    r"|failed to (?:establish|connect).{0,40}metrics|metrics exporter",
)
_fine(
    "Megatron",
    "will not load any checkpoints|from random|from scratch",
    r"will not load any checkpoints|(?:start|train\w*|initiali[sz]\w+)\w* from (?:random|scratch)",
)
_fine(
    "schedulers",
    "preempt",
    r"preempt\w*[ :=]{1,3}(?:0|false|none|disabled)\b(?!/)|sequence group .{0,40}preempted|preempt(?:ion)?_mode"
    r"|preempted by preemptionmode|preempt[-_]?able",
)
_fine("kernel", "disables this message", r"hung_task_timeout_secs\" disables this message")
_fine(
    "kernel",
    "voluntary kernel preemption|preempt_|dynamic preempt|clocksource|apparmor=|audit:|audit(",
    r"dynamic preempt|\bpreempt_\w+|clocksource: |apparmor=\"(?:status|allowed)|audit: type|audit\(\d",
)
_fine(
    "kernel",
    "mce: using|edac mc: ver|edac mc|rcu: |nmi watchdog|machine check event|aer: enabled|mce:|pme: signaling",
    r"mce: (?:using|cpu0: thermal monitoring|\[firmware bug\]: (?:the )?ce)|edac mc\d?: (?:ver|giving out)"
    r"|rcu: (?:hierarchical|preemptible|\trcu|adjusting|srcu)|nmi watchdog: enabled|aer: enabled"
    r"|pcieport.{0,60}aer: enabled|pme: signaling",
)
_fine(
    "nvidia",
    "not active|n/a|: 0|slowdown|: no|: none",
    r"^\s{0,60}[\w /-]{0,40}(?:slowdown|thermal|retire\w*|remapp\w*|ecc|error|uncorrectable|correctable|pending"
    r"|failure|replay\w*|reset|required|action)[\w :/-]{0,60}:\s{1,8}(?:not active|n/a|0|no|none)\s*$",
)
_fine(
    "nvidia",
    "nvrm: loading|nvidia-nvlink: nvlink core|nvidia-modeset|persistence|nvidia-nvswitch|nvlink core is being",
    r"nvrm: loading|nvlink core is being|nvidia-modeset: loading|nvidia-nvswitch\d*: (?:open|using|probing)"
    r"|persistence mode",
)

_fine(
    "kernel",
    "command line: ",
    r"^\s{0,8}(?:kernel )?command line: ",
)
_fine(
    "node termination handler", ": true|: false", r"^\s{0,8}(?:enable|check|disable|use)-[\w-]{1,60}: (?:true|false)\b"
)
_fine(
    "EC2",
    "interruption|rebalance|preemption|termination",
    r"\b(?:no|checking for|polling for|waiting for|watching for|listening for|monitoring for"
    r"|monitor for) (?:\w{1,16} ){0,3}(?:interruption|rebalance|preemption|termination)\b(?! victims)",
)
_fine("cluster-autoscaler", "no unschedulable", r"\bno unschedulable pods\b")
_fine(
    "Jupyter",
    "in use|to bind|not bind",
    r"(?:in use|to bind|not bind)\b.{0,80}[ ,;](?:trying|using|falling back to|switching to) (?:another|the next|next"
    r"|a different|a free|port \d)",
)
_fine("DeepSpeed", "cannot find -l", r"\bld: cannot find -l(?:aio|cufile|curand)\b")
_fine("Hugging Face", "defaulting to existing file", r"local file already exists\. defaulting to existing file")
_fine("earlyoom", "when mem", r"\bsig(?:term|kill) when mem\b")

_advice("PyTorch", "asynchronously reported", r"errors? might be asynchronously reported")
_advice("PyTorch", "stacktrace", r"stack ?trace (?:below )?(?:might|may) be incorrect")
_advice(
    "PyTorch",
    "cuda_launch_blocking",
    r"(?:consider|set|pass|debug|try|export)\w*.{0,60}cuda_launch_blocking|cuda_launch_blocking.{0,10}=.{0,3}1",
)
_advice("PyTorch", "torch_use_cuda_dsa", r"torch_use_cuda_dsa")
_advice(
    "PyTorch",
    "nccl_debug=|for more info|to enable traceback|for more details|error_file: <n/a>|<n/a>",
    r"nccl_debug=(?:info|warn)|to enable traceback see|for more (?:info|details)|<n/a>",
)
_advice(
    "everybody",
    "seems to be|the above exception was|during handling of|suggestion:|hint:|note:|tip:|advice:",
    r"^\s{0,8}(?:hint|note|tip|suggestion|advice): |the above exception was the direct cause"
    r"|during handling of the above exception",
)

FINE = tuple(_FINE.rows)
ADVICE = tuple(_ADVICE.rows)
