"""When two states are one: they are, if nothing that can still happen tells them apart.

Times are counted from now, and what is older than `HORIZON_S` is just old: no threshold of the policy explored is
longer. Left out is what no decision reads:

- texts: reasons, sentences, summaries, the bodies of messages and what our own events carry; only `ResourcesShort`
  compares a reason, to spare itself a write;
- history;
- `version` and `revision`: both are compared only with a copy of the same record that one invocation has read, and no
  invocation is under way between two states; command ids and incident ids are made of them and compared in one record;
- when something was seen or placed (`at` of a failure and the like), which is shown to people;
- since when the gang runs and its incident lasts: no attempt lasts `stable_run_s`, and of the rest only whether;
- how long the job has run, and jobs of its kind do: that is worked out from the times just named, and only the order of
  the line and those who may go before others read it, where there is one job;
- what is remembered of an instance: it is read by the order of placement and by `lemon_replace`, both off here;
- how many repairs a job has had: their cap is far away with one incident;
- plans and progress of past attempts: whatever is added to them leads to an event about a past attempt, which the fence
  refuses, and that it does is asked of each decision;
- what ECS and EC2 forget after an hour or a day: nothing, here;
- when the index has a record due: never later than the record says, which is asked of each state, and sooner is only
  one look more;
- which machine the incident has befallen: its fault or its agent shows it as long as anything comes of it, and with it
  in the names every walk of an incident that comes back has the same states;
- the order in which ECS lists tasks: it promises none, and every state has them in the order of their ids.

A test explores with what is left out turned into something else, and finds the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import AttemptProgress
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.instance.record import CheckRun, Instance, RepairHold, RepairNeed
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.core.task import Ending, RankFailure

from simulator.explore.interning import Form
from simulator.virtual_clock import START

HORIZON_S = 1_200
LEFT_OUT: dict[type, set[str]] = {
    Job: {"history", "revision", "version", "reason", "stop_reason", "spec", "status_at", "repairs", "ran_s"},
    Instance: {"history", "revision", "version", "reason", "availability_zone", "past"},
    PendingCommand: {"command_id"},
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
    RepairNeed: {"evidence"},
    RepairHold: {"sentence"},
    Checked: {"summary"},
    Verdict: {"summary"},
    RankFailure: {"at"},
    Ending: {"sentence"},
    Fleet: {"revision", "opened_because", "incident_id"},
}
"""What of each record, order, event and word is left out."""
_WHETHER = ("incident_id", "incident_at", "running_at")
"""Of these only whether they are there."""
_OF_MACHINE = (
    "status",
    "ec2_state",
    "agent_connected",
    "version",
    "boot_id",
    "live",
    "faults",
    "reboot_behaviour",
    "impaired",
    "booted_at",
)
_OF_TASK = (
    "task_id",
    "last_status",
    "desired_status",
    "version",
    "stop_code",
    "stopped_reason",
    "process",
    "process_exit",
    "process_reason",
)
NOT_NAMED = {"tokens", "submitted", "skew", "run_times"}
"""Client tokens are those of the tasks there are; the rest is counted, or is the same in every state."""


def form(value: Any) -> Form:
    """`value` in words that are the same for what is the same."""
    said: list[str] = [type(value).__name__]
    times: list[int] = []
    _write(value, said, times)
    return Form("".join(said), tuple(times))


def form_of_attempts(kept: Mapping[tuple[str, int], Any], attempts: Mapping[str, int]) -> Form:
    """Of progress and plans, those of the attempt that each job is at."""
    return form({key: value for key, value in kept.items() if attempts[key[0]] == key[1]})


def form_of_machine(machine: Mapping[str, Any]) -> Form:
    """A machine, from its fields."""
    return form([machine[name] for name in _OF_MACHINE])


def form_of_task(task: Mapping[str, Any], containers: Any) -> Form:
    """A task, from its fields and those of its containers."""
    return form([[task[name] for name in _OF_TASK], [(one["exit_code"], one["reason"]) for one in containers]])


def whole_form(fields: Mapping[str, Any], containers: Sequence[Mapping[str, Any]] = ()) -> Form:
    """A machine, or a task with its containers, and every field that it has."""
    told, times = [], []
    for one in (fields, *containers):
        for name, value in one.items():
            if isinstance(value, datetime):
                times.append(seconds(value))
            elif name != "containers":
                told.append(value)
    return Form(repr(told), tuple(times))


def seconds(at: datetime) -> int:
    """Since START."""
    return round((at - START).total_seconds())


_Writer = Callable[[Any, list[str], list[int]], None]
_WRITERS: dict[type, _Writer] = {}


def _write(value: Any, said: list[str], times: list[int]) -> None:
    kind = type(value)
    if kind is str:
        said.append(value)
        return
    if value is None or kind is bool or kind is int:
        said.append(repr(value))
        return
    writer = _WRITERS.get(kind)
    if writer is None:
        writer = _WRITERS[kind] = _writer(kind)
    writer(value, said, times)


def _writer(kind: type) -> _Writer:
    """What writes values of that kind."""
    if issubclass(kind, Enum):
        return _write_enum
    if issubclass(kind, datetime):
        return _write_time
    if issubclass(kind, Mapping):
        return _write_mapping
    if issubclass(kind, frozenset | set):
        return _write_set
    if issubclass(kind, list | tuple | deque):
        return _write_row
    if is_dataclass(kind):
        return _of_fields(kind)
    if issubclass(kind, bool | int | str | timedelta):
        return _write_plain
    raise TypeError(f"nobody has said when two of {kind.__name__} are the same")


def _write_plain(value: Any, said: list[str], times: list[int]) -> None:
    said.append(str(value))


def _write_enum(value: Any, said: list[str], times: list[int]) -> None:
    said.append(str(value.value))


def _write_time(value: datetime, said: list[str], times: list[int]) -> None:
    said.append("@")
    times.append(seconds(value))


def _write_mapping(value: Mapping[Any, Any], said: list[str], times: list[int]) -> None:
    said.append("{")
    for key in sorted(value):
        said.append(f"{key}:")
        _write(value[key], said, times)
        said.append(",")
    said.append("}")


def _write_set(value: frozenset[Any] | set[Any], said: list[str], times: list[int]) -> None:
    said.append("{")
    for told in sorted([form(one) for one in value]):
        said.append(f"{told.text},")
        times.extend(told.times)
    said.append("}")


def _write_row(value: Any, said: list[str], times: list[int]) -> None:
    said.append("(")
    for one in value:
        _write(one, said, times)
        said.append(",")
    said.append(")")


def _of_fields(kind: Any) -> _Writer:
    left_out = LEFT_OUT.get(kind, set())
    names = [field.name for field in fields(kind) if field.name not in left_out]
    whether = [name in _WHETHER for name in names]
    title, asked = f"{kind.__name__}(", tuple(zip(names, whether, strict=True))

    def write(value: Any, said: list[str], times: list[int]) -> None:
        said.append(title)
        for name, is_whether in asked:
            one = getattr(value, name)
            _write(bool(one) if is_whether else one, said, times)
            said.append(",")
        said.append(")")

    def write_progress(value: AttemptProgress, said: list[str], times: list[int]) -> None:
        write(replace(value, running=value.running - value.stopped), said, times)  # who has ended has run

    return write_progress if kind is AttemptProgress else write
