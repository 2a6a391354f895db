"""Transitions of the explorer: the outcome of each action in each state of the world, carried out once or remembered.

An outcome is remembered for the same state and action. An outcome is also remembered for other states in which the
action reads the same: see `memoization` for the delivery of events.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.job.record import WAITING

from simulator.explore.action import (
    BY_TIME_OR_CLOCK,
    DELIVER,
    RECONCILER,
    SCHEDULER,
    Action,
    Death,
    Done,
    NextState,
    OutcomeTable,
)
from simulator.explore.action_runner import ActionRunner
from simulator.explore.memoization import Changes, EffectMemory, RememberedEffects
from simulator.explore.small_world import SmallWorld
from simulator.explore.state_capture import Core
from simulator.invocations import Effect

_EVENT_BITS = 16
"""Bits for the number of an event in a key of `Transitions._news`."""
NOTIFIES_ONLY = ("PutEvents", "SendMessage")
"""Effects that leave the state of the world unchanged: a kill after the effect is the same as a kill before it.

E-mails are not among them. The failure of a job must be reported, so a kill after its e-mail causes a second e-mail.
"""


class Transitions(ActionRunner):
    """Outcomes of actions, and the actions that are possible in a state."""

    def __init__(self, world: SmallWorld) -> None:
        super().__init__(world)
        self._outcomes = OutcomeTable()
        self._memory = EffectMemory(self.copier)
        self._moves: dict[tuple[object, ...], tuple[Core, tuple[int, ...]]] = {}
        """Outcomes of steps of instances and incidents, by action and state without records: these read no record."""
        self._news: dict[int, bool] = {}
        """Results of `is_news`."""

    def done(self, core: int, action: Action, *, deaths: bool = False) -> Done:
        """Return the outcome of `action` in state `core`.

        Args:
            core: number of the state.
            action: an action that is possible in the state.
            deaths: whether the outcome must include the kills of the invocation.

        Raises:
            PropertyViolated: an invariant is broken, or the invocation raised an exception.
        """
        known = self._outcomes.get(core, action, deaths=deaths)
        if known is None:
            known = self._carry_out(core, action, deaths)
            self._outcomes.put(core, action, known)
        return known

    def again(self, core: int, action: Action) -> NextState:
        """Carry `action` out in the world again, for its lines in the transcript."""
        return self._carried_out(core, action, False).after

    def _carry_out(self, number: int, action: Action, with_deaths: bool) -> Done:
        """Return the outcome, from memory if it follows from the outcome in another state."""
        core = self.cores[number]
        if action.name == DELIVER:
            key: tuple[object, ...] = action.number, core.now, with_deaths
            remembered = self._memory.recall(key, core)
            if remembered is not None:
                return self._remembered(core, remembered, with_deaths)
            return self._carried_out(number, action, with_deaths, key)
        if action.name in BY_TIME_OR_CLOCK:
            return self._carried_out(number, action, with_deaths)
        key_without_records = (*action, *core[:2], *core[4:])
        follows = self._moves.get(key_without_records)
        if follows is None:
            done = self._carried_out(number, action, with_deaths)
            if not self.world.reads.is_everything and not self.world.reads.places:
                after = self._took[-1]
                assert (after.now, after.jobs, after.instances) == (core.now, core.jobs, core.instances)
                self._moves[key_without_records] = after, done.after.emitted
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

    def _remembered(self, core: Core, remembered: RememberedEffects, with_deaths: bool) -> Done:
        """Return the outcome in `core` that `remembered` gives."""
        deaths: dict[NextState, Death] = {}
        changed = self.copier.changed
        for effect, changes in remembered.deaths:
            follows = NextState(self._numbered(changed(core, changes), is_in_the_world=False))
            deaths.setdefault(follows, Death(effect, follows))
        after = NextState(self._numbered(changed(core, remembered.changes), is_in_the_world=False))
        deaths.pop(after, None)
        return Done(after, remembered.effects, tuple(deaths.values()) if with_deaths else None)

    def _carried_out(
        self, number: int, action: Action, with_deaths: bool, key: tuple[object, ...] | None = None
    ) -> Done:
        """Carry `action` out in state `number` of the world. With a `key`, remember its effects under this key."""
        killed: list[tuple[int, NextState]] = []
        effects, last = 0, ""
        steps = self._put(number)

        def hook(step: Effect) -> None:
            nonlocal effects, last
            if effects and with_deaths and last not in NOTIFIES_ONLY:
                killed.append((effects, self._taken(steps, of_the_dead=True)))
            effects, last = effects + 1, step.name

        after = self._watched(action, steps, hook, lambda: steps)
        deaths: dict[NextState, Death] = {}
        for effect, follows in killed:
            deaths.setdefault(follows, Death(effect, follows))
        if key is not None:
            self._remember(key, effects, killed, after)
        deaths.pop(after, None)
        return Done(after, effects, tuple(deaths.values()) if with_deaths else None)

    def _remember(
        self, key: tuple[object, ...], effects: int, killed: list[tuple[int, NextState]], after: NextState
    ) -> None:
        """Remember the effects of the present transition, if its reads are known and it emitted no event."""
        reads, memory = self.world.reads, self._memory
        if reads.is_everything or after.emitted or any(follows.emitted for _, follows in killed):
            return
        changes: list[Changes] = []
        for core in self._took:
            changed = memory.changes(reads.places, self._begun, core)
            if changed is None:
                return
            changes.append(changed)
        deaths = tuple((effect, change) for (effect, _), change in zip(killed, changes, strict=False))
        memory.put(key, self._begun, reads.places, RememberedEffects(effects, changes[-1], deaths))

    # -- possible actions ----------------------------------------------------------------------------------------------

    def is_news(self, core: int, event: int) -> bool:
        """Whether the event is still news: the records lack it, or its delivery changes the state."""
        key = core << _EVENT_BITS | event
        known = self._news.get(key)
        if known is None:
            state, in_flight = self.cores[core], self.events.known[event]
            is_held = in_flight.is_held(self.copier.records(state, "machines"), self.copier.progress(state))
            known = not (is_held and self.done(core, Action(DELIVER, event)).after == NextState(core))
            self._news[key] = known
        return known

    def woken(self, core: int) -> Iterator[Action]:
        """Yield the invocations that the clock may cause. Without a queued job the scheduler has no work."""
        jobs = self.copier.records(self.cores[core], "jobs")
        if any(job.status in WAITING for job in jobs.values()):
            yield Action(SCHEDULER)
        yield Action(RECONCILER)

    def time_may_pass(self, core: int) -> bool:
        """Whether TIME is possible: a record is due later, and no invocation has work before that time."""
        if any(self.done(core, action).after != NextState(core) for action in self.woken(core)):
            return False
        self.copier.put(self.cores[core])
        return any(at > self.world.timeline.now for at in self._due()) and not self.world.trains_in_peace()
