"""A gang in the virtual world that trains, is struck by the failures of a course, and says when it trained.

What it reports is read from processes and machines: when they began and ended, whatever the product believes. A rank
ends with 1 whatever ended it, as `torchrun` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.health_check import CheckOutcome

from sandbox.cluster.model import instances
from sandbox.cluster.model.records import GpuFault, ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, Ec2State
from simulator.cloud.workloads import Checks, ScriptedCheck, Training, environment
from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.lower_bound import recovery_from
from simulator.goodput.policy import Episode
from simulator.world import World

RANK_EXIT = 1
SAYS_WHY = ("RuntimeError: CUDA error: GPU is lost",)
SAYS_MEMORY = ("RuntimeError: CUDA error: uncorrectable ECC error encountered",)
"""The last line of a rank that says what its machine has."""


class TimedChecks(Checks):
    """Health checks that remember when the first one of each instance ended since the gang broke."""

    first: dict[str, datetime]

    def _end(self, task_id: str, scripted: ScriptedCheck | None) -> None:
        super()._end(task_id, scripted)
        instance_id = self.fleet.cluster.tasks[task_id].instance_id
        self.first.setdefault(instance_id, self.fleet.timeline.now)


@dataclass
class TrainingInterruption:
    """A training that was stopped and has not begun again."""

    failure: Failure
    attempt: str | None
    ranks: tuple[str, ...]
    fault_at: float
    is_relapse: bool
    shown_at: float = 0.0
    detected_at: float | None = None
    by_person: bool = False
    accused: frozenset[str] = frozenset()
    """Machines that their check blames for nothing."""
    was_short: bool = False


@dataclass(frozen=True)
class FaultyInstance:
    """A machine that is not well: since which boot, and whether checks can see it."""

    failure: Failure
    boot_id: str
    is_seen: bool


class Trainer(Training):
    """The ranks of one job after another, under a course whose checks have `level`."""

    def __init__(
        self, world: World, course: FailureTrace, level: int, came_back: Callable[[Failure, int], None]
    ) -> None:
        super().__init__(world.fleet, None)
        self.world, self.course, self.level, self._came_back = world, course, level, came_back
        self.began: datetime | None = None
        self.episodes: list[Episode] = []
        self.broken: TrainingInterruption | None = None
        self.unfelt = 0
        self.sick: dict[str, FaultyInstance] = {}
        self._bugs: dict[int, Failure] = {}
        self._times: Counter[int] = Counter()
        self._ranks: tuple[str, ...] = ()
        self._first: tuple[str, ...] = ()
        self._attempt: str | None = None
        self._ready: str | None = None
        self.checks = TimedChecks(world.fleet)
        self.checks.first = {}
        world.training = world.actions.training = self
        world.checks = world.actions.checks = self.checks

    # -- training ------------------------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._since(self.fleet.timeline.now)

    def started(self, task: Task) -> None:
        """A rank runs; when it is the last of its gang, training begins once all have found each other."""
        tasks = self.fleet.cluster.tasks
        if tasks.count_running_of(task.started_by) == self.course.profile.instances and self._ready != task.started_by:
            self._ready = task.started_by
            profile = self.course.profile
            rejoin_s = self.course.conditions.rejoin(profile.instances * profile.gpus)
            self.fleet.timeline.after(rejoin_s, self._trains, task.started_by)

    def _trains(self, attempt: str | None) -> None:
        gang = self.fleet.cluster.tasks.running_of(attempt)
        if len(gang) < self.course.profile.instances:
            self._ready = None
            return  # it broke before its first step
        self._ranks = tuple(one.instance_id for one in sorted(gang, key=lambda one: int(environment(one)["RANK"])))
        if self.began is None:
            self.began, self._first = self.fleet.timeline.now, self._ranks
            for failure in self.course.failures:
                if failure.at_s >= self.course.begins_s:
                    self.fleet.timeline.after(failure.at_s - self.course.begins_s, self._strike, failure.number)
        if self.broken is not None:
            self.episodes.append(self._closed(self.broken, gang))
            self.broken = None
        self._attempt = attempt
        self._come_back()

    def _come_back(self) -> None:
        for instance_id in self._ranks:
            if (sick := self._still_sick(instance_id)) is not None:
                felt = self._times[sick.failure.number]
                self._later(sick.failure.relapse_s if felt else 0.0, self._relapse, sick.failure, instance_id)
        for bug in self._bugs.values():
            self._later(bug.relapse_s, self._relapse, bug, "")

    def _later(self, seconds: float, happen: Callable[..., None], failure: Failure, instance_id: str) -> None:
        self.fleet.timeline.after(seconds, happen, failure.number, instance_id, self._attempt)

    # -- failing -------------------------------------------------------------------------------------------------------

    def _strike(self, number: int) -> None:
        failure = self.course.failures[number]
        machine_id = self._first[failure.place] if failure.of_lemon else self._ranks[failure.place]
        met = machine_id in self._ranks and self._runs(machine_id)
        if self.broken is None and met:
            self._stop_training(failure, machine_id)
        elif met and failure.of_machine and failure.shows is not Shows.GONE and self._still_sick(machine_id) is None:
            self._sicken(failure, machine_id)
        else:
            self.unfelt += 1

    def _relapse(self, number: int, instance_id: str, attempt: str | None) -> None:
        failure = self.course.failures[number]
        still = number in self._bugs if failure.cure is Cure.PERSON else self._still_sick(instance_id) is not None
        if self.broken is None and attempt == self._attempt and still:
            self._stop_training(failure, instance_id or self._ranks[failure.place])

    def _stop_training(self, failure: Failure, machine_id: str) -> None:
        conditions, now = self.course.conditions, self.elapsed()
        times = self._times[failure.number] = self._times[failure.number] + 1
        self.broken = TrainingInterruption(failure, self._attempt, self._ranks, now, times > 1)
        steps = recovery_from(failure, self.course, self.level)
        self.fleet.timeline.after(steps.until_placed, self._count, self.broken)
        self.checks.first.clear()
        if times == 1:
            self._blame_wrongly(failure)
        if failure.shows is Shows.GONE:
            self.broken.shown_at = now
            self.fleet.terminate(self.fleet.cluster.instances[machine_id])
            return
        if failure.of_machine and self._still_sick(machine_id) is None:
            self._sicken(failure, machine_id)
        elif failure.cure is Cure.PERSON:
            self._bugs[failure.number] = failure
        hangs = failure.shows is Shows.HANG
        shown_s = conditions.hang_s if hangs else conditions.exit_s
        self.broken.shown_at = now + shown_s
        self.fleet.timeline.after(shown_s, self._ranks_end, self._attempt, "" if hangs else machine_id)
        self._came_back(failure, times)

    def _ranks_end(self, attempt: str | None, machine_id: str) -> None:
        """One rank exits, or all of them do."""
        failure = self.broken.failure if self.broken is not None else None
        for task in self.fleet.cluster.tasks.running_of(attempt):
            if machine_id in ("", task.instance_id):
                if failure is not None and failure.is_named_in_log(self.course.conditions):
                    self.written[task.task_id] = SAYS_WHY if failure.verdict is Cure.REBOOT else SAYS_MEMORY
                self.fleet.end(task, RANK_EXIT)

    def _blame_wrongly(self, failure: Failure) -> None:
        self.checks.scripts.clear()
        nobody = failure.shows is Shows.GONE or failure.is_named_in_log(self.course.conditions)  # else is checked
        accused = [self._ranks[place] for place in failure.accused if not nobody]
        for machine_id in accused:
            self.checks.script(self.fleet.cluster.instances[machine_id], ScriptedCheck(CheckOutcome.REBOOT))
        if self.broken is not None:
            self.broken.accused = frozenset(accused)

    # -- machines ------------------------------------------------------------------------------------------------------

    def _sicken(self, failure: Failure, machine_id: str) -> None:
        machine = self.fleet.cluster.instances[machine_id]
        is_seen = failure.is_seen(self.course.conditions, self.level)
        self.sick[machine_id] = FaultyInstance(failure, machine.boot_id, is_seen)
        if is_seen:
            kind = "ecc" if failure.verdict is Cure.REPLACE else "xid79"
            cured_by = CuredBy.REPLACE if failure.cure is Cure.REPLACE else CuredBy.REBOOT
            instances.break_gpu(machine, machine.gpus[0], GpuFault(kind, cured_by))
            self.fleet.changes += 1

    def _runs(self, machine_id: str) -> bool:
        machine = self.fleet.cluster.instances.get(machine_id)
        return machine is not None and machine.ec2_state is Ec2State.RUNNING

    def _still_sick(self, machine_id: str) -> FaultyInstance | None:
        sick = self.sick.get(machine_id)
        if sick is None:
            return None
        rebooted = self._runs(machine_id) and self.fleet.cluster.instances[machine_id].boot_id != sick.boot_id
        if not self._runs(machine_id) or (sick.failure.cure is Cure.REBOOT and rebooted):
            del self.sick[machine_id]
            return None
        return sick

    def _count(self, broken: TrainingInterruption) -> None:
        """Whether the gang could begin again now, if nobody had lost any time.

        Counted is what is really so. A machine that was taken out without need is as healthy as before, and one that
        the product still doubts as well; only whom its check has just blamed, nobody can tell from the sick.
        """
        machines = self.fleet.cluster.instances
        healthy = [one for one in machines if self._runs(one) and self._still_sick(one) is None]
        broken.was_short = len(set(healthy) - broken.accused) < self.course.profile.instances

    def needs_reboot(self, machine_id: str) -> bool:
        """Whether a reboot would cure the machine of something."""
        sick = self._still_sick(machine_id)
        return sick is not None and sick.failure.cure is Cure.REBOOT

    def mend(self, failure: Failure) -> None:
        """A person has found out what is wrong and put it right."""
        self._bugs.pop(failure.number, None)
        for machine_id in [one for one, sick in self.sick.items() if sick.failure is failure]:
            self.mend_machine(self.fleet.cluster.instances[machine_id])

    def mend_machine(self, machine: ModelInstance) -> None:
        """A person has put the machine right."""
        self.sick.pop(machine.instance_id, None)
        machine.faults.clear()
        self.fleet.changes += 1

    # -- what was so ---------------------------------------------------------------------------------------------------

    def _closed(self, broken: TrainingInterruption, gang: list[Task]) -> Episode:
        """The episode that ends with this gang's first step."""
        if self.began is None:
            raise ValueError("a training that has not begun cannot begin again")
        former = self.fleet.cluster.tasks.started_by(broken.attempt)
        ended = max((one.process_ended_at for one in former if one.process_ended_at is not None), default=None)
        stopped = broken.shown_at if ended is None else self._since(ended)
        placed = self._since(min(one.created_at for one in gang))
        looked = [self._since(at) for one, at in self.checks.first.items() if one in broken.ranks]
        checked = min(placed, max([stopped, *(at for at in looked if at <= placed)]))
        began = self._since(max(one.process_started_at for one in gang if one.process_started_at is not None))
        detected = broken.shown_at if broken.detected_at is None else broken.detected_at
        return Episode(
            broken.failure.number,
            broken.failure.cause,
            broken.fault_at,
            broken.shown_at,
            detected,
            max(stopped, detected),
            max(checked, detected),
            max(placed, detected),
            began,
            self.elapsed(),
            self._waited_for(broken, gang),
            broken.is_relapse,
            broken.was_short,
        )

    def unfinished(self) -> Episode | None:
        """The episode that the end of the run cuts off, if there is one."""
        if self.broken is None:
            return None
        now, one = self.elapsed(), self.broken
        shown = min(one.shown_at, now)
        detected = shown if one.detected_at is None else one.detected_at
        rest = (max(detected, now),) * 4
        return Episode(one.failure.number, one.failure.cause, one.fault_at, shown, detected, *rest, None)

    def _since(self, at: datetime) -> float:
        begins_s = self.course.begins_s
        return begins_s + (at - self.began).total_seconds() if self.began is not None else begins_s

    def _waited_for(self, broken: TrainingInterruption, gang: list[Task]) -> frozenset[Cure]:
        """What had to be mended: the gang has machines whose boot, or replacement, began after it broke.

        One that began before was on its way for another failure's sake, and this one found it there.
        """
        conditions = self.course.conditions
        waited = {Cure.PERSON} if broken.by_person else set[Cure]()
        for task in gang:
            machine = self.fleet.cluster.instance_of(task)
            if self._since(machine.launched_at) - conditions.replace_s >= broken.fault_at:
                waited.add(Cure.REPLACE)
            elif self._since(machine.booted_at) - conditions.reboot_s >= broken.fault_at:
                waited.add(Cure.REBOOT)
        return frozenset(waited)
