"""`WorldView`: the parts of a simulated world that its checkers, agents and Lambda runtime use.

Modules that `simulator.world` imports name this protocol instead of the class `World`, so that the imports form
no circle.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.ports.store import Store
from gpu_recovery.recovery import Recovery

from sandbox.cluster.model.cluster import ClusterModel
from simulator.actions import SimulatedActions
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.workloads import Checks
from simulator.invariants.quotas import JOBS_MAX
from simulator.invocations import Invocations
from simulator.memory_store.store import MemoryStore
from simulator.transcript import Transcript
from simulator.virtual_clock import VirtualClock


class WorldView(Protocol):
    """A simulated world, as the modules below `simulator.world` see it.

    asleep:      functions that the clock does not trigger, each with the end of that time.
    failures:    the invocations that raised: the name of the function, and the exception.
    quarantined: the instances that an operator has quarantined, and not released since.
    """

    policy: RecoveryPolicy
    timeline: VirtualClock
    cluster: ClusterModel
    fleet: VirtualFleet
    store: Store
    recovery: Recovery
    actions: SimulatedActions
    checks: Checks
    invocations: Invocations
    transcript: Transcript
    asleep: dict[str, datetime]
    failures: list[tuple[str, Exception]]
    quarantined: set[str]

    @property
    def node_recovery(self) -> Recovery:
        """The product's loop, as the node API runs it."""
        ...

    def jobs(self) -> tuple[Job, ...]:
        """Read the record of every job."""
        listed = self.store.list_jobs(None, JOBS_MAX, None).jobs
        return tuple(filter(None, (self.store.load_job(job.job_id) for job in listed)))

    def instances(self) -> tuple[Instance, ...]:
        """Read the record of every instance."""
        assert isinstance(self.store, MemoryStore)  # a world on another store reads it in its own way
        return tuple(self.store.machines.records[name] for name in sorted(self.store.machines.records))
