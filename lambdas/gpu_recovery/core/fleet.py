"""Fleet record: repair budget, circuit breaker, pause and reporting outage.

The cluster has one fleet record. An instance joins `repairing` in the transaction that begins its repair, and leaves
the set in the transaction that ends the repair. So neither a crash nor a second reconciler exceeds the repair budget.

The circuit breaker opens when many instances are suspected at once. The cause is then rarely the instances: it is a
broken check image, a network or a rack. While the breaker is open no repair begins; checks, releases and repairs under
way continue. After `breaker_probe_s` the repair of one instance may begin as a probe (half open). If the instance
comes back healthy the breaker closes, otherwise it opens again. An operator may close the breaker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.missing_permission import EVERYWHERE, MissingPermission
from gpu_recovery.core.policy import RecoveryPolicy, duration


class Breaker(StrEnum):
    """State of the circuit breaker."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"  # the repair of one instance is the probe


@frozen_dataclass()
class Pause:
    """A pause of all repairs: the operator who set it (`by`), why (`because`) and when."""

    by: str
    because: str
    at: datetime


@frozen_dataclass()
class ReportingOutage:
    """A reporting outage: so many agents are missing that the network or the node API is at fault, not the GPUs."""

    since: datetime
    silent: int
    """Instances with a missing heartbeat."""
    reporting: int
    """Instances that ever sent a heartbeat, the missing instances included."""
    incident_id: str

    @property
    def sentence(self) -> str:
        """Why missing heartbeats have no consequence now."""
        return f"{self.silent} of {self.reporting} instances do not report: probably a network fault"


PERMISSION_TOLD_FOR = timedelta(days=1)
"""Time after which operators are notified of a missing permission again.

After this time without a denied launch, the jobs of a launch hold have precedence as other jobs have.
"""


@frozen_dataclass()
class PermissionNotice:
    """The attempt that notifies operators of a missing permission (`core.identifiers.attempt_id`), and the time."""

    attempt: str
    at: datetime


@frozen_dataclass()
class DeniedLaunches:
    """Launches of one scope that AWS denies.

    While the record exists, each launch of the scope is a probe. The first probe that AWS does not deny removes the
    record. A new record of any scope removes those whose last denial is more than a day old.

    permission: name of the missing permission.
    at:         time of the last denial.
    pause_s:    seconds from a denial to the next try. They double with each try that is denied.
    """

    permission: str
    at: datetime
    pause_s: int


@frozen_dataclass()
class Fleet:
    """The fleet record. `blamed` and `repairs` drop entries older than their windows, so both are bounded."""

    revision: int = 0
    """Number of writes, for the optimistic locking of the store: a write from an older revision is refused."""
    gpu_instances: int = 0
    """Instances with GPUs in the cluster, counted by the reconciler."""
    counted: bool = False
    """Whether the reconciler has counted them. A record of an older release has no such field until the next count."""
    repairing: frozenset[str] = frozenset()
    """Instances that are repaired by a reset, a reboot or a replacement, until its proof and a passing check."""
    repairs: tuple[datetime, ...] = ()
    """Times at which repairs began."""
    replacements: tuple[datetime, ...] = ()
    """Times at which replacements began. The fleet counts them because a new instance has no fault history."""
    blamed: Mapping[str, datetime] = field(default_factory=dict)
    """Instances with GPUs that evidence found faulty, with the time of the latest finding."""
    opened_at: datetime | None = None
    """Time at which the breaker opened. None while it is closed."""
    opened_because: str = ""
    incident_id: str = ""
    """Incident of the open breaker, until the breaker is closed."""
    probe: str = ""
    """Instance of the probe repair while the breaker is half open."""
    repairs_reported_at: datetime | None = None
    """Time of the last message about the repairs of several idle instances at once."""
    pause: Pause | None = None
    deaf: ReportingOutage | None = None
    """The present reporting outage. None if there is none."""
    unheard: Mapping[str, str] = field(default_factory=dict)
    """Idle instances that operators were notified of as missing, each with the incident of that notification."""
    permissions: Mapping[str, PermissionNotice] = field(default_factory=dict)
    """Missing permissions that operators were notified of within `PERMISSION_TOLD_FOR`, by name."""
    denied_launches: Mapping[str, DeniedLaunches] = field(default_factory=dict)
    """Launches that AWS denied within `PERMISSION_TOLD_FOR`, by scope: a task definition, or EVERYWHERE."""

    @property
    def is_counted(self) -> bool:
        """Whether `gpu_instances` is known. Before the first count of a new deployment it is 0 for any cluster."""
        return self.counted or self.gpu_instances > 0

    @property
    def breaker(self) -> Breaker:
        """State of the breaker, computed from `opened_at` and `probe`."""
        if self.opened_at is None:
            return Breaker.CLOSED
        return Breaker.HALF_OPEN if self.probe else Breaker.OPEN


def budget(fleet: Fleet, policy: RecoveryPolicy) -> int:
    """Return the repair budget: the instances that may be under repair at a time, at least 1."""
    return max(1, fleet.gpu_instances * policy.repair_budget_percent // 100)


def breaker_limit(fleet: Fleet, policy: RecoveryPolicy) -> int:
    """Return how many suspected instances open the breaker: a share of the fleet within the policy's two bounds."""
    share = fleet.gpu_instances * policy.breaker_percent // 100
    return max(policy.breaker_instances_min, min(policy.breaker_instances_max, share))


def repair_blocked_reason(
    fleet: Fleet, instance_id: str, policy: RecoveryPolicy, now: datetime, *, replacing: bool = False
) -> str:
    """Return why no repair of this instance may begin now, or "" if a repair may begin.

    Args:
        fleet: the fleet record.
        instance_id: the instance to repair.
        policy: gives the limits.
        now: time of the decision.
        replacing: whether the repair is a replacement, which has a limit of its own.
    """
    stopped = _repairs_stopped_reason(fleet, instance_id, policy, now)
    if blocked := stopped or repair_turn_reason(fleet, instance_id, policy, now):
        return blocked
    replaced = _recent_replacements(fleet, policy, now)
    if replacing and len(replaced) >= policy.replacements_max:
        return f"{len(replaced)} instances were replaced within {policy.replacement_window_s} s, which is the limit"
    return ""


def _repairs_stopped_reason(fleet: Fleet, instance_id: str, policy: RecoveryPolicy, now: datetime) -> str:
    """Return why no repair begins at all: a pause, a reporting outage or the open breaker; "" if repairs may begin."""
    if fleet.pause is not None:
        return f"recovery is paused by {fleet.pause.by}: {fleet.pause.because}"
    if fleet.deaf is not None:
        return fleet.deaf.sentence
    if fleet.opened_at is not None and not _may_probe(fleet, policy, now) and fleet.probe != instance_id:
        return f"the circuit breaker is open: {fleet.opened_because}"
    return ""


def repair_withheld_reason(fleet: Fleet, instance_id: str, policy: RecoveryPolicy) -> str:
    """Return why a repair that has begun is not carried out at its last moment; "" if it is carried out."""
    if policy.observe_only:
        return "gpu-recovery is in observe-only mode"
    if fleet.pause is not None:
        return f"recovery is paused by {fleet.pause.by}: {fleet.pause.because}"
    if fleet.deaf is not None:
        return fleet.deaf.sentence
    if fleet.opened_at is not None and fleet.probe != instance_id:
        return f"the circuit breaker is open: {fleet.opened_because}"
    return ""


def repair_turn_reason(fleet: Fleet, instance_id: str, policy: RecoveryPolicy, now: datetime) -> str:
    """Return why the repair must wait for its turn: the repair budget or the hourly rate; "" if it need not wait.

    The repairs of other instances go on meanwhile, and each end or hour brings the next turn.
    """
    others = fleet.repairing - {instance_id}
    if len(others) >= budget(fleet, policy):
        most = budget(fleet, policy)
        return f"{len(others)} of at most {most} instance(s) are under repair: {listed(sorted(others))}"
    recent = _recent_repairs(fleet, policy, now)
    if len(recent) >= policy.fleet_repairs_max:
        return f"{len(recent)} repairs began within {policy.fleet_window_s} s, which is the limit"
    return ""


@frozen_dataclass()
class HoldingLimit:
    """The fleet limit that holds every new repair now.

    name:  the limit in words, as in `held by the circuit breaker`.
    until: earliest time at which a repair may begin; None if it depends on an operator or on another repair.
    """

    name: str
    until: datetime | None = None

    def __str__(self) -> str:
        """Return the limit and its earliest end."""
        return f"{self.name} until {self.until:%H:%M:%S} UTC at the earliest" if self.until is not None else self.name


def holding_limit(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> HoldingLimit | None:
    """Return the limit that holds the repair of any further instance; None if a repair may begin.

    It exists exactly if `repair_blocked_reason` blocks the reboot of an instance that is not under repair.
    """
    if fleet.pause is not None:
        return HoldingLimit(f"the pause of {fleet.pause.by} ({fleet.pause.because})")
    if fleet.deaf is not None:
        return HoldingLimit("the reporting outage")
    if fleet.probe:
        return HoldingLimit(f"the circuit breaker while {fleet.probe} is repaired as a probe")
    if fleet.opened_at is not None and not _may_probe(fleet, policy, now):
        return HoldingLimit("the circuit breaker", probe_at(fleet, policy))
    most, under_repair = budget(fleet, policy), len(fleet.repairing)
    if under_repair >= most:
        return HoldingLimit(f"the repair budget ({under_repair} of at most {most} under repair)")
    recent = _recent_repairs(fleet, policy, now)
    if len(recent) >= policy.fleet_repairs_max:
        words = f"the limit of {policy.fleet_repairs_max} repairs within {policy.fleet_window_s} s"
        last_that_counts = sorted(recent)[len(recent) - policy.fleet_repairs_max]
        return HoldingLimit(words, last_that_counts + duration(policy.fleet_window_s))
    return None


def probe_at(fleet: Fleet, policy: RecoveryPolicy) -> datetime | None:
    """Return when the open breaker permits a probe; None if the breaker is closed or a probe is under way."""
    if fleet.opened_at is None or fleet.probe:
        return None
    return fleet.opened_at + duration(policy.breaker_probe_s)


def _may_probe(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> bool:
    earliest = probe_at(fleet, policy)
    return earliest is not None and now >= earliest


def _recent_repairs(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> tuple[datetime, ...]:
    return tuple(at for at in fleet.repairs if now - at < duration(policy.fleet_window_s))


def _recent_replacements(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> tuple[datetime, ...]:
    return tuple(at for at in fleet.replacements if now - at < duration(policy.replacement_window_s))


def with_reporting(fleet: Fleet, silent: int, reporting: int, policy: RecoveryPolicy, now: datetime) -> Fleet:
    """Return the fleet after a count of the agents: a reporting outage begins or ends, or nothing changes.

    More missing agents than the repair budget allows are a reporting outage. A failing instance is missing alone, or
    with its rack. A network fault, an expired token or an unavailable API makes many agents miss at once. During a
    reporting outage no repair begins, and no LOST job is decided.

    Args:
        fleet: the fleet record.
        silent: number of instances with a missing heartbeat.
        reporting: number of instances that ever sent a heartbeat, the missing instances included.
        policy: gives the repair budget in percent.
        now: time of the count.
    """
    most = max(1, reporting * policy.repair_budget_percent // 100)
    if silent <= most:
        return fleet if fleet.deaf is None else replace(fleet, deaf=None)
    if fleet.deaf is not None:
        return fleet
    return replace(fleet, deaf=ReportingOutage(now, silent, reporting, f"silence/{now:%Y%m%dT%H%M%S}"))


def with_blame(fleet: Fleet, instance_id: str, gpus: int, policy: RecoveryPolicy, now: datetime) -> Fleet:
    """Return the fleet after evidence found the instance faulty. The breaker opens if enough instances are suspected.

    Only instances with GPUs count, and each instance counts once. A finding older than the window is dropped. While the
    breaker is open no finding is counted, because closing the breaker removes all findings.
    """
    if not gpus or fleet.opened_at is not None:
        return fleet
    window = duration(policy.breaker_window_s)
    blamed = {blamed_id: at for blamed_id, at in fleet.blamed.items() if now - at < window} | {instance_id: now}
    fleet = replace(fleet, blamed=blamed)
    if len(blamed) < breaker_limit(fleet, policy):
        return fleet
    because = f"{len(blamed)} of {fleet.gpu_instances} instances were suspected within {policy.breaker_window_s} s"
    incident_id = f"breaker/{now:%Y%m%dT%H%M%S}"
    return replace(fleet, opened_at=now, opened_because=because, incident_id=incident_id, probe="")


def with_repair_begun(
    fleet: Fleet, instance_id: str, policy: RecoveryPolicy, now: datetime, *, replacing: bool = False
) -> Fleet:
    """Return the fleet after the repair of the instance began. If the breaker is open, this repair is the probe."""
    repairs = (*_recent_repairs(fleet, policy, now), now)
    probe = instance_id if fleet.opened_at is not None else ""
    replacements = (*_recent_replacements(fleet, policy, now), *((now,) if replacing else ()))
    return replace(
        fleet, repairing=fleet.repairing | {instance_id}, repairs=repairs, replacements=replacements, probe=probe
    )


def has_many_repairs(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> bool:
    """Return whether so many repairs began within `breaker_window_s` that one message about them all is enough."""
    window = duration(policy.breaker_window_s)
    return sum(now - at < window for at in fleet.repairs) >= policy.breaker_instances_min


def with_repairs_reported(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> Fleet:
    """Return the fleet with the time of a message about many repairs. It stays unchanged if none is due.

    One message covers the repairs that begin within `fleet_window_s`.
    """
    last = fleet.repairs_reported_at
    recently = last is not None and now - last < duration(policy.fleet_window_s)
    return fleet if recently or not has_many_repairs(fleet, policy, now) else replace(fleet, repairs_reported_at=now)


def with_replacement_begun(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> Fleet:
    """Return the fleet after a repair that began as a reboot became a replacement. It stays one repair."""
    return replace(fleet, replacements=(*_recent_replacements(fleet, policy, now), now))


def with_repair_ended(fleet: Fleet, instance_id: str, healed: bool, now: datetime) -> Fleet:
    """Return the fleet after the repair of the instance ended. A probe closes the breaker or opens it again."""
    after = replace(fleet, repairing=fleet.repairing - {instance_id})
    if fleet.probe != instance_id:
        return after
    return with_breaker_closed(after) if healed else replace(after, opened_at=now, probe="")


def with_repair_undone(
    fleet: Fleet, instance_id: str, began_at: datetime, now: datetime, *, replacing: bool = False
) -> Fleet:
    """Return the fleet without a reboot or a replacement that was blocked before any request to EC2.

    If a reboot of the same repair came before, the repair has begun: it counts, and has ended without success.

    Args:
        fleet: the fleet record.
        instance_id: the instance of the repair.
        began_at: time at which the reboot or the replacement was decided.
        now: time of the decision to hold it back.
        replacing: whether it is a replacement.
    """
    if replacing:
        fleet = replace(fleet, replacements=_without(fleet.replacements, began_at))
    if began_at not in fleet.repairs:
        return with_repair_ended(fleet, instance_id, healed=False, now=now)
    return replace(
        fleet,
        repairing=fleet.repairing - {instance_id},
        repairs=_without(fleet.repairs, began_at),
        probe="" if fleet.probe == instance_id else fleet.probe,
    )


def _without(times: tuple[datetime, ...], at: datetime) -> tuple[datetime, ...]:
    """Return the times with one occurrence of `at` removed, if there is one."""
    if at not in times:
        return times
    index = times.index(at)
    return times[:index] + times[index + 1 :]


def with_breaker_closed(fleet: Fleet) -> Fleet:
    """Return the fleet with its breaker closed and all findings of faulty instances removed. Held repairs may begin
    within the budget."""
    return replace(fleet, blamed={}, opened_at=None, opened_because="", incident_id="", probe="")


def with_missing_permission(
    fleet: Fleet, lacks: MissingPermission, task_definition: str, attempt: str, policy: RecoveryPolicy, now: datetime
) -> Fleet:
    """Return the fleet after AWS denied a launch. The first attempt in a day notifies operators of the permission.

    The pause of the scope doubles with each denied try. Launches that are denied within a pause belong to one try.

    Args:
        fleet: the fleet record.
        lacks: the missing permission.
        task_definition: the task definition of the denied job.
        attempt: the denied attempt (`core.identifiers.attempt_id`).
        policy: gives the shortest and the longest pause.
        now: time of the launch.
    """
    told = {other: notice for other, notice in fleet.permissions.items() if now - notice.at < PERMISSION_TOLD_FOR}
    denied = {scope: one for scope, one in fleet.denied_launches.items() if now - one.at < PERMISSION_TOLD_FOR}
    scope = lacks.scope(task_definition)
    before = denied.get(scope)
    pause_s = policy.pending_retry_s
    if before is not None:
        is_next_try = now >= before.at + duration(before.pause_s)
        pause_s = min(before.pause_s * 2, longest_launch_pause_s(policy)) if is_next_try else before.pause_s
    return replace(
        fleet,
        permissions={lacks.name: PermissionNotice(attempt, now), **told},
        denied_launches={**denied, scope: DeniedLaunches(lacks.name, now, pause_s)},
    )


def longest_launch_pause_s(policy: RecoveryPolicy) -> int:
    """Return the upper bound in seconds of the pause after a denied launch."""
    return max(policy.relaunch_cooldown_max_s, policy.pending_retry_s)


def with_permission_granted(fleet: Fleet, task_definition: str) -> Fleet:
    """Return the fleet after a launch of the task definition was not denied.

    This proves every permission that the launch needs. Operators hear of the next loss of a permission at once, unless
    the permission is still missing for other launches.
    """
    left = {scope: one for scope, one in fleet.denied_launches.items() if scope not in (EVERYWHERE, task_definition)}
    granted = {one.permission for scope, one in fleet.denied_launches.items() if scope not in left}
    granted -= {one.permission for one in left.values()}
    told = {name: notice for name, notice in fleet.permissions.items() if name not in granted}
    return replace(fleet, permissions=told, denied_launches=left)
