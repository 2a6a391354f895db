"""One transition: the world is put into a state, one thing happens, and the state that follows is taken out.

A transition is the delivery of an event, a pass of the scheduler, a round of the reconciler, one step of a machine,
what befalls the gang, or time. Each is carried out once for each state of the world that it can begin in: what follows
does not depend on the events that are on their way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from gpu_recovery.core.job.record import WAITING

from sandbox.cluster.model.statuses import ProcessState
from simulator.explore.compact_store import Cores, Numbered, PackedRows
from simulator.explore.in_flight_events import EventTable
from simulator.explore.interning import WorkStep
from simulator.explore.memoization import Changes, EffectMemory, RememberedEffects
from simulator.explore.properties import PropertyChecker, PropertyViolated, without_notifications
from simulator.explore.small_world import SmallWorld, look_away
from simulator.explore.state_capture import Core, StateCapture
from simulator.invocations import Effect, Killed

DELIVER, STEP, SCHEDULER, RECONCILER, TIME = "deliver", "step", "scheduler", "reconciler", "time"
INVOCATIONS = (DELIVER, SCHEDULER, RECONCILER)
BY_TIME_OR_CLOCK = (SCHEDULER, RECONCILER, TIME)
_BITS = 16
"""For the number of an event or an action."""
NOTIFIES_ONLY = ("PutEvents", "SendMessage")
"""Effects after which the world is what it was: whoever dies after one might as well have died before it. Mail is none
of them: that a job has failed must be told, and is told again after one who died having told it."""


class Action(NamedTuple):
    """What happens: DELIVER event `number`, STEP number `number` of what machines are about to do, SCHEDULER,
    RECONCILER, TIME, or the name of what befalls the gang."""

    name: str
    number: int = -1


class NextState(NamedTuple):
    """The state that follows, and the events that were emitted."""

    core: int
    emitted: tuple[int, ...] = ()


class Death(NamedTuple):
    """An invocation that died before its effect number `effect`, and what follows from that."""

    effect: int
    follows: NextState


class Done(NamedTuple):
    """One transition: what follows if nothing goes wrong, after how many effects, and the deaths on the way."""

    after: NextState
    effects: int
    deaths: tuple[Death, ...] | None


def dies_before(effect: int) -> Callable[[Effect], None]:
    """Who kills an invocation when it is about to make its effect number `effect`, counted from 0."""
    made = 0

    def look(step: Effect) -> None:
        nonlocal made
        made += 1
        if made > effect:
            raise Killed

    return look


class Transitions:
    """Carries out transitions in `world`. States of the world are known by number."""

    def __init__(self, world: SmallWorld) -> None:
        self.world = world
        self.copier = StateCapture(world)
        self.checker = PropertyChecker(world, self.copier)
        self.events = EventTable({one.arn.rsplit("/", 1)[-1]: one.instance_id for one in world.model_instances()})
        self.cores = Cores()
        self.finals = bytearray()
        self.carried_out = 0
        self._numbers: dict[bytes, int] = {}
        self._memory = EffectMemory(self.copier)
        self._moves: dict[tuple[object, ...], tuple[Core, tuple[int, ...]]] = {}
        """What follows from what machines do, by what is so on them: they know of no record."""
        self._took: list[Core] = []
        """The states taken out in the transition under way."""
        self._actions: Numbered[Action] = Numbered()
        self._emitted: Numbered[tuple[int, ...]] = Numbered()
        self._done = PackedRows()
        self._news: dict[int, bool] = {}
        self._begun: Core
        """The state in which the transition under way began."""

    def begin(self) -> int:
        """The first state."""
        self._begun = self.copier.take(())
        return self._taken(()).core

    # -- what follows --------------------------------------------------------------------------------------------------

    def done(self, core: int, action: Action, *, deaths: bool = False) -> Done:
        """What follows from `action` in state `core`, with `deaths` also if the invocation dies on the way."""
        key = core << _BITS | self._actions.number(action)
        known = self._done.get(key)
        if known is None or (deaths and known[-1] < 0):
            done = self._carry_out(core, action, deaths)
            self._done.put(key, self._written(done))
            return done
        return self._read(known)

    def _written(self, done: Done) -> list[int]:
        row = [done.effects, done.after.core, self._emitted.number(done.after.emitted)]
        for death in done.deaths or ():
            row += [death.effect, death.follows.core, self._emitted.number(death.follows.emitted)]
        return [*row, -1 if done.deaths is None else 0]

    def _read(self, row: array[int]) -> Done:
        emitted = self._emitted.values
        after, deaths = NextState(row[1], emitted[row[2]]), None
        if row[-1] >= 0:
            found = range(3, len(row) - 1, 3)
            deaths = tuple([Death(row[n], NextState(row[n + 1], emitted[row[n + 2]])) for n in found])
        return Done(after, row[0], deaths)

    def again(self, core: int, action: Action) -> NextState:
        """The same carried out once more, for what the journal says of it."""
        return self._carried_out(core, action, False).after

    def unbroken(self, action: Action, steps: tuple[WorkStep, ...]) -> NextState:
        """What follows from `action` in the state that the world happens to be in, `steps` being about to happen."""
        return self._watched(action, steps, look_away, lambda: steps)

    def overlapped(self, core: int, outer: Action, effect: int, inner: Action) -> NextState:
        """What follows if `inner` happens as a whole before effect number `effect` of `outer`."""
        made = 0
        steps = self._put(core)

        def look(step: Effect) -> None:
            nonlocal made, steps
            if made == effect:
                self.world.hook.act = look_away
                steps = self._happen(inner, steps)
            made += 1

        return self._watched(outer, steps, look, lambda: steps)

    def killed(self, core: int, action: Action, effect: int) -> NextState:
        """What follows if the invocation dies before its effect number `effect`; as in `done`, but for its journal."""
        steps = self._put(core)
        return self._watched(action, steps, dies_before(effect), lambda: steps)

    def _carry_out(self, number: int, action: Action, with_deaths: bool) -> Done:
        """What follows; remembered where it can be known from another state."""
        core = self.cores[number]
        if action.name == DELIVER:
            key: tuple[object, ...] = action.number, core.now, with_deaths
            known = self._memory.recall(key, core)
            if known is not None:
                return self._remembered(core, known, with_deaths)
            return self._carried_out(number, action, with_deaths, key)
        if action.name in BY_TIME_OR_CLOCK:
            return self._carried_out(number, action, with_deaths)
        moved = (*action, *core[:2], *core[4:])
        follows = self._moves.get(moved)
        if follows is None:
            done = self._carried_out(number, action, with_deaths)
            if not self.world.reads.is_everything and not self.world.reads.places:
                after = self._took[-1]
                assert (after.now, after.jobs, after.machines) == (core.now, core.jobs, core.machines)
                self._moves[moved] = after, done.after.emitted
            return done
        after, emitted = follows
        return Done(
            NextState(
                self._numbered(
                    core._replace(fields=after.fields, hardware=after.hardware, tasks=after.tasks, steps=after.steps),
                    is_in_the_world=False,
                ),
                emitted,
            ),
            0,
            () if with_deaths else None,
        )

    def _remembered(self, core: Core, known: RememberedEffects, with_deaths: bool) -> Done:
        deaths: dict[NextState, Death] = {}
        changed = self.copier.changed
        for effect, changes in known.deaths:
            follows = NextState(self._numbered(changed(core, changes), is_in_the_world=False))
            deaths.setdefault(follows, Death(effect, follows))
        after = NextState(self._numbered(changed(core, known.changes), is_in_the_world=False))
        deaths.pop(after, None)
        return Done(after, known.effects, tuple(deaths.values()) if with_deaths else None)

    def _carried_out(
        self, number: int, action: Action, with_deaths: bool, key: tuple[object, ...] | None = None
    ) -> Done:
        died: list[tuple[int, NextState]] = []
        effects, last = 0, ""
        steps = self._put(number)

        def look(step: Effect) -> None:
            nonlocal effects, last
            if effects and with_deaths and last not in NOTIFIES_ONLY:
                died.append((effects, self._taken(steps, of_the_dead=True)))
            effects, last = effects + 1, step.name

        after = self._watched(action, steps, look, lambda: steps)
        deaths: dict[NextState, Death] = {}
        for effect, follows in died:
            deaths.setdefault(follows, Death(effect, follows))
        if key is not None:
            self._remember(key, effects, died, after)
        deaths.pop(after, None)
        return Done(after, effects, tuple(deaths.values()) if with_deaths else None)

    def _remember(
        self, key: tuple[object, ...], effects: int, died: list[tuple[int, NextState]], after: NextState
    ) -> None:
        reads, took, memory = self.world.reads, self._took, self._memory
        if reads.is_everything or after.emitted or any(follows.emitted for _, follows in died):
            return
        changes: list[Changes] = []
        for core in took:
            found = memory.changes(reads.places, self._begun, core)
            if found is None:
                return
            changes.append(found)
        deaths = tuple((effect, change) for (effect, _), change in zip(died, changes, strict=False))
        memory.put(key, self._begun, reads.places, RememberedEffects(effects, changes[-1], deaths))

    def _put(self, number: int) -> tuple[WorkStep, ...]:
        self.carried_out += 1
        core = self._begun = self.cores[number]
        self.copier.put(core)
        self._took.clear()
        self.world.reads.begin()
        return self.copier.steps_of(core)

    def _watched(
        self,
        action: Action,
        steps: tuple[WorkStep, ...],
        look: Callable[[Effect], None],
        left: Callable[[], tuple[WorkStep, ...]],
    ) -> NextState:
        world = self.world
        world.hook.act = look
        try:
            after_it = self._happen(action, steps)
        except Exception as error:
            raise PropertyViolated([f"{action.name} raised: {one}" for one in _sentences(error)]) from error
        finally:
            world.hook.act = look_away
        return self._taken(after_it if action.name == STEP else left())

    def _happen(self, action: Action, steps: tuple[WorkStep, ...]) -> tuple[WorkStep, ...]:
        """Let it happen; what machines are about to do then, but for what it has made them do."""
        world = self.world
        match action.name:
            case "step":
                happen, about = steps[action.number]
                happen(*about)
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
        world = self.world
        emitted: list[int] = []
        more: list[WorkStep] = []
        for one in sorted(world.timeline.due, key=lambda due: due.number):
            if one.happen == world.deliver:
                if world.is_selected(one.about[0]):
                    emitted.append(self.events.number(one.about[0]))
            else:
                more.append((one.happen, one.about))
        core = self.copier.take(tuple(one for one in (*steps, *more) if not self._is_over(one)))
        with self.world.reads.looking_away():
            self.checker.check_step(self._begun, core)
        if of_the_dead:
            core = without_notifications(core, self.copier)
        self._took.append(core)
        return NextState(self._numbered(core, is_in_the_world=True), tuple(emitted))

    def _numbered(self, core: Core, *, is_in_the_world: bool) -> int:
        """The number of a state of the world; one that is new is judged."""
        name = self.copier.name(core)
        number = self._numbers.get(name)
        if number is None:
            if not is_in_the_world:
                self.copier.put(core)
            with self.world.reads.looking_away():
                self.checker.check(core)
            number = self._numbers[name] = len(self.cores)
            self.cores.append(core)
            self.finals.append(self.checker.is_final(core))
        return number

    def _is_over(self, step: WorkStep) -> bool:
        """Whether the step is about a process that has ended: it changes nothing, whenever it comes."""
        task = self.world.cluster.tasks.get(step[1][0])
        return task is not None and task.process in (ProcessState.ENDED, ProcessState.FAILED_TO_START)

    # -- what can happen -----------------------------------------------------------------------------------------------

    def is_news(self, core: int, event: int) -> bool:
        """Whether the event may still say something: not if the records hold it and its delivery changes nothing."""
        key = core << _BITS | event
        known = self._news.get(key)
        if known is None:
            state, told = self.cores[core], self.events.known[event]
            held = told.is_held(self.copier.records(state, "machines"), self.copier.progress(state))
            known = not (held and self.done(core, Action(DELIVER, event)).after == NextState(core))
            self._news[key] = known
        return known

    def steps(self, core: int) -> tuple[WorkStep, ...]:
        """What machines are about to do."""
        return self.copier.steps_of(self.cores[core])

    def woken(self, core: int) -> Iterator[Action]:
        """The functions that the clock wakes; without a job in line the scheduler reads that and no more."""
        jobs = self.copier.records(self.cores[core], "jobs")
        if any(job.status in WAITING for job in jobs.values()):
            yield Action(SCHEDULER)
        yield Action(RECONCILER)

    def befalling(self, core: int) -> list[Action]:
        """What may befall the gang."""
        self.copier.put(self.cores[core])
        return [Action(name) for name in self.world.befalling()]

    def time_may_pass(self, core: int) -> bool:
        """Whether something is due later, and nothing is left to be done before: then time goes on to what is due."""
        if any(self.done(core, action).after != NextState(core) for action in self.woken(core)):
            return False
        self.copier.put(self.cores[core])
        return any(at > self.world.timeline.now for at in self._due()) and not self.world.trains_in_peace()

    def has_struck(self, core: int) -> bool:
        """Whether the incident has happened."""
        self.copier.put(self.cores[core])
        return not self.world.incidents

    def unsettled(self, core: int, *, must_succeed: bool) -> list[str]:
        """What must be so in a final state and is not."""
        self.copier.put(self.cores[core])
        return self.checker.unsettled(must_succeed=must_succeed)

    def ending(self, core: int) -> str:
        """How the job and the machines are."""
        self.copier.put(self.cores[core])
        return self.checker.ending()

    def _due(self) -> list[datetime]:
        memory = self.world.memory
        return [*memory.jobs.due.values(), *memory.machines.due.values()]


def _sentences(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [sentence for one in error.exceptions for sentence in _sentences(one)]
    return [f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]
