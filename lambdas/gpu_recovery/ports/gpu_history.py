"""Interface of the GPU history for the function that writes it. Readers use `ports.event_history.HistoryReader`."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class GpuHistory(Protocol):
    """Writes samples of the GPUs' gauges."""

    def write(self, instance_id: str, at: datetime, text: str) -> None:
        """Write one sample, which expires after `core.gpu_history.KEPT`.

        Raises:
            Unavailable: the sample is not written.
        """
