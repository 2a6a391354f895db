"""Memory of the host for the copy of a state. Only a program that has torch imports this module."""

from __future__ import annotations

import logging
import mmap
import weakref
from contextlib import suppress
from typing import Any

import torch

_PORTABLE = 1
_log = logging.getLogger(__name__)


class HostMemory:
    """A range of memory that is kept for all saves of a process. A GPU copies fastest into pinned memory.

    Args:
        size: the bytes.
        is_pinned: pin it for CUDA. If that fails, copies are slower.
    """

    def __init__(self, size: int, *, is_pinned: bool) -> None:
        self.size = size
        self._unpin: Any = None
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for name in ("MADV_HUGEPAGE", "MADV_DONTFORK"):  # a forked child must not make the kernel move pinned pages
            with suppress(OSError, AttributeError):
                self._map.madvise(getattr(mmap, name))
        self._raw: Any = torch.frombuffer(self._map, dtype=torch.uint8)
        if is_pinned:
            self._pin()

    def _pin(self) -> None:
        code = int(torch.cuda.cudart().cudaHostRegister(self._raw.data_ptr(), self._raw.numel(), _PORTABLE))
        if code:
            _log.warning("%d bytes of memory cannot be pinned (CUDA error %d): saves are slower", self.size, code)
            return
        self._unpin = weakref.finalize(self, _unpin, self._raw.data_ptr())
        self._unpin.atexit = False

    def tensor(self, start: int, size: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Return a tensor on a part of the memory."""
        return self._raw[start : start + size].view(dtype).view(shape)

    def bytes(self, start: int, size: int) -> memoryview:
        """Return the bytes of a part of the memory."""
        return memoryview(self._map)[start : start + size]

    def close(self) -> None:
        """Unpin the memory. It is released with its last tensor."""
        if self._unpin:
            self._unpin()


def _unpin(address: int) -> None:
    torch.cuda.cudart().cudaHostUnregister(address)
