"""One simulated run: the product's own code with a virtual clock, a modelled cluster, a store and faults.

    world = World(instances=2)
    job = world.submit(nnodes=2)
    world.until_status(job, JobStatus.RUNNING)
    world.break_gpu(world.model_instance(0))
    world.until_end(job)

Every entry point is the product's own and is reached through its own parsers. The world only does what AWS does. The
invariants are checked after each step. The same arguments give exactly the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError
from gpu_recovery.core.commands import NotifyOperator, RecordAttempt
from gpu_recovery.core.events import (
    CancelRequested,
    QuarantineRequested,
    ReleaseRequested,
    ResumeRequested,
    SuspendRequested,
)
from gpu_recovery.core.instance.record import IN_REPAIR, Instance, InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.execution.hand_over import CLUSTER_COMMANDS, HandOver
from gpu_recovery.job_api.submission import submit
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.reconciler.resync import RESYNCS
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler.console_snapshot import QueueSnapshots
from gpu_recovery.scheduler.schedule import run_pass

from sandbox.cluster.model import records as cluster
from sandbox.cluster.model import tasks
from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import CuredBy
from simulator.cloud.agents import Agents
from simulator.cloud.fleet import FleetTimings, Program
from simulator.cloud.rate_limits import Costs
from simulator.cloud.task_environment import environment
from simulator.fast.fidelity import THOROUGH, Checking, Fidelity
from simulator.fast.leave_out import leave_out
from simulator.faults.delivery import Delivery, prompt
from simulator.invariants.guard import Guard, TestNemesis
from simulator.invocations import Effect, Nemesis, NoFaults
from simulator.lambda_runtime import LambdaRuntime, wake_of
from simulator.memory_store.store import MemoryStore
from simulator.world_builder import CLUSTER, TRAINING_FAMILY, build_actions, build_aws, build_recovery
from simulator.world_view import WorldView


class NeverHappened(AssertionError):
    """The awaited condition did not hold in time. The message contains the transcript."""


class World(WorldView):
    """One run.

    Args:
        instances: The number of instances at the start.
        gpus: The GPUs of each instance.
        policy: The policy of the product.
        adoption: What the product does with gangs that an operator started.
        train_s: How long a gang trains, in seconds; None: until it is stopped.
        delivery: How EventBridge delivers events.
        nemesis: Which faults strike the effects of invocations; None: no fault.
        timings: How long instances and tasks take; None: the usual times.
        retries: Whether Lambda retries invocations that raised or were killed.
        store: Where the records are saved; None: a `MemoryStore`.
        seed: What all ids are derived from.
        fidelity: How much is recorded, checked and skipped.
        costs: What calls take, and AWS's limits on them; None: calls take no time and have no limit.
        agents: Whether a node agent reports from each instance.
        diagnose: Whether the product diagnoses why an attempt ended.
        lemons: Whether instances that failed often are placed last.
        instance_ids: The ids of the first instances, in the order of their launch; further ids come from the seed.
    """

    def __init__(
        self,
        *,
        instances: int = 2,
        gpus: int = 8,
        policy: RecoveryPolicy = PRESETS[Preset.ADAPTIVE],
        adoption: Adoption = Adoption.OFF,
        train_s: float | None = None,
        delivery: Delivery = prompt,
        nemesis: Nemesis | None = None,
        timings: FleetTimings | None = None,
        retries: bool = True,
        store: Store | None = None,
        seed: str = "world",
        fidelity: Fidelity = THOROUGH,
        costs: Costs | None = None,
        agents: bool = False,
        diagnose: bool = False,
        lemons: bool = False,
        instance_ids: Sequence[str] = (),
    ) -> None:
        self.policy = policy = replace(policy, diagnose=diagnose, lemon_order=lemons)
        self.store: Store = store if store is not None else MemoryStore()
        self._registrations, self._submitted = list[Mapping[str, Any]](), 0
        self.agents: Agents | None = None
        self.delivery: Delivery = self._register
        aws = build_aws(seed, timings, train_s, self._emitted)
        self.timeline, self.cluster, self.fleet = aws.timeline, aws.cluster, aws.fleet
        self.cluster.ids.given["instance"] = [name.removeprefix("i-") for name in instance_ids]
        self.definitions, self.transcript, self.invocations = aws.definitions, aws.journal, aws.lives
        self.training, self.checks, self.log_output = aws.training, aws.checks, aws.writing
        self.functions = LambdaRuntime(self, retries=retries)
        self.failures, self.asleep = self.functions.failures, self.functions.asleep
        self.guard = Guard(self, fidelity)
        self.fleet.program, self.fleet.goes_down = self._program, self.guard.goes_down
        self.actions = build_actions(aws, self._poked)
        self.idle_skip = leave_out(self, fidelity)
        judges = fidelity.checking is not Checking.NEVER
        self.recovery = build_recovery(
            aws, self.actions, self.store, policy, adoption, judges_writes=judges, costs=costs
        )
        self.meter = self.invocations.meter
        self._launch(instances, gpus)
        self.delivery, self.invocations.nemesis = delivery, TestNemesis(self.guard, nemesis or NoFaults())
        self.functions.begin_to_tick()
        self.agents = Agents(self) if agents else None
        if self.agents is not None:
            self.training.preflights.deliver = self.agents.pass_on
        self.quarantined: set[str] = set()
        self.snapshots: SnapshotWriter | None = None
        """Writes console snapshots in each reconcile cycle; None: none are written."""
        self.queue_snapshots: QueueSnapshots | None = None
        """The same for the queue, after each run of the scheduler."""

    def _launch(self, instances: int, gpus: int) -> None:
        """Launch the instances and register them with the product, before faults begin."""
        for _ in range(instances):
            self.fleet.launch(gpus)
        for number, instance in enumerate(self.model_instances()):
            instance.tags["Name"] = f"gpu-{number}"  # in the order in which the scheduler takes them
        for event in self._registrations:
            self.deliver(event)

    def _program(self, task: Task) -> Program:
        return self.checks if "CHECK_ID" in environment(task) else self.training

    # -- events and triggers -------------------------------------------------------------------------------------------

    def _emitted(self, envelopes: list[dict[str, Any]]) -> None:
        for envelope in envelopes:
            if self.agents is not None:
                self.agents.observe(envelope)
            arrivals = self.delivery(envelope)
            if "id" not in envelope:
                continue  # no rule selects it
            for seconds in arrivals:
                self.timeline.after(seconds, self.deliver, envelope)

    def _register(self, envelope: Mapping[str, Any]) -> tuple[float, ...]:
        self._registrations.append(envelope)
        return ()

    def deliver(self, envelope: Mapping[str, Any]) -> None:
        """Deliver one EventBridge event to the function that a rule triggers for it, if any."""
        work = self.functions.of(envelope)
        if work is not None:
            self.invoke(*work)

    def invoke(self, name: str, work: Callable[[], object], tried: int = 0) -> None:
        """Run one invocation. If it raises or is killed, Lambda or the queue of the scheduler repeats it later."""
        self.functions.invoke(name, work, tried)

    def _poked(self, key: str, hops: int) -> None:
        self.functions.poked(key, hops)

    @property
    def api_recovery(self) -> Recovery:
        """The product's loop, as the job API runs it."""
        return replace(self.recovery, hand_over=HandOver(CLUSTER_COMMANDS, self._wake_executor), back_off=None)

    @property
    def node_recovery(self) -> Recovery:
        """The product's loop, as the node API runs it."""
        return replace(
            self.recovery, hand_over=HandOver((*CLUSTER_COMMANDS, RecordAttempt), self._wake_executor), back_off=None
        )

    def _wake_executor(self, record: Job | Instance) -> None:
        """Invoke the command executor asynchronously. The delivery may lose, double or delay the invocation."""
        envelope = wake_of(record)
        self.invocations.call("Invoke")
        self.invocations.effect("Invoke", envelope["detail"], lambda: self._emitted([envelope]))

    def run_scheduler(self) -> None:
        """Run the scheduler function: one pass for all messages that it receives at once."""
        self.guard.before_pass()
        with self.functions.messages() as received:
            hops = max(received.values(), default=0)
            loop = replace(self.recovery, hops=hops)
            result = run_pass(loop, tuple(received))
            if self.queue_snapshots is not None:
                self.queue_snapshots.write(loop, result)

    def _seconds_left(self) -> float:
        return self.meter.seconds_left() if self.meter is not None else inf

    def run_reconciler(self) -> None:
        """Run the reconciler function, as the clock does each minute."""
        resyncs = RESYNCS if self.idle_skip is None else self.idle_skip.resyncs()
        reconcile(replace(self.recovery, back_off=None), resyncs, self._seconds_left, self.snapshots)

    # -- operators and faults ------------------------------------------------------------------------------------------

    def ask(self, work: Callable[[], object]) -> None:
        """Make an operator's request to the job API.

        Errors of AWS are dropped. After such an error the request may have taken effect nevertheless.
        """
        with suppress(BotoCoreError, ClientError):
            self.invocations.run("job_api", work)

    def submit(self, nnodes: int | Mapping[str, int] = 2, gpus: int = 8, **more: Any) -> str:
        """Submit a job through the product's own submission; return its id.

        Args:
            nnodes: The number of instances; of an elastic job the smallest and the largest, as `min` and `max`.
            gpus: The GPUs that the job needs on each instance.
            more: Further members of the submitted document.
        """
        document = {"workload": "sft", "nnodes": nnodes, "n_gpus_per_node": gpus, "task_definition": TRAINING_FAMILY}
        before = {job.job_id for job in self.jobs()}

        def work() -> None:
            self._submitted += 1
            submit(self.api_recovery, document | more, "", "", self._described, lambda: f"{self._submitted:04x}")

        made: list[Job] = []
        while not made:  # a client without an answer submits again, unless the job exists
            self.ask(work)
            made = [job for job in self.jobs() if job.job_id not in before]
        wanted = nnodes if isinstance(nnodes, int) else f"{nnodes['min']} to {nnodes['max']}"
        who = "".join(f", {name} {more[name]}" for name in ("user", "priority") if name in more)
        self.transcript.happened(f"{made[0].job_id} is submitted: {wanted} instance(s) with {gpus} GPU(s) each{who}")
        return made[0].job_id

    def _described(self, reference: str) -> Mapping[str, Any] | None:
        answer: Mapping[str, Any] = self.definitions.describe_task_definition(taskDefinition=reference)
        return cast(Mapping[str, Any], answer["taskDefinition"])

    def start_by_hand(
        self,
        job_id: str,
        rank: int,
        world: int,
        instance: cluster.ModelInstance,
        *,
        gpus: int | None = None,
        **env: str,
    ) -> Task:
        """Start one rank with an operator's own RunTask, as seed 001 describes it.

        Args:
            job_id: The variable `JOB_ID` of the task.
            rank: The variable `RANK` of the task.
            world: The variable `WORLD_SIZE` of the task.
            instance: The instance on which the rank is placed.
            gpus: The GPUs that the rank reserves; None: every GPU of the instance.
            env: Further variables of the task.

        Returns:
            The task.
        """
        variables = {"JOB_ID": job_id, "RANK": str(rank), "WORLD_SIZE": str(world), **env}
        override = {
            "name": "train",
            "environment": [{"name": k, "value": v} for k, v in variables.items()],
            "resourceRequirements": [{"type": "GPU", "value": str(gpus or len(instance.gpus))}],
        }
        constraint = {"type": "memberOf", "expression": f"ec2InstanceId == {instance.instance_id}"}
        request = {
            "cluster": CLUSTER,
            "taskDefinition": TRAINING_FAMILY,
            "startedBy": "alice",
            "overrides": {"containerOverrides": [override]},
            "placementConstraints": [constraint],
        }
        definition = self._described(TRAINING_FAMILY)
        answer = self.fleet.change(lambda now: tasks.run_task(self.cluster, request, dict(definition or {}), now))
        return self.cluster.tasks[answer["tasks"][0]["taskArn"].rsplit("/", 1)[-1]]

    def stop_by_hand(self, task: Task, reason: str = "") -> None:
        """Stop a task with an operator's own StopTask."""
        self.transcript.happened(f"a person stops task/{task.task_id}")
        self.fleet.change(lambda now: tasks.stop_task(self.cluster, task.task_id, reason, now))

    def cancel(self, job_id: str, *, force: bool = False) -> None:
        """Cancel a job, as the job API does. `force`: as `gpu-recovery cancel --force`."""
        attempt = self.job(job_id).attempt
        event = CancelRequested(at=self.timeline.now, attempt=attempt, by="an operator", force=force)
        self.ask(lambda: self.api_recovery.handle(job_id, event))

    def suspend(self, job_id: str) -> None:
        """Suspend a job on an operator's request; the job stays suspended until it is resumed."""
        event = SuspendRequested(at=self.timeline.now, attempt=self.job(job_id).attempt, by="an operator")
        self.ask(lambda: self.api_recovery.handle(job_id, event))

    def resume(self, job_id: str) -> None:
        """Resume a suspended job on an operator's request."""
        event = ResumeRequested(at=self.timeline.now, attempt=self.job(job_id).attempt, by="an operator")
        self.ask(lambda: self.api_recovery.handle(job_id, event))

    def quarantine(self, instance: cluster.ModelInstance) -> None:
        """Quarantine an instance on an operator's request. The answer tells the operator whether it is quarantined."""
        event = QuarantineRequested(at=self.timeline.now, by="an operator", because="a fan is loud")

        def work() -> None:
            decision = self.api_recovery.handle(instance.instance_id, event)
            if decision is not None and decision.outcome is EventOutcome.APPLIED:
                self.quarantined.add(instance.instance_id)

        self.ask(work)

    def release(self, instance: cluster.ModelInstance) -> None:
        """Release a quarantined instance on an operator's request. A request without an answer may have released it."""
        event = ReleaseRequested(at=self.timeline.now, by="an operator")
        was_quarantined = instance.instance_id in self.quarantined
        self.quarantined.discard(instance.instance_id)

        def work() -> None:
            decision = self.api_recovery.handle(instance.instance_id, event)
            if was_quarantined and decision is not None and decision.outcome is not EventOutcome.APPLIED:
                self.quarantined.add(instance.instance_id)

        self.ask(work)

    def break_gpu(
        self, instance: cluster.ModelInstance, kind: str = "xid79", cured_by: CuredBy = CuredBy.REBOOT
    ) -> None:
        """Let a GPU of the instance fail."""
        self.transcript.happened(f"{kind} on {instance.instance_id}")
        self.training.break_gpu(instance, kind, cured_by)

    def exit(self, job_id: str, rank: int, code: int | None) -> None:
        """End the running process of a rank with exit code `code`; None: its container vanishes."""
        self.transcript.happened(f"rank {rank} of {job_id} exits with {code}")
        self.fleet.end(self.rank(job_id, rank), code)

    def finish(self, job_id: str) -> None:
        """End every rank of the running gang with exit code 0. A warm spare has no process that could end."""
        self.transcript.happened(f"every rank of {job_id} exits with 0")
        for task in self.ranks(job_id):
            self.fleet.end(task, 0)

    # -- present state -------------------------------------------------------------------------------------------------

    def model_instances(self) -> list[cluster.ModelInstance]:
        """Return every modelled instance, sorted by id. Rank 0 of a job is placed on the first free instance."""
        return sorted(self.cluster.instances.values(), key=lambda instance: instance.instance_id)

    def model_instance(self, number: int) -> cluster.ModelInstance:
        """Return the modelled instance with the name `gpu-<number>`."""
        return next(
            instance for instance in self.cluster.instances.values() if instance.tags["Name"] == f"gpu-{number}"
        )

    def ranks(self, job_id: str) -> list[Task]:
        """Return the running rank processes of a job."""
        return [task for task in self.fleet.running() if environment(task).get("JOB_ID") == job_id]

    def rank(self, job_id: str, rank: int) -> Task:
        """Return the running process of one rank."""
        ranks = self.fleet.ranks
        return next(task for task in self.ranks(job_id) if ranks.environment(task)["RANK"] == str(rank))

    def job(self, job_id: str) -> Job:
        """Load the record of a job.

        Raises:
            KeyError: The job has no record.
        """
        job = self.store.load_job(job_id)
        if job is None:
            raise KeyError(job_id)
        return job

    def instance(self, instance: cluster.ModelInstance) -> Instance:
        """Load the record of a modelled instance.

        Raises:
            KeyError: The instance has no record.
        """
        record = self.store.load_instance(instance.instance_id)
        if record is None:
            raise KeyError(instance.instance_id)
        return record

    def calls(self, name: str) -> list[Effect]:
        """Return the effects with the name `name` that took place."""
        return [step for step in self.invocations.done if step.name == name]

    def messages(self) -> list[NotifyOperator]:
        """Return the messages that were sent to operators."""
        return [message for _, message in self.actions.notified]

    # -- time ----------------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str, limit_s: float = 8 * 3600) -> None:
        """Let time pass until `holds()` is true.

        Raises:
            NeverHappened: `limit_s` seconds passed before. Its message contains `what`.
        """
        limit = self.timeline.now + timedelta(seconds=limit_s)
        while not holds():
            if not self.step(limit):
                raise NeverHappened(f"{what} within {limit_s:.0f} s:\n{self.transcript.text()}")

    def until_status(self, job_id: str, status: JobStatus, limit_s: float = 8 * 3600) -> Job:
        """Let time pass until the job has the status `status`; return the job.

        Raises:
            NeverHappened: `limit_s` seconds passed before.
        """
        self.until(lambda: self.job(job_id).status is status, f"{job_id} was not {status}", limit_s)
        return self.job(job_id)

    def until_end(self, job_id: str, limit_s: float = 8 * 3600) -> Job:
        """Let time pass until the job has ended and its pending work is done; return the job.

        Raises:
            NeverHappened: The end or the remaining work took more than `limit_s` seconds.
        """
        self.until(lambda: self.job(job_id).status in TERMINAL, f"{job_id} did not end", limit_s)
        self.until(self.is_quiet, f"{job_id} ended, but work is left", limit_s)
        return self.job(job_id)

    def is_quiet(self) -> bool:
        """Return whether no record has a pending command and no instance is being checked or repaired.

        Idle checks, which follow each other for ever, do not count.
        """
        busy = (InstanceStatus.CHECKING, *IN_REPAIR)
        instances = self.instances()
        works = (one.status in busy and (one.check is None or one.check.idle is None) for one in instances)
        records: list[Any] = [*self.jobs(), *instances]
        return not any(works) and not any(record.commands for record in records)

    def let_pass(self, seconds: float) -> None:
        """Let this many seconds pass."""
        limit = self.timeline.now + timedelta(seconds=seconds)
        while self.step(limit):
            pass

    def step(self, limit: datetime) -> bool:
        """Run what is due next and check the invariants.

        Returns:
            False, with the clock at `limit`, if the queue holds nothing that is due up to `limit`.

        Raises:
            InvariantBroken: An invariant does not hold.
        """
        happened = self.timeline.step(limit)
        self.guard.after_step()
        return happened

    def check_end(self) -> None:
        """Check what must hold when the run is over.

        Raises:
            InvariantBroken: It does not hold.
        """
        self.guard.at_the_end()
