"""Log signatures of errors of GPU runtimes that name no hardware: CUDA, HIP, Level Zero, and libraries on them."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_WARNING = LineRole.WARNING

_C = LineKind.RUNTIME_ERROR_CUDA
_add(
    "CUDA",
    _C,
    "out of resource: |to find an engine to execute|valid cudnn algorithm|error internal|cutlass"
    "|invalid __|cuda_exception_|gpuassert|dnn library initialization",
    r"out of resource: (?:shared memory|registers|threads)|unable to find (?:an engine to execute this comp"
    r"|a valid cudnn algorithm)|cutlass.{0,120}error internal|^\s{0,8}runtimeerror: error internal\s{0,4}$"
    r"|={9} invalid __(?:global|shared|local)__ (?:read|write|atomic)|\bgpuassert: |\bcuda_exception_\d"
    r"|\bdnn library initialization failed",
)
_add(
    "CUDA",
    _C,
    "cuda|cumem|cuctx|custream|cuevent|cumodule|cugraph|cuipc",
    r"\bcuda[a-z]{4,40}\w{0,12}(?:\(.{0,60}\))? failed\b|\bcu(?:mem|ctx|stream|event|module|graph|ipc)[a-z]\w{0,40}"
    r"(?:\(.{0,60}\))? failed\b|\bfailed to create a cuda context|\berror using cuda api\b",
    soft=True,
)
_add(
    "NCCL",
    _C,
    "ncclinternalerror|internal error",
    r"\bncclinternalerror: |\bnccl error in: .{1,200}\binternal error\b",
    LineRole.CASCADE,
    whole=True,
)
_add("cuda-gdb", _C, "enablepeeraccess", r"cuda api error detected: cudadeviceenablepeeraccess", _WARNING)
_add("NCCL", _C, "cuda failure", r"nccl warn.{0,24}cuda failure", LineRole.CASCADE)
_add("CUDA graphs", _C, "previous error", r"operation (?:failed|not permitted).{0,40}previous error", LineRole.CASCADE)
_add("PyTorch", LineKind.USER_ERROR_CONFIG, "invalid device ordinal", r"invalid device ordinal")
_add(
    "CUDA",
    _C,
    "cuda|hip error|nvrtc|cudnn|cublas|cusparse|cusolver|cufft|triton|thrust|no kernel image is available",
    r"\b(?:cuda|hip)(?: (?:driver|runtime|kernel|api|launch))* (?:error|failure)\b(?!s?(?: handling|s? might"
    r"| check))|\bcuda_error_(?!out|assert|ecc|not_ready)\w+|\bcudaerror(?!notready)[a-z]{4,}|(?:cublas|cudnn|cusparse"
    r"|cusolver|cufft|nvrtc)_(?:status|error)_(?!success)\w+|(?:cublas|cudnn|cusparse|cusolver|nvrtc|cufft) error"
    r"|triton error \["
    r"|check failed: .{0,60}(?:cuda|cudnn|cublas)_?(?:status_)?success|thrust::system::system_error"
    r"|cudart.{0,40}(?:failed|error)|no kernel image is available for execution",
)
_add(
    "CUDA",
    _C,
    "illegal memory|misaligned address|launch fail|warp |launch timed out|cuda failure|curesult|memory access fault"
    "|page fault|kernel execution error|hsa_status_error",
    r"\bcuda failure \d+ '|\bcuresult error\b|memory access fault by gpu|\[gfxhub\d?\] page fault"
    r"|page fault (?:occurred )?(?:from|on) gpu at|kernel execution error\. \(|hsa_status_error_(?:exception"
    r"|memory_fault|illegal)\w*"
    r"|\billegal memory access (?:was encountered|detected)|\bmisaligned address\b|unspecified launch failure"
    r"|cuda.{0,40}launch (?:failure|timed out)|warp (?:illegal|out-of-range|misaligned)",
)
_add(
    "runtimes of other makers",
    _C,
    "rocm error|musa error|sycl error|hiperror|rocblas|hipblas|miopen|hipsparse|hipfft|rocsolver|hipsolver|rocfft"
    "|error_device_lost|optix_error|unknown_cuda_error|cufft_|curand_|cutensor_|cusparselt|nvjpeg_|nvjitlink_"
    "|ggml_cuda_|cl_out_of_resources|hiprtc_error",
    r"\b(?:rocm|musa|sycl) error: |\bhiperror(?!nodevice|notready|outofmemory|peeraccessalready)[a-z]{4,40}"
    r"|\b(?:rocblas|hipblas(?:lt)?|miopen|hipsparse(?:lt)?|hipfft|rocsolver|hipsolver|rocfft)_?status_?(?!success"
    r"|_?alloc)\w{4,40}|\b(?:rocblas|hipblas(?:lt)?|miopen|hipsparse|hipfft|rocfft)(?:\([^)]{0,60}\))? error\b"
    r"|\b(?:vk_|ur_result_|ze_result_)?error_device_lost\b|\boptix_error_(?!disk|out_of|host)\w"
    r"|\bunknown_cuda_error\b|\bcufft_(?!success|alloc)\w{2,30}_(?:error|failed)\b"
    r"|\b(?:curand|cutensor|cusparselt|nvjpeg|nvjitlink)_(?:status|error)_(?!success|alloc)\w"
    r"|\bggml_cuda_\w{3,60}: .{0,80}\bfailed\b|\bcl_out_of_resources\b|\bhiprtc_error_\w",
)
_add(
    "TensorRT",
    _C,
    "error code ",
    r"\berror code \d{1,3}: (?:cuda (?:runtime|driver)|cudnn|cublas(?:lt)?|cask|myelin) \(",
)
_add(
    "PhysX",
    _C,
    "physx|narrowphase|context manager error|to launch|launch kernel|launch cuda kernel",
    r"\bphysx error: .{0,200}(?:\bgpu\b.{0,120}\bfail|\bfail(?:ed)? to launch|\bmemcpy fail|\bcuda\b.{0,60}\berror"
    r"|\bfail(?:ed|ure)?\b.{0,40}\b7\d\d\b)|\bphysx internal cuda error|\bcuda context manager error\b"
    r"|\bgpu \w{1,60} fail(?:ed)? to launch|\b(?:failed|unable) to launch (?:the )?(?:\w{1,40} )?kernel\b"
    r"|\bkernel \S{1,80} (?:failed|fails) to launch",
)
_add(
    "PyTorch", _C, "unhandled cuda error|ncclunhandledcudaerror|unhandled", r"unhandled ?cuda ?error", LineRole.CASCADE
)

SIGNATURES = tuple(_ALL.rows)
