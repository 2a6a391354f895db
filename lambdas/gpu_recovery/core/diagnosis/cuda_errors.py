"""CUDA error kinds: what an error line says about the GPU, in the words of CUDA, cuBLAS, cuDNN and PyTorch."""

from __future__ import annotations

import re
from enum import StrEnum

LINE_MAX = 4_000
"""Characters of a line that are searched."""


class CudaError(StrEnum):
    """Kind of a CUDA error."""

    MEMORY = "memory"  # the GPU has too little memory; the context stays usable
    HARDWARE = "hardware"  # the error names the hardware
    ASSERTION = "assertion"  # a kernel of the program found invalid data
    DRIVER = "driver"
    CONFIGURATION = "configuration"  # a build or a device number that does not fit this instance
    CONTEXT = "context"  # no hardware is named; the error may come from any earlier stage


STICKY = frozenset({CudaError.HARDWARE, CudaError.ASSERTION, CudaError.CONTEXT})
"""Kinds after which every later call of the same CUDA context fails as well.

Row 2 of the fault catalogue, docs/diagnosis.md.
"""

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
    """Kind of the error in `line`, the first kind with a matching pattern; None for any other error."""
    return next((kind for kind, pattern in _PATTERNS if pattern.search(line[:LINE_MAX])), None)
