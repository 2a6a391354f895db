"""What runs on the machines: training gangs that live and die together, and health checks that tell the truth.

Rank 0 of a gang hears SIGTERM through `gpu-recovery-run`, which gives it `SUSPEND_GRACE_S` to save and to leave; the
other ranks leave at once. What a program makes of that notice is its habit.

A check says what is so on its instance, unless it was scripted to say something else, or never to end. It reads what
it is told as the real check does: what that one cannot read, it cannot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from gpu_recovery.core.health_check import EXIT_CODES, CheckOutcome, Verdict

from health_check.remedies import OUTCOME_OF, HealthOutcome
from health_check.settings import CheckSettings, CheckSettingsError
from sandbox.cluster.model import instances
from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, ProcessState
from simulator.cloud.fleet import SIGKILL_EXIT, SIGTERM_EXIT, VirtualFleet

ABORT_EXIT, SUSPENDED_EXIT = 134, 75
NO_LOG = "its program writes no log"
SAVING_S = 3.0
"""From the notice to the end of a rank 0 that saves its state and calls `go_suspend()`."""
EXIT_OF = {outcome: code for code, outcome in EXIT_CODES.items()}


_READ: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
_READ_MAX = 50_000
"""Environments by task, with the overrides that they were read of: two worlds may have tasks of one id."""


def environment(task: Task) -> Mapping[str, str]:
    """What the overrides of the task give its containers. They never change, so they are read once."""
    known = _READ.get(task.task_id)
    if known is not None and known[0] is task.overrides:
        return known[1]
    given = task.overrides.get("containerOverrides", [])
    found = {pair["name"]: pair["value"] for one in given for pair in one.get("environment", [])}
    if len(_READ) >= _READ_MAX:
        _READ.clear()
    _READ[task.task_id] = task.overrides, found
    return found


class NoticeBehaviour(StrEnum):
    """What rank 0 of a program does under notice."""

    LEAVES = "leaves"  # at once, without saving anything
    SAVES = "saves"  # a checkpoint, and then it calls `go_suspend()`
    STAYS = "stays"  # until its wrapper ends it after the grace
    HANGS = "hangs"  # until ECS kills it


@dataclass(frozen=True)
class JobBehaviour:
    """How one job trains. `train_s`: for how long, all attempts that were saved taken together; None as all do."""

    under_notice: NoticeBehaviour = NoticeBehaviour.LEAVES
    train_s: float | None = None


class Training:
    """Ranks that train for `length_s` once their whole gang runs, and exit 0; None: until they are told."""

    def __init__(self, fleet: VirtualFleet, length_s: float | None) -> None:
        self.fleet, self.length_s = fleet, length_s
        self.abort_code: int | None = ABORT_EXIT
        self.ignores_signals = False
        """Whether ranks ignore SIGTERM, as one that hangs in a kernel call does."""
        self.habits: dict[str, JobBehaviour] = {}
        """Of those jobs that have their own."""
        self.saved_s: dict[str, float] = {}
        """How much of its training each job has in its checkpoint."""
        self.stalled: set[str] = set()
        """Tasks that do nothing any more and do not end by themselves."""
        self.written: dict[str, tuple[str, ...] | str] = {}
        """The log of each task that has one; or in a sentence why it cannot be read."""
        self._whole_since: dict[str, datetime] = {}

    def log(self, task_id: str, most: int) -> tuple[str, ...] | str:
        """The last lines, `most` at most, of what a rank wrote; or in a sentence why there are none to be read."""
        found = self.written.get(task_id, NO_LOG)
        return found if isinstance(found, str) else found[-most:]

    def leaves_in(self, task: Task) -> float:
        if self.ignores_signals:
            return self.fleet.timings.stop_timeout_s
        given = environment(task)
        grace_s = float(given.get("SUSPEND_GRACE_S", 0))
        match self._notice(task):
            case NoticeBehaviour.SAVES:
                return min(SAVING_S, grace_s)
            case NoticeBehaviour.STAYS:
                return grace_s
            case NoticeBehaviour.HANGS:
                return self.fleet.timings.stop_timeout_s
            case _:
                return self.fleet.timings.leave_s

    def leaves(self, task: Task) -> int:
        notice = self._notice(task)
        if self.ignores_signals or notice is NoticeBehaviour.HANGS:
            return SIGKILL_EXIT
        if notice is not NoticeBehaviour.SAVES:
            return SIGTERM_EXIT
        job_id, since = environment(task)["JOB_ID"], self._whole_since.get(task.started_by or "")
        if since is not None:
            done_s = (self.fleet.timeline.now - since).total_seconds()
            self.saved_s[job_id] = self.saved_s.get(job_id, 0) + done_s
        return SUSPENDED_EXIT

    def _notice(self, task: Task) -> NoticeBehaviour:
        given = environment(task)
        habit = self.habits.get(given.get("JOB_ID", ""))
        return habit.under_notice if habit is not None and given.get("RANK") == "0" else NoticeBehaviour.LEAVES

    def _length_s(self, task: Task) -> float | None:
        """How long the task's gang has still to train; None: until it is told."""
        job_id = environment(task).get("JOB_ID", "")
        habit = self.habits.get(job_id)
        whole_s = self.length_s if habit is None or habit.train_s is None else habit.train_s
        return None if whole_s is None else max(0.0, whole_s - self.saved_s.get(job_id, 0))

    def started(self, task: Task) -> None:
        if self._is_hurt(task):
            self._abort(task)
        length_s = self._length_s(task)
        if length_s is None:
            return
        world = int(environment(task).get("WORLD_SIZE", "1"))
        if self.fleet.cluster.tasks.count_running_of(task.started_by) < world:
            return  # too few to look who they are
        gang = self.gang(task)
        if len(gang) == world:
            self._whole_since[task.started_by or ""] = self.fleet.timeline.now
            self.fleet.timeline.after(length_s, self.complete, tuple(one.task_id for one in gang))

    def gang(self, task: Task) -> list[Task]:
        """The running ranks of the task's attempt, itself included, in the order they were started."""
        mine = self._name(task)
        launched = self.fleet.cluster.tasks.running_of(task.started_by)
        return [other for other in launched if self._name(other) == mine]

    def is_whole(self, task: Task) -> bool:
        """Whether every rank of the task's gang runs on GPUs that work."""
        gang = self.gang(task)
        world = int(environment(task).get("WORLD_SIZE", "1"))
        return len(gang) == world and not any(map(self._is_hurt, gang))

    @staticmethod
    def _name(task: Task) -> tuple[str | None, str | None]:
        return task.started_by, environment(task).get("JOB_ID")

    def complete(self, task_ids: tuple[str, ...]) -> None:
        """The last step is done: every rank exits 0, unless one was lost, for then the others hang."""
        gang = [self.fleet.cluster.tasks[task_id] for task_id in task_ids]
        if all(task.process is ProcessState.RUNNING for task in gang) and not any(map(self._is_hurt, gang)):
            for task in gang:
                self.fleet.end(task, 0)

    def _is_hurt(self, task: Task) -> bool:
        hangs = task.instance_id in self.fleet.hung or task.task_id in self.stalled
        return hangs or any(gpu in self.fleet.cluster.instance_of(task).faults for gpu in task.gpu_ids)

    def _abort(self, task: Task) -> None:
        self.fleet.timeline.after(self.fleet.timings.abort_s, self._aborted, task.task_id)

    def _aborted(self, task_id: str) -> None:
        self.fleet.end(self.fleet.cluster.tasks[task_id], self.abort_code)

    def break_gpu(self, instance: ModelInstance, kind: str, cured_by: CuredBy) -> None:
        """A GPU fails: the rank that uses it aborts, and the rest of its gang hangs."""
        instances.break_gpu(instance, instance.gpus[0], GpuFault(kind, cured_by))
        for task in self.fleet.running():
            if task.instance_id == instance.instance_id and "CHECK_ID" not in environment(task) and self._is_hurt(task):
                self._abort(task)


@dataclass(frozen=True)
class ScriptedCheck:
    """What one check is to do instead of telling the truth; `outcome` None: it never ends."""

    outcome: CheckOutcome | None
    exit_code: int | None = None
    document: bool = True
    seconds: float | None = None


class Checks:
    """Health checks, and the bucket in which they leave their verdicts."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet = fleet
        self.bucket: dict[str, Verdict] = {}
        self.skew: dict[str, timedelta] = {}
        """Instances whose own clock is wrong, and by how much."""
        self.scripts: dict[str, deque[ScriptedCheck]] = {}
        self.remembers = True
        """Whether a verdict is kept after its instance has had others."""

    def leaves_in(self, task: Task) -> float:
        return self.fleet.timings.leave_s

    def leaves(self, task: Task) -> int:
        return SIGTERM_EXIT

    def script(self, instance: ModelInstance, *scripted: ScriptedCheck) -> None:
        """The next checks of the instance do this; those after them tell the truth."""
        self.scripts.setdefault(instance.instance_id, deque()).extend(scripted)

    def started(self, task: Task) -> None:
        waiting = self.scripts.get(task.instance_id)
        scripted = waiting.popleft() if waiting else None
        if scripted is not None and scripted.outcome is None:
            return
        seconds = scripted.seconds if scripted is not None else None
        self.fleet.timeline.after(seconds or self.fleet.timings.check_s, self._end, task.task_id, scripted)

    def _end(self, task_id: str, scripted: ScriptedCheck | None) -> None:
        task = self.fleet.cluster.tasks[task_id]
        if task.process is not ProcessState.RUNNING:
            return
        instance = self.fleet.cluster.instance_of(task)
        if scripted is not None and scripted.outcome:
            outcome = scripted.outcome
        else:
            outcome = as_far_as_read(truth(instance), environment(task))
        if scripted is None or scripted.document:
            summary = _SUMMARIES[outcome]
            booted_at = instance.booted_at + self.skew.get(instance.instance_id, timedelta())
            verdict = Verdict(outcome, summary, instance.boot_id, booted_at)
            check_id = environment(task)["CHECK_ID"]
            self.bucket[check_id] = verdict
            if not self.remembers:
                self._forget(check_id)
        given = scripted.exit_code if scripted is not None else None
        self.fleet.end(task, EXIT_OF[outcome] if given is None else given)

    def _forget(self, check_id: str) -> None:
        """The verdict before the last one: that of the last may be asked for yet."""
        name, _, number = check_id.rpartition("/")
        self.bucket.pop(f"{name}/{int(number) - 2}", None)


_SUMMARIES: dict[Any, str] = {
    CheckOutcome.HEALTHY: "every test passed",
    CheckOutcome.REBOOT: "GPU 0 has fallen off the bus",
    CheckOutcome.REPLACE: "GPU 0 has faulty memory",
    CheckOutcome.CONFIGURATION: "persistence mode is off",
    CheckOutcome.INCONCLUSIVE: "dcgmi gave no result",
}


def as_far_as_read(outcome: CheckOutcome, given: Mapping[str, str]) -> CheckOutcome:
    """What a check that finds `outcome` says, with what it cannot read of the environment `given` by the control plane.

    The worst of both, as in the health check's own verdict.
    """
    try:
        unread = [OUTCOME_OF[one.remedy] for one in CheckSettings.from_environment(given).unread]
    except CheckSettingsError:
        return CheckOutcome.INCONCLUSIVE
    return CheckOutcome(max([HealthOutcome(outcome), *unread], key=lambda one: one.gravity))


HIDDEN = "hidden"
"""A fault that fails whoever trains on the GPU and that no check sees."""


def truth(instance: ModelInstance) -> CheckOutcome:
    """What an honest check says: a GPU off the bus wants a reboot, faulty memory a replacement."""
    kinds = {fault.kind for fault in instance.faults.values()} - {HIDDEN}
    if "ecc" in kinds:
        return CheckOutcome.REPLACE
    return CheckOutcome.REBOOT if kinds else CheckOutcome.HEALTHY
