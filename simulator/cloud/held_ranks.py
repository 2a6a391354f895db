"""Held ranks under virtual time: the process of a rank ends, and its container waits as `gpu-recovery-run` does.

The container of a held rank still runs for ECS. A start command of the node agent begins the next attempt there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import ProcessState
from simulator.virtual_clock import VirtualClock

HOLD_S = "GPU_RECOVERY_HOLD_S"
"""Variable with the seconds for which the wrapper of a rank waits for the next attempt."""
WARM = "GPU_RECOVERY_WARM"
"""Variable that lets the wrapper wait for a rank before it runs its command."""
AGENT_LOST_S = 60.0
"""Seconds without an agent after which a warm spare ends."""
SUSPENDED_EXIT, PREFLIGHT_EXIT = 75, 76


@dataclass(frozen=True)
class HeldRank:
    """A rank without a process. `number` tells the holds of one container apart. `code`: None for a warm spare."""

    code: int | None
    asked: bool
    number: int


class HeldRanks:
    """The held ranks of a fleet.

    Args:
        timeline: the virtual clock.
        variables: returns the variables that a task was launched with.
        leave: ends the container of a task, by its id, with an exit code.
    """

    def __init__(
        self,
        timeline: VirtualClock,
        variables: Callable[[Task], Mapping[str, str]],
        leave: Callable[[str, int], None],
    ) -> None:
        self._timeline, self._variables, self._leave = timeline, variables, leave
        self.held: dict[str, HeldRank] = {}
        """Held ranks by task id."""
        self.present: dict[str, Mapping[str, str]] = {}
        """Variables of the attempt that runs in a container of an earlier attempt, by task id."""
        self.has_agent: Callable[[str], bool] = lambda instance_id: False
        """Whether an agent that can start the next attempt runs on the instance."""
        self.started: Callable[[Task], None] = lambda task: None
        """Called when the process of the next attempt has begun."""
        self.ended: Callable[[Task], None] = lambda task: None
        """Called when the process of a rank has ended in a container that waits."""
        self.wrapped = True
        """Whether the command of the ranks is started by `gpu-recovery-run`. Without it nothing holds or waits."""
        self.restart_s = 0.0
        """Virtual seconds from a start command to the process of the next attempt."""
        self.holds = self.starts = self.warm = 0
        """Numbers of held ranks, of ranks that began in a container of another, and of warm spares, so far."""

    def environment(self, task: Task) -> Mapping[str, str]:
        """Return the variables of the attempt that runs, or ran last, in the container of the task."""
        later = self.present.get(task.task_id)
        return self._variables(task) if later is None else {**self._variables(task), **later}

    def attempt(self, task: Task) -> int:
        """Return the number of that attempt; 0 if the task has none."""
        return int(self.environment(task).get("ATTEMPT") or 0)

    def attempt_name(self, task: Task) -> str:
        """Return the name of that attempt as `startedBy` has it."""
        later = self.present.get(task.task_id)
        if later is None:
            return task.started_by or ""
        return f"{self.environment(task)['JOB_ID']}--a{self.attempt(task):02d}"

    def can_be_held(self, task: Task) -> bool:
        """Return whether the wrapper of the rank waits for the next attempt after a failure."""
        return self.wrapped and int(self._variables(task).get(HOLD_S) or 0) > 0 and self.has_agent(task.instance_id)

    def hold(self, task: Task, code: int | None, asked: bool = False) -> bool:
        """Hold the rank if its wrapper does so after this end of its process. Return whether it does."""
        fails = code is not None and (asked or code not in (0, SUSPENDED_EXIT, PREFLIGHT_EXIT))
        if code is None or not fails or task.desired_status == "STOPPED" or not self.can_be_held(task):
            return False
        self.holds += 1
        self.held[task.task_id] = HeldRank(code, asked, self.holds)
        self._timeline.after(float(self._variables(task)[HOLD_S]), self._over, task.task_id, self.holds)
        self.ended(task)
        return True

    def wait_warm(self, task: Task) -> bool:
        """Let the wrapper of a warm spare wait for a rank. Return whether the task is one."""
        if not self.wrapped or self._variables(task).get(WARM) != "1":
            return False
        self.warm += 1
        self.held[task.task_id] = HeldRank(None, False, 0)
        self.ended(task)
        self._timeline.after(AGENT_LOST_S, self._look_for_agent, task.task_id, task.instance_id)
        return True

    def _look_for_agent(self, task_id: str, instance_id: str) -> None:
        """End a warm spare without an agent, which could start no rank there."""
        held = self.held.get(task_id)
        if held is None or held.code is not None:
            return
        if self.has_agent(instance_id):
            self._timeline.after(AGENT_LOST_S, self._look_for_agent, task_id, instance_id)
        else:
            self.give_up(task_id)

    def _over(self, task_id: str, number: int) -> None:
        held = self.held.get(task_id)
        if held is not None and held.number == number:
            self.give_up(task_id)

    def give_up(self, task_id: str) -> None:
        """Let the wrapper of a held rank end without a next attempt."""
        code = self.held[task_id].code
        self._leave(task_id, 0 if code is None else code)

    def start(self, task: Task, attempt: int, variables: Mapping[str, str]) -> None:
        """Begin the next attempt in the container of a held rank. A start of an older or equal attempt does nothing."""
        if task.task_id not in self.held or attempt <= self.attempt(task) or task.desired_status == "STOPPED":
            return
        del self.held[task.task_id]
        self.present[task.task_id] = dict(variables)
        self.starts += 1
        if self.restart_s:
            self._timeline.after(self.restart_s, self._begin, task, attempt)
        else:
            self.started(task)

    def _begin(self, task: Task, attempt: int) -> None:
        """Begin the process of the attempt, unless the container has ended or serves another attempt."""
        if is_running(task, self) and self.attempt(task) == attempt:
            self.started(task)

    def forget(self, task_id: str) -> None:
        """Forget a rank whose container has ended."""
        self.held.pop(task_id, None)


def is_running(task: Task, ranks: HeldRanks) -> bool:
    """Return whether a process of the rank runs in the container of the task."""
    return task.process is ProcessState.RUNNING and task.task_id not in ranks.held
