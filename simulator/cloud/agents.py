"""Node agents under virtual time: each running instance sends an agent report every 15 s.

The reports go through the product's own `HeartbeatReceiver`. If a report or its answer is lost, the next report repeats
the exits and the faults, until an answer has arrived. Cutting an agent off or ending it is a fault of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

from botocore.exceptions import ReadTimeoutError
from gpu_recovery.core.diagnosis.observations import PreflightReport, ProgressReport
from gpu_recovery.core.heartbeat import (
    BY_DAEMON,
    BY_ROLE,
    AgentCommand,
    AgentCommandKind,
    AgentReport,
    GpuHealth,
    RankExit,
    ReceivedObservation,
    ReportedRecord,
    ReportedReset,
    ReportedXid,
    RunningRank,
)
from gpu_recovery.core.rank_activity import activity_text
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver, ReportResponse
from gpu_recovery.ports.errors import (
    OutcomeUnknown,
    SequenceStale,
    StaleRecord,
    TooManyConflicts,
    TooManyReports,
    TryAgainSoon,
)
from gpu_recovery_agent.sensors.activity_history import ActivityHistory

from sandbox.cluster.model.instances import gpus_reset
from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import ContainerInstanceStatus, Ec2State, TaskStatus
from sandbox.cluster.nvidia_smi import pci_address
from simulator.cloud.fleet import SIGKILL_EXIT, SIGTERM_EXIT
from simulator.cloud.rank_course import Course, Phase, RankCourse
from simulator.invariants.records import reset_under_ranks
from simulator.world_view import WorldView

INTERVAL_S = 15
"""Virtual seconds between two reports of an agent."""
HOLDABLE_PACE_S, HELD_PACE_S, HELD_PACE_FOR_S = 3.0, 1.0, 60.0
"""Virtual seconds between two reports while a rank can be held, while a rank is held, and the time of the latter."""
NEWS_S = 0.5
"""Virtual seconds from a held or started rank to the report of it."""
GAUGES_EVERY_S = 300
"""Virtual seconds between two reports of an agent with the gauges of its GPUs, if it sends them."""
SAMPLE_S_MIN = 10.0
"""Shortest virtual time in seconds between two samples of a rank."""
WARM_UP = 5
"""First steps that the library leaves out of its step times."""
NODE_API = "node_api"
"""Name of the function that receives the reports."""
RESET_S = 10.0
"""Virtual seconds of a reset of the GPUs."""
XIDS = {"xid79": 79, "xid119": 119, "ecc": 48}
"""XID that the kernel logs, by kind of fault. The kernel logs no hidden fault."""
_DIGEST = "gpus"
_GAUGES_EVERY = GAUGES_EVERY_S // INTERVAL_S
REFUSED = (TryAgainSoon, ReadTimeoutError, OutcomeUnknown, StaleRecord, TooManyConflicts, SequenceStale, TooManyReports)
"""Errors for which the node API sends an error response. The agent continues and reports again after `INTERVAL_S`."""


@dataclass
class RankRecord:
    """Course of a rank, and what its agent has learned from it up to `until`."""

    course: RankCourse
    history: ActivityHistory
    until: datetime


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
    reset: ReportedReset | None = None
    """The last reset of the GPUs that has ended."""
    held_since: float | None = None
    """Time since which a rank is held, in seconds of the virtual clock; None if none is."""
    found: list[ReceivedObservation] = field(default_factory=list)
    """Results of preflights that no answer has confirmed yet."""
    activity: dict[str, RankRecord] = field(default_factory=dict)
    """Course and history of each rank whose activity is reported, by task id."""
    histories: dict[str, ActivityHistory] = field(default_factory=dict)
    """Last history of a rank of each job."""
    reported: ReportedRecord | None = None
    """Line about a repair that an answer to this agent has confirmed; None if there is none."""


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
        course: the course of every training, if the agents report the activity of ranks; None: they report none.
        hung: jobs that hang, each with the time since which, and with what its ranks do then.
        resets: how the next resets of GPUs end: True for a reset, False for an error, None if it never ends. The last
            entry stands for all later resets. (): the agents reset no GPUs.
        resets_done: number of resets that took place.
        as_daemons: whether the agents are tasks of a daemon service. ECS stops such a task on a draining instance.
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
        self.kept_steps: dict[str, int] = {}
        self.paused: set[str] = set()
        self.course: Course | None = None
        self.hung: dict[str, tuple[datetime, Phase]] = {}
        self.resets: tuple[bool | None, ...] = ()
        self.resets_done = 0
        self.as_daemons = False
        self.command_delays_s: tuple[float, ...] = (0.0,)
        """Seconds until a command to hold or start a rank takes effect, once for each time that it does."""
        self.lines: dict[str, ReportedRecord] = {}
        """Last line about a repair on the disk of each instance. A disk outlives a reboot."""
        self.leave_s = 0.0
        """Seconds from such a command to hold a rank to the end of its process."""
        self._soon: set[str] = set()
        world.fleet.ranks.has_agent = self._runs_on
        world.fleet.ranks.ended = self._has_news
        self._agents: dict[str, _Agent] = {}
        world.timeline.after(INTERVAL_S, self._report_all)

    def _report_all(self) -> None:
        self.world.timeline.after(INTERVAL_S, self._report_all)
        for instance in list(self.world.cluster.instances.values()):
            if self._runs_on(instance.instance_id):
                self._report(instance)

    def observe(self, envelope: Mapping[str, Any]) -> None:
        """Report the end of a rank, if the agents report exits at once. The event of ECS arrives a second later."""
        detail = envelope["detail"]
        if not self.reports_exits or detail.get("lastStatus") != TaskStatus.STOPPED:
            return
        task = self.world.cluster.tasks.get(str(detail["taskArn"]).rpartition("/")[2])
        if task is not None and self._rank(task) is not None:
            self.world.timeline.after(0.0, self._report_ending, task.instance_id)

    def _report_ending(self, instance_id: str) -> None:
        if instance_id in self.world.cluster.instances and self._runs_on(instance_id):
            self._report(self.world.cluster.instances[instance_id])

    def _runs_on(self, instance_id: str) -> bool:
        """Return whether the agent of the instance runs."""
        instance, fleet = self.world.cluster.instances[instance_id], self.world.fleet
        runs = instance.ec2_state is Ec2State.RUNNING and not fleet.is_down(instance)
        if self.as_daemons and instance.status is ContainerInstanceStatus.DRAINING:
            return False
        return runs and instance_id not in fleet.hung and instance_id not in self.ended

    def _has_news(self, task: Task) -> None:
        """Report soon, because a rank was held or has started in its container."""
        self._report_in(task.instance_id, NEWS_S)

    def _report_in(self, instance_id: str, seconds: float) -> None:
        if instance_id not in self._soon or seconds <= NEWS_S:
            self._soon.add(instance_id)
            self.world.timeline.after(seconds, self._report_soon, instance_id)

    def _report_soon(self, instance_id: str) -> None:
        self._soon.discard(instance_id)
        if self._runs_on(instance_id):
            self._report(self.world.cluster.instances[instance_id])

    def _pace(self, instance: ModelInstance, agent: _Agent) -> None:
        """Report often while ranks of the instance can be held or are held, as the real agent does."""
        if not any(rank.holds for rank in agent.ranks.values()):
            return
        now = self.world.timeline.now.timestamp()
        if not any(rank.held for rank in agent.ranks.values()):
            agent.held_since = None
        elif agent.held_since is None:
            agent.held_since = now
        is_fast = agent.held_since is not None and now - agent.held_since < HELD_PACE_FOR_S
        if instance.instance_id not in self._soon:
            self._report_in(instance.instance_id, HELD_PACE_S if is_fast else HOLDABLE_PACE_S)

    def _agent_of(self, instance: ModelInstance) -> _Agent:
        """Return the state of the agent in the present boot of the instance."""
        agent = self._agents.get(instance.instance_id)
        if agent is None or agent.boot_id != instance.boot_id:
            agent = self._agents[instance.instance_id] = _Agent(instance.boot_id)
        return agent

    def _report(self, instance: ModelInstance) -> None:
        agent = self._agent_of(instance)
        self._collect(instance, agent)
        self._pace(instance, agent)
        if instance.instance_id in self.cut_off:
            return
        agent.sequence += 1
        report = self._compose_report(instance, agent)
        answers: list[ReportResponse] = []
        by = BY_DAEMON if self.as_daemons else BY_ROLE
        try:
            self.world.invocations.run(NODE_API, lambda: answers.append(self.receiver.receive(report, by=by)))
        except REFUSED:
            return
        for answer in answers:
            self.answered += 1
            agent.exits.clear()
            agent.found.clear()
            agent.logged |= set(self._seen_faults(instance))
            agent.reported = report.recorded or agent.reported
            self._execute(instance, agent, answer)

    def _collect(self, instance: ModelInstance, agent: _Agent) -> None:
        """Update `agent` with the ranks that began and ended since its last report."""
        running = {task.task_id: task for task in self._running_on(instance)}
        for task_id in agent.ranks.keys() - running.keys():
            ended = agent.ranks.pop(task_id)
            if not ended.held:
                agent.exits.append(RankExit(ended.job_id, ended.attempt, ended.rank, ended.epoch, code=1))
        for task_id, task in running.items():
            rank = self._rank(task)
            if rank is None:
                continue
            before, held = agent.ranks.get(task_id), self.world.fleet.ranks.held.get(task_id)
            if held is not None and held.code is not None and before != rank:
                exited = RankExit(rank.job_id, rank.attempt, rank.rank, rank.epoch, code=held.code, held=True)
                agent.exits.append(replace(exited, asked=held.asked))
            agent.ranks[task_id] = rank

    def _running_on(self, instance: ModelInstance) -> list[Task]:
        """Return the tasks with a process that runs on the instance."""
        return [task for task in self.world.fleet.running() if task.instance_id == instance.instance_id]

    def _seen_faults(self, instance: ModelInstance) -> dict[str, GpuFault]:
        """Return the faults that the kernel log of the instance shows, by GPU."""
        return {gpu: fault for gpu, fault in instance.faults.items() if fault.kind in XIDS}

    def _compose_report(self, instance: ModelInstance, agent: _Agent) -> AgentReport:
        uptime_s = (self.world.timeline.now - instance.booted_at).total_seconds()
        seen = self._seen_faults(instance)
        unreported = {gpu: fault for gpu, fault in seen.items() if gpu not in agent.logged}
        return AgentReport(
            instance.instance_id,
            instance.boot_id,
            max(0.0, uptime_s),
            agent.sequence,
            interval_s=INTERVAL_S,
            running=() if instance.instance_id in self.unable else tuple(self._with_activity(agent)),
            exits=tuple(agent.exits),
            health=GpuHealth.IMPAIRED if seen else GpuHealth.OK,
            # The kernel log gives the PCI address. This agent reads no NVML, which gives the UUID.
            xids=tuple(
                ReportedXid(XIDS[fault.kind], pci_address(instance.gpus.index(gpu)))
                for gpu, fault in sorted(unreported.items())
            ),
            digest=_DIGEST if self.sends_gauges else "",
            inventory=_inventory(instance) if self.sends_gauges and agent.sequence % _GAUGES_EVERY == 1 else None,
            observations=(*agent.found, *self._progress(instance, agent)),
            resets=bool(self.resets),
            reset=agent.reset,
            recorded=None if (line := self.lines.get(instance.instance_id)) == agent.reported else line,
        )

    def pass_on(self, task: Task, report: PreflightReport) -> float:
        """Report the results of a preflight soon. Return the seconds until the server has them; inf if it never has."""
        instance_id, rank = task.instance_id, self._rank(task)
        if rank is None or not self._runs_on(instance_id):
            return inf
        agent = self._agent_of(self.world.cluster.instances[instance_id])
        agent.found.append(ReceivedObservation(rank.job_id, rank.attempt, 0.0, report))
        self._report_in(instance_id, NEWS_S)
        return inf if instance_id in self.cut_off else 2 * NEWS_S

    def _with_activity(self, agent: _Agent) -> Iterator[RunningRank]:
        """Yield the ranks with their activity, as the real agent learns it from samples."""
        for task_id in agent.activity.keys() - agent.ranks.keys():
            del agent.activity[task_id]
        for task_id, rank in agent.ranks.items():
            if self.course is None or rank.held:
                agent.activity.pop(task_id, None)
                yield rank
                continue
            now = self.world.timeline.now
            if task_id not in agent.activity:
                course = RankCourse(
                    self.course(random.Random(f"{rank.job_id}/{rank.attempt}")), rank.rank, random.Random(task_id)
                )
                former = agent.histories.get(rank.job_id)
                pause_s = former.pause_s if former is not None else 0.0
                history = agent.histories[rank.job_id] = ActivityHistory(pause_s, former)
                agent.activity[task_id] = RankRecord(course, history, now)
            record = agent.activity[task_id]
            seconds = (now - record.until).total_seconds()
            if seconds >= SAMPLE_S_MIN:
                since, hang = self.hung.get(rank.job_id, (now, None))
                hung_s = (now - max(since, record.until)).total_seconds()
                record.history.add(record.course.sample(seconds, hang, hung_s))
                record.until = now
            yield replace(rank, activity=activity_text(record.history.values()))

    def _progress(self, instance: ModelInstance, agent: _Agent) -> Iterator[ReceivedObservation]:
        """Yield the progress of each rank, as the library of the program reports it."""
        now, step_s = self.world.timeline.now, self.step_s
        if step_s is None:
            return
        for task_id, rank in agent.ranks.items():
            if rank.held:
                agent.began.pop(task_id, None)
                continue
            began = agent.began.setdefault(task_id, now)
            until = max(began, self.stalled.get(rank.job_id, now))
            steps = int((until - began).total_seconds() / step_s)
            changed_at = began + timedelta(seconds=steps * step_s)
            report = ProgressReport(
                report_id=f"{instance.instance_id}/{agent.sequence}-{rank.rank}",
                at_s=0.0,
                instance_id=instance.instance_id,
                rank=rank.rank,
                value=float(self.kept_steps.get(rank.job_id, 0) + steps),
                unchanged_s=(now - changed_at).total_seconds(),
                steps=max(0, steps - WARM_UP),
                step_s=step_s,
                slowest_s=step_s,
                paused="evaluation" if rank.job_id in self.paused else "",
            )
            yield ReceivedObservation(rank.job_id, rank.attempt, 0.0, report)

    def _execute(self, instance: ModelInstance, agent: _Agent, answer: ReportResponse) -> None:
        for order in answer.records:
            known = self.lines.get(instance.instance_id)
            if known is None or known.epoch != order.attempt:
                self.lines[instance.instance_id] = ReportedRecord(order.attempt, order.text, instance.boot_id)
        for command in answer.commands:
            if command.kind in (AgentCommandKind.HOLD, AgentCommandKind.START):
                for seconds in self.command_delays_s:
                    self.world.timeline.after(seconds, self._order, instance.instance_id, command)
            if command.kind is AgentCommandKind.RESET and command.order_id not in agent.executed:
                agent.executed.add(command.order_id)
                self.world.timeline.after(RESET_S, self._reset_gpus, instance, agent, command)
            if command.kind is not AgentCommandKind.STOP or command.order_id in agent.executed:
                continue
            agent.executed.add(command.order_id)
            for task_id, rank in list(agent.ranks.items()):
                if (rank.job_id, rank.attempt) == (command.job_id, command.attempt):
                    self.world.transcript.happened(
                        f"the agent of {instance.instance_id} ends rank {rank.rank} of {rank.job_id}"
                    )
                    self.world.fleet.end(self.world.cluster.tasks[task_id], SIGKILL_EXIT, with_container=True)

    def _reset_gpus(self, instance: ModelInstance, agent: _Agent, command: AgentCommand) -> None:
        """Reset the GPUs of the instance, unless a process uses them or the instance has booted since the order."""
        if agent.boot_id != instance.boot_id or not self._runs_on(instance.instance_id) or not self.resets:
            return
        works, *later = self.resets
        self.resets = tuple(later) or self.resets
        if works is None:
            return
        self.world.transcript.broken += reset_under_ranks(self.world, instance.instance_id)
        users = [task for task in self.world.fleet.running() if task.instance_id == instance.instance_id]
        works, sentence = works and not users, "a process uses the GPUs" if users else "the driver refused"
        if works:
            sentence = "the GPUs were reset"
            self.world.transcript.happened(f"the GPUs of {instance.instance_id} are reset")
            gpus_reset(instance)
            self.resets_done += 1
        agent.reset = ReportedReset(command.order_id, works, sentence)
        self._report_in(instance.instance_id, NEWS_S)

    def _order(self, instance_id: str, command: AgentCommand) -> None:
        """Carry out a command to hold or to start a rank, as the wrapper of the rank does."""
        ranks = self.world.fleet.ranks
        for task in self._running_on(self.world.cluster.instances[instance_id]):
            rank = self._rank(task) if self._runs_on(instance_id) else None
            if rank is None or (rank.job_id, rank.attempt) != (command.job_id, command.attempt) or not rank.holds:
                continue
            who = f"rank {rank.rank} of {rank.job_id}"
            if command.kind is AgentCommandKind.HOLD and not rank.held:
                self.world.transcript.happened(f"{who} is held on {instance_id}")
                self._end_process(task, rank.attempt)
            elif command.kind is AgentCommandKind.START and rank.held:
                self.world.transcript.happened(
                    f"attempt {command.next_attempt} of {rank.job_id} starts on {instance_id}"
                )
                ranks.start(task, command.next_attempt, dict(command.environment))
                self._report_in(instance_id, NEWS_S)

    def _end_process(self, task: Task, attempt: int) -> None:
        """End the process of a rank whose container waits, at once or after `leave_s`."""
        if self.leave_s:
            self.world.timeline.after(self.leave_s, self._leaves, task, attempt)
        else:
            self._leaves(task, attempt)

    def _leaves(self, task: Task, attempt: int) -> None:
        if self.world.fleet.ranks.attempt(task) == attempt:
            self.world.fleet.end(task, SIGTERM_EXIT, asked=True)

    def _rank(self, task: Task) -> RunningRank | None:
        """Return the rank that the environment of the task names, or None if the environment names no rank."""
        variables = self.world.fleet.ranks.environment(task)
        if not {"JOB_ID", "RANK"} <= variables.keys():
            return None
        epoch = int(variables["EPOCH"]) if "EPOCH" in variables else None
        rank = RunningRank(variables["JOB_ID"], int(variables.get("ATTEMPT", "0")), int(variables["RANK"]), epoch)
        if not self.world.fleet.ranks.can_be_held(task):
            return rank
        return replace(rank, holds=True, held=task.task_id in self.world.fleet.ranks.held)


def _inventory(instance: ModelInstance) -> dict[str, object]:
    return {"gpus": [{"uuid": gpu, "utilization": 97, "temperature": 61} for gpu in instance.gpus]}
