"""When two states are one: they are, if nothing that can still happen tells them apart.

Times are counted from now, and what is older than `HORIZON_S` is just old: no threshold of the policy explored is
longer. Left out is what no decision reads:

- texts: reasons, sentences, summaries, the bodies of messages and what our own events carry; only `ResourcesShort`
  compares a reason, to spare itself a write;
- history;
- `version` and `revision`: both are compared only with a copy of the same record that one invocation has read, and no
  invocation is under way between two states; command ids and incident ids are made of them and compared in one record;
- when something was seen or placed (`at` of a failure and the like), which is shown to people;
- since when the gang runs and its incident lasts: no attempt lasts as long as `steady_s`, and of the rest only whether;
- what is remembered of an instance: it is read by the order of placement and by `lemon_replace`, both off here;
- how many repairs a job has had: their cap is far away with one incident;
- plans and progress of past attempts: whatever is added to them leads to an event about a past attempt, which the fence
  refuses, and that it does is asked of each decision;
- what ECS and EC2 forget after an hour or a day: nothing, here;
- when the index has a record due: never later than the record says, which is asked of each state, and sooner is only
  one look more;
- the order in which ECS lists tasks: it promises none, and every state has them in the order of their ids.

A test explores with what is left out turned into something else, and finds the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import Progress
from gpu_recovery.core.check import Verdict
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import CheckRun, Held, Instance, Need
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.machine import Pending
from gpu_recovery.core.task import Ending, RankFailure

from .copying import Copier, Core, TaskFields

HORIZON_S = 1_200
LEFT_OUT: dict[type, set[str]] = {
    Job: {"history", "revision", "version", "reason", "stop_reason", "spec", "status_at", "repairs"},
    Instance: {"history", "revision", "version", "reason", "availability_zone", "past"},
    Pending: {"command_id"},
    commands.NotifyOperator: {"body", "incident_id", "subject"},
    commands.PublishEvent: {"data"},
    commands.PokeScheduler: {"key"},
    commands.ReportCheck: {"summary"},
    commands.ConfirmEnd: {"sentence"},
    events.CheckRequested: {"at", "since", "first"},
    events.RepairEnded: {"at", "sentence"},
    events.InstanceNeedsRepair: {"at", "sentence"},
    events.InstanceLeaving: {"at", "sentence"},
    events.RepairRequested: {"sentence"},
    CheckRun: {"since", "put_down"},
    Need: {"evidence"},
    Held: {"sentence"},
    Checked: {"summary"},
    Verdict: {"summary"},
    RankFailure: {"at"},
    Ending: {"sentence"},
    Fleet: {"revision", "opened_because", "incident_id"},
}
"""What of each record, order, event and word is left out."""
_OF_MACHINE = (
    "status", "ec2_state", "agent_connected", "version", "boot_id", "live", "faults", "reboot_behaviour", "impaired",
    "booted_at",
)  # fmt: skip
_OF_TASK = (
    "task_id", "last_status", "desired_status", "version", "stop_code", "stopped_reason", "process", "process_exit",
    "process_reason",
)  # fmt: skip
_FIELDS: dict[type, tuple[str, ...]] = {}
_NOT_KEPT = {"tokens", "changes", "_forgot_at", "boots", "submitted", "due", "listeners", "skew"}
"""Client tokens are those of the tasks there are; the rest is counted, or is the same in every state."""


class Sameness:
    """Names states, so that two that are one have one name."""

    def __init__(self, copier: Copier) -> None:
        self._kept = [n for (_, name), n in copier.places.items() if name not in _NOT_KEPT]
        self._of_attempts = {copier.places["store", "progress"], copier.places["store", "plans"]}
        self._jobs = copier.places["jobs", "records"]
        self._before: tuple[Core, _Names] | None = None

    def name(self, core: Core, before: Core) -> bytes:
        """The same 16 bytes for what is the same. `before` is a state with which it shares most of its parts."""
        if self._before is None or self._before[0] is not before:
            self._before = before, self._names(before, None)
        names = self._names(core, self._before if core.now == before.now else None)
        steps = "|".join(sorted([f"{happen.__qualname__}{about}" for happen, about in core.steps]))
        told = b"".join([*names.kept.values(), *names.machines, *names.tasks.values(), steps.encode()])
        return blake2b(told, digest_size=16).digest()

    def _names(self, core: Core, known: tuple[Core, _Names] | None) -> _Names:
        """What each part is called. A part that `known` has, too, is called the same: it is the same object."""
        if known is None:
            nothing = core._replace(kept=(_NOTHING,) * len(core.kept), machines=({},) * len(core.machines))
            known = nothing, _Names(dict.fromkeys(self._kept, b""), [b""] * len(core.machines), {})
        before, names = known
        now, jobs = core.now, core.kept[self._jobs]
        same_jobs = jobs is before.kept[self._jobs]
        kept: dict[int, bytes] = {}
        for n in self._kept:
            part = core.kept[n]
            if n in self._of_attempts:
                # Of progress and plans, those of the attempt that each job is at.
                if part is before.kept[n] and same_jobs:
                    kept[n] = names.kept[n]
                else:
                    kept[n] = _digest(_of_any({k: v for k, v in part.items() if jobs[k[0]].attempt == k[1]}, now))
            else:
                kept[n] = names.kept[n] if part is before.kept[n] else _digest(_of_any(part, now))
        machines = [
            name if one is old else _digest(_of_machine(one, now))
            for one, old, name in zip(core.machines, before.machines, names.machines, strict=True)
        ]
        # A task lives as long as the states that have it, and both are at hand: no other takes its identity.
        tasks = {id(one): names.tasks.get(id(one)) or _digest(_of_task(one, now)) for one in core.tasks}
        return _Names(kept, machines, tasks)


_NOTHING = object()


class _Names(NamedTuple):
    """What the parts of one state are called: fields by their place, machines in order, tasks by their identity."""

    kept: dict[int, bytes]
    machines: list[bytes]
    tasks: dict[int, bytes]


def _digest(told: str) -> bytes:
    return blake2b(told.encode(), digest_size=12).digest()


def _of_any(value: Any, now: datetime) -> str:
    return f"{type(value).__name__}{text(value, now)}"


def _of_machine(machine: dict[str, Any], now: datetime) -> str:
    return "|".join([text(machine[field], now) for field in _OF_MACHINE])


def _of_task(task: TaskFields, now: datetime) -> str:
    fields, containers = task
    return "|".join(
        [str(fields[name]) for name in _OF_TASK] + [f"{one['exit_code']}{one['reason']}" for one in containers]
    )


def text(value: Any, now: datetime) -> str:
    """`value` in words that are the same for what is the same."""
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return f"{max((value - now).total_seconds(), -HORIZON_S):+.0f}s"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text(one, now)}" for key, one in sorted(value.items())) + "}"
    if isinstance(value, frozenset | set):
        return "{" + ",".join(sorted(text(one, now) for one in value)) + "}"
    if isinstance(value, list | tuple):
        return "(" + ",".join(text(one, now) for one in value) + ")"
    kind = type(value)
    names = _FIELDS.get(kind)
    if names is None:
        left_out = LEFT_OUT.get(kind, set())
        names = _FIELDS[kind] = tuple(field.name for field in fields(value) if field.name not in left_out)
    return f"{kind.__name__}(" + ",".join(text(_asked(value, name), now) for name in names) + ")"


def _asked(value: Any, name: str) -> Any:
    """A field, as far as anybody asks for it."""
    if name in ("incident_id", "incident_at", "running_at"):
        return bool(getattr(value, name))
    if name == "running" and isinstance(value, Progress):
        return value.running - value.stopped  # who has ended has run, for whoever asks
    return getattr(value, name)
