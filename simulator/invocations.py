"""Lambda invocations that can be killed between any two of their effects.

An effect is one write to the store, or one call that changes something outside. A `Nemesis` is called before and after
each effect. The nemesis may kill the invocation there, or run other work in between. A killed invocation makes no
further effect: what its `finally` clauses still try is refused. Each effect takes place whole or not at all.
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
    """Raised to end an invocation: no code of the invocation runs after it."""


class Effect(NamedTuple):
    """One effect of an invocation.

    number:     its number in the whole run.
    invocation: the name of the function that makes it.
    name:       the operation: `RunTask`, `store.save_job`, ...
    given:      the arguments of the operation.
    """

    number: int
    invocation: str
    name: str
    given: Mapping[str, Any] = MappingProxyType({})


class Nemesis(Protocol):
    """Decides which faults strike the effects of invocations."""

    def before(self, step: Effect) -> None:
        """Called before the effect; may raise instead of the effect, or run other work first."""

    def after(self, step: Effect) -> None:
        """Called after the effect, before its caller continues; may raise instead of the answer."""


class NoFaults:
    """A nemesis that injects no fault."""

    def before(self, step: Effect) -> None:
        """Let the effect take place."""

    def after(self, step: Effect) -> None:
        """Let the caller receive the answer."""


@dataclass
class KillAt:
    """Kills the invocation once, before or (`after_it`) after effect number `number`."""

    number: int
    after_it: bool
    done: bool = False

    def before(self, step: Effect) -> None:
        """Kill the invocation before the effect, unless `after_it`."""
        if not self.after_it:
            self._kill(step)

    def after(self, step: Effect) -> None:
        """Kill the invocation after the effect, if `after_it`."""
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
    """Runs invocations and numbers their effects. A nemesis may run one invocation inside another."""

    nemesis: Nemesis = field(default_factory=NoFaults)
    steps: list[Effect] = field(default_factory=list)
    killed: list[Effect | None] = field(default_factory=list)
    interrupted: int = 0
    """How often an invocation was killed, or a nemesis let an effect of `NOTIFYING` fail."""
    done: list[Effect] = field(default_factory=list)
    """The effects that took place; `steps` also holds those that were prevented."""
    remembers: bool = True
    """Whether `steps` and `done` are recorded. They grow with the length of the run."""
    taken: int = 0
    """The number of effects that took place, including those outside every invocation."""
    asked: int = 0
    """The number of effects that invocations tried to make, including those that were prevented."""
    meter: Meter | None = None
    """Charges time for the calls of invocations; None: calls take no time."""
    _last: Effect | None = None
    _stack: list[_Invocation] = field(default_factory=list)

    def run(self, name: str, work: Callable[[], object]) -> bool:
        """Run `work` as one invocation; return False if it was killed. Exceptions of `work` pass to the caller."""
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
        """Kill the invocation under way, because its time is used up.

        Raises:
            Killed: Always.
        """
        self._stack[-1].dead = True
        self.interrupted += 1
        raise Killed

    def call(self, operation: str = "", times: int = 1) -> None:
        """Charge the invocation under way for `times` calls of `operation`.

        Raises:
            Killed: The invocation was killed before.
        """
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
        """Let the calls in the block take no time, because their time has been charged already."""
        meter, self.meter = self.meter, None
        try:
            yield
        finally:
            self.meter = meter

    def effect(self, name: str, arguments: Mapping[str, Any], do: Callable[[], Answer]) -> Answer:
        """Make one effect, with the nemesis called before and after it.

        Args:
            name: The operation: `RunTask`, `store.save_job`, ...
            arguments: The arguments of the operation, for the nemesis and the transcript.
            do: Carries the effect out.

        Returns:
            The answer of `do`.

        Raises:
            Killed: The invocation was killed before, or the nemesis kills it here.
        """
        if not self._stack:
            self.taken += 1
            return do()
        invocation = self._stack[-1]
        if invocation.dead:
            raise Killed
        step = self._last = Effect(len(self.steps) if self.remembers else self.asked, invocation.name, name, arguments)
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
            was_killed = isinstance(raised, Killed)
            self.interrupted += not doing and (was_killed or name in NOTIFYING)
            invocation.dead = invocation.dead or was_killed
            raise
        return answer

    def check_alive(self) -> None:
        """Refuse a read by an invocation that was killed.

        Raises:
            Killed: The invocation under way was killed before.
        """
        if self._stack and self._stack[-1].dead:
            raise Killed


NOTIFYING = ("Publish", "store.remove_finished_job_commands")
"""The effects that notify operators, or record that they were notified. If one fails, the message may be sent again."""
_READS = (
    "load_",
    "jobs_in",
    "list_jobs",
    "due_",
    "instances_in",
    "list_instances",
    "complete_listing",
    "add_to_listing",
    "instance_of",
    "load_heartbeats",
    "load_inventory",
    "load_queue",
    "load_last_pass",
    "quota_used",
)


class EffectStore:
    """A store that makes each write an effect of the invocation under way, and each read a call of it."""

    def __init__(self, store: Any, invocations: Invocations) -> None:
        self._store, self._invocations = store, invocations

    def __getattr__(self, name: str) -> Any:
        method = self._read(name) if name.startswith(_READS) else self._write(name)
        setattr(self, name, method)
        return method

    def _target(self, name: str) -> Any:
        """Return the object that implements the method `name`: the store, or the store that it wraps."""
        who_answers: Callable[[str], Any] | None = getattr(self._store, "who_answers", None)
        return self._store if who_answers is None else who_answers(name)

    def _read(self, name: str) -> Callable[..., Any]:
        invocations, store = self._invocations, self._target(name)

        def read(*args: Any, **kwargs: Any) -> Any:
            invocations.call("DynamoDB")
            return getattr(store, name)(*args, **kwargs)

        return read

    def _write(self, name: str) -> Callable[..., Any]:
        invocations, store, step_name = self._invocations, self._target(name), f"store.{name}"

        def write(*args: Any, **kwargs: Any) -> Any:
            invocations.call("DynamoDB")
            arguments = {"given": args, **kwargs}
            return invocations.effect(step_name, arguments, lambda: getattr(store, name)(*args, **kwargs))

        return write
