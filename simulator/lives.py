"""Lambda invocations that can be stopped between any two of their effects.

An effect is one write to the store or one call that changes something outside. A `Nemesis` is asked before and after
each; it may kill the invocation there, or let other work come in between. A killed invocation has no last words: what
its `finally` clauses still try is refused. No effect is ever left half done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Answer = TypeVar("Answer")


class Killed(BaseException):
    """The invocation is over: no code of it runs after this."""


@dataclass(frozen=True)
class Step:
    """One effect: its number in the whole run, whose it is, and what it is."""

    number: int
    life: str
    name: str
    given: Mapping[str, Any] = field(default_factory=dict)


class Nemesis(Protocol):
    """Who decides what goes wrong."""

    def before(self, step: Step) -> None: ...

    def after(self, step: Step) -> None: ...


class Peace:
    """Nothing goes wrong."""

    def before(self, step: Step) -> None:
        """Let it happen."""

    def after(self, step: Step) -> None:
        """Let the caller hear of it."""


@dataclass
class KillAt:
    """Kills the invocation before or after effect number `number`, once."""

    number: int
    after_it: bool
    done: bool = False

    def before(self, step: Step) -> None:
        if not self.after_it:
            self._kill(step)

    def after(self, step: Step) -> None:
        if self.after_it:
            self._kill(step)

    def _kill(self, step: Step) -> None:
        if step.number == self.number and not self.done:
            self.done = True
            raise Killed


@dataclass
class _Life:
    name: str
    dead: bool = False


@dataclass
class Lives:
    """Runs invocations, one inside another where a nemesis has it so, and numbers their effects."""

    nemesis: Nemesis = field(default_factory=Peace)
    steps: list[Step] = field(default_factory=list)
    killed: list[Step | None] = field(default_factory=list)
    done: list[Step] = field(default_factory=list)
    """The steps that were taken; `steps` has those that were prevented too."""
    _stack: list[_Life] = field(default_factory=list)

    def live(self, name: str, work: Callable[[], object]) -> bool:
        """Do `work` as one invocation; False if it was killed. What it raises is the caller's to handle."""
        self._stack.append(_Life(name))
        try:
            work()
        except Killed:
            self.killed.append(self.steps[-1] if self.steps else None)
            return False
        finally:
            self._stack.pop()
        return True

    def effect(self, name: str, given: Mapping[str, Any], do: Callable[[], Answer]) -> Answer:
        """`do`, with the nemesis asked before and after."""
        if not self._stack:
            return do()
        life = self._stack[-1]
        if life.dead:
            raise Killed
        step = Step(len(self.steps), life.name, name, given)
        self.steps.append(step)
        try:
            self.nemesis.before(step)
            self.done.append(step)
            answer = do()
            self.nemesis.after(step)
        except Killed:
            life.dead = True
            raise
        return answer

    def check_alive(self) -> None:
        """A dead invocation reads nothing either."""
        if self._stack and self._stack[-1].dead:
            raise Killed


_READS = ("load_", "jobs_in", "list_jobs", "due_", "instances_in", "instance_of")


class WatchedStore:
    """A store whose every write is an effect of the invocation that makes it."""

    def __init__(self, store: Any, lives: Lives) -> None:
        self._store, self._lives = store, lives

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name.startswith(_READS):

            def read(*given: Any, **named: Any) -> Any:
                self._lives.check_alive()
                return method(*given, **named)

            return read

        def write(*given: Any, **named: Any) -> Any:
            told = {"given": given, **named}
            return self._lives.effect(f"store.{name}", told, lambda: method(*given, **named))

        return write
