"""Node agents of a run of months: an agent reports when it has news, and its other reports are made up when read.

The agents of 2,048 instances would send sixty million reports a day. So an agent of this module sends a report, through
the product's own receiver, only if the report tells something: a rank has begun, ended or waits, a fault appears or is
over, the training stands still, or a command waits for the agent. It sends that report at the time at which the real
agent would send its next one. A read of heartbeats or of progress answers as if all other reports had been sent, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from zlib import crc32

from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    AgentCommand,
    GpuHealth,
    Heartbeat,
    ReceivedObservation,
    RunningRank,
)
from gpu_recovery.core.rank_activity import activity_text
from gpu_recovery_agent.sensors.activity_history import USUAL_SAMPLES_MIN

from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import ProcessState, TaskStatus
from simulator.cloud.agents import (
    HELD_PACE_FOR_S,
    HELD_PACE_S,
    HOLDABLE_PACE_S,
    INTERVAL_S,
    NEWS_S,
    WARM_UP,
    Agents,
)
from simulator.cloud.rank_course import SPINS, TRAINS
from simulator.memory_store.store import MemoryStore
from simulator.world_view import WorldView

LIBRARY_S = 10.0
"""Seconds between two progress reports of a process."""
STALL_RANKS = 2
"""Ranks whose agents report a stall."""
LEARNS_S = USUAL_SAMPLES_MIN * INTERVAL_S
"""Seconds of training until an agent knows what is usual for a rank."""
SAME_S = 0.001
"""Seconds by which two times differ at least. The rounding of times is smaller."""
PHASES_OF = 2**32
"""Number of values of `crc32`."""


@dataclass(frozen=True)
class Progress:
    """Progress of an attempt.

    instances: the instances by rank.
    began_at: the begin of its training.
    stalled_at: the time of its last step; None while the gang trains.
    kept_steps: steps of former attempts in the checkpoint from which it goes on.
    learned: instances whose agents know from former attempts what is usual for the job.
    """

    instances: tuple[str, ...]
    began_at: datetime
    stalled_at: datetime | None = None
    kept_steps: int = 0
    learned: frozenset[str] = frozenset()

    def trained_s(self, until: datetime) -> float:
        """Return the seconds of training up to the last step, or to this time."""
        return ((self.stalled_at or until) - self.began_at).total_seconds()

    def learned_until(self, until: datetime) -> frozenset[str]:
        """Return the instances whose agents know what is usual for the job."""
        return self.learned.union(self.instances if self.trained_s(until) >= LEARNS_S else ())


class Observed(Protocol):
    """What the agents see of the training, and of faults."""

    step_s: float
    """Seconds of a training step."""

    def progress_of(self, attempt: int) -> Progress | None:
        """Return the progress of an attempt; None if it has not trained, or is forgotten."""

    def is_reported(self, instance_id: str) -> bool:
        """Return whether the agent of the instance sees a fault."""


class ReportingStore(MemoryStore):
    """Store of a run with an agent on each instance. `agents` is None in a run without agents."""

    def __init__(self) -> None:
        super().__init__()
        self.agents: QuietAgents | None = None
        self.on_command: Callable[[AgentCommand], object] = lambda command: None

    def load_heartbeats(
        self, instance_ids: Sequence[str], unreadable: list[Exception] | None = None, may_lag: bool = False
    ) -> Mapping[str, Heartbeat]:
        """Return the heartbeats as they are after the latest report that each agent would have sent."""
        beats = super().load_heartbeats(instance_ids, unreadable)
        agents = self.agents
        return beats if agents is None else {name: agents.present(beat) for name, beat in beats.items()}

    def save_heartbeat(self, beat: Heartbeat, present: bool, by: str = BY_ROLE) -> Heartbeat | None:
        """Save the heartbeat of a report. Return the heartbeat before it, as the reports between would have left it."""
        before = super().save_heartbeat(beat, present, by)
        return before if before is None or self.agents is None else self.agents.kept_up(before)

    def add_agent_command(self, instance_id: str, order: AgentCommand) -> bool:
        """Save a command, which the agent receives with the answer to its next report."""
        is_saved = super().add_agent_command(instance_id, order)
        if is_saved and self.agents is not None:
            self.agents.is_asked(instance_id)
            self.on_command(order)
        return is_saved

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        """Return the progress of the ranks on these instances."""
        agents = self.agents
        return (
            super().observations_of(job_id, attempt, instance_ids)
            if agents is None
            else agents.progress_buffers(attempt, instance_ids)
        )


class QuietAgents(Agents):
    """Agents that report only what is new. They take the place of `World.agents`."""

    def __init__(self, world: WorldView, store: ReportingStore, observed: Observed) -> None:
        super().__init__(world)
        self.observed = observed
        self._gone_at: dict[str, datetime] = {}
        self._reported_at: dict[str, datetime] = {}
        """Time of the report of the latest end of a rank, by instance: within `HOLDABLE_PACE_S`."""
        self._impaired: set[str] = set()
        store.agents = self
        for instance_id in world.cluster.instances:
            self._report_at_tick(instance_id, INTERVAL_S)

    # -- when an agent reports -----------------------------------------------------------------------------------------

    def _report_all(self) -> None:
        """Report, at the usual pace, only the instances whose fault is over."""
        self.world.timeline.after(INTERVAL_S, self._report_all)
        for instance_id in [name for name in self._impaired if not self.observed.is_reported(name)]:
            self._impaired.discard(instance_id)
            self._report_at_tick(instance_id, INTERVAL_S)

    def _pace(self, instance: ModelInstance, agent: Any) -> None:
        """Send no further report: the next one is sent for a reason, or made up."""
        since = self.world.timeline.now.timestamp()
        is_held = any(rank.held for rank in agent.ranks.values())
        agent.held_since = (agent.held_since or since) if is_held else None

    def _pace_s(self, instance_id: str) -> float:
        """Return the seconds between two reports of the agent now."""
        agent, now = self._agents.get(instance_id), self.world.timeline.now.timestamp()
        if agent is None or not any(rank.holds for rank in agent.ranks.values()):
            return INTERVAL_S
        is_fast = agent.held_since is not None and now - agent.held_since < HELD_PACE_FOR_S
        return HELD_PACE_S if is_fast else HOLDABLE_PACE_S

    def _to_tick(self, instance_id: str, pace_s: float) -> float:
        """Return the seconds from now to the next report of an agent with this pace. Agents have different phases."""
        timeline = self.world.timeline
        passed_s = (timeline.now - timeline.start).total_seconds() + timeline.lag
        wait_s = pace_s - (passed_s + pace_s * crc32(instance_id.encode()) / PHASES_OF) % pace_s
        return wait_s if wait_s > SAME_S else wait_s + pace_s

    def _last_tick(self, instance_id: str, pace_s: float) -> datetime:
        """Return the time of the latest report of an agent with this pace."""
        timeline = self.world.timeline
        return timeline.now + timedelta(seconds=timeline.lag + self._to_tick(instance_id, pace_s) - pace_s)

    def _report_at_tick(self, instance_id: str, pace_s: float) -> None:
        self.world.timeline.after(self._to_tick(instance_id, pace_s), self._report_soon, instance_id)

    def is_asked(self, instance_id: str) -> None:
        """Note that a command waits for the agent: it comes with the answer to the next report."""
        self._report_at_tick(instance_id, self._pace_s(instance_id))

    def rank_began(self, task: Task) -> None:
        """Note that a process of a rank has begun. A wrapper reports to the agent that it has started a process."""
        if task.task_id in self.world.fleet.ranks.present:
            self.world.timeline.after(NEWS_S, self._report_soon, task.instance_id)
        else:
            self._report_at_tick(task.instance_id, INTERVAL_S)

    def fault_appears(self, instance_id: str, in_s: float) -> None:
        """Report the fault of an instance with the first report after `in_s` seconds."""
        self.world.timeline.after(in_s, self._report_fault, instance_id)

    def _report_fault(self, instance_id: str) -> None:
        if self.observed.is_reported(instance_id):
            self._impaired.add(instance_id)
            self._report_at_tick(instance_id, self._pace_s(instance_id))

    def stalls(self, attempt: int) -> None:
        """Let the agents of the first ranks report the stall of this attempt, until it ends."""
        progress = self.observed.progress_of(attempt)
        for instance_id in progress.instances[:STALL_RANKS] if progress is not None else ():
            self._report_stall(instance_id, attempt)

    def _report_stall(self, instance_id: str, attempt: int) -> None:
        agent = self._agents.get(instance_id)
        if agent is None or not any(rank.attempt == attempt and not rank.held for rank in agent.ranks.values()):
            return
        if instance_id in self.world.cluster.instances and self._runs_on(instance_id):
            self._report(self.world.cluster.instances[instance_id])
            wait_s = self._to_tick(instance_id, self._pace_s(instance_id))
            self.world.timeline.after(wait_s, self._report_stall, instance_id, attempt)

    def observe(self, envelope: Mapping[str, Any]) -> None:
        """Report the boot of an instance, and note when the end of a rank would have been reported."""
        detail = envelope["detail"]
        instance_id = detail.get("ec2InstanceId")
        if instance_id is None:
            task = self.world.cluster.tasks.get(str(detail.get("taskArn", "")).rpartition("/")[2])
            if task is None or detail.get("lastStatus") != TaskStatus.STOPPED or self._rank(task) is None:
                return
            wait_s = self._to_tick(task.instance_id, HOLDABLE_PACE_S)
            self._reported_at[task.instance_id] = self.world.timeline.now + timedelta(seconds=wait_s)
        elif detail.get("agentConnected"):
            self._gone_at.pop(instance_id, None)
            self._report_at_tick(instance_id, INTERVAL_S)
        else:
            self._gone_at.setdefault(instance_id, self.world.timeline.now)

    def _report(self, instance: ModelInstance) -> None:
        """Report, and again at the usual pace if the report was not answered."""
        answered = self.answered
        super()._report(instance)
        if self.answered == answered and instance.instance_id not in self.cut_off:
            self._report_at_tick(instance.instance_id, self._pace_s(instance.instance_id))

    # -- what a report says --------------------------------------------------------------------------------------------

    def _running_on(self, instance: ModelInstance) -> list[Task]:
        tasks = (self.world.cluster.tasks[task_id] for task_id in instance.live)
        return [task for task in tasks if task.process is ProcessState.RUNNING]

    def _seen_faults(self, instance: ModelInstance) -> dict[str, GpuFault]:
        return super()._seen_faults(instance) if self.observed.is_reported(instance.instance_id) else {}

    def _with_activity(self, agent: Any) -> Iterator[RunningRank]:
        """Yield the ranks with their activity while their gang stands still. Before, nothing depends on it."""
        texts = self._activities(agent.ranks.values(), self.world.timeline.now)
        for rank in agent.ranks.values():
            yield replace(rank, activity=texts.get(str(rank.log_id), ""))

    def _progress(self, instance: ModelInstance, agent: Any) -> Iterator[ReceivedObservation]:
        """Yield the progress of a rank only in a stall. Otherwise nothing would be done about the report."""
        for rank in agent.ranks.values():
            progress = self.observed.progress_of(rank.attempt)
            if rank.held or progress is None or progress.stalled_at is None or rank.rank >= STALL_RANKS:
                continue
            report = self._progress_report(instance.instance_id, rank.rank, progress)
            yield ReceivedObservation(rank.job_id, rank.attempt, 0.0, report)

    def _progress_report(self, instance_id: str, rank: int, progress: Progress) -> ProgressReport:
        """Return the newest report of the library in the rank's process."""
        step_s, at = self.observed.step_s, self._last_tick(instance_id, LIBRARY_S)
        until = max(progress.began_at, min(at, progress.stalled_at or at))
        steps = int((until - progress.began_at).total_seconds() / step_s)
        changed_at = progress.began_at + timedelta(seconds=steps * step_s)
        return ProgressReport(
            report_id=f"{instance_id}/{at.timestamp():.0f}",
            at_s=at.timestamp(),
            instance_id=instance_id,
            rank=rank,
            value=float(progress.kept_steps + steps),
            unchanged_s=max(0.0, (at - changed_at).total_seconds()),
            steps=max(0, steps - WARM_UP),
            step_s=step_s,
            slowest_s=step_s,
        )

    # -- what is made up -----------------------------------------------------------------------------------------------

    def present(self, beat: Heartbeat) -> Heartbeat:
        """Return the heartbeat after the latest report that the agent would have sent."""
        return self.kept_up(beat, GpuHealth.IMPAIRED if self.observed.is_reported(beat.instance_id) else GpuHealth.OK)

    def kept_up(self, beat: Heartbeat, health: GpuHealth | None = None) -> Heartbeat:
        """Return the heartbeat with the time of the latest report that the agent would have sent.

        Args:
            beat: the heartbeat of the latest report that it did send.
            health: what the report would have said of the GPUs; None: as before.
        """
        name = beat.instance_id
        if name not in self.world.cluster.instances or not self._runs_on(name) or name in self._gone_at:
            return replace(beat, seen_at=max(beat.seen_at, self._gone_at.get(name, beat.seen_at)))
        pace_s = self._pace_s(name)
        seen_at = max(beat.seen_at, self._last_tick(name, pace_s))
        reported_at = self._reported_at.get(name, seen_at)
        if reported_at <= self.world.timeline.now + timedelta(seconds=self.world.timeline.lag):
            seen_at = max(seen_at, reported_at)
        agent = self._agents.get(name)
        known = {str(rank.log_id) for rank in agent.ranks.values()} if agent is not None else set()
        ranks = {log: replace(rank, seen_at=seen_at) if log in known else rank for log, rank in beat.ranks.items()}
        activity = {} if agent is None else self._activities(agent.ranks.values(), seen_at)
        health = beat.health if health is None else health
        return replace(beat, seen_at=seen_at, ranks=ranks, health=health, activity=activity)

    def _activities(self, ranks: Iterable[RunningRank], at: datetime) -> dict[str, str]:
        """Return what each running rank of a gang that stands still does: it waits in a collective."""
        found: dict[str, str] = {}
        for rank in ranks:
            progress = self.observed.progress_of(rank.attempt)
            if rank.held or progress is None or progress.stalled_at is None or at <= progress.stalled_at:
                continue
            if progress.instances[rank.rank] not in progress.learned_until(at):
                continue
            quiet_s, trained_s = (at - progress.stalled_at).total_seconds(), progress.trained_s(at)
            values = (SPINS.utilization, SPINS.power_w, TRAINS.power_w, SPINS.cores_per_gpu, SPINS.fabric_mb_s)
            more = (TRAINS.fabric_mb_s, SPINS.traffic_mb_s, float(SPINS.waits_for_io), quiet_s)
            found[str(rank.log_id)] = activity_text([quiet_s, trained_s, 0.0, *values, *more])
        return found

    def progress_buffers(self, attempt: int, instance_ids: Sequence[str]) -> Mapping[str, ObservationBuffer]:
        """Return the newest progress report of each rank. While the gang trains, one report says the same as all."""
        progress = self.observed.progress_of(attempt)
        if progress is None or not instance_ids or self.world.timeline.now < progress.began_at:
            return {}
        asked = set(instance_ids if progress.stalled_at is not None else instance_ids[:1])
        return {
            instance_id: ObservationBuffer((self._progress_report(instance_id, rank, progress),))
            for rank, instance_id in enumerate(progress.instances)
            if instance_id in asked
        }
