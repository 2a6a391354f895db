"""The small world that is explored: three machines, one job of two ranks, and one thing that befalls them.

Nothing in it takes time: what machines do and what EventBridge carries is pending until the explorer lets it happen,
in whatever order it likes. Scheduler and reconciler have no ticks; the explorer runs them when it likes, too.
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
from gpu_recovery.ports.actions import Actions
from gpu_recovery.ports.store import Store

from sandbox.cluster.model.cluster import CuredBy, Ids, RebootBehaviour
from sandbox.cluster.model.cluster import ModelInstance as Machine
from simulator.cloud.fleet import FleetTimings
from simulator.explore.read_tracking import Reads, ReadTrackingActions, ReadTrackingStore
from simulator.invocations import Effect
from simulator.memory_store.store import MemoryStore
from simulator.world import World

INSTANCES, RANKS, GPUS = 3, 2, 1
STRUCK = 1
"""The rank whose machine the incident befalls."""
NO_TIME = FleetTimings(
    start_s=0, leave_s=0, stop_timeout_s=0, down_s=0, boot_s=0, launch_s=0, spot_notice_s=0, check_s=0, abort_s=0
)
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
"""`adaptive` with its long waits shortened: each is still several looks long and longer than a claim, but days of
looks that find nothing would be as many states."""


class Incident(StrEnum):
    """What befalls the machine of one rank, at any time while the gang runs."""

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
    """Ids that say what they are of, so that two ways to one state give it the same ids: a task is called after its
    client token, and only boots are counted."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.token = ""

    def continue_from(self, ids: Ids) -> None:
        """No id that `ids` has given is given again."""
        self._counts = dict(ids._counts)

    def hex(self, kind: str, digits: int = 32) -> str:
        if kind == "task":
            return hashlib.sha256(self.token.encode()).hexdigest()[:digits]
        if kind in ("event", "container", "runtime"):
            return "0" * digits
        return super().hex(kind, digits)

    def uuid(self, kind: str) -> str:
        return str(uuid.UUID(hex=self.hex(kind)))


def do_nothing(step: Effect) -> None:
    """Nothing comes in between."""


@dataclass
class EffectHook:
    """The nemesis of the world explored: it asks `act` before each effect."""

    ids: NamedIds
    act: Callable[[Effect], None] = do_nothing

    def before(self, step: Effect) -> None:
        self.act(step)
        if step.name == "RunTask":
            self.ids.token = step.given["clientToken"]

    def after(self, step: Effect) -> None:
        """Dying after one effect and before the next leaves the same behind."""


class SmallWorld(World):
    """See above. `job_id` is the one job, QUEUED.

    incidents: how often the incident may still happen; mishaps: how often what belongs to it may.
    announced: how often operators were told that the job has failed.
    """

    def __init__(self, incident: Incident = Incident.GPU) -> None:
        self.named = NamedIds("world")
        self.hook = EffectHook(self.named)
        self.memory, self.reads = MemoryStore(), Reads()
        super().__init__(
            instances=INSTANCES,
            gpus=GPUS,
            policy=POLICY,
            timings=NO_TIME,
            retries=False,
            delivery=lambda _: (0.0,),
            nemesis=self.hook,
            store=cast(Store, ReadTrackingStore(self.memory, self.reads)),
            diagnose=incident is Incident.EXIT,
        )
        self.recovery = replace(self.recovery, actions=cast(Actions, ReadTrackingActions(self.actions, self.reads)))
        self.incident, self.incidents, self.mishaps, self.announced = incident, 1, 1, 0
        self.named.continue_from(self.cluster.ids)
        self.cluster.ids = self.named
        self.actions.on_message = self._tell
        # A boot takes no time here: by its machine's clock, which is a little ahead, it is later than what it answers.
        self.checks.skew = {one.instance_id: timedelta(seconds=1) for one in self.model_instances()}
        self.run_reconciler()  # it has counted the machines long before there is a job
        self.job_id = self.submit(nnodes=RANKS, gpus=GPUS)
        self.timeline.due.clear()  # the first ticks, each of which would make the next

    def _tell(self, message: NotifyOperator) -> None:
        self.announced += "FAILED" in message.subject
        self.transcript.message_sent(message)

    def is_selected(self, envelope: Mapping[str, Any]) -> bool:
        """Whether any rule selects the event."""
        return self.functions.of(envelope) is not None

    def _poked(self, key: str) -> None:
        """The explorer lets the scheduler pass at any time in any case."""

    # -- what may befall the gang --------------------------------------------------------------------------------------

    def befalling(self) -> Iterator[str]:
        """What may happen by itself: the names of methods of this world."""
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
        """Whether the gang trains and nothing is left to be done: only looks would follow one another for ever."""
        return self._is_whole() and self.job(self.job_id).status is JobStatus.RUNNING and self.is_quiet()

    def _is_whole(self) -> bool:
        gang = self.ranks(self.job_id)
        return len(gang) == RANKS and self.training.is_whole(gang[0])

    def _struck(self) -> Machine | None:
        return next((one for one in self.cluster.instances.values() if "struck" in one.tags), None)

    def _is_rebooting(self, machine: Machine) -> bool:
        return self.instance(machine).under_repair

    def end_well(self) -> None:
        """The last step is done: every rank exits 0."""
        self.finish(self.job_id)

    def strike(self) -> None:
        """The incident."""
        self.incidents -= 1
        rank = self.rank(self.job_id, STRUCK)
        machine = self.cluster.instance_of(rank)
        machine.tags = {**machine.tags, "struck": "true"}
        match self.incident:
            case Incident.CRASH:
                self.exit(self.job_id, STRUCK, 139)
            case Incident.EXIT:
                self.exit(self.job_id, STRUCK, 1)
            case Incident.AGENT:
                self._cut(machine)
            case Incident.SPOT:
                self.transcript.happened(f"{machine.instance_id} is taken away")
                self.fleet.interrupt(machine)
            case Incident.DEAF:
                machine.reboot_behaviour = RebootBehaviour.IGNORED
                self.break_gpu(machine, cured_by=CuredBy.NEVER)
            case _:
                self.break_gpu(machine)

    def heal(self) -> None:
        """The GPU answers again, for no reason that anybody knows."""
        machine = self._struck()
        if machine is not None:
            self.transcript.happened(f"the GPU of {machine.instance_id} is back by itself")
            machine.faults = {}

    def cut_off(self) -> None:
        """The agent of the struck machine is cut off, once."""
        machine = self._struck()
        if machine is not None:
            self.mishaps -= 1
            self._cut(machine)

    def _cut(self, machine: Machine) -> None:
        self.transcript.happened(f"the agent of {machine.instance_id} is cut off")
        self.fleet.disconnect(machine)

    def come_back(self) -> None:
        """The agent of the struck machine is back."""
        machine = self._struck()
        if machine is not None:
            self.transcript.happened(f"the agent of {machine.instance_id} is back")
            self.fleet.reconnect(machine)
