"""Workloads of the instances: training gangs that start and end as a whole, and health checks.

Rank 0 of a gang receives SIGTERM through `gpu-recovery-run`, which gives rank 0 `SUSPEND_GRACE_S` seconds to save and
to exit. The other ranks exit at once. The behaviour of rank 0 under this notice is a `NoticeBehaviour`.

The verdict of a check is the true state of its instance, unless the check was scripted to report another outcome or to
run forever. A check reads its settings with the code of the real check, so both reject the same settings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from gpu_recovery.core.health_check import EXIT_CODES, CheckOutcome, Verdict, is_cured_by_reset

from health_check.remedies import OUTCOME_OF, HealthOutcome
from health_check.settings import CheckSettings, CheckSettingsError
from sandbox.cluster.model import instances
from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, ProcessState
from simulator.cloud.fleet import SIGKILL_EXIT, SIGTERM_EXIT, VirtualFleet
from simulator.cloud.held_ranks import is_running
from simulator.cloud.preflight import ASKS_REBOOT, QUIET, Preflights
from simulator.cloud.task_environment import environment

ABORT_EXIT, SUSPENDED_EXIT = 134, 75
"""Exit codes of a rank that aborts (SIGABRT) and of a rank 0 that saved a checkpoint for a suspension."""
NO_LOG = "its program writes no log"
"""Sentence that stands for the lines of a log that does not exist."""
COLLECTIVES_TIME_OUT_S = 600.0
"""Seconds after which the collectives of a gang time out: the default of PyTorch's process groups for NCCL."""
SAVING_S = 3.0
"""Seconds from the notice to the exit of a rank 0 that saves its state and calls `go_suspend()`."""
EXIT_OF = {outcome: code for code, outcome in EXIT_CODES.items()}
"""Exit code of a health check, by outcome."""


class NoticeBehaviour(StrEnum):
    """Behaviour of rank 0 after the notice (SIGTERM) of a suspension."""

    LEAVES = "leaves"  # exits at once, without saving
    SAVES = "saves"  # saves a checkpoint, then calls `go_suspend()`
    STAYS = "stays"  # runs until its wrapper ends it after the suspend grace
    HANGS = "hangs"  # runs until ECS kills it


@dataclass(frozen=True)
class JobBehaviour:
    """How a job trains. `train_s`: seconds of training over all attempts; None: the default of `Training`."""

    under_notice: NoticeBehaviour = NoticeBehaviour.LEAVES
    train_s: float | None = None


class Training:
    """Program of training ranks: the gang trains for `length_s` seconds once all its ranks run, then all exit 0.

    With `length_s` None the gang trains until `complete` is called.
    """

    def __init__(self, fleet: VirtualFleet, length_s: float | None) -> None:
        self.fleet, self.length_s = fleet, length_s
        self.abort_code: int | None = ABORT_EXIT
        """Exit code of a rank on a broken GPU."""
        self.ignores_signals = False
        """Whether ranks ignore SIGTERM, as a rank that hangs in a kernel call does."""
        self.habits: dict[str, JobBehaviour] = {}
        """Behaviour by job id, for the jobs that differ from the default."""
        self.saved_s: dict[str, float] = {}
        """Seconds of training in the checkpoint of each job."""
        self.stalled: set[str] = set()
        """Ids of the tasks that hang: they make no progress and do not end by themselves."""
        self.written: dict[str, tuple[str, ...] | str] = {}
        """Log lines by task id, or a sentence why the log cannot be read."""
        self.preflights = Preflights(fleet)
        self._whole_since: dict[str, datetime] = {}
        """Time since which all ranks of a gang run, by the attempt (`started_by`)."""

    def log(self, task_id: str, lines_max: int) -> tuple[str, ...] | str:
        """Return at most `lines_max` last log lines of a rank, or a sentence why there are no lines."""
        log = self.written.get(task_id, NO_LOG)
        return log if isinstance(log, str) else log[-lines_max:]

    def leaves_in(self, task: Task) -> float:
        """Return the seconds from SIGTERM to the exit of the rank."""
        if self.ignores_signals:
            return self.fleet.stop_timeout_s(task)
        variables = environment(task)
        grace_s = float(variables.get("SUSPEND_GRACE_S", 0))
        match self._notice(task):
            case NoticeBehaviour.SAVES:
                return min(SAVING_S, grace_s)
            case NoticeBehaviour.STAYS:
                return grace_s
            case NoticeBehaviour.HANGS:
                return self.fleet.stop_timeout_s(task)
            case _:
                return self.fleet.timings.leave_s

    def leaves(self, task: Task) -> int:
        """Return the exit code of the rank after SIGTERM. A rank 0 that saves adds to `saved_s`."""
        notice = self._notice(task)
        if self.ignores_signals or notice is NoticeBehaviour.HANGS:
            return SIGKILL_EXIT
        if notice is not NoticeBehaviour.SAVES:
            return SIGTERM_EXIT
        job_id, since = environment(task)["JOB_ID"], self._whole_since.get(self.fleet.ranks.attempt_name(task))
        if since is not None:
            done_s = (self.fleet.timeline.now - since).total_seconds()
            self.saved_s[job_id] = self.saved_s.get(job_id, 0) + done_s
        return SUSPENDED_EXIT

    def _notice(self, task: Task) -> NoticeBehaviour:
        variables = self.fleet.ranks.environment(task)
        behaviour = self.habits.get(variables.get("JOB_ID", ""))
        if behaviour is None or variables.get("RANK") != "0":
            return NoticeBehaviour.LEAVES
        return behaviour.under_notice

    def _length_s(self, task: Task) -> float | None:
        """Return the remaining seconds of training of the task's gang. None: until `complete` is called."""
        job_id = environment(task).get("JOB_ID", "")
        behaviour = self.habits.get(job_id)
        length_s = self.length_s if behaviour is None or behaviour.train_s is None else behaviour.train_s
        return None if length_s is None else max(0.0, length_s - self.saved_s.get(job_id, 0))

    def started(self, task: Task) -> None:
        """Begin the training of the rank, after its preflight if it has one."""
        self.stalled.discard(task.task_id)
        self.preflights.begin(task, self._begins)

    def _begins(self, task: Task) -> None:
        """Abort the rank if its GPU is broken. Schedule the end of the gang if this rank is the last to start."""
        if self._is_hurt(task):
            self._abort(task)
        length_s = self._length_s(task)
        if length_s is None:
            return
        world_size = int(self.fleet.ranks.environment(task).get("WORLD_SIZE", "1"))
        is_new = not self.fleet.ranks.present
        if is_new and self.fleet.cluster.tasks.count_running_of(task.started_by) < world_size:
            return  # too few ranks: the gang need not be read
        gang = self.gang(task)
        if len(gang) == world_size:
            name = self.fleet.ranks.attempt_name(task)
            self._whole_since[name] = self.fleet.timeline.now
            self.fleet.timeline.after(length_s, self.complete, tuple(rank.task_id for rank in gang), name)

    def gang(self, task: Task) -> list[Task]:
        """Return the running ranks of the task's attempt, the task included, in launch order."""
        name, ranks = self._name(task), self.fleet.ranks
        if ranks.present:
            launched = [other for other in self.fleet.running() if environment(other).get("JOB_ID") == name[1]]
        else:
            launched = self.fleet.cluster.tasks.running_of(task.started_by)
        return [other for other in launched if other.task_id not in ranks.held and self._name(other) == name]

    def is_whole(self, task: Task) -> bool:
        """Whether every rank of the task's gang runs and neither hangs nor has a broken GPU."""
        gang = self.gang(task)
        world_size = int(self.fleet.ranks.environment(task).get("WORLD_SIZE", "1"))
        return len(gang) == world_size and not any(map(self._is_hurt, gang))

    def _name(self, task: Task) -> tuple[str | None, str | None]:
        return self.fleet.ranks.attempt_name(task) or task.started_by, environment(task).get("JOB_ID")

    def complete(self, task_ids: tuple[str, ...], attempt: str = "") -> None:
        """End the training: every rank exits 0. If a rank has ended or hangs, do nothing: the gang hangs.

        Args:
            task_ids: the tasks of the gang.
            attempt: the attempt of the gang; "" for whichever attempt runs in the tasks.
        """
        gang = [self.fleet.cluster.tasks[task_id] for task_id in task_ids]
        if attempt and any(self.fleet.ranks.attempt_name(task) != attempt for task in gang):
            return  # another attempt has begun in a container
        if all(is_running(task, self.fleet.ranks) for task in gang) and not any(map(self._is_hurt, gang)):
            for task in gang:
                self.fleet.end(task, 0)

    def _is_hurt(self, task: Task) -> bool:
        hangs = task.instance_id in self.fleet.hung or task.task_id in self.stalled
        return hangs or any(gpu in self.fleet.cluster.instance_of(task).faults for gpu in task.gpu_ids)

    def _abort(self, task: Task) -> None:
        faults = self.fleet.cluster.instance_of(task).faults
        kinds = {faults[gpu].kind for gpu in task.gpu_ids if gpu in faults}
        if kinds and kinds <= QUIET:  # the gang hangs until its collectives time out
            self.fleet.timeline.after(COLLECTIVES_TIME_OUT_S, self._timed_out, task, self.fleet.ranks.attempt(task))
        else:
            self.fleet.timeline.after(self.fleet.timings.abort_s, self._aborted, task.task_id)

    def _timed_out(self, task: Task, attempt: int) -> None:
        if is_running(task, self.fleet.ranks) and self.fleet.ranks.attempt(task) == attempt:
            self.fleet.end(task, self.abort_code)

    def _aborted(self, task_id: str) -> None:
        self.fleet.end(self.fleet.cluster.tasks[task_id], self.abort_code)

    def break_gpu(self, instance: ModelInstance, kind: str, cured_by: CuredBy) -> None:
        """Break the first GPU of the instance. The rank on this GPU aborts, and the rest of its gang hangs."""
        instances.break_gpu(instance, instance.gpus[0], GpuFault(kind, cured_by))
        for task in self.fleet.running():
            if task.instance_id == instance.instance_id and "CHECK_ID" not in environment(task) and self._is_hurt(task):
                self._abort(task)


@dataclass(frozen=True)
class ScriptedCheck:
    """Script of a health check that does not report the truth.

    Attributes:
        outcome: outcome of the verdict and of the exit code. None: the check never ends.
        exit_code: exit code; None: the exit code of the outcome.
        document: whether the check writes its verdict document.
        seconds: duration; None: that of `FleetTimings` for its level.
    """

    outcome: CheckOutcome | None
    exit_code: int | None = None
    document: bool = True
    seconds: float | None = None


def _ignore_document(key: str, check_id: str, verdict: Verdict) -> None:
    """Ignore a verdict document."""


class Checks:
    """Program of health checks, and the bucket with their verdicts."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet = fleet
        self.bucket: dict[str, Verdict] = {}
        """Verdicts by check id."""
        self.skew: dict[str, timedelta] = {}
        """Clock skew by instance, for the instances with a wrong clock."""
        self.scripts: dict[str, deque[ScriptedCheck]] = {}
        """Scripts of the next checks, by instance."""
        self.leave_s: float | None = None
        """Seconds from SIGTERM to the exit of a check; None: `FleetTimings.leave_s`."""
        self.remembers = True
        """Whether old verdicts of an instance stay in the bucket."""
        self.on_document: Callable[[str, str, Verdict], None] = _ignore_document
        """Called with the S3 key, the check id and the verdict of each document, before the check exits."""

    def leaves_in(self, task: Task) -> float:
        """Return the seconds from SIGTERM to the exit of a check."""
        return self.fleet.timings.leave_s if self.leave_s is None else self.leave_s

    def leaves(self, task: Task) -> int:
        """Return the exit code of a check after SIGTERM."""
        return SIGTERM_EXIT

    def script(self, instance: ModelInstance, *scripted: ScriptedCheck) -> None:
        """Script the next checks of the instance. The checks after these report the truth."""
        self.scripts.setdefault(instance.instance_id, deque()).extend(scripted)

    def started(self, task: Task) -> None:
        """Schedule the end of the check, by the next script of its instance if there is a script."""
        scripts = self.scripts.get(task.instance_id)
        scripted = scripts.popleft() if scripts else None
        if scripted is not None and scripted.outcome is None:
            return
        seconds = scripted.seconds if scripted is not None else None
        timings = self.fleet.timings
        usual_s = timings.deep_check_s if level_of(task) >= DEEP else timings.check_s
        self.fleet.timeline.after(seconds or usual_s, self._end, task.task_id, scripted)

    def _end(self, task_id: str, scripted: ScriptedCheck | None) -> None:
        task = self.fleet.cluster.tasks[task_id]
        if task.process is not ProcessState.RUNNING or task.instance_id in self.fleet.hung:
            return  # on an instance that hangs it writes nothing
        instance = self.fleet.cluster.instance_of(task)
        if scripted is not None and scripted.outcome:
            outcome = scripted.outcome
        else:
            outcome = as_far_as_read(truth(instance, level_of(task)), environment(task))
        if scripted is None or scripted.document:
            summary = _SUMMARIES[outcome]
            booted_at = instance.booted_at + self.skew.get(instance.instance_id, timedelta())
            actions = {n: recovery_action(instance.faults[gpu].kind) for n, gpu in _faulty(instance)}
            resets = is_cured_by_reset(outcome, actions, actions)
            verdict = Verdict(outcome, summary, instance.boot_id, booted_at, resets)
            check_id = environment(task)["CHECK_ID"]
            self.bucket[check_id] = verdict
            self.on_document(environment(task)["VERDICT_KEY"], check_id, verdict)
            if not self.remembers:
                self._forget(check_id)
        exit_code = scripted.exit_code if scripted is not None else None
        self.fleet.end(task, EXIT_OF[outcome] if exit_code is None else exit_code)

    def _forget(self, check_id: str) -> None:
        """Remove the verdict of the check before the previous check. The previous verdict may still be read."""
        name, _, number = check_id.rpartition("/")
        self.bucket.pop(f"{name}/{int(number) - 2}", None)


_SUMMARIES: dict[Any, str] = {
    CheckOutcome.HEALTHY: "every test passed",
    CheckOutcome.REBOOT: "GPU 0 has fallen off the bus",
    CheckOutcome.REPLACE: "GPU 0 has faulty memory",
    CheckOutcome.CONFIGURATION: "persistence mode is off",
    CheckOutcome.INCONCLUSIVE: "dcgmi gave no result",
}


def as_far_as_read(outcome: CheckOutcome, variables: Mapping[str, str]) -> CheckOutcome:
    """Return the outcome that a check reports if it cannot read some of its settings.

    Args:
        outcome: the outcome of the tests of the check.
        variables: the environment variables of the check, which the control plane set.

    Returns:
        The worst of `outcome` and the outcomes of the unreadable settings, as in the verdict of the real check.
    """
    try:
        unread = [OUTCOME_OF[field.remedy] for field in CheckSettings.from_environment(variables).unread]
    except CheckSettingsError:
        return CheckOutcome.INCONCLUSIVE
    return CheckOutcome(max([HealthOutcome(outcome), *unread], key=lambda reported: reported.gravity))


def _faulty(instance: ModelInstance) -> list[tuple[int, str]]:
    """Return the faulty GPUs of the instance, each with its index."""
    return [(n, gpu) for n, gpu in enumerate(instance.gpus) if gpu in instance.faults]


def recovery_action(kind: str) -> str:
    """Return the recovery action that the driver asks for after a fault of this kind."""
    reboots = dict.fromkeys(("xid79", "ecc", ASKS_REBOOT), "NODE_REBOOT")
    return {"xid119": "GPU_RESET", **reboots}.get(kind, "NONE")


HIDDEN = "hidden"
"""Kind of a fault that fails every rank on the GPU and that no check finds."""


ONLY_DEEP, DEEP = "level3", 3
"""Kind of a fault that fails every rank on the GPU and that only a check at this level or a higher one finds."""


def level_of(task: Task) -> int:
    """Return the DCGM run level of the task of a check; 0 without a valid level."""
    text = environment(task).get("CHECK_LEVEL", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def truth(instance: ModelInstance, level: int) -> CheckOutcome:
    """Return the true outcome of a check at this level.

    REPLACE for faulty memory, REBOOT for another fault that the level finds, else HEALTHY.
    """
    unseen = {HIDDEN} if level >= DEEP else {HIDDEN, ONLY_DEEP}
    kinds = {fault.kind for fault in instance.faults.values()} - unseen
    if "ecc" in kinds:
        return CheckOutcome.REPLACE
    return CheckOutcome.REBOOT if kinds else CheckOutcome.HEALTHY
