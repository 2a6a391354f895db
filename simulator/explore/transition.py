"""Transitions of the explorer: the outcome of each action in each state of the world. Each outcome is computed once."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.job.record import WAITING

from simulator.explore.action import (
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
from simulator.explore.small_world import SmallWorld
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
            known = self._carried_out(core, action, deaths)
            self._outcomes.put(core, action, known)
        return known

    def again(self, core: int, action: Action) -> NextState:
        """Carry `action` out in the world again, for its lines in the transcript."""
        return self._carried_out(core, action, False).after

    def _carried_out(self, number: int, action: Action, with_deaths: bool) -> Done:
        """Carry `action` out in state `number` of the world. Return its outcome."""
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
        deaths.pop(after, None)
        return Done(after, effects, tuple(deaths.values()) if with_deaths else None)

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
