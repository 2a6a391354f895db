"""The production loop in a world of its own: its clock, its cluster, its store, and whatever goes wrong.

    world = World(instances=2)
    job = world.submit(nnodes=2)
    world.until_status(job, JobStatus.RUNNING)
    world.break_gpu(world.machine(0))
    world.until_end(job)

Every entry point is the product's own, reached through its own parsers; the world only supplies what AWS does. After
each thing that happens the invariants are asked. One set of arguments makes one run, to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.events import CancelRequested, ReleaseRequested, ResumeRequested, SuspendRequested
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.job_api.submission import submit
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.reconciler.resync import RESYNCS
from gpu_recovery.scheduler.schedule import schedule

from sandbox.cluster.model import records as cluster
from sandbox.cluster.model import tasks
from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import CuredBy
from simulator.cloud.agents import Agents
from simulator.cloud.fleet import FleetTimings, Program
from simulator.cloud.rate_limits import Costs
from simulator.cloud.workloads import environment
from simulator.fast.fidelity import THOROUGH, Checking, Fidelity
from simulator.fast.leave_out import leave_out
from simulator.faults.delivery import Delivery, prompt
from simulator.invariants.guard import Guard, TestNemesis
from simulator.invocations import Effect, Nemesis, NoFaults
from simulator.lambda_runtime import LambdaRuntime
from simulator.memory_store.store import MemoryStore
from simulator.world_builder import CLUSTER, TRAINING_FAMILY, build_actions, build_aws, build_recovery
from simulator.world_view import WorldView


class NeverHappened(AssertionError):
    """What was waited for did not come in time; the transcript says what came instead."""


class World(WorldView):
    """One run. `train_s` None: ranks train until they are told. `agents`: a node agent reports from each machine."""

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
    ) -> None:
        self.policy = policy = replace(policy, diagnose=diagnose, lemon_order=lemons)
        self.store: Store = store if store is not None else MemoryStore()
        self._registrations, self._submitted = list[Mapping[str, Any]](), 0
        self.delivery: Delivery = self._register
        aws = build_aws(seed, timings, train_s, self._emitted)
        self.timeline, self.cluster, self.fleet = aws.timeline, aws.cluster, aws.fleet
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

    def _launch(self, instances: int, gpus: int) -> None:
        """Launch the machines; the product hears of them before anything can go wrong."""
        for _ in range(instances):
            self.fleet.launch(gpus)
        for number, machine in enumerate(self.model_instances()):
            machine.tags["Name"] = f"gpu-{number}"  # in the order in which the scheduler takes them
        for event in self._registrations:
            self.deliver(event)

    def _program(self, task: Task) -> Program:
        return self.checks if "CHECK_ID" in environment(task) else self.training

    # -- what reaches the product --------------------------------------------------------------------------------------

    def _emitted(self, envelopes: list[dict[str, Any]]) -> None:
        for envelope in envelopes:
            arrivals = self.delivery(envelope)
            if "id" not in envelope:
                continue  # no rule selects it
            for seconds in arrivals:
                self.timeline.after(seconds, self.deliver, envelope)

    def _register(self, envelope: Mapping[str, Any]) -> tuple[float, ...]:
        self._registrations.append(envelope)
        return ()

    def deliver(self, envelope: Mapping[str, Any]) -> None:
        """One EventBridge event to the function whose rule it matches, if any."""
        work = self.functions.of(envelope)
        if work is not None:
            self.invoke(*work)

    def invoke(self, name: str, work: Callable[[], object], tried: int = 0) -> None:
        """One asynchronous invocation; if it raises or dies, Lambda tries twice more, later."""
        self.functions.invoke(name, work, tried)

    def _poked(self, key: str) -> None:
        self.functions.poked(key)

    def run_scheduler(self) -> None:
        """What the scheduler function does when it is woken: one pass for every message that waits."""
        self.guard.before_pass()
        with self.functions.messages() as asked:
            schedule(self.recovery, asked)

    def run_reconciler(self) -> None:
        """What the reconciler function does each minute."""
        reconcile(self.recovery, RESYNCS if self.idle_skip is None else self.idle_skip.resyncs())

    # -- what people and machines do -----------------------------------------------------------------------------------

    def ask(self, work: Callable[[], object]) -> None:
        """A person's request to the API. Answered with an error, what was asked for may be done all the same."""
        with suppress(BotoCoreError, ClientError):
            self.invocations.run("job_api", work)

    def submit(self, nnodes: int = 2, gpus: int = 8, **more: Any) -> str:
        """A job through the product's own submission; its id."""
        document = {"workload": "sft", "nnodes": nnodes, "n_gpus_per_node": gpus, "task_definition": TRAINING_FAMILY}
        before = {job.job_id for job in self.jobs()}

        def work() -> None:
            self._submitted += 1
            submit(self.recovery, document | more, "", "", self._described, lambda: f"{self._submitted:04x}")

        made: list[Job] = []
        while not made:  # a client without an answer looks whether its job is there, and else submits it again
            self.ask(work)
            made = [job for job in self.jobs() if job.job_id not in before]
        who = "".join(f", {name} {more[name]}" for name in ("user", "priority") if name in more)
        self.transcript.happened(f"{made[0].job_id} is submitted: {nnodes} instance(s) with {gpus} GPU(s) each{who}")
        return made[0].job_id

    def _described(self, reference: str) -> Mapping[str, Any] | None:
        answer: Mapping[str, Any] = self.definitions.describe_task_definition(taskDefinition=reference)
        return cast(Mapping[str, Any], answer["taskDefinition"])

    def start_by_hand(
        self, job_id: str, rank: int, world: int, machine: cluster.ModelInstance, *, gpus: int | None = None, **env: str
    ) -> Task:
        """A person's own RunTask for one rank, as seed 001 knows it; it takes every GPU unless told otherwise."""
        given = {"JOB_ID": job_id, "RANK": str(rank), "WORLD_SIZE": str(world), **env}
        override = {
            "name": "train",
            "environment": [{"name": k, "value": v} for k, v in given.items()],
            "resourceRequirements": [{"type": "GPU", "value": str(gpus or len(machine.gpus))}],
        }
        constraint = {"type": "memberOf", "expression": f"ec2InstanceId == {machine.instance_id}"}
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
        """A person's StopTask."""
        self.transcript.happened(f"a person stops task/{task.task_id}")
        self.fleet.change(lambda now: tasks.stop_task(self.cluster, task.task_id, reason, now))

    def cancel(self, job_id: str, *, force: bool = False) -> None:
        """As the HTTP API does it."""
        attempt = self.job(job_id).attempt
        event = CancelRequested(at=self.timeline.now, attempt=attempt, by="an operator", force=force)
        self.ask(lambda: self.recovery.handle(job_id, event))

    def suspend(self, job_id: str) -> None:
        """A person wants the job suspended, and kept so."""
        event = SuspendRequested(at=self.timeline.now, attempt=self.job(job_id).attempt, by="an operator")
        self.ask(lambda: self.recovery.handle(job_id, event))

    def resume(self, job_id: str) -> None:
        """A person wants the suspended job to go on."""
        event = ResumeRequested(at=self.timeline.now, attempt=self.job(job_id).attempt, by="an operator")
        self.ask(lambda: self.recovery.handle(job_id, event))

    def release(self, machine: cluster.ModelInstance) -> None:
        """An operator vouches for a quarantined instance."""
        event = ReleaseRequested(at=self.timeline.now, by="an operator")
        self.ask(lambda: self.recovery.handle(machine.instance_id, event))

    def break_gpu(
        self, machine: cluster.ModelInstance, kind: str = "xid79", cured_by: CuredBy = CuredBy.REBOOT
    ) -> None:
        """A GPU of the machine fails."""
        self.transcript.happened(f"{kind} on {machine.instance_id}")
        self.training.break_gpu(machine, kind, cured_by)

    def exit(self, job_id: str, rank: int, code: int | None) -> None:
        """The running process of a rank ends by itself."""
        self.transcript.happened(f"rank {rank} of {job_id} exits with {code}")
        self.fleet.end(self.rank(job_id, rank), code)

    def finish(self, job_id: str) -> None:
        """Every rank of the running gang exits 0."""
        self.transcript.happened(f"every rank of {job_id} exits with 0")
        for task in self.ranks(job_id):
            self.fleet.end(task, 0)

    # -- what is so ----------------------------------------------------------------------------------------------------

    def model_instances(self) -> list[cluster.ModelInstance]:
        """Every machine, in the order of their ids: rank 0 of a job goes to the first that is free."""
        return sorted(self.cluster.instances.values(), key=lambda machine: machine.instance_id)

    def model_instance(self, number: int) -> cluster.ModelInstance:
        """The machine that is called `gpu-<number>`."""
        return next(one for one in self.cluster.instances.values() if one.tags["Name"] == f"gpu-{number}")

    def ranks(self, job_id: str) -> list[Task]:
        """The rank processes of a job that really run."""
        return [task for task in self.fleet.running() if environment(task).get("JOB_ID") == job_id]

    def rank(self, job_id: str, rank: int) -> Task:
        """The running process of one rank."""
        return next(task for task in self.ranks(job_id) if environment(task)["RANK"] == str(rank))

    def job(self, job_id: str) -> Job:
        """The record of a job."""
        job = self.store.load_job(job_id)
        if job is None:
            raise KeyError(job_id)
        return job

    def instance(self, machine: cluster.ModelInstance) -> Instance:
        """The record of a machine."""
        record = self.store.load_instance(machine.instance_id)
        if record is None:
            raise KeyError(machine.instance_id)
        return record

    def calls(self, name: str) -> list[Effect]:
        """The calls of one kind that reached AWS."""
        return [step for step in self.invocations.done if step.name == name]

    def messages(self) -> list[NotifyOperator]:
        return [message for _, message in self.actions.notified]

    # -- time ----------------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str, limit_s: float = 8 * 3600) -> None:
        """Let time pass until `holds`; NeverHappened after `limit_s`."""
        limit = self.timeline.now + timedelta(seconds=limit_s)
        while not holds():
            if not self.step(limit):
                raise NeverHappened(f"{what} within {limit_s:.0f} s:\n{self.transcript.text()}")

    def until_status(self, job_id: str, status: JobStatus, limit_s: float = 8 * 3600) -> Job:
        """Let time pass until the job is `status`; the job."""
        self.until(lambda: self.job(job_id).status is status, f"{job_id} was not {status}", limit_s)
        return self.job(job_id)

    def until_end(self, job_id: str, limit_s: float = 8 * 3600) -> Job:
        """Let time pass until the job has ended and what it left to do is done; the job."""
        self.until(lambda: self.job(job_id).status in TERMINAL, f"{job_id} did not end", limit_s)
        self.until(self.is_quiet, f"{job_id} ended, but work is left", limit_s)
        return self.job(job_id)

    def is_quiet(self) -> bool:
        """Whether nothing is left to be done."""
        busy = (InstanceStatus.CHECKING, InstanceStatus.REBOOTING, InstanceStatus.REPLACING, InstanceStatus.VERIFYING)
        records: list[Any] = [*self.jobs(), *self.instances()]
        return not any(one.commands or one.status in busy for one in records)

    def let_pass(self, seconds: float) -> None:
        """Let this much time pass."""
        limit = self.timeline.now + timedelta(seconds=seconds)
        while self.step(limit):
            pass

    def step(self, limit: datetime) -> bool:
        """Let the next thing happen, and ask the invariants; False, with the clock at `limit`, if nothing does."""
        happened = self.timeline.step(limit)
        self.guard.after_step()
        return happened

    def check_end(self) -> None:
        """Assert what must be so when all is over."""
        self.guard.at_the_end()
