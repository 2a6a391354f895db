"""The loop under heartbeats: one job on some instances, a clock that tests move, and AWS as a list of answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.events import HealthReported, InstanceObserved
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import AgentReport, RunningRank, running_log_id
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.task import TaskFact
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver, ReportResponse
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus
from gpu_recovery.reconciler import heartbeat_timeouts
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.recovery import Recovery

from tests.aws.records import JOB, NOW, instance, job, spec

BOOT = "boot-1"
IDS = tuple(f"i-0{n:016x}" for n in range(10))
GPUS = 8


class Died(Exception):
    """The function was killed here."""


class Quiet:
    """A journal that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **more: None


@dataclass
class Aws:
    """`ports.Actions` as far as silence asks: who is dead, by what word, and what was said and stopped."""

    dead: dict[str, Ec2InstanceState] = field(default_factory=dict)
    impaired: dict[str, HealthKind] = field(default_factory=dict)
    disconnected: set[str] = field(default_factory=set)
    said: list[commands.NotifyOperator] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    rebooted: list[str] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    """Tasks that ECS does not know."""
    listings: list[str] = field(default_factory=list)
    """How often EC2 was asked about many."""

    def notify(self, message: commands.NotifyOperator) -> None:
        self.said.append(message)

    def publish(self, event: commands.PublishEvent, causation_id: str) -> None:
        """Nobody listens."""

    def poke_scheduler(self, key: str, hops: int = 1) -> None:
        """There is none."""

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        self.stopped += task_ids

    def stop_task(self, task_id: str, reason: str) -> bool:
        if task_id not in self.forgotten:
            self.stopped.append(task_id)
        return task_id not in self.forgotten

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        """Every task runs, as long as nobody tells ECS otherwise; of a machine that is off it knows no better."""
        return tuple(TaskFact(one, "RUNNING", NOW) for one in task_ids)

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        return ()

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        return ()

    def tasks_on(self, record: Instance) -> tuple[TaskFact, ...]:
        return ()

    def describe_ec2(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        return {one: Ec2Instance(self.dead.get(one, Ec2InstanceState.RUNNING)) for one in instance_ids}

    def drain(self, record: Instance) -> None:
        """Done."""

    def reboot(self, instance_id: str) -> None:
        self.rebooted.append(instance_id)

    def run_check(self, record: Instance, check_id: str, refusals: int, key: str) -> str:
        return f"task-of-{check_id}"

    def describe_ec2_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        self.listings.append("ec2")
        return {
            one: Ec2InstanceStatus(self.dead.get(one, Ec2InstanceState.RUNNING), self._health_of(one), ())
            for one in instance_ids
        }

    def _health_of(self, instance_id: str) -> tuple[HealthReported, ...]:
        kind = self.impaired.get(instance_id)
        return () if kind is None else (HealthReported(at=NOW, kind=kind, status=HealthStatus.IMPAIRED, since=NOW),)

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        name = container_instance_id.removeprefix("ci-")
        return name, InstanceObserved(
            at=NOW,
            ecs_version=3,
            ecs_status="ACTIVE",
            agent_connected=name not in self.disconnected,
            container_instance_id=container_instance_id,
            gpus=GPUS,
        )


@dataclass
class Scene:
    """A job RUNNING on `ids`, all of them claimed, and an agent on each that the test lets speak."""

    store: Store
    ids: tuple[str, ...]
    policy: RecoveryPolicy = PRESETS[Preset.ADAPTIVE]
    now: datetime = NOW
    aws: Aws = field(default_factory=Aws)
    sequence: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        actions: Any = self.aws
        journal: Any = Quiet()
        self.recovery = Recovery(self.store, actions, self.policy, lambda: self.now, journal)
        self.hearing = HeartbeatReceiver(self.recovery)
        world, count = spec(nnodes=len(self.ids)), len(self.ids)
        record = job(
            spec=world,
            status=JobStatus.RUNNING,
            attempt=1,
            instances=self.ids,
            launched=True,
            launch_ended=True,
            running_at=NOW,
            look_at=NOW + timedelta(seconds=self.policy.poll_interval_s),
        )
        self.store.create_job(record, "")
        self.store.begin_attempt(Plan(JOB, 1, self.ids, (0,) * count, 0, tuple(f"task-{n}" for n in range(count))))
        for rank, instance_id in enumerate(self.ids):
            self.store.save_instance(instance(instance_id, claims={JOB: Claim(1, GPUS, 0, rank, 0)}))
        for rank in range(count):
            self.store.add_running(JOB, 1, rank)

    # -- time and agents -----------------------------------------------------------------------------------------------

    def passes(self, seconds: float) -> None:
        """Time goes on, and nothing else happens."""
        self.now += timedelta(seconds=seconds)

    def report(self, which: int = 0, **changes: Any) -> AgentReport:
        """The next report of the agent on instance `which`; its rank of attempt 1 runs."""
        instance_id = self.ids[which]
        self.sequence[instance_id] = self.sequence.get(instance_id, 0) + 1
        usual: dict[str, Any] = {
            "boot_id": BOOT,
            "uptime_s": 7_200.0 + (self.now - NOW).total_seconds(),
            "sequence": self.sequence[instance_id],
            "interval_s": 15,
            "running": (RunningRank(JOB, 1, which, 0),),
        }
        return AgentReport(instance_id, **{**usual, **changes})

    def beats(self, *which: int, **changes: Any) -> ReportResponse:
        """The agents on these instances report, on all if none is named; the last answer."""
        for one in which or range(len(self.ids)):
            answer = self.hearing.receive(self.report(one, **changes))
        return answer

    def sweep(self) -> None:
        """The comparison of heartbeats with the time, as the reconciler makes it each minute."""
        heartbeat_timeouts.check_heartbeats(Cycle(self.recovery))

    def round(self) -> None:
        """A whole round of the reconciler over what is due, and the sweep."""
        reconcile(self.recovery, (heartbeat_timeouts.check_heartbeats,))

    def falls_silent(self, *which: int) -> None:
        """The others report on; these do not, until they are lost."""
        for _ in range(13):
            self.passes(15)
            for one in range(len(self.ids)):
                if one not in which:
                    self.beats(one)
        self.sweep()

    # -- what became of it ---------------------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        """The record of the job."""
        found = self.store.load_job(JOB)
        assert found is not None
        return found

    def instance(self, which: int = 0) -> Instance:
        """The record of an instance."""
        found = self.store.load_instance(self.ids[which])
        assert found is not None
        return found

    def changes_instance(self, which: int = 0, **changes: Any) -> None:
        """Write some fields of an instance's record."""
        self.store.save_instance(replace(self.instance(which), **changes))

    def log(self, which: int = 0, attempt: int = 1) -> int:
        """The running log of the rank on instance `which`."""
        return running_log_id(JOB, attempt, which)

    def claims(self) -> list[int]:
        """The attempt that each instance is claimed by."""
        return [self.instance(n).claims[JOB].attempt for n in range(len(self.ids))]

    def subjects(self) -> list[str]:
        """What operators were told, by subject."""
        return [one.subject for one in self.aws.said]


def lost(scene: Scene) -> Scene:
    """The same, once the agent on the first instance has been silent for long enough."""
    scene.falls_silent(0)
    assert (scene.job.status, scene.job.silent) == (JobStatus.LOST, (IDS[0],))
    return scene


@contextmanager
def dies_before(target: Any, name: str, when: Callable[..., bool] = lambda *given: True) -> Iterator[None]:
    """Inside, whoever calls `name` of `target` is killed before it does anything."""
    original = getattr(target, name)

    def killed(*given: Any, **more: Any) -> Any:
        if when(*given):
            raise Died(name)
        return original(*given, **more)

    object.__setattr__(target, name, killed)
    try:
        yield
    finally:
        object.__setattr__(target, name, original)
