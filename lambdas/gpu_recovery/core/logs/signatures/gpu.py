"""Log signatures of GPUs.

Sources: the driver, CUDA, PyTorch, NCCL, the fabric manager, the container toolkit.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

# -- hardware ----------------------------------------------------------------------------------------------------------

_WARNING = LineRole.WARNING

_L = LineKind.HARDWARE_GPU_LOST
_add(
    "driver",
    _L,
    "cannot attach gpu|polling gpu back on bus",
    r"\*\*\* cannot attach gpu|timeout polling gpu back on bus",
)
_add("amdgpu", _L, "amdgpu", r"amdgpu.{0,80}(?:device lost from bus|fatal error during gpu init|failed to resume)")
_add(
    "driver",
    _L,
    "gpu|nvidia|bus",
    r"fallen off (?:the )?bus|\bgpu[ _]is[ _]lost\b|error_gpu_is_lost|err_gpu_is_lost|\bgpu.{0,30}\boff bus\b"
    r"|\blost (?:the )?gpu\b|\bgpu(?![\[-]).{0,40}(?:not responding|has been lost|disappeared|went missing"
    r"|no longer (?:visible|present|accessible))",
)
_add("nvidia-smi", _L, "unable to determine the device handle", r"unable to determine the device handle for gpu")
_add(
    "NVML",
    _L,
    "nvmldevicegethandle|device handle",
    r"(?:nvmldevicegethandle\w*|device handle).{0,80}(?:unknown error|gpu is lost|failed to get)",
)
_add(
    "driver",
    _L,
    "rminitadapter|rm_init_adapter|rminitializ",
    r"(?:rminitadapter|rm_init_adapter|rminitializ\w*) ?(?:failed|\()",
)
_add(
    "driver",
    _L,
    "nvrm:",
    r"nvrm:.{0,60}(?:failed to copy vbios|gpu.{0,24}cannot be (?:found|accessed)|is not (?:supported"
    r"|accessible) .{0,20}bus"
    r"|lost from)",
)
_add("fabric manager", _L, "failed to find the gpu handle", r"failed to find the gpu handle \d+")

_E = LineKind.HARDWARE_GPU_ECC
_add("amdgpu", _E, "amdgpu", r"\bamdgpu \S{1,24}: (?:\{\d{1,9}\})?\[hardware error\]", _WARNING)
_add(
    "kernel",
    LineKind.NODE_KERNEL,
    "edac|ce memory|machine check event",
    r"\bedac\b.{0,16} \d{1,9} ce\b|\bce memory (?:read|write|scrubbing) error|machine check events? logged",
    _WARNING,
)
_add(
    "kernel",
    LineKind.NODE_KERNEL,
    "severity=uncorrect|edac|dimm|mce: |[hardware error]|uncorrectable ecc|uncorrected ecc",
    r"severity=uncorrect|\bedac\b.{0,80}\b(?:ue|uncorrect\w+)\b|\[hardware error\](?!.{0,80}(?<!un)corrected)"
    r"|mce: .{0,80}machine check(?!.{0,40}events? logged)|uncorrect\w+ ecc.{0,60}dimm|dimm.{0,60}uncorrect\w+ ecc"
    r"|\bmemory\b.{0,24}\| uncorrect(?:able|ed) ecc",
)
_add("DCGM", _E, "uncorrectable memory errors", r"\bgpu (?:\d{1,3} )?(?:has )?uncorrectable memory errors")
_add(
    "amdgpu",
    _E,
    "amdgpu|neuron_hw_err|errevent_athub",
    r"amdgpu.{0,80}uncorrectable (?:hardware|memory|ecc) error|errevent_athub_interrupt"
    r"|amdgpu.{0,120}\bras\b.{0,60}fatal"
    r"|neuron_hw_err=(?:sram|hbm|nc)_uncorrectable_error",
)
_add(
    "Neuron",
    LineKind.HARDWARE_GPU_RESET,
    "neuron_hw_err|nrt_exec_unit",
    r"neuron_hw_err=\w+|nrt_exec_unit_unrecoverable",
)
_add(
    "CUDA",
    _E,
    "ecc",
    r"uncorrect\w+[ _]{1,2}(?:double[- ]bit )?ecc|ecc[ _]{1,2}uncorrect|ecc error.{0,40}uncorrectable",
)
_add(
    "driver",
    _E,
    "double bit|double-bit|dbe",
    r"\bdouble[- ]bit\b.{0,40}(?:ecc|error|detected)|\bdbe\b.{0,40}(?:detect|error|>|count)|\becc.{0,24}\bdbe\b",
)
_add(
    "driver",
    _E,
    "row remap|row-remap|remapped row|row remapper|remap",
    r"(?:\brow[ -]remap\w*|\bremap(?:ped|per|ping)\b).{0,40}(?:fail|pending|occurr|required|exhaust)|(?:failed to"
    r"|failed|failing"
    r"|pending) (?:row[ -])?remap",
)
_add(
    "driver",
    _E,
    "page retirement|retired page|page-retirement|dynamic page|retire",
    r"(?:fail|pending|exceed|recorded|success|error).{0,60}(?:page[- ]retire|retired page)|(?:page[- ]retire\w*"
    r"|retired pages?).{0,60}(?:fail|pending|exceed|error|recorded)",
)
_add(
    "DCGM",
    _E,
    "ecc",
    r"\becc\b.{0,40}(?:errors?|violation|fault)\b.{0,40}(?:detect|exceed|occur|encounter|increas|found)|(?:detect"
    r"|encounter|fatal|volatile|uncontained|contained)\w*.{0,40}\becc errors?\b(?!.{0,12}(?:: ?0|= ?0))",
)
_add(
    "driver",
    _E,
    "sram|uncorrectable",
    r"uncorrectable (?:sram|dram|memory|hbm) error(?!s?: ?0)|sram.{0,30}(?:threshold exceeded"
    r"|uncorrectable)(?!.{0,30}: (?:0|no)\b)",
)

_N = LineKind.HARDWARE_NVLINK
_add(
    "NCCL",
    LineKind.DRIVER_ENVIRONMENT,
    "nvls",
    r"failed to bind nvlink sharp \(nvls\) multicast|nvls\).{0,60}multicast.{0,80}cuda error 401",
)
_add(
    "CUDA",
    _N,
    "nvlink",
    r"nvlink.{0,24}(?:\bdown\b|uncorrect|crc|recovery fail|fatal|failure|fault|inactive|training fail"
    r"|\berrors?\b(?! ?(?:count\w*|s)?[:=] ?0))|uncorrect\w+ nvlink|(?:failed|error"
    r"|fatal).{0,40}nvlink(?! transport)(?!.{0,40}not supported)",
)
_add(
    "driver",
    _N,
    "nvswitch",
    r"nvswitch.{0,24}(?:non-fatal|fatal) error|(?:non-fatal|fatal) error.{0,40}nvswitch"
    r"|nvswitch(?!/)(?:es)?.{0,60}(?:failed|failure|failing|don't match|degraded"
    r"|link.{0,12}down)(?!.{0,80}nv_warn_nothing_to_do)",
)
_add("driver", _N, "knvlink", r"knvlink\w+:.{0,80}(?:fail|error)")
_add("driver", _N, "peer gpu memory", r"invalid access of peer gpu memory")

_R = LineKind.HARDWARE_GPU_RESET
_add(
    "driver",
    _R,
    "reset|gsp|restart|recovery action|watchdog|gpu is|require|heartbeat|reboot|rpcrecvpoll",
    r"gpu.{0,24}requires? (?:a )?(?:reset|restart|reboot)|gpu reset (?:is )?required|\breset required\b"
    r"|(?:nvml_error|nv_err|nvml_rtn|cuda_error)_reset_required|requir\w+ (?:an )?os reboot"
    r"|nvrm:.{0,80}(?:gsp|libos)\b.{0,60}(?:time-?d?[ -]?out|timed out|crashed|not responding|unresponsive|exception"
    r"|(?:boot|rpc).{0,24}fail|failed 0x)|nvrm:.{0,40}heartbeat timed out|timed out waiting for gsp"
    r"|timeout.{0,30}waiting for (?:rpc.{0,40}|response from )?gsp"
    r"|nvrm:.{0,60}(?:cannot initialize gsp|failed to boot gsp|gsp-rm boot attempts exceeded|gsp-rm entered into icd)"
    r"|nvrm:.{0,60}(?:gpu is (?:probably )?(?:locked|hung)|rpcrecvpoll timed ?out)|gsp\b.{0,24}\bpmu has halted"
    r"|gpu recovery action.{0,40}(?:reset|reboot|drain)",
)
_add("driver", _R, "need", r"\bgpu (?:.{1,80} )?needs? to be reset\b", whole=True)
_add("UVM", _R, "global fatal error", r"uvm.{0,60}encountered (?:a )?global fatal error")
_add(
    "amdgpu",
    _R,
    "amdgpu|gpu hang|hw exception by gpu|*error* ring|engine reset failed",
    r"amdgpu.{0,80}(?:gpu reset ?(?:begin|\(\d+\) failed|failed)|ring \S{1,40} (?:timeout|timed out)|ring reset"
    r"|gpu recovery (?:failed|disabled)|vram is lost|smu.{0,60}(?:no response|not done|timed? ?out))"
    r"|\*error\* ring \S{1,40} timeout|hw exception by gpu.{0,160}|\breason ?: ?gpu hang|\bgpu hang: "
    r"|amdgpu.{0,60}(?:mode\d reset|gpu reset.{0,16}succeeded)|guc: engine reset failed",
)
_add(
    "amdgpu",
    _R,
    "unrecoverable state|mes failed|mes ring|hardware queue|queue preemption|reset failed|hanged state|wedged"
    "|process queues|gpu reset end|resetting chip|resetting rcs|resetting bcs|resetting vcs|resetting vecs"
    "|resetting ccs|habanalabs",
    r"amdgpu.{0,80}(?:in (?:an )?unrecoverable state|\bmes\b.{0,12}failed to respond|\bmes ring buffer is full"
    r"|failed to \w{3,10} hardware queue (?:from|to) mes|queue preemption (?:failed|time ?out)"
    r"|ring \S{1,40} reset failed|smu is in hanged state|failed to evict process queues|gpu reset end with ret = -)"
    r"|\b(?:asic|gpu mode\d|xgmi hive|hive) reset failed|\bresetting (?:chip|(?:rcs|bcs|vcs|vecs|ccs)\d{1,2}) for "
    r"|habanalabs \S{1,24}: (?:heartbeat failed|device heartbeat failed|failed to (?:hard[- ]|soft[- ])?reset)"
    r"|declared device \S{1,40} as wedged|device wedged, (?:needs|but) recover|\*error\* gt\d{1,2}: reset failed",
    whole=True,
)
_add(
    "nvidia-modeset",
    _R,
    "nvidia-modeset: error: gpu:",
    r"nvidia-modeset: error: gpu:\d{1,3}: (?:error while waiting for gpu progress"
    r"|failed to query display engine channel state"
    r"|idling display engine timed out)",
)

# -- the driver's environment ------------------------------------------------------------------------------------------

_D = LineKind.DRIVER_ENVIRONMENT
_add("CUDA", _D, "error 80|error 3", r"\berror 80[234]\b|\berror 3(?:4|5|6)?: (?:cuda driver|initialization|api)")
_add(
    "CUDA",
    _D,
    "driver|forward compatibility was attempted|cuda_error_compat_|cuda_error_stub_",
    r"unsupported display driver|driver interface version.{0,60}(?:don't|doesn't|do not|does not) match"
    r"|cuda driver version is insufficient|forward compatibility was attempted"
    r"|found no nvidia driver|nvidia driver on your system is too old|driver/library version mismatch"
    r"|couldn't communicate with the nvidia driver|could not select device driver"
    r"|nvidia driver (?:is )?not (?:loaded|found|installed|running)|no nvidia driver|driver (?:is )?not loaded"
    r"|driver version mismatch|driver rpc error|failed to (?:load|initialize).{0,30}\bdriver\b"
    r"|cuda_error_system_driver_mismatch|cuda_error_(?:stub|compat)_\w+|driver and runtime version",
)
_add(
    "CUDA",
    _D,
    "system not yet initialized|cuda_error_system_not_ready|system_not_ready",
    r"system not yet initialized|system_not_ready",
)
_add(
    "CUDA",
    _D,
    "no cuda|cuda driver init|cuda_error_no_device|no rocm|no hip|hiperrornodevice|cuinit|no visible gpu devices"
    "|adding custom device|incompatible kernel and userspace",
    r"cuda driver initialization failed|no (?:cuda|rocm)-capable (?:device|gpu)|no (?:cuda|hip) gpus are available"
    r"|cuda_error_no_device"
    r"|hiperrornodevice|failed call to cuinit|\bno visible gpu devices|\bincompatible kernel and userspace"
    r"|\badding custom device .{0,4}/dev/(?:nvidia|kfd|dri|neuron)",
    whole=True,
)
_add("nvidia-smi", _D, "no devices were found", r"^\s{0,4}no devices were found\s*$")
_add(
    "driver",
    _D,
    "/dev/kfd|firmware load|gsp_|request_firmware|no firmware image",
    r"/dev/kfd.{0,60}(?:fail|no such|permission|unable)|(?:unable|failed).{0,40}/dev/kfd"
    r"|direct firmware load for nvidia/\S{1,80} failed|\bgsp_\w{2,20}\.bin\S{0,4}.{0,60}(?:failed with error"
    r"|not found)"
    r"|nvidia.{0,60}request_firmware.{0,40}fail|nvrm: .{0,40}no firmware image found",
)
_add(
    "device plugin",
    _D,
    "nvml library|nvml: error_|kernel module was not|nvidia-imex|initialization error|libraries: lib"
    "|platform detected|strategy detected|nvidia devices|rock module|could not insert|module nvidia",
    r"nvml: error_(?:library|driver|uninit)\w*|nvidia kernel module was not|nvidia-imex\.service: .{0,60}(?:fail"
    r"|exited)"
    r"|cuda error: initialization error|shared libraries: lib(?:nvidia|cuda)\b|rock module is not loaded"
    r"|could not insert '?nvidia|module nvidia\S{0,12} not found"
    r"|could not load nvml library|incompatible (?:platform|strategy) detected|failed to (?:detect|find"
    r"|query) nvidia devices",
)
_add("CUDA", _D, "cuda unknown error|cuda_error_unknown", r"cuda unknown error|cuda_error_unknown", whole=True)
_add(
    "NVML",
    _D,
    "nvml|api mismatch|nvidia",
    r"failed to initialize nvml|can't initialize nvml|nvml (?:initiali[sz]ation|init).{0,20}(?:fail|error)"
    r"|nvml_error_(?:driver|lib|uninit)\w*|nvrm: api mismatch|api mismatch: the client|nvml: ?(?:driver(?:/| not)"
    r"|unknown error)|this pci i/o region assigned to your nvidia|module nvidia(?:_\w+)? (?:not found"
    r"|is not loaded)|nvidia.{0,40}(?:disagrees about version|version magic)|nvidia: probe of .{0,40}failed"
    r"|nvrm: (?:the nvidia probe routine|no nvidia)",
)
_add(
    "container toolkit",
    _D,
    "nvidia-container|nvidia runtime|nvidia-ctk|unresolvable cdi|runtime|auto-detected mode as",
    r"exec: \W{0,4}nvidia-container-\S{1,40} executable file not found|nvidia-container-\w+:.{0,40}(?:error|failed"
    r"|detection)|unknown (?:runtime|or invalid runtime).{0,20}nvidia"
    r"|unresolvable cdi device|nvidia-ctk.{0,40}(?:error|failed)"
    r"|error running (?:prestart )?hook #\d.{0,120}auto-detected mode as",
)
_add(
    "fabric manager",
    _D,
    "fabric manager|fabricmanager|fabric-manager|fabric state",
    r"fabric[ -]?manager(?!.{0,80}\[info\]).{0,60}(?:fail|error|not running|inactive|is not|mismatch|exited"
    r"|not ready|dead"
    r"|aborted|never reported)(?!.{0,20}nvswitch)|fabric state.{0,20}(?:in progress|not)"
    r"|fabric manager config (?:file )?.{0,80}invalid|(?:failed"
    r"|unable).{0,40}fabric[ -]?manager",
)
_add(
    "loader",
    _D,
    "libcuda.so|libnvidia-ml|could not load|could not find|undefined symbol: nvml",
    r"(?:libcuda\.so|libnvidia-ml)\S{0,12}.{0,20}(?:cannot open|not found|no such)|could not (?:load"
    r"|find).{0,40}libcuda|libcuda\.so is not|undefined symbol: nvml\w",
)
_add(
    "driver installer",
    _D,
    "nvidia|installed in this system|kernel source tree|/build: no such file|module build on kernel|kernel headers"
    "|nouveau kernel driver"
    "|uvm kernel module",
    r"unable to (?:load|build|find|determine).{0,24}(?:kernel module 'nvidia|nvidia kernel module|kernel source tree)"
    r"|nouveau kernel driver is currently in use|installed in this system (?:is )?not supported by the(?: nvidia|$)"
    r"|could not load uvm kernel module|nvidia kernel module '\S{1,40}' appears to"
    r"|could not (?:un)?load nvidia driver kernel modules"
    r"|/lib/modules/\S{1,120}/build: no such file|bad return status for module build on kernel"
    r"|(?:kernel headers for kernel \S{1,80}|linux kernel headers) (?:cannot|could not) be found",
)
_add("CUDA", _D, "ptx", r"provided ptx was compiled with an unsupported toolchain|cuda_error_unsupported_ptx_version")
_add(
    "gdrcopy",
    _D,
    "nvidia-peermem|nvidia_peermem|nv_peer_mem|gdrdrv",
    r"(?:nvidia[-_]peermem|nv_peer_mem|gdrdrv).{0,60}(?:not loaded|not found|failed to load|could not be loaded"
    r"|unknown symbol|invalid argument)",
)

# -- errors of the program ---------------------------------------------------------------------------------------------

_A = LineKind.DEVICE_ASSERT
_add(
    "CUDA",
    _A,
    "assert",
    r"device-side assert(?!ions)|cuda_error_assert|cudaerrorassert"
    r"|\bblock: ?\[\d+, ?\d+, ?\d+\], ?thread: ?\[\d+, ?\d+, ?\d+\].{0,8}assertion"
    r"|\.cuh?:\d+.{0,200}assertion .{0,200}failed|assertion failed: \S{1,200}\.cuh?:\d{1,5}, condition",
)

_O = LineKind.CUDA_OOM
_add(
    "PyTorch",
    _O,
    "out of memory|outofmemory|out_of_memory|cudaerrormemoryallocation|resource_exhausted:",
    r"\b(?:cuda|hip|gpu|device|nccl|triton|vram|npu|xpu|mps|hbm)\b.{0,60}(?<!no )\bout[ _]of[ _]memory"
    r"|torch\.(?:cuda\.)?outofmemoryerror|cuda_error_out_of_memory|cudaerrormemoryallocation"
    r"|out of memory.{0,60}(?:\bgpu\b|cuda|allocat\w+ .{0,20}(?:gpu|device))|resource_exhausted: ?(?:out of memory"
    r"|failed to allocate)|cuda failure.{0,12}out of memory|ran out of memory.{0,40}(?:gpu|device|cuda)",
)
_add(
    "PyTorch",
    _O,
    "tried to allocate",
    r"tried to allocate \d.{0,20}\(gpu|tried to allocate.{0,80}total capacity",
    whole=True,
)
_add(
    "engines",
    _O,
    "out of memory|out of device memory|mem-fraction|to cuda|erroroutofmemory|out_of_resources|out_of_device_memory"
    "|memory isn't enough"
    "|memory not enough|allocation_failure|cuda allocation failed|callbackerroroutofmemory|nrt_resource",
    r"cl_mem_object_allocation_failure|cuda allocation failed|callbackerroroutofmemory"
    r"|nrt_resource\b.{0,40}failed to allocate|(?:decode|prefill|prefilling|generate) out of memory"
    r"|not enough memory.{0,60}--mem-fraction"
    r"|cudamalloc\w*(?: retry)?(?: failed)?:? ?out of memory|failed to cuda (?:calloc|malloc)|hiperroroutofmemory"
    r"|hsa_status_error_out_of_resources|out of device memory|device\(id:\d+\) memory isn't enough"
    r"|gpu memory not enough|error_out_of_device_memory",
    whole=True,
)
_add(
    "TensorRT",
    _O,
    "cuda runtime error in|cuda driver error in|requested amount of gpu memory|outofmemory (requested|out_of_memory: ",
    r"cuda (?:runtime|driver) error in .{1,200}\bout of memory|requested amount of gpu memory.{0,60}could not be"
    r"|\boutofmemory \(requested size|out_of_memory: (?:cuda error|rmm failure|maximum pool size exceeded)",
    whole=True,
)
_add(
    "ggml",
    _O,
    "failed to allocate|unable to allocate|device memory allocation of size|outofdevicememory",
    r"(?:failed|unable) to allocate (?!cpu|\w{1,16}_host\b)\w{1,16} buffer(?: of size \d|\s{0,4}$)"
    r"|failed to allocate (?:compute (?:\w\w )?buffers|buffer for kv cache)|\berroroutofdevicememory\b"
    r"|ggml_\w{1,40}: device memory allocation of size \d+ failed",
)
_add(
    "ONNX Runtime",
    _O,
    "bfcarena|bfc_arena",
    r"bfc_?arena.{0,240}(?:failed to allocate memory for requested buffer|is smaller than requested bytes)",
)
_add("cuBLAS", _O, "alloc_failed", r"(?:cublas|cudnn|cusparse|cusolver|cufft)_(?:status_)?alloc_failed")
_add(
    "TensorFlow",
    _O,
    "oom when allocating|resource_exhausted|resourceexhausted|trying to allocate",
    r"allocator \(gpu_\d\w{0,12}\) ran out of memory trying to allocate(?!.{0,200}not a failure)"
    r"|oom when allocating tensor|resource_?exhausted.{0,80}(?:allocat|\bhbm\b|memory)",
)
_add(
    "vLLM",
    _O,
    "cache blocks|gpu memory",
    r"no available memory for the cache blocks|free memory on device.{0,120}less than desired gpu memory"
    r"|not enough gpu memory|insufficient gpu memory|gpu memory (?:is )?(?:exhausted|insufficient)",
    whole=True,
)

_add(
    "CUDA",
    _O,
    "out of memory",
    r"\bcu(?:da)?mem\w{2,40}.{0,60}out of memory|\bcuda\w*alloc\w*.{0,60}out of memory|\bgpuassert: out of memory"
    r"|\berror out of memory at line \d{1,5} in file",
)
_add(
    "CUDA",
    _O,
    "outofmemory (|malloc",
    r"error code 2: outofmemory \(|\bcuda?malloc\w{0,12}(?:\(.{0,60}\))? failed",
)

SIGNATURES = tuple(_ALL.rows)
