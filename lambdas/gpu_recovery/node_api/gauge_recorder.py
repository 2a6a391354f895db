"""Recorder of the GPUs' gauges: writes one sample of an inventory into the GPU history, if its storage answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from gpu_recovery.core.gpu_history import sample_text
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.ports.errors import StorageFailed, Unavailable
from gpu_recovery.ports.gpu_history import GpuHistory


@frozen_dataclass()
class GaugeRecorder:
    """Writes samples. Charts show them and no decision reads them, so a lost sample costs no heartbeat.

    history: receives the samples.
    failed:  receives the error of a sample that was not written.
    """

    history: GpuHistory
    failed: Callable[[Unavailable | StorageFailed], object]

    def record(self, instance_id: str, inventory: Mapping[str, object], at: datetime) -> None:
        """Write the gauges of an inventory. A later inventory of the same minute replaces the earlier one."""
        try:
            text = sample_text(inventory)
            if text is not None:
                self.history.write(instance_id, at.replace(second=0, microsecond=0), text)
        except (Unavailable, StorageFailed) as error:  # the heartbeat is saved already, and worth more than a sample
            self.failed(error)
