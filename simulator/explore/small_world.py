"""Small world of the explorer: three instances, a job of two ranks, and an incident.

Everything takes no time. Steps of instances and deliveries of events stay pending until the explorer lets them happen,
in any order. The scheduler and the reconciler have no ticks: the explorer also decides when they run.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, cast

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.ports.store import Store

from sandbox.cluster.model.cluster import Ids
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import CuredBy, RebootBehaviour
from simulator.cloud.fleet import FleetTimings
from simulator.invocations import Effect
from simulator.memory_store.store import MemoryStore
from simulator.world import World

INSTANCES, RANKS, GPUS = 3, 2, 1
"""Instances of the world, ranks of the job, and GPUs of an instance."""
STRUCK = 1
"""Rank on the instance of the incident."""
NO_TIME = FleetTimings(
    start_s=0, leave_s=0, stop_timeout_s=0, down_s=0, boot_s=0, launch_s=0, spot_notice_s=0, check_s=0, abort_s=0
)
"""Timings of a fleet in which every step is possible at once."""
POLICY = replace(
    PRESETS[Preset.ADAPTIVE],
    command_lease_s=240,
    pending_retry_s=120,
    hold_retry_interval_s=120,
    queue_timeout_s=1_200,
    launch_timeout_s=720,
    start_timeout_s=720,
    check_timeout_s=720,
    reboot_timeout_s=1_200,
    verify_timeout_s=720,
    recover_timeout_s=2_400,
    repaired_reservation_s=600,
    repair_hold_timeout_s=600,
    quarantine_reminder_s=1_200,
    stable_run_s=86_400,
    evidence_stale_s=600,
    relapse_window_s=1_200,
    reboot_window_s=1_200,
    fleet_window_s=1_200,
    breaker_probe_s=600,
)
"""Policy `adaptive` with shorter waits, because days of polls without a change would be as many states.

Each wait is still several polls long and longer than a command lease.
"""


class Incident(StrEnum):
    """Incident on the instance of rank `STRUCK`, at any time while the gang runs."""

    GPU = "gpu"
    FLAKY = "flaky"
    DEAF = "deaf"
    CRASH = "crash"
    AGENT = "agent"
    SPOT = "spot"
    EXIT = "exit"


IN_WORDS = {
    Incident.GPU: "a GPU falls off the bus; a reboot cures it",
    Incident.FLAKY: "a GPU falls off the bus, and may come back by itself at any time",
    Incident.DEAF: "a GPU falls off the bus, and may come back by itself; the machine ignores its reboot, and its "
    "agent may be cut off and come back",
    Incident.CRASH: "the rank dies of a signal, on GPUs that work",
    Incident.AGENT: "the agent is cut off, and comes back at any time",
    Incident.SPOT: "the machine is taken away",
    Incident.EXIT: "the rank exits 1, on GPUs that work; witnesses are heard, and no log or report says why it did",
}


class NamedIds(Ids):
    """Ids that do not depend on the path to a state: two paths to the same state give the same ids.

    The id of a task is a hash of its client token. Only boots are counted.
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.token = ""

    def continue_from(self, ids: Ids) -> None:
        """Continue the counters of `ids`, so that no id is used again."""
        self._counts = dict(ids._counts)

    def hex(self, kind: str, digits: int = 32) -> str:
        """Return an id of `digits` hexadecimal digits for an object of the kind `kind`."""
        if kind == "task":
            return hashlib.sha256(self.token.encode()).hexdigest()[:digits]
        if kind in ("event", "container", "runtime"):
            return "0" * digits
        return super().hex(kind, digits)

    def uuid(self, kind: str) -> str:
        """Return an id in the format of a UUID for an object of the kind `kind`."""
        return str(uuid.UUID(hex=self.hex(kind)))


def do_nothing(step: Effect) -> None:
    """Hook without an action."""


@dataclass
class EffectHook:
    """Fault injection of the explored world: calls `act` before each effect."""

    ids: NamedIds
    act: Callable[[Effect], None] = do_nothing

    def before(self, step: Effect) -> None:
        """Call `act`. Then save the client token of a RunTask call, from which the task id is made."""
        self.act(step)
        if step.name == "RunTask":
            self.ids.token = step.given["clientToken"]

    def after(self, step: Effect) -> None:
        """Do nothing: a kill after an effect leaves the same state as a kill before the next effect."""


class SmallWorld(World):
    """The small world, with a QUEUED job.

    Attributes:
        job_id: id of the job.
        incidents: how often the incident may still happen.
        mishaps: how often a further mishap of the incident (`cut_off`) may still happen.
        announced: how often operators were notified that the job failed.
    """

    def __init__(self, incident: Incident = Incident.GPU) -> None:
        self.named = NamedIds("world")
        self.hook = EffectHook(self.named)
        self.memory = MemoryStore()
        super().__init__(
            instances=INSTANCES,
            gpus=GPUS,
            policy=POLICY,
            timings=NO_TIME,
            retries=False,
            delivery=lambda _: (0.0,),
            nemesis=self.hook,
            store=cast(Store, self.memory),
            diagnose=incident is Incident.EXIT,
        )
        self.incident, self.incidents, self.mishaps, self.announced = incident, 1, 1, 0
        self.named.continue_from(self.cluster.ids)
        self.cluster.ids = self.named
        self.actions.on_message = self._on_message
        # A boot takes no time here. The clock of the instance is a second ahead, so the boot is later than its request.
        self.checks.skew = {instance.instance_id: timedelta(seconds=1) for instance in self.model_instances()}
        self.run_reconciler()  # counts the instances before the job is submitted
        self.job_id = self.submit(nnodes=RANKS, gpus=GPUS)
        self.timeline.due.clear()  # removes the first ticks, each of which schedules the next tick

    def _on_message(self, message: NotifyOperator) -> None:
        self.announced += "FAILED" in message.subject
        self.transcript.message_sent(message)

    def is_selected(self, envelope: Mapping[str, Any]) -> bool:
        """Whether an EventBridge rule selects the event."""
        return self.functions.of(envelope) is not None

    def _poked(self, key: str, hops: int) -> None:
        """Do nothing: the explorer runs the scheduler at any time."""

    # -- incidents -----------------------------------------------------------------------------------------------------

    def befalling(self) -> Iterator[str]:
        """Yield the names of the methods of this world that may happen now: the end, the incident, or a consequence."""
        if self._is_whole():
            yield "end_well"
            if self.incidents:
                yield "strike"
        struck = self._struck()
        if struck is None:
            return
        if not struck.agent_connected and self.incident in (Incident.AGENT, Incident.DEAF):
            yield "come_back"
        if struck.faults and self.incident in (Incident.FLAKY, Incident.DEAF):
            yield "heal"
        if self.incident is Incident.DEAF and self.mishaps and struck.agent_connected and self._is_rebooting(struck):
            yield "cut_off"

    def trains_in_peace(self) -> bool:
        """Whether the gang trains and no work is pending. Then polls would follow each other for ever."""
        return self._is_whole() and self.job(self.job_id).status is JobStatus.RUNNING and self.is_quiet()

    def _is_whole(self) -> bool:
        gang = self.ranks(self.job_id)
        return len(gang) == RANKS and self.training.is_whole(gang[0])

    def _struck(self) -> ModelInstance | None:
        return next((instance for instance in self.cluster.instances.values() if "struck" in instance.tags), None)

    def _is_rebooting(self, instance: ModelInstance) -> bool:
        return self.instance(instance).under_repair

    def end_well(self) -> None:
        """End the training: every rank exits 0."""
        self.finish(self.job_id)

    def strike(self) -> None:
        """Let the incident happen to the instance of rank `STRUCK`."""
        self.incidents -= 1
        rank = self.rank(self.job_id, STRUCK)
        instance = self.cluster.instance_of(rank)
        instance.tags = {**instance.tags, "struck": "true"}
        match self.incident:
            case Incident.CRASH:
                self.exit(self.job_id, STRUCK, 139)
            case Incident.EXIT:
                self.exit(self.job_id, STRUCK, 1)
            case Incident.AGENT:
                self._cut(instance)
            case Incident.SPOT:
                self.transcript.happened(f"{instance.instance_id} is taken away")
                self.fleet.interrupt(instance)
            case Incident.DEAF:
                instance.reboot_behaviour = RebootBehaviour.IGNORED
                self.break_gpu(instance, cured_by=CuredBy.NEVER)
            case _:
                self.break_gpu(instance)

    def heal(self) -> None:
        """Let the GPU work again, without a repair."""
        instance = self._struck()
        if instance is not None:
            self.transcript.happened(f"the GPU of {instance.instance_id} is back by itself")
            instance.faults = {}

    def cut_off(self) -> None:
        """Disconnect the ECS agent of the instance of the incident. This happens once."""
        instance = self._struck()
        if instance is not None:
            self.mishaps -= 1
            self._cut(instance)

    def _cut(self, instance: ModelInstance) -> None:
        self.transcript.happened(f"the agent of {instance.instance_id} is cut off")
        self.fleet.disconnect(instance)

    def come_back(self) -> None:
        """Connect the ECS agent of the instance of the incident again."""
        instance = self._struck()
        if instance is not None:
            self.transcript.happened(f"the agent of {instance.instance_id} is back")
            self.fleet.reconnect(instance)
