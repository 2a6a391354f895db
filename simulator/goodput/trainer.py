"""Trainer: a gang in the virtual world that trains and is stopped by the failures of a trace. The trainer records when.

The trainer reads the moments of an episode from processes and instances: when they began and ended. The records of the
product do not count. A rank exits with code 1 for any cause, as under `torchrun`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery_agent.rank.settings import STANDBY_AFTER_S

from sandbox.cluster.model.records import Task
from simulator.cloud.held_ranks import is_running
from simulator.cloud.workloads import Checks, ScriptedCheck, Training
from simulator.goodput.agent_reports import Progress, QuietAgents
from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.instance_faults import InstanceFaults
from simulator.goodput.policy import Episode
from simulator.goodput.recovery_times import recovery_from
from simulator.world import World

RANK_EXIT = 1
"""Exit code of a rank that fails."""
REBOOT_LOG = ("RuntimeError: CUDA error: GPU is lost",)
"""Last log line of a rank that names a fault for which the verdict is a reboot."""
REPLACE_LOG = ("RuntimeError: CUDA error: uncorrectable ECC error encountered",)
"""Last log line of a rank that names a fault for which the verdict is a replacement."""
PROGRESS_KEPT = 8
"""Attempts whose progress is known."""


class TimedChecks(Checks):
    """Health checks that record when the first check of each instance ended since the training stopped."""

    first: dict[str, datetime]

    def _end(self, task_id: str, scripted: ScriptedCheck | None) -> None:
        super()._end(task_id, scripted)
        instance_id = self.fleet.cluster.tasks[task_id].instance_id
        self.first.setdefault(instance_id, self.fleet.timeline.now)


@dataclass
class TrainingInterruption:
    """A training that stopped and has not begun again."""

    failure: Failure
    attempt: str | None
    ranks: tuple[str, ...]
    gang: tuple[Task, ...]
    fault_at: float
    is_relapse: bool
    shown_at: float = 0.0
    detected_at: float | None = None
    by_person: bool = False
    accused: frozenset[str] = frozenset()
    """Healthy instances that their check finds faulty."""
    was_short: bool = False


class Trainer(Training):
    """The ranks of the attempts of one job; health checks of the run have the given `level`.

    `came_back` receives each failure that stops the training, with the number of times that it has done so.
    """

    def __init__(
        self, world: World, trace: FailureTrace, level: int, came_back: Callable[[Failure, int], None]
    ) -> None:
        super().__init__(world.fleet, None)
        self.world, self.trace, self.level, self._came_back = world, trace, level, came_back
        self.began: datetime | None = None
        self.episodes: list[Episode] = []
        self.broken: TrainingInterruption | None = None
        self.unnoticed = 0
        self.faults = InstanceFaults(world.fleet, trace.conditions, level)
        self.agents: QuietAgents | None = None
        self.step_s, self.reports_progress = trace.conditions.step_s, False
        self.stands_by = False
        """Whether each container has a standby process, as with GPU_RECOVERY_STANDBY=spares."""
        self._failure_times = [failure.at_s for failure in trace.failures]
        self._bugs: dict[int, Failure] = {}
        self._times: Counter[int] = Counter()
        self._ranks: tuple[str, ...] = ()
        self._first_ranks: tuple[str, ...] = ()
        self._attempt: str | None = None
        self._ready: str | None = None
        self._gang: tuple[Task, ...] = ()
        """Tasks of the attempt that trains, or trained last."""
        self._present: dict[str, dict[str, Task]] = {}
        """Tasks in which a process of an attempt has begun, by attempt."""
        self._cold: set[str] = set()
        """Attempts with a rank that began without a standby process: the gang waits for its whole set-up."""
        self._began_s: dict[str, float] = {}
        """Begin of the latest process in a task."""
        self._ran_s: dict[str, float] = {}
        """Seconds that the last process in a container ran, by task id."""
        self._ended_s: dict[str, float] = {}
        """Latest end of a process of an attempt."""
        self._ordered_s: dict[str, float] = {}
        """First command to start an attempt in a container that waits."""
        self._progress: dict[int, Progress] = {}
        self.checks = TimedChecks(world.fleet)
        self.checks.first = {}
        world.training = world.actions.training = self
        world.checks = world.actions.checks = self.checks
        self._writes_log, self.fleet.about_to_end = self.fleet.about_to_end, self._ends

    # -- training ------------------------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._seconds_at(self.fleet.timeline.now)

    def started(self, task: Task) -> None:
        """Note that a rank runs. When all ranks of the gang run, training begins after the set-up of the gang."""
        name = self.fleet.ranks.attempt_name(task)
        present = self._present.setdefault(name, {})
        present[task.task_id] = task
        if not self._has_standby(task):
            self._cold.add(name)
        self._began_s[task.task_id] = self.elapsed()
        self.written.pop(task.task_id, None)
        if self.agents is not None:
            self.agents.rank_began(task)
        if len(present) == self.trace.profile.instances and self._ready != name:
            self._ready = name
            share = 1.0 if name in self._cold else self.trace.conditions.warm_share
            self.fleet.timeline.after(self._set_up_s * share, self._start_training, name)

    @property
    def _set_up_s(self) -> float:
        """Seconds from the start of all processes to the first step."""
        profile = self.trace.profile
        return self.trace.conditions.rejoin(profile.instances * profile.gpus)

    def _has_standby(self, task: Task) -> bool:
        """Return whether the process that begins in this container has stood by. A warm spare has had the time.

        A rank has no standby process until its own imports are done, the wrapper has waited, and the imports of the
        standby process are done. Only the run of the process before counts: none is started after its end. The imports
        are the part of the set-up that a standby process saves.
        """
        if not self.stands_by or task.task_id not in self.fleet.ranks.present:
            return False
        imports_s = self._set_up_s * (1.0 - self.trace.conditions.warm_share)
        ran_s = self._ran_s.pop(task.task_id, None)
        return ran_s is None or ran_s >= STANDBY_AFTER_S + 2 * imports_s

    def _ends(self, task: Task, code: int | None) -> None:
        """Note that the process of a rank ends. Its container may wait for the next attempt."""
        self._writes_log(task, code)
        name = self.fleet.ranks.attempt_name(task)
        if self._present.get(name, {}).pop(task.task_id, None) is not None:
            self._ended_s[name] = self.elapsed()
            self._ran_s[task.task_id] = self.elapsed() - self._began_s[task.task_id]

    def running_ranks(self, name: str | None) -> list[Task]:
        """Return the tasks in which a process of the attempt runs, in the order of its ranks."""
        ranks = self.fleet.ranks
        tasks = [task for task in self._present.get(name or "", {}).values() if is_running(task, ranks)]
        return sorted(tasks, key=lambda task: int(ranks.environment(task)["RANK"]))

    def _start_training(self, attempt: str) -> None:
        gang = self.running_ranks(attempt)
        if len(gang) < self.trace.profile.instances:
            self._ready = None
            return  # the gang broke before its first step
        self._ranks = tuple(task.instance_id for task in gang)
        number = self.fleet.ranks.attempt(gang[0])
        last = self._progress[max(self._progress)] if self._progress else None
        now = self.fleet.timeline.now
        self._progress[number] = (
            Progress(self._ranks, now)
            if last is None
            else Progress(self._ranks, now, kept_steps=self._kept_steps(last), learned=last.learned_until(now))
        )
        self._progress.pop(number - PROGRESS_KEPT, None)
        if self.began is None:
            self.began, self._first_ranks = self.fleet.timeline.now, self._ranks
            for failure in self.trace.failures:
                if failure.at_s >= self.trace.begins_s:
                    self.fleet.timeline.after(failure.at_s - self.trace.begins_s, self._inject, failure.number)
        if self.broken is not None:
            self.episodes.append(self._episode(self.broken, gang))
            self.broken = None
        self._present = {attempt: self._present[attempt]}
        self._began_s = {task.task_id: self._began_s[task.task_id] for task in gang}
        self._ended_s, self._ordered_s = {}, {}
        self._cold.clear()
        self._attempt, self._gang = attempt, tuple(gang)
        self._schedule_relapses()

    def _kept_steps(self, last: Progress) -> int:
        """Return the steps in the checkpoint from which the gang goes on after the attempt with this progress."""
        conditions, trained_s = self.trace.conditions, last.trained_s(self.fleet.timeline.now)
        saved_s = max(0.0, (trained_s - conditions.persist_s) // conditions.checkpoint_s) * conditions.checkpoint_s
        return last.kept_steps + int(saved_s / self.step_s)

    def progress_of(self, attempt: int) -> Progress | None:
        """Return the progress of an attempt; None if it has not trained, or is forgotten."""
        return self._progress.get(attempt) if self.reports_progress else None

    def is_quiet(self, before_s: float, after_s: float) -> bool:
        """Return whether the gang has trained for `after_s` seconds, and for `before_s` seconds no failure comes."""
        if self.broken is not None or not self._progress or self._bugs or self.faults.any_uncured():
            return False
        progress, now_s = self._progress[max(self._progress)], self.elapsed()
        following = bisect_left(self._failure_times, now_s)
        comes_s = self._failure_times[following] if following < len(self._failure_times) else inf
        return progress.began_at <= self.fleet.timeline.now - timedelta(seconds=after_s) and comes_s > now_s + before_s

    def is_reported(self, instance_id: str) -> bool:
        """Return whether the agent of the instance sees a fault."""
        return self.faults.is_reported(instance_id)

    def ordered(self, command: AgentCommand) -> None:
        """Note the first command to start an attempt in a container that waits."""
        if command.kind is AgentCommandKind.START:
            name = attempt_id(command.job_id, command.next_attempt)
            self._ordered_s.setdefault(name, self.elapsed() + self.fleet.timeline.lag)

    def _schedule_relapses(self) -> None:
        """Schedule the next interruption by each uncured fault of the gang's instances and by each uncured bug."""
        for instance_id in self._ranks:
            if (fault := self.faults.uncured(instance_id)) is not None:
                interruptions = self._times[fault.failure.number]
                self._schedule(
                    fault.failure.relapse_s if interruptions else 0.0, self._relapse, fault.failure, instance_id
                )
        for bug in self._bugs.values():
            self._schedule(bug.relapse_s, self._relapse, bug, "")

    def _schedule(self, seconds: float, action: Callable[..., None], failure: Failure, instance_id: str) -> None:
        self.fleet.timeline.after(seconds, action, failure.number, instance_id, self._attempt)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _inject(self, number: int) -> None:
        """Apply a failure of the trace: it stops the training, makes an instance faulty for later, or has no effect."""
        failure = self.trace.failures[number]
        if failure.until_s is not None:
            self.fleet.timeline.after(max(0.0, failure.until_s - failure.at_s), self.mend, failure)
        instance_id = self._first_ranks[failure.place] if failure.of_lemon else self._ranks[failure.place]
        is_hit = instance_id in self._ranks and self.faults.is_running(instance_id)
        if self.broken is None and is_hit:
            self._stop_training(failure, instance_id)
        elif (
            is_hit
            and failure.is_instance_fault
            and failure.shows is not Shows.GONE
            and self.faults.uncured(instance_id) is None
        ):
            self.faults.add(failure, instance_id)
        else:
            self.unnoticed += 1

    def _relapse(self, number: int, instance_id: str, attempt: str | None) -> None:
        failure = self.trace.failures[number]
        is_uncured = (
            number in self._bugs if failure.cure is Cure.PERSON else self.faults.uncured(instance_id) is not None
        )
        if self.broken is None and attempt == self._attempt and is_uncured:
            self._stop_training(failure, instance_id or self._ranks[failure.place])

    def _stop_training(self, failure: Failure, instance_id: str) -> None:
        conditions, now = self.trace.conditions, self.elapsed()
        occurrence = self._times[failure.number] = self._times[failure.number] + 1
        self.broken = TrainingInterruption(failure, self._attempt, self._ranks, self._gang, now, occurrence > 1)
        if self._gang:
            number = self.fleet.ranks.attempt(self._gang[0])
            self._progress[number] = replace(self._progress[number], stalled_at=self.fleet.timeline.now)
        times = recovery_from(failure, self.trace, self.level)
        self.fleet.timeline.after(times.until_placed, self._record_shortage, self.broken)
        self.checks.first.clear()
        if occurrence == 1:
            self._script_false_alarms(failure)
        if failure.shows is Shows.GONE:
            self.broken.shown_at = now
            self.fleet.terminate(self.fleet.cluster.instances[instance_id])
            return
        if failure.is_instance_fault and self.faults.uncured(instance_id) is None:
            self.faults.add(failure, instance_id)
        elif failure.cure is Cure.PERSON:
            self._bugs[failure.number] = failure
        hangs = failure.shows is Shows.HANG
        shown_s = conditions.hang_s if hangs else conditions.exit_s
        self.broken.shown_at = now + shown_s
        self.fleet.timeline.after(shown_s, self._ranks_end, self._attempt, "" if hangs else instance_id)
        self._came_back(failure, occurrence)
        if self.agents is not None:
            if failure.is_instance_fault:
                self.agents.fault_appears(instance_id, self.trace.conditions.evidence_s + (0.0 if hangs else shown_s))
            if hangs:
                self.agents.stalls(self.fleet.ranks.attempt(self._gang[0]))

    def _ranks_end(self, attempt: str | None, instance_id: str) -> None:
        """End the rank on this instance, or all ranks if `instance_id` is empty."""
        failure = self.broken.failure if self.broken is not None else None
        for task in self.running_ranks(attempt):
            if instance_id in ("", task.instance_id):
                if failure is not None and failure.is_named_in_log(self.trace.conditions):
                    self.written[task.task_id] = REBOOT_LOG if failure.verdict is Cure.REBOOT else REPLACE_LOG
                self.fleet.end(task, RANK_EXIT if failure is None else failure.exit_code)

    def _script_false_alarms(self, failure: Failure) -> None:
        """Let the checks of healthy instances find them faulty, as the failure says."""
        self.checks.scripts.clear()
        # The policy then checks at most the faulty instance, so no healthy instance can be found faulty.
        checks_no_other = failure.shows is Shows.GONE or failure.is_named_in_log(self.trace.conditions)
        accused = [self._ranks[place] for place in failure.accused if not checks_no_other]
        for instance_id in accused:
            self.checks.script(self.fleet.cluster.instances[instance_id], ScriptedCheck(CheckOutcome.REBOOT))
        if self.broken is not None:
            self.broken.accused = frozenset(accused)

    def _record_shortage(self, interruption: TrainingInterruption) -> None:
        """Record whether the gang could start again now, if no time had been lost.

        The real state of the instances counts. An instance that was taken out without need is healthy, and so is an
        instance that the product still suspects. An instance that its check has just found faulty does not count as
        healthy, because no policy can distinguish it from a faulty instance.
        """
        healthy = {
            instance_id
            for instance_id in self.fleet.cluster.instances
            if self.faults.is_running(instance_id) and self.faults.uncured(instance_id) is None
        }
        interruption.was_short = len(healthy - interruption.accused) < self.trace.profile.instances

    def mend(self, failure: Failure) -> None:
        """Cure the fault for good: an operator found the cause and repaired it."""
        self._bugs.pop(failure.number, None)
        self.faults.mend_failure(failure)

    # -- episodes ------------------------------------------------------------------------------------------------------

    def _episode(self, interruption: TrainingInterruption, gang: list[Task]) -> Episode:
        """Return the episode that ends with the first step of this gang."""
        if self.began is None:
            raise ValueError("a training that has not begun cannot begin again")
        name, present = self.fleet.ranks.attempt_name(gang[0]), self.fleet.ranks.present
        new = [self._seconds_at(task.created_at) for task in gang if task.task_id not in present]
        placed = min([*new, *([self._ordered_s[name]] if name in self._ordered_s else ())])
        ends = [self._ended_s.get(interruption.attempt or "", interruption.shown_at)]
        ends += [
            self._seconds_at(task.process_ended_at) for task in interruption.gang if task.process_ended_at is not None
        ]
        stopped = min(placed, max([ends[0], *(end for end in ends if end <= placed)]))
        check_ends = [
            self._seconds_at(at) for instance_id, at in self.checks.first.items() if instance_id in interruption.ranks
        ]
        checked = min(placed, max([stopped, *(at for at in check_ends if at <= placed)]))
        started = max(self._began_s[task.task_id] for task in gang)
        detected = interruption.shown_at if interruption.detected_at is None else interruption.detected_at
        return Episode(
            interruption.failure.number,
            interruption.failure.cause,
            interruption.fault_at,
            interruption.shown_at,
            detected,
            max(stopped, detected),
            max(checked, detected),
            max(placed, detected),
            started,
            self.elapsed(),
            self._waited_for(interruption, gang),
            interruption.is_relapse,
            interruption.was_short,
        )

    def unfinished(self) -> Episode | None:
        """Return the episode that the end of the run cuts off; None while the gang trains."""
        if self.broken is None:
            return None
        now, interruption = self.elapsed(), self.broken
        shown = min(interruption.shown_at, now)
        detected = shown if interruption.detected_at is None else interruption.detected_at
        rest = (max(detected, now),) * 4
        return Episode(
            interruption.failure.number, interruption.failure.cause, interruption.fault_at, shown, detected, *rest, None
        )

    def _seconds_at(self, at: datetime) -> float:
        """Seconds from the begin of the whole run to the time `at`."""
        begins_s = self.trace.begins_s
        return begins_s + (at - self.began).total_seconds() if self.began is not None else begins_s

    def _waited_for(self, interruption: TrainingInterruption, gang: list[Task]) -> frozenset[Cure]:
        """Return the cures that the recovery waited for.

        A cure counts if the boot or the replacement of an instance of the gang began after the fault. A boot that began
        before the fault belongs to another failure.
        """
        conditions = self.trace.conditions
        waited = {Cure.PERSON} if interruption.by_person else set[Cure]()
        for task in gang:
            instance = self.fleet.cluster.instance_of(task)
            if self._seconds_at(instance.launched_at) - conditions.replace_s >= interruption.fault_at:
                waited.add(Cure.REPLACE)
            elif self._seconds_at(instance.booted_at) - conditions.reboot_s >= interruption.fault_at:
                waited.add(Cure.REBOOT)
        return frozenset(waited)
