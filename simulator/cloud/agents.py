"""The node agents under virtual time: each machine that runs reports every 15 s what is so on it, through the product.

A report that does not arrive, and one whose answer is lost, are tried again with the next; exits and faults are told
until an answer has come. What cuts an agent off, or ends it, is a fault like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from botocore.exceptions import ReadTimeoutError
from gpu_recovery.core.heartbeat import AgentCommandKind, AgentReport, GpuHealth, RankExit, ReportedXid, RunningRank
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
from sandbox.cluster.model.statuses import Ec2State
from simulator.cloud.fleet import SIGKILL_EXIT
from simulator.cloud.workloads import environment
from simulator.world_view import WorldView

INTERVAL_S = 15
NODE_API = "node_api"
XIDS = {"xid79": 79, "ecc": 48}
"""What the kernel logs of a fault; one that is hidden is logged nowhere."""
REFUSED = (TryAgainSoon, ReadTimeoutError, OutcomeUnknown, StaleRecord, TooManyConflicts, SequenceStale, TooManyReports)
"""What the node API answers with an error that the agent survives."""


@dataclass
class _Agent:
    """What one agent remembers of one boot."""

    boot_id: str
    sequence: int = 0
    ranks: dict[str, RunningRank] = field(default_factory=dict)
    """By task."""
    exits: list[RankExit] = field(default_factory=list)
    logged: set[str] = field(default_factory=set)
    """GPUs whose fault was told."""
    executed: set[str] = field(default_factory=set)


class Agents:
    """The agents of one world.

    cut_off: instances of which nothing arrives. ended: their agent does not run. unable: it sees none of its ranks.
    """

    def __init__(self, world: WorldView) -> None:
        self.world = world
        self.receiver = HeartbeatReceiver(world.recovery)
        self.cut_off: set[str] = set()
        self.ended: set[str] = set()
        self.unable: set[str] = set()
        self.heard = 0
        self._agents: dict[str, _Agent] = {}
        world.timeline.after(INTERVAL_S, self._report_all)

    def _report_all(self) -> None:
        self.world.timeline.after(INTERVAL_S, self._report_all)
        for machine in list(self.world.cluster.instances.values()):
            fleet = self.world.fleet
            runs = machine.ec2_state is Ec2State.RUNNING and not fleet.is_down(machine)
            runs = runs and machine.instance_id not in fleet.hung
            if runs and machine.instance_id not in self.ended:
                self._report(machine)

    def _report(self, machine: ModelInstance) -> None:
        agent = self._agents.get(machine.instance_id)
        if agent is None or agent.boot_id != machine.boot_id:
            agent = self._agents[machine.instance_id] = _Agent(machine.boot_id)
        self._collect(machine, agent)
        if machine.instance_id in self.cut_off:
            return
        agent.sequence += 1
        report = self._made(machine, agent)
        answers: list[ReportResponse] = []
        try:
            self.world.invocations.run(NODE_API, lambda: answers.append(self.receiver.receive(report)))
        except REFUSED:
            return
        for answer in answers:
            self.heard += 1
            agent.exits.clear()
            agent.logged |= set(machine.faults)
            self._execute(machine, agent, answer)

    def _collect(self, machine: ModelInstance, agent: _Agent) -> None:
        """What began and what ended since the last look."""
        running = {task.task_id: task for task in self.world.fleet.running() if task.instance_id == machine.instance_id}
        for task_id in agent.ranks.keys() - running.keys():
            over = agent.ranks.pop(task_id)
            agent.exits.append(RankExit(over.job_id, over.attempt, over.rank, over.epoch, code=1))
        for task_id, task in running.items():
            rank = _rank(task)
            if rank is not None:
                agent.ranks[task_id] = rank

    def _made(self, machine: ModelInstance, agent: _Agent) -> AgentReport:
        uptime_s = (self.world.timeline.now - machine.booted_at).total_seconds()
        new = {gpu: fault for gpu, fault in machine.faults.items() if gpu not in agent.logged and fault.kind in XIDS}
        bad = any(fault.kind in XIDS for fault in machine.faults.values())
        return AgentReport(
            machine.instance_id,
            machine.boot_id,
            max(0.0, uptime_s),
            agent.sequence,
            interval_s=INTERVAL_S,
            running=() if machine.instance_id in self.unable else tuple(agent.ranks.values()),
            exits=tuple(agent.exits),
            health=GpuHealth.IMPAIRED if bad else GpuHealth.OK,
            # By the address that the kernel's log has: this agent reads no NVML, which would tell it the UUID.
            xids=tuple(
                ReportedXid(XIDS[fault.kind], pci_address(machine.gpus.index(gpu)))
                for gpu, fault in sorted(new.items())
            ),
        )

    def _execute(self, machine: ModelInstance, agent: _Agent, answer: ReportResponse) -> None:
        for order in answer.commands:
            if order.kind is not AgentCommandKind.STOP or order.order_id in agent.executed:
                continue
            agent.executed.add(order.order_id)
            for task_id, rank in list(agent.ranks.items()):
                if (rank.job_id, rank.attempt) == (order.job_id, order.attempt):
                    self.world.transcript.happened(
                        f"the agent of {machine.instance_id} ends rank {rank.rank} of {rank.job_id}"
                    )
                    self.world.fleet.end(self.world.cluster.tasks[task_id], SIGKILL_EXIT)


def _rank(task: Task) -> RunningRank | None:
    """The rank that the task is by its environment; None where that does not say."""
    env = environment(task)
    if not {"JOB_ID", "RANK"} <= env.keys():
        return None
    epoch = int(env["EPOCH"]) if "EPOCH" in env else None
    return RunningRank(env["JOB_ID"], int(env.get("ATTEMPT", "0")), int(env["RANK"]), epoch)
