"""What an error in one line says of the GPU: its kind, by how CUDA, cuBLAS, cuDNN and PyTorch word theirs."""

from __future__ import annotations

import re
from enum import StrEnum

LINE_MAX = 4_000
"""No exception's line is longer than this to us."""


class CudaError(StrEnum):
    """What kind of error of CUDA a line is."""

    MEMORY = "memory"  # it asked for more than there is: the context lives on
    HARDWARE = "hardware"  # it names the hardware
    ASSERTION = "assertion"  # a kernel of the program's own found its data wrong
    DRIVER = "driver"
    CONFIGURATION = "configuration"  # a build or a device number that does not fit this machine
    CONTEXT = "context"  # an error that names no hardware, and may be of any earlier stage


STICKY = frozenset({CudaError.HARDWARE, CudaError.ASSERTION, CudaError.CONTEXT})
"""After these every later call of the same context fails as well (row 2)."""

_PATTERNS: tuple[tuple[CudaError, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            CudaError.MEMORY,
            r"\b(?:cuda|hip)\b[^\n]{0,60}out of memory|OutOfMemoryError|cudaErrorMemoryAllocation"
            r"|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
        ),
        (
            CudaError.HARDWARE,
            r"uncorrectable|\bECC\b|cudaErrorECC|\bnvlink\b|(?:fallen|fell|falls) off the bus"
            r"|\b(?:gpu|device) is lost\b|hardware stack error|requires? (?:a )?reset",
        ),
        (CudaError.ASSERTION, r"device-side assert|cudaErrorAssert\b|CUDA_ERROR_ASSERT\b"),
        (
            CudaError.DRIVER,
            r"system not yet initiali[sz]ed|cudaErrorSystemNotReady|driver version is insufficient"
            r"|no CUDA-capable device|driver/library version mismatch|system has unsupported display driver",
        ),
        (CudaError.CONFIGURATION, r"no kernel image|invalid device (?:function|ordinal)|cudaErrorInvalidDevice\b"),
        (
            CudaError.CONTEXT,
            r"\bcuda (?:runtime |driver |kernel )?(?:error|failure)|\bcudaError[A-Z]\w+|\bCUDA_ERROR_\w+"
            r"|(?:CUBLAS|CUDNN|CUSOLVER)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)"
            r"|AcceleratorError|illegal memory access|unspecified launch failure|misaligned address"
            r"|illegal instruction was encountered",
        ),
    )
)


def cuda_error(line: str) -> CudaError | None:
    """The kind of the error in `line`; None if it is none of CUDA's: the first kind above that fits."""
    return next((kind for kind, pattern in _PATTERNS if pattern.search(line[:LINE_MAX])), None)
