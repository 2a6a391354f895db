"""Node agents of a run of months, without their reports: what a heartbeat would say is made up when it is read.

The agents of 2,048 instances would send ten million reports a day. The product reads heartbeats only when an attempt
has failed. So this store answers that each agent has just reported, and that it reports a fault which level 1 sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gpu_recovery.core.heartbeat import GpuHealth, Heartbeat

from simulator.memory_store.store import MemoryStore


class ReportingStore(MemoryStore):
    """Store of a run with an agent on each instance.

    Attributes:
        now: returns the virtual time.
        is_impaired: returns whether the agent of an instance sees a fault.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now: Callable[[], datetime] | None = None
        self.is_impaired: Callable[[str], bool] = lambda instance_id: False

    def load_heartbeats(
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None, may_lag: bool = False
    ) -> Mapping[str, Heartbeat]:
        """Return a heartbeat of this moment for each instance."""
        if self.now is None:
            return {}
        at = self.now()
        return {
            name: Heartbeat(name, at, health=GpuHealth.IMPAIRED if self.is_impaired(name) else GpuHealth.OK)
            for name in instance_ids
        }
