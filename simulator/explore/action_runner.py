"""Action runner of the explorer: puts the world into a state, lets an action happen, and takes the next state out.

The explorer has a single world. A state of the world is a `Core`, which has a number. The events in flight are no part
of a `Core`, because no outcome depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sandbox.cluster.model.statuses import ProcessState
from simulator.explore.action import RECONCILER, SCHEDULER, STEP, Action, NextState
from simulator.explore.compact_store import Cores
from simulator.explore.in_flight_events import EventTable
from simulator.explore.interning import WorkStep
from simulator.explore.properties import PropertyChecker, PropertyViolated, without_notifications
from simulator.explore.small_world import SmallWorld, do_nothing
from simulator.explore.state_capture import Core, StateCapture
from simulator.invocations import Effect, Killed


def dies_before(effect: int) -> Callable[[Effect], None]:
    """Return a hook that kills the invocation right before its effect number `effect`, counted from 0."""
    made = 0

    def hook(step: Effect) -> None:
        nonlocal made
        made += 1
        if made > effect:
            raise Killed

    return hook


class ActionRunner:
    """Carries out actions in `world`.

    Attributes:
        cores: the states of the world that were reached. Elsewhere a state of the world is its number in this list.
        finals: 1 for each final state, else 0.
        carried_out: how often an action was carried out in the world.
    """

    def __init__(self, world: SmallWorld) -> None:
        self.world = world
        self.copier = StateCapture(world)
        self.checker = PropertyChecker(world, self.copier)
        self.events = EventTable({item.arn.rsplit("/", 1)[-1]: item.instance_id for item in world.model_instances()})
        self.cores = Cores()
        self.finals = bytearray()
        self.carried_out = 0
        self._numbers: dict[bytes, int] = {}
        """Number of each state, by its name (`StateCapture.name`)."""
        self._begun: Core
        """State in which the present transition began."""

    def begin(self) -> int:
        """Take the first state out of the new world. Return its number."""
        self._begun = self.copier.take(())
        return self._taken(()).core

    def unbroken(self, action: Action, steps: tuple[WorkStep, ...]) -> NextState:
        """Return the next state after `action` in the present state of the world, with the pending steps `steps`."""
        return self._watched(action, steps, do_nothing, lambda: steps)

    def overlapped(self, core: int, outer: Action, effect: int, inner: Action) -> NextState:
        """Return the next state if all of `inner` happens right before effect number `effect` of `outer`."""
        made = 0
        steps = self._put(core)

        def hook(step: Effect) -> None:
            nonlocal made, steps
            if made == effect:
                self.world.hook.act = do_nothing
                steps = self._happen(inner, steps)
            made += 1

        return self._watched(outer, steps, hook, lambda: steps)

    def killed(self, core: int, action: Action, effect: int) -> NextState:
        """Return the next state if the invocation is killed right before its effect number `effect`.

        The transcript ends at the kill. The next state still has the notifications that the killed invocation left.
        """
        steps = self._put(core)
        return self._watched(action, steps, dies_before(effect), lambda: steps)

    # -- the world -----------------------------------------------------------------------------------------------------

    def _put(self, number: int) -> tuple[WorkStep, ...]:
        """Begin a transition: make state `number` the state of the world. Return its pending steps."""
        self.carried_out += 1
        core = self._begun = self.cores[number]
        self.copier.put(core)
        return self.copier.steps_of(core)

    def _watched(
        self,
        action: Action,
        steps: tuple[WorkStep, ...],
        hook: Callable[[Effect], None],
        left: Callable[[], tuple[WorkStep, ...]],
    ) -> NextState:
        """Let `action` happen with `hook` before each effect, and take the next state out.

        Args:
            action: the action.
            steps: the pending steps of instances.
            hook: called before each effect of the action.
            left: returns the remaining pending steps after an action other than STEP.

        Raises:
            PropertyViolated: the action raised an exception, or the next state has a broken property.
        """
        world = self.world
        world.hook.act = hook
        try:
            remaining = self._happen(action, steps)
        except Exception as error:
            raise PropertyViolated([f"{action.name} raised: {sentence}" for sentence in _sentences(error)]) from error
        finally:
            world.hook.act = do_nothing
        return self._taken(remaining if action.name == STEP else left())

    def _happen(self, action: Action, steps: tuple[WorkStep, ...]) -> tuple[WorkStep, ...]:
        """Let `action` happen. Return the steps of `steps` that remain, without the steps that the action caused."""
        world = self.world
        match action.name:
            case "step":
                function, arguments = steps[action.number]
                function(*arguments)
                return (*steps[: action.number], *steps[action.number + 1 :])
            case "deliver":
                world.deliver(self.events.known[action.number].envelope)
            case "scheduler":
                world.invoke(SCHEDULER, world.run_scheduler)
            case "reconciler":
                world.invoke(RECONCILER, world.run_reconciler)
            case "time":
                world.timeline.now = min(at for at in self._due() if at > world.timeline.now)
            case name:
                getattr(world, name)()
        return steps

    def _taken(self, steps: tuple[WorkStep, ...], *, of_the_dead: bool = False) -> NextState:
        """Take the present state out of the world, with the emitted events and the pending steps.

        Args:
            steps: pending steps from before the action.
            of_the_dead: whether the invocation is killed here, so that its notifications are removed.
        """
        world = self.world
        emitted: list[int] = []
        more: list[WorkStep] = []
        for due in sorted(world.timeline.due, key=lambda entry: entry.number):
            if due.happen == world.deliver:
                if world.is_selected(due.about[0]):
                    emitted.append(self.events.number(due.about[0]))
            else:
                more.append((due.happen, due.about))
        core = self.copier.take(tuple(step for step in (*steps, *more) if not self._is_over(step)))
        self.checker.check_step(self._begun, core)
        if of_the_dead:
            core = without_notifications(core, self.copier)
        return NextState(self._numbered(core), tuple(emitted))

    def _numbered(self, core: Core) -> int:
        """Return the number of a state of the world. The invariants of a new state are checked."""
        name = self.copier.name(core)
        number = self._numbers.get(name)
        if number is None:
            self.checker.check(core)
            number = self._numbers[name] = len(self.cores)
            self.cores.append(core)
            self.finals.append(self.checker.is_final(core))
        return number

    def _is_over(self, step: WorkStep) -> bool:
        """Whether the step concerns a process that has ended. Such a step has no effect at any time."""
        task = self.world.cluster.tasks.get(step[1][0])
        return task is not None and task.process in (ProcessState.ENDED, ProcessState.FAILED_TO_START)

    def _due(self) -> list[datetime]:
        memory = self.world.memory
        return [*memory.jobs.due.values(), *memory.machines.due.values()]

    # -- properties of a state -----------------------------------------------------------------------------------------

    def steps(self, core: int) -> tuple[WorkStep, ...]:
        """Return the pending steps of instances, in the order in which they were scheduled."""
        return self.copier.steps_of(self.cores[core])

    def befalling(self, core: int) -> list[Action]:
        """Return the actions that may happen to the gang: the end, the incident, or a recovery from the incident."""
        self.copier.put(self.cores[core])
        return [Action(name) for name in self.world.befalling()]

    def has_struck(self, core: int) -> bool:
        """Whether the incident has happened in state `core`."""
        self.copier.put(self.cores[core])
        return not self.world.incidents

    def unsettled(self, core: int, *, must_succeed: bool) -> list[str]:
        """Return the broken properties of the final state `core`, a sentence each."""
        self.copier.put(self.cores[core])
        return self.checker.unsettled(must_succeed=must_succeed)

    def ending(self, core: int) -> str:
        """Return the status of the job and of the instances as text."""
        self.copier.put(self.cores[core])
        return self.checker.ending()


def _sentences(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [sentence for nested in error.exceptions for sentence in _sentences(nested)]
    return [f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]
