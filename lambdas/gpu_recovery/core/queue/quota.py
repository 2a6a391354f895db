"""Quotas: limits of instances by user, priority and group, and of running jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.queue.priority import Priority

ANY = "*"
_FIELDS = ("instances", "max_running_jobs", "max_running_jobs_per_user")


class LimitsInvalid(PolicyInvalid):
    """A malformed quota document. `field` names the faulty entry, `detail` says what the entry must be."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(f"{where}: {detail}")
        self.field = where
        self.detail = detail


class QuotaKey(NamedTuple):
    """The key by which instances in use are counted.

    The priority is that of the submission, so a demotion changes no counter.
    """

    user: str
    priority: Priority
    group: str

    @property
    def text(self) -> str:
        """Return `user/PRIORITY/group`, as `parse_key` reads it."""
        return f"{self.user}/{self.priority.name}/{self.group}"


def parse_key(text: str) -> QuotaKey:
    """Parse the text form of a key. The name of a user may contain slashes.

    Raises:
        LimitsInvalid: the text is malformed.
    """
    user, priority, group = entry_of_text(text)
    if ANY in (user, priority, group):
        raise LimitsInvalid(text, f"must name one user, one priority and one group, not {ANY!r}")
    return QuotaKey(user, Priority[priority], group)


@frozen_dataclass()
class QuotaLimits:
    """Quota limits.

    instances:  limit by (user, priority name, group); `*` stands for any.
    max_running_jobs, max_running_jobs_per_user:  None for no limit.
    """

    instances: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    max_running_jobs: int | None = None
    max_running_jobs_per_user: int | None = None

    @property
    def counts_jobs(self) -> bool:
        """Return whether the number of running jobs is limited."""
        return (self.max_running_jobs, self.max_running_jobs_per_user) != (None, None)

    def of(self, key: QuotaKey) -> int | None:
        """Return how many instances the key may use; None for no limit."""
        entry = self.entry_of(key)
        return None if entry is None else self.instances[entry]

    def entry_of(self, key: QuotaKey) -> tuple[str, str, str] | None:
        """Return the entry that limits the key; None if no entry does.

        The entry with the most names wins. Among equals, an entry that names the user wins, then an entry that names
        the priority.
        """
        name = Priority(key.priority).name
        for user, priority, group in (
            (key.user, name, key.group),
            (key.user, name, ANY),
            (key.user, ANY, key.group),
            (ANY, name, key.group),
            (key.user, ANY, ANY),
            (ANY, name, ANY),
            (ANY, ANY, key.group),
            (ANY, ANY, ANY),
        ):
            if (user, priority, group) in self.instances:
                return user, priority, group
        return None

    def allows_priority(self, key: QuotaKey) -> bool:
        """Return whether an entry that names both the user and the priority gives the key any instance."""
        entry = self.entry_of(key)
        return entry is not None and ANY not in entry[:2] and self.instances[entry] > 0

    def document(self) -> dict[str, Any]:
        """Return the document that `parse_limits` reads."""
        return {
            "instances": {"/".join(parts): number for parts, number in sorted(self.instances.items())},
            "max_running_jobs": self.max_running_jobs,
            "max_running_jobs_per_user": self.max_running_jobs_per_user,
        }


def parse_limits(document: Any) -> QuotaLimits:
    """Parse `{"instances": {"user/PRIORITY/group": n}, "max_running_jobs": n, "max_running_jobs_per_user": n}`.

    Every field may be absent or null, and `*` stands for any user, priority or group.

    Raises:
        LimitsInvalid: an entry is malformed; the error names the entry.
    """
    if not isinstance(document, Mapping):
        raise LimitsInvalid("limits", "must be an object")
    for name in document:
        if name not in _FIELDS:
            raise LimitsInvalid(str(name), f"is not a limit; the limits are {', '.join(_FIELDS)}")
    entries = document.get("instances")
    if entries is not None and not isinstance(entries, Mapping):
        raise LimitsInvalid("instances", "must be an object of user/PRIORITY/group and a number")
    instances: dict[tuple[str, str, str], int] = {}
    for text, number in (entries or {}).items():
        where = f"instances.{text}"
        instances[entry_of_text(text, where)] = _number(number, where, 0)
    jobs, each = (_optional(document, name) for name in _FIELDS[1:])
    return QuotaLimits(instances, jobs, each)


def never_runs(limits: QuotaLimits, key: QuotaKey, nodes: int) -> str | None:
    """Return why a job of `nodes` instances can never run under `limits`, as a sentence; None if it can."""
    limit = limits.of(key)
    if limit is None or nodes <= limit:
        return None
    return f"needs {nodes} instance(s), but the whole quota of {key.text} is {limit}: it can never run"


def entry_of_text(text: Any, where: str = "") -> tuple[str, str, str]:
    """Return (user, priority name, group) of the text of an entry; `*` stands for any.

    Args:
        text: `user/PRIORITY/group`.
        where: name of the entry in the error; "" for the text itself.

    Raises:
        LimitsInvalid: the text is malformed.
    """
    where = where or str(text)
    parts = text.rsplit("/", 2) if isinstance(text, str) else []
    if len(parts) != 3 or not parts[1]:
        raise LimitsInvalid(where, "must be written user/PRIORITY/group")
    user, priority, group = parts
    if priority != ANY and priority not in Priority.__members__:
        raise LimitsInvalid(where, f"the priority must be {ANY} or one of {', '.join(Priority.__members__)}")
    return user, priority, group


def _number(value: Any, where: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LimitsInvalid(where, f"must be a whole number of at least {least}, not {value!r}")
    return value


def _optional(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return None if value is None else _number(value, name, 1)
