"""State equivalence: two states are equivalent if no later event can have a different effect in them.

Times count relative to the present. Times older than `HORIZON_S` are equal, because no threshold of the explored policy
is longer. The name of a state leaves out everything that no decision reads:

- Texts: reasons, sentences, summaries, bodies of messages and the content of published events. Only `ResourcesShort`
  compares a reason, to avoid a write.
- History.
- `version` and `revision`. Both are compared only with a copy of the same record that the same invocation has read. No
  invocation is active between two states. Ids of commands and incidents contain them and are compared within a record.
- Times at which something was seen, placed or told (`at` of a failure, the start of an instance's incident). They are
  only shown to operators.
- The times since which the gang runs and its incident lasts: no attempt lasts `stable_run_s`. Only their presence
  counts.
- The run time of the job and of jobs of its kind. The run time follows from the times above. Only the order of the
  queue and backfill read it, and here the queue has a single job.
- The fault history of an instance. Only the order of placement and `lemon_replace` read it, and both are off here.
- The number of repairs of a job. A single incident does not come near its upper bound.
- Plans and progress of former attempts. A change of them causes an event about a former attempt, which the fence
  rejects. The explorer checks this fence at every decision.
- The forgetting by ECS and EC2 after an hour or a day, which does not happen here.
- Due times in the index. An index time is never later than the due time of the record, which every state is checked
  for. An earlier index time causes only an additional poll.
- The instance of the incident. Its fault or its agent shows the incident as long as the incident has an effect. With
  the instance in the name, every walk of a recurring incident has the same states.
- The order in which ECS lists tasks. ECS promises no order, and every state has the tasks in id order.

A test explores with other values in everything that is left out, and finds the same states.
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
"""Seconds after which all older times are equal."""
LEFT_OUT: dict[type, set[str]] = {
    Job: {
        "history",
        "revision",
        "version",
        "reason",
        "stop_reason",
        "spec",
        "status_at",
        "repairs",
        "ran_s",
        "downtime",
        "lost_s",
    },
    Instance: {"history", "revision", "version", "reason", "availability_zone", "past", "incident_since"},
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
"""Fields that are left out, by type of record, command, event or value."""
_PRESENCE_ONLY = ("incident_id", "incident_at", "running_at")
"""Fields of which only the presence counts."""
_OF_INSTANCE = (
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
"""Fields of an instance of the cluster model that count."""
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
"""Fields of a task of the cluster model that count."""
NOT_NAMED = {"tokens", "submitted", "skew", "run_times"}
"""Fields of objects that are left out.

The client tokens are those of the present tasks. The others are counters, or are the same in every state.
"""


def form(value: Any) -> Form:
    """Return the form of `value`. Equivalent values have the same form.

    Raises:
        TypeError: the type of the value, or of a value in it, is unknown.
    """
    texts: list[str] = [type(value).__name__]
    times: list[int] = []
    _write(value, texts, times)
    return Form("".join(texts), tuple(times))


def form_of_attempts(by_attempt: Mapping[tuple[str, int], Any], attempts: Mapping[str, int]) -> Form:
    """Return the form of progress or plans, with the present attempt of each job only.

    Args:
        by_attempt: progress or plans by job id and attempt number.
        attempts: present attempt number by job id.
    """
    return form({key: value for key, value in by_attempt.items() if attempts[key[0]] == key[1]})


def form_of_instance(instance: Mapping[str, Any]) -> Form:
    """Return the form of an instance of the cluster model. `instance`: its fields by name."""
    return form([instance[name] for name in _OF_INSTANCE])


def form_of_task(task: Mapping[str, Any], containers: Any) -> Form:
    """Return the form of a task of the cluster model, from its fields and the fields of its containers."""
    return form(
        [[task[name] for name in _OF_TASK], [(container["exit_code"], container["reason"]) for container in containers]]
    )


def whole_form(fields: Mapping[str, Any], containers: Sequence[Mapping[str, Any]] = ()) -> Form:
    """Return the form of an instance, or of a task with its containers, with all fields."""
    values, times = [], []
    for item in (fields, *containers):
        for name, value in item.items():
            if isinstance(value, datetime):
                times.append(seconds(value))
            elif name != "containers":
                values.append(value)
    return Form(repr(values), tuple(times))


def seconds(at: datetime) -> int:
    """Return the seconds from START to `at`, rounded."""
    return round((at - START).total_seconds())


_Writer = Callable[[Any, list[str], list[int]], None]
_WRITERS: dict[type, _Writer] = {}


def _write(value: Any, texts: list[str], times: list[int]) -> None:
    kind = type(value)
    if kind is str:
        texts.append(value)
        return
    if value is None or kind is bool or kind is int:
        texts.append(repr(value))
        return
    writer = _WRITERS.get(kind)
    if writer is None:
        writer = _WRITERS[kind] = _writer(kind)
    writer(value, texts, times)


def _writer(kind: type) -> _Writer:
    """Return the function that writes values of the type `kind`."""
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
        return _dataclass_writer(kind)
    if issubclass(kind, bool | int | str | timedelta):
        return _write_plain
    raise TypeError(f"nobody has said when two of {kind.__name__} are the same")


def _write_plain(value: Any, texts: list[str], times: list[int]) -> None:
    texts.append(str(value))


def _write_enum(value: Any, texts: list[str], times: list[int]) -> None:
    texts.append(str(value.value))


def _write_time(value: datetime, texts: list[str], times: list[int]) -> None:
    texts.append("@")
    times.append(seconds(value))


def _write_mapping(value: Mapping[Any, Any], texts: list[str], times: list[int]) -> None:
    texts.append("{")
    for key in sorted(value):
        texts.append(f"{key}:")
        _write(value[key], texts, times)
        texts.append(",")
    texts.append("}")


def _write_set(value: frozenset[Any] | set[Any], texts: list[str], times: list[int]) -> None:
    texts.append("{")
    for item_form in sorted([form(item) for item in value]):
        texts.append(f"{item_form.text},")
        times.extend(item_form.times)
    texts.append("}")


def _write_row(value: Any, texts: list[str], times: list[int]) -> None:
    texts.append("(")
    for item in value:
        _write(item, texts, times)
        texts.append(",")
    texts.append(")")


def _dataclass_writer(kind: Any) -> _Writer:
    left_out = LEFT_OUT.get(kind, set())
    names = [field.name for field in fields(kind) if field.name not in left_out]
    presence_only = [name in _PRESENCE_ONLY for name in names]
    title, columns = f"{kind.__name__}(", tuple(zip(names, presence_only, strict=True))

    def write(value: Any, texts: list[str], times: list[int]) -> None:
        texts.append(title)
        for name, is_presence_only in columns:
            field_value = getattr(value, name)
            _write(bool(field_value) if is_presence_only else field_value, texts, times)
            texts.append(",")
        texts.append(")")

    def write_progress(value: AttemptProgress, texts: list[str], times: list[int]) -> None:
        write(replace(value, running=value.running - value.stopped), texts, times)  # a stopped rank has also run

    return write_progress if kind is AttemptProgress else write
