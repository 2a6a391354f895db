"""The transcript of a run: decisions, calls and messages, one line each, in virtual time.

Instances and tasks have short names (`gpu-0`, `task-3`), because their ids mean nothing to a reader. Some events
change nothing and bring no new reason: placements that ECS reports, and polls without a finding. They are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.totals import PriorityTotals
from gpu_recovery.core.state_machine import Decision, EventOutcome

from sandbox.cluster.model.cluster import ClusterModel
from simulator.cloud.task_environment import environment
from simulator.invariants.writes import unfenced
from simulator.invocations import Effect
from simulator.virtual_clock import VirtualClock

_QUIET = (events.InstanceObserved, events.InstanceLookDue, events.JobLookDue)


class Transcript:
    """A `recovery.Journal` that records decisions, and the calls and messages that follow them."""

    def __init__(self, timeline: VirtualClock, cluster: ClusterModel) -> None:
        self.timeline, self.cluster = timeline, cluster
        self.remembers = True
        """Whether the lines are recorded. The rows are counted in any case."""
        self.lines: list[str] = []
        self.broken: list[str] = []
        """The violations that were found so far, one sentence each."""
        self.rows: Counter[tuple[str, str, str, str]] = Counter()
        """The number of events, by (kind of record, status, event, outcome)."""
        self.placed: list[str] = []
        """The ids of the jobs that the scheduler placed, one for each placement, in order."""

    def decided(self, record: Job | Instance, event: Any, decision: Decision[Any]) -> None:
        """Count the decision, check that it is no answer to an outdated event, and write its line."""
        name = record.job_id if isinstance(record, Job) else record.instance_id
        kind, label = type(record).__name__, type(event).__name__
        self.rows[(kind, record.status, label, decision.outcome)] += 1
        self.broken += unfenced(record, event, decision)
        if not self.remembers:
            return
        if isinstance(event, events.JobPlaced) and decision.outcome is EventOutcome.APPLIED:
            self.placed.append(name)
        is_no_news = decision.outcome is not EventOutcome.APPLIED or decision.reason == record.reason
        if isinstance(event, _QUIET) and is_no_news and decision.record.status == record.status:
            return
        before, after = record.status, decision.record.status
        if decision.outcome is not EventOutcome.APPLIED:
            where = f"{before} ({decision.outcome.lower()})"
        else:
            where = before if before == after else f"{before} -> {after}"
        self._line(f"{name}  {label}  {where}: {decision.reason}")

    def job_created(self, decision: Decision[Any]) -> None:
        """Write nothing: the submission has a line of its own."""

    def record_due(self, record: Job | Instance, now: datetime) -> None:
        """Write nothing: the decision that follows has a line of its own."""

    def fleet_checked(self, fleet: Fleet, now: datetime) -> None:
        """Write nothing: a repair that the fleet limits block shows in the decision on its instance."""

    def queue_checked(self, totals: Iterable[PriorityTotals]) -> None:
        """Write nothing: the decisions about the jobs have lines of their own."""

    def notified(self, record: Job | Instance, command: Any, failure: Exception | None) -> None:
        """Write nothing: `message_sent` writes what was sent, and a failed message is sent again later."""

    def placement_failed(self, failure: Exception) -> None:
        """Write a line for a job whose event or command failed in a pass of the scheduler."""
        self._line(f"    the scheduler could not finish a job: {type(failure).__name__}")

    def snapshot_failed(self, name: SnapshotName, failure: Exception) -> None:
        """Write nothing: no decision depends on a console snapshot."""

    def unknown_record(self, record_id: str, event: Any) -> None:
        """Write a line for an event about a record that does not exist."""
        self._line(f"{record_id}  {type(event).__name__}  (no such record)")

    def ordered(self, step: Effect) -> None:
        """Write a line for a call to ECS or EC2 that changes something."""
        if not self.remembers:
            return
        arguments = step.given
        if step.name == "RunTask":
            where = arguments["placementConstraints"][0]["expression"].split()[-1]
            self._line(f"    RunTask {arguments['startedBy']} on {where}")
        elif step.name == "StopTask":
            self._line(f"    StopTask task/{arguments['task']}")
        elif step.name == "UpdateContainerInstancesState":
            instance = self.cluster.find_container_instance(arguments["containerInstances"][0])
            self._line(
                f"    {arguments['status']} {instance.instance_id if instance else arguments['containerInstances'][0]}"
            )
        elif "instance" in arguments:
            self._line(f"    {step.name} {arguments['instance']}")

    def message_sent(self, message: NotifyOperator) -> None:
        """Write a line for a message to operators."""
        self._line(f"    MAIL {message.subject}  ({message.incident_id})")

    def happened(self, sentence: str) -> None:
        """Write a line for something that the simulated world did, not the product."""
        self._line(f"  * {sentence}")

    def _line(self, text: str) -> None:
        if self.remembers:
            self.lines.append(f"{self.timeline.elapsed():>8}  {text}")

    def text(self) -> str:
        """Return the transcript with short names."""
        names = {instance.instance_id: instance.tags["Name"] for instance in self.cluster.instances.values()}
        for number, task in enumerate(self.cluster.tasks.values(), 1):
            env = environment(task)
            rank = f"rank {env['RANK']}" if "RANK" in env else "the check"
            names[f"task/{task.task_id}"] = f"{rank} of {task.started_by}"
            names[task.task_id] = f"task-{number}"
        for instance in self.cluster.instances.values():
            names[instance.arn.rsplit("/", 1)[-1]] = f"container instance of {instance.tags['Name']}"
        pattern = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))
        return pattern.sub(lambda match: names[match[0]], "\n".join(self.lines)) + "\n"
