"""Garbage collection after test files that raised the memory of a worker.

Clients of boto3, accounts of moto and syntax trees refer to themselves, so only a collection frees them. Python makes
a full collection seldom in a process with many objects. Without this plugin each such file adds to the memory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from tests.processor_time import peak_mib

RISE_MIB = 8
"""Rise of the largest memory since the last collection that calls for the next."""


class FileGarbage:
    """Plugin that collects at the end of a file, if the largest memory has risen.

    Attributes:
        peak_mib: largest memory of the process at the last collection, in MiB.
    """

    def __init__(self, peak: Callable[[], int] = peak_mib) -> None:
        self._peak = peak
        self.peak_mib = peak()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self.file_ended()
        return result

    def file_ended(self) -> None:
        """Collect the garbage if the largest memory has risen by `RISE_MIB`."""
        peak = self._peak()
        if peak - self.peak_mib >= RISE_MIB:
            gc.collect()
            self.peak_mib = peak
