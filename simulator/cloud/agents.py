"""Node agents under virtual time: each running instance sends an agent report every 15 s.

The reports go through the product's own `HeartbeatReceiver`. If a report or its answer is lost, the next report repeats
the exits and the faults, until an answer has arrived. Cutting an agent off or ending it is a fault of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ReadTimeoutError
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.heartbeat import (
    AgentCommandKind,
    AgentReport,
    GpuHealth,
    RankExit,
    ReceivedObservation,
    ReportedXid,
    RunningRank,
)
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver, ReportResponse
from gpu_recovery.ports.errors import (
    OutcomeUnknown,
    SequenceStale,
    StaleRecord,
    TooManyConflicts,
    TooManyReports,
    TryAgainSoon,
)

from sandbox.cluster.instance_folder import pci_address
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import Ec2State, TaskStatus
from simulator.cloud.fleet import SIGKILL_EXIT
from simulator.cloud.workloads import environment
from simulator.world_view import WorldView

INTERVAL_S = 15
"""Virtual seconds between two reports of an agent."""
GAUGES_EVERY_S = 300
"""Virtual seconds between two reports of an agent with the gauges of its GPUs, if it sends them."""
WARM_UP = 5
"""First steps that the library leaves out of its step times."""
NODE_API = "node_api"
"""Name of the function that receives the reports."""
XIDS = {"xid79": 79, "ecc": 48}
"""XID that the kernel logs, by kind of fault. The kernel logs no hidden fault."""
_DIGEST = "gpus"
_GAUGES_EVERY = GAUGES_EVERY_S // INTERVAL_S
REFUSED = (TryAgainSoon, ReadTimeoutError, OutcomeUnknown, StaleRecord, TooManyConflicts, SequenceStale, TooManyReports)
"""Errors for which the node API sends an error response. The agent continues and reports again after `INTERVAL_S`."""


@dataclass
class _Agent:
    """State of an agent during a boot of its instance."""

    boot_id: str
    sequence: int = 0
    ranks: dict[str, RunningRank] = field(default_factory=dict)
    """Ranks that the agent has seen running, by task id."""
    exits: list[RankExit] = field(default_factory=list)
    """Exits of ranks that no answer has confirmed yet."""
    logged: set[str] = field(default_factory=set)
    """GPUs with a fault that was delivered in a report."""
    executed: set[str] = field(default_factory=set)
    """Ids of the stop commands that the agent has executed."""
    began: dict[str, datetime] = field(default_factory=dict)
    """Begin of each rank that has reported progress, by task id."""


class Agents:
    """Node agents of a world.

    Attributes:
        cut_off: instances with an agent that runs but delivers no report.
        ended: instances with an agent that does not run.
        unable: instances with an agent that sees no rank.
        answered: number of reports that were answered.
        sends_gauges: whether the first report after a boot, and then each report after `GAUGES_EVERY_S`, has the
            gauges of the GPUs.
        reports_exits: whether the end of a rank makes its agent report at once, as the real agent does within seconds.
        step_s: seconds of a training step, if the ranks report progress; None: they report none.
        stalled: jobs whose ranks make no progress, each with the time since which.
        paused: jobs whose programs have marked a phase without progress.
    """

    def __init__(self, world: WorldView) -> None:
        self.world = world
        self.receiver = HeartbeatReceiver(world.node_recovery)
        self.cut_off: set[str] = set()
        self.ended: set[str] = set()
        self.unable: set[str] = set()
        self.answered = 0
        self.sends_gauges = False
        self.reports_exits = False
        self.step_s: float | None = None
        self.stalled: dict[str, datetime] = {}
        self.paused: set[str] = set()
        self._agents: dict[str, _Agent] = {}
        world.timeline.after(INTERVAL_S, self._report_all)

    def _report_all(self) -> None:
        self.world.timeline.after(INTERVAL_S, self._report_all)
        for instance in list(self.world.cluster.instances.values()):
            if self._runs(instance):
                self._report(instance)

    def observe(self, envelope: Mapping[str, Any]) -> None:
        """Report the end of a rank, if the agents report exits at once. The event of ECS arrives a second later."""
        detail = envelope["detail"]
        if not self.reports_exits or detail.get("lastStatus") != TaskStatus.STOPPED:
            return
        task = self.world.cluster.tasks.get(str(detail["taskArn"]).rpartition("/")[2])
        if task is not None and _rank(task) is not None:
            self.world.timeline.after(0.0, self._report_ending, task.instance_id)

    def _report_ending(self, instance_id: str) -> None:
        instance = self.world.cluster.instances.get(instance_id)
        if instance is not None and self._runs(instance):
            self._report(instance)

    def _runs(self, instance: ModelInstance) -> bool:
        fleet = self.world.fleet
        runs = instance.ec2_state is Ec2State.RUNNING and not fleet.is_down(instance)
        return runs and instance.instance_id not in fleet.hung and instance.instance_id not in self.ended

    def _report(self, instance: ModelInstance) -> None:
        agent = self._agents.get(instance.instance_id)
        if agent is None or agent.boot_id != instance.boot_id:
            agent = self._agents[instance.instance_id] = _Agent(instance.boot_id)
        self._collect(instance, agent)
        if instance.instance_id in self.cut_off:
            return
        agent.sequence += 1
        report = self._compose_report(instance, agent)
        answers: list[ReportResponse] = []
        try:
            self.world.invocations.run(NODE_API, lambda: answers.append(self.receiver.receive(report)))
        except REFUSED:
            return
        for answer in answers:
            self.answered += 1
            agent.exits.clear()
            agent.logged |= set(instance.faults)
            self._execute(instance, agent, answer)

    def _collect(self, instance: ModelInstance, agent: _Agent) -> None:
        """Update `agent` with the ranks that began and ended since its last report."""
        running = {
            task.task_id: task for task in self.world.fleet.running() if task.instance_id == instance.instance_id
        }
        for task_id in agent.ranks.keys() - running.keys():
            ended = agent.ranks.pop(task_id)
            agent.exits.append(RankExit(ended.job_id, ended.attempt, ended.rank, ended.epoch, code=1))
        for task_id, task in running.items():
            rank = _rank(task)
            if rank is not None:
                agent.ranks[task_id] = rank

    def _compose_report(self, instance: ModelInstance, agent: _Agent) -> AgentReport:
        uptime_s = (self.world.timeline.now - instance.booted_at).total_seconds()
        unreported = {
            gpu: fault for gpu, fault in instance.faults.items() if gpu not in agent.logged and fault.kind in XIDS
        }
        impaired = any(fault.kind in XIDS for fault in instance.faults.values())
        return AgentReport(
            instance.instance_id,
            instance.boot_id,
            max(0.0, uptime_s),
            agent.sequence,
            interval_s=INTERVAL_S,
            running=() if instance.instance_id in self.unable else tuple(agent.ranks.values()),
            exits=tuple(agent.exits),
            health=GpuHealth.IMPAIRED if impaired else GpuHealth.OK,
            # The kernel log gives the PCI address. This agent reads no NVML, which gives the UUID.
            xids=tuple(
                ReportedXid(XIDS[fault.kind], pci_address(instance.gpus.index(gpu)))
                for gpu, fault in sorted(unreported.items())
            ),
            digest=_DIGEST if self.sends_gauges else "",
            inventory=_inventory(instance) if self.sends_gauges and agent.sequence % _GAUGES_EVERY == 1 else None,
            observations=tuple(self._progress(instance, agent)),
        )

    def _progress(self, instance: ModelInstance, agent: _Agent) -> Iterator[ReceivedObservation]:
        """Yield the progress of each rank, as the library of the program reports it."""
        now, step_s = self.world.timeline.now, self.step_s
        if step_s is None:
            return
        for task_id, rank in agent.ranks.items():
            began = agent.began.setdefault(task_id, now)
            until = max(began, self.stalled.get(rank.job_id, now))
            steps = int((until - began).total_seconds() / step_s)
            changed_at = began + timedelta(seconds=steps * step_s)
            report = ProgressReport(
                report_id=f"{instance.instance_id}/{agent.sequence}-{rank.rank}",
                at_s=0.0,
                instance_id=instance.instance_id,
                rank=rank.rank,
                value=float(steps),
                unchanged_s=(now - changed_at).total_seconds(),
                steps=max(0, steps - WARM_UP),
                step_s=step_s,
                slowest_s=step_s,
                paused="evaluation" if rank.job_id in self.paused else "",
            )
            yield ReceivedObservation(rank.job_id, rank.attempt, 0.0, report)

    def _execute(self, instance: ModelInstance, agent: _Agent, answer: ReportResponse) -> None:
        for command in answer.commands:
            if command.kind is not AgentCommandKind.STOP or command.order_id in agent.executed:
                continue
            agent.executed.add(command.order_id)
            for task_id, rank in list(agent.ranks.items()):
                if (rank.job_id, rank.attempt) == (command.job_id, command.attempt):
                    self.world.transcript.happened(
                        f"the agent of {instance.instance_id} ends rank {rank.rank} of {rank.job_id}"
                    )
                    self.world.fleet.end(self.world.cluster.tasks[task_id], SIGKILL_EXIT)


def _inventory(instance: ModelInstance) -> dict[str, object]:
    return {"gpus": [{"uuid": gpu, "utilization": 97, "temperature": 61} for gpu in instance.gpus]}


def _rank(task: Task) -> RunningRank | None:
    """Return the rank that the environment of the task names, or None if the environment names no rank."""
    variables = environment(task)
    if not {"JOB_ID", "RANK"} <= variables.keys():
        return None
    epoch = int(variables["EPOCH"]) if "EPOCH" in variables else None
    return RunningRank(variables["JOB_ID"], int(variables.get("ATTEMPT", "0")), int(variables["RANK"]), epoch)
