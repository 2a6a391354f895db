"""Event of the bus as the event history keeps it, its parser and its stored text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

REASON_CHARACTERS_MAX = 2_000
"""Characters of a sentence that the history keeps."""
NAME_CHARACTERS_MAX = 255
"""Upper bound of the characters of an id or a name."""
LISTED_MAX = 16
"""Upper bound of the names in a list."""
REPLAY_CHARACTERS_MAX = 20_000
"""Characters of replay facts that the history keeps; longer ones are left out. Those of 64 ranks have 4,000."""
VERSION_MAX = 9_999_999_999
"""Upper bound of a version: keys have ten digits for it."""


class EventKind(StrEnum):
    """Kind of an event: its detail type on the bus, in lower case with underscores."""

    JOB = "job_state_changed"
    INSTANCE = "instance_state_changed"
    RECOVERY_STARTED = "recovery_started"
    RECOVERY_SUCCEEDED = "recovery_succeeded"
    RECOVERY_FAILED = "recovery_failed"
    OPERATOR_NEEDED = "operator_action_required"


KINDS: Mapping[str, EventKind] = {kind.value.replace("_", " ").title(): kind for kind in EventKind}
"""The kind of each detail type."""
_ABOUT_INSTANCES = (EventKind.INSTANCE, EventKind.OPERATOR_NEEDED)


class RecordedEventUnreadable(RecoveryError):
    """An event that does not follow its schema."""


@frozen_dataclass()
class Failure:
    """The first rank of an attempt that failed."""

    rank: int
    instance_id: str
    exit_code: int | None


@frozen_dataclass()
class Finding:
    """The result of the diagnosis of an attempt; `confidence` in percent."""

    cause: str
    confidence: int
    decided: bool
    remedy: str
    instances: tuple[str, ...]
    gpus: tuple[str, ...]
    sentence: str


@frozen_dataclass()
class Message:
    """A message to operators that the same decision ordered."""

    severity: str
    subject: str


@frozen_dataclass()
class Bill:
    """What a downtime that is over has cost.

    down_s:     seconds from the failure to the next training step, without suspensions.
    phases:     name and seconds of each phase; a suspension is one of them.
    repeated_s: seconds of work that is done again; None if it is not known.
    cause:      why the job was down.
    recovered:  whether the training has gone on.
    kept:       whether the recovery contract was kept; None without a contract.
    """

    down_s: int
    phases: tuple[tuple[str, int], ...]
    repeated_s: int | None
    cause: str
    recovered: bool
    kept: bool | None


@frozen_dataclass()
class RecordedEvent:
    """An event of the bus.

    at:          time of the decision.
    record:      id of the record that decided, a job or an instance.
    version:     version of the record after the decision.
    job_id:      the job; of an event about an instance, the job for which it is checked or repaired. "" for none.
    kept_until:  time up to which the work before the incident was kept; None if it is not known.
    before:      status before the event; "" for a new record, and for an event that is no change of status.
    since:       time from which the record had that status; None if it is not known.
    opened_at:   start of the incident; None if there is none, or it is not known.
    gpus:        GPUs of the job, or of the instance.
    replay:      replay facts of the decision (`core.replay_facts`); None for an event of an older release.
    bill:        the bill of the downtime that the decision has ended; None if it ended none.
    """

    kind: EventKind
    at: datetime
    record: str
    version: int
    reason: str
    job_id: str = ""
    instance_id: str = ""
    attempt: int = 0
    before: str = ""
    after: str = ""
    since: datetime | None = None
    incident_id: str = ""
    opened_at: datetime | None = None
    user: str = ""
    priority: str = ""
    instances: int = 0
    gpus: int = 0
    failure: Failure | None = None
    finding: Finding | None = None
    check_id: str = ""
    message: Message | None = None
    kept_until: datetime | None = None
    replay: Mapping[str, Any] | None = None
    bill: Bill | None = None

    @property
    def event_id(self) -> str:
        """Id of the event: the same each time that the event is sent."""
        return f"{self.record}/{self.version}/{self.kind}"

    @property
    def is_about_instance(self) -> bool:
        """Whether an instance decided, and not a job."""
        return self.kind in _ABOUT_INSTANCES


_KEPT = frozenset(
    {
        *("job_id", "instance_id", "attempt", "before", "after", "since", "at", "reason", "version", "incident_id"),
        *("opened_at", "user", "priority", "instances", "gpus", "failure", "diagnosis", "check_id", "message"),
        *("kept_until", "replay", "bill"),
    }
)
"""Fields of an event's data that the history keeps."""


def text_of(detail_type: str, detail: Mapping[str, Any], sent_at: str) -> str:
    """Return the text under which the history stores an event.

    Args:
        detail_type: the detail type.
        detail: the detail, with `metadata` and `data`.
        sent_at: time at which the bus received the event. An event of an older release has no other time.

    Raises:
        RecordedEventUnreadable: the event does not follow its schema.
    """
    metadata, data = _object(detail.get("metadata"), "metadata"), _object(detail.get("data"), "data")
    kept = {name: value for name, value in sorted(data.items()) if name in _KEPT and value is not None}
    if isinstance(kept.get("reason"), str):
        kept["reason"] = kept["reason"][:REASON_CHARACTERS_MAX]
    if "replay" in kept and len(json.dumps(kept["replay"])) > REPLAY_CHARACTERS_MAX:
        del kept["replay"]
    document = {"type": detail_type, "decision": metadata.get("causation_id"), "data": kept}
    if "at" not in kept:
        document["sent_at"] = sent_at
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    event_of(text)
    return text


def event_of(text: str) -> RecordedEvent:
    """Return the event of a stored text.

    Raises:
        RecordedEventUnreadable: the text is malformed.
    """
    try:
        document = json.loads(text)
        return _event(document, _object(document.get("data"), "data"))
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise RecordedEventUnreadable(f"an event of the history cannot be read: {error}") from error


def _event(document: Mapping[str, Any], data: Mapping[str, Any]) -> RecordedEvent:
    kind = KINDS.get(str(document.get("type")))
    if kind is None:
        raise RecordedEventUnreadable(f"there is no event {str(document.get('type'))[:80]!r}")
    record, _, version = _id(document, "decision").rpartition("/")
    if not record or not version.isdecimal() or int(version) > VERSION_MAX:
        raise RecordedEventUnreadable("causation_id is not <record>/<version>")
    about_instance = kind in _ABOUT_INSTANCES
    return RecordedEvent(
        kind=kind,
        at=_time(data, "at") or _needed(_time(document, "sent_at"), "at"),
        record=record,
        version=int(version),
        reason=_text(data, "reason", REASON_CHARACTERS_MAX),
        job_id=_id(data, "job_id") if about_instance else _needed(_id(data, "job_id"), "job_id"),
        instance_id=_needed(_id(data, "instance_id"), "instance_id") if about_instance else "",
        attempt=_whole(data, "attempt"),
        before=_text(data, "before"),
        after=_text(data, "after"),
        since=_time(data, "since"),
        incident_id=_id(data, "incident_id"),
        opened_at=_time(data, "opened_at"),
        user=_text(data, "user"),
        priority=_text(data, "priority"),
        instances=_whole(data, "instances"),
        gpus=_whole(data, "gpus"),
        failure=_failure(data.get("failure")),
        finding=_finding(data.get("diagnosis")),
        check_id=_text(data, "check_id"),
        message=_message(data.get("message")),
        kept_until=_time(data, "kept_until"),
        replay=None if data.get("replay") is None else _object(data["replay"], "replay"),
        bill=_bill(data.get("bill")),
    )


def _failure(value: Any) -> Failure | None:
    if value is None:
        return None
    told = _object(value, "failure")
    code = None if told.get("exit_code") is None else _whole(told, "exit_code", -(2**31))
    return Failure(_whole(told, "rank", -1), _text(told, "instance_id"), code)


def _finding(value: Any) -> Finding | None:
    if value is None:
        return None
    told = _object(value, "diagnosis")
    return Finding(
        _text(told, "cause"),
        _whole(told, "confidence"),
        told.get("decided") is True,
        _text(told, "remedy"),
        _texts(told, "instances"),
        _texts(told, "gpus"),
        _text(told, "sentence", REASON_CHARACTERS_MAX),
    )


def _message(value: Any) -> Message | None:
    if value is None:
        return None
    told = _object(value, "message")
    return Message(_text(told, "severity"), _text(told, "subject", REASON_CHARACTERS_MAX))


def _bill(value: Any) -> Bill | None:
    if value is None:
        return None
    told = _object(value, "bill")
    phases = _object(told.get("phases"), "phases")
    kept = told.get("kept")
    return Bill(
        _whole(told, "down_s"),
        tuple((_id({"phase": name}, "phase"), _whole(phases, name)) for name in list(phases)[:LISTED_MAX]),
        None if told.get("repeated_s") is None else _whole(told, "repeated_s"),
        _text(told, "cause"),
        told.get("recovered") is True,
        kept if isinstance(kept, bool) else None,
    )


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RecordedEventUnreadable(f"{name} is no object")
    return value


def _text(values: Mapping[str, Any], name: str, most: int = NAME_CHARACTERS_MAX) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise RecordedEventUnreadable(f"{name} is no text")
    return value[:most]


def _id(values: Mapping[str, Any], name: str) -> str:
    """Return an id; "" if it is missing. Streams and positions are made of ids, separated by `#`."""
    value = _text(values, name, NAME_CHARACTERS_MAX + 1)
    if "#" in value or not value.isprintable() or len(value) > NAME_CHARACTERS_MAX:
        raise RecordedEventUnreadable(f"{name} is no id")
    return value


def _texts(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    listed = values.get(name) or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise RecordedEventUnreadable(f"{name} is no list of texts")
    return tuple(each[:NAME_CHARACTERS_MAX] for each in listed[:LISTED_MAX])


def _whole(values: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = values.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= VERSION_MAX:
        raise RecordedEventUnreadable(f"{name} is no whole number from {least}")
    return value


def _time(values: Mapping[str, Any], name: str) -> datetime | None:
    value = values.get(name)
    if value is None:
        return None
    time = datetime.fromisoformat(value)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _needed(value: Any, name: str) -> Any:
    if not value:
        raise RecordedEventUnreadable(f"{name} is missing")
    return value
