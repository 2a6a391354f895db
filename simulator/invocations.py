"""Lambda invocations that can be stopped between any two of their effects.

An effect is one write to the store or one call that changes something outside. A `Nemesis` is asked before and after
each; it may kill the invocation there, or let other work come in between. A killed invocation has no last words: what
its `finally` clauses still try is refused. No effect is ever left half done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from simulator.cloud.rate_limits import Meter

Answer = TypeVar("Answer")


class Killed(BaseException):
    """The invocation is over: no code of it runs after this."""


class Effect(NamedTuple):
    """One effect: its number in the whole run, whose it is, and what it is."""

    number: int
    invocation: str
    name: str
    given: Mapping[str, Any] = MappingProxyType({})


class Nemesis(Protocol):
    """Who decides what goes wrong."""

    def before(self, step: Effect) -> None: ...

    def after(self, step: Effect) -> None: ...


class NoFaults:
    """Nothing goes wrong."""

    def before(self, step: Effect) -> None:
        """Let it happen."""

    def after(self, step: Effect) -> None:
        """Let the caller hear of it."""


@dataclass
class KillAt:
    """Kills the invocation before or after effect number `number`, once."""

    number: int
    after_it: bool
    done: bool = False

    def before(self, step: Effect) -> None:
        if not self.after_it:
            self._kill(step)

    def after(self, step: Effect) -> None:
        if self.after_it:
            self._kill(step)

    def _kill(self, step: Effect) -> None:
        if step.number == self.number and not self.done:
            self.done = True
            raise Killed


@dataclass
class _Invocation:
    name: str
    dead: bool = False


@dataclass
class Invocations:
    """Runs invocations, one inside another where a nemesis has it so, and numbers their effects."""

    nemesis: Nemesis = field(default_factory=NoFaults)
    steps: list[Effect] = field(default_factory=list)
    killed: list[Effect | None] = field(default_factory=list)
    interrupted: int = 0
    """How often an invocation died, or a nemesis had it fail while it told people something."""
    done: list[Effect] = field(default_factory=list)
    """The steps that were taken; `steps` has those that were prevented too."""
    remembers: bool = True
    """Whether `steps` and `done` are kept, which are all that ever happened."""
    taken: int = 0
    """How many effects there were, those outside every invocation included."""
    asked: int = 0
    """How many effects were about to be made, those included that were prevented."""
    meter: Meter | None = None
    """What the calls of invocations take; None: nothing."""
    _last: Effect | None = None
    _stack: list[_Invocation] = field(default_factory=list)

    def run(self, name: str, work: Callable[[], object]) -> bool:
        """Do `work` as one invocation; False if it was killed. What it raises is the caller's to handle."""
        self._stack.append(_Invocation(name))
        try:
            meter = self.meter
            if meter is None:
                work()
                return True
            meter.begins(name)
            try:
                work()
            finally:
                meter.ends()
        except Killed:
            self.killed.append(self._last)
            return False
        finally:
            self._stack.pop()
        return True

    def kill(self) -> None:
        """The invocation under way has spent its time: it is killed where it is."""
        self._stack[-1].dead = True
        self.interrupted += 1
        raise Killed

    def call(self, operation: str = "", times: int = 1) -> None:
        """The invocation under way makes a call, or several, for what that takes."""
        if self._stack and self._stack[-1].dead:
            raise Killed
        meter = self.meter
        if meter is None:
            return
        if times == 1:
            meter.call(operation)
            return
        for _ in range(times):
            meter.call(operation)

    @contextmanager
    def free_of_charge(self) -> Iterator[None]:
        """Calls that are made in here take nothing: they have been paid for."""
        meter, self.meter = self.meter, None
        try:
            yield
        finally:
            self.meter = meter

    def effect(self, name: str, given: Mapping[str, Any], do: Callable[[], Answer]) -> Answer:
        """`do`, with the nemesis asked before and after."""
        if not self._stack:
            self.taken += 1
            return do()
        life = self._stack[-1]
        if life.dead:
            raise Killed
        step = self._last = Effect(len(self.steps) if self.remembers else self.asked, life.name, name, given)
        self.asked += 1
        if self.remembers:
            self.steps.append(step)
        doing = False
        try:
            self.nemesis.before(step)
            self.taken += 1
            if self.remembers:
                self.done.append(step)
            doing = True
            answer = do()
            doing = False
            self.nemesis.after(step)
        except BaseException as raised:
            died = isinstance(raised, Killed)
            self.interrupted += not doing and (died or name in NOTIFYING)
            life.dead = life.dead or died
            raise
        return answer

    def check_alive(self) -> None:
        """A dead invocation reads nothing either."""
        if self._stack and self._stack[-1].dead:
            raise Killed


NOTIFYING = ("Publish", "store.remove_finished_job_commands")
"""The effects that tell people, and that remember it: where one of them fails, what was told may be told again."""
_READS = (
    "load_",
    "jobs_in",
    "list_jobs",
    "due_",
    "instances_in",
    "instance_of",
    "load_heartbeats",
    "load_inventory",
    "load_queue",
    "load_last_pass",
    "quota_used",
)


class EffectStore:
    """A store whose every write is an effect of the invocation that makes it."""

    def __init__(self, store: Any, lives: Invocations) -> None:
        self._store, self._invocations = store, lives

    def __getattr__(self, name: str) -> Any:
        made = self._read(name) if name.startswith(_READS) else self._write(name)
        setattr(self, name, made)
        return made

    def _who_answers(self, name: str) -> Any:
        asks: Callable[[str], Any] | None = getattr(self._store, "who_answers", None)
        return self._store if asks is None else asks(name)

    def _read(self, name: str) -> Callable[..., Any]:
        lives, store = self._invocations, self._who_answers(name)

        def read(*given: Any, **named: Any) -> Any:
            lives.call("DynamoDB")
            return getattr(store, name)(*given, **named)

        return read

    def _write(self, name: str) -> Callable[..., Any]:
        lives, store, step_name = self._invocations, self._who_answers(name), f"store.{name}"

        def write(*given: Any, **named: Any) -> Any:
            lives.call("DynamoDB")
            told = {"given": given, **named}
            return lives.effect(step_name, told, lambda: getattr(store, name)(*given, **named))

        return write
