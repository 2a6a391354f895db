"""The fleet's brakes: how many machines may be under repair at once, when so many look bad that none may, and the
kill switch.

One record for the whole cluster. An instance joins `repairing` in the same transaction that begins its repair and
leaves it in the one that ends it, so no crash and no second reconciler can ever repair more than the budget allows.

The breaker answers the thought that when many machines look bad at once it is not the machines: a broken check image,
a network, a rack. Open, it lets no repair begin; checks, releases and everything that heals go on. After a while one
instance may try (half open): if it comes back healed the breaker closes, else it opens again. A person may close it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.policy import RecoveryPolicy, within


class Breaker(StrEnum):
    """Whether the breaker lets repairs begin."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"  # one instance is being tried


@dataclass(frozen=True, slots=True)
class Pause:
    """Recovery was stopped by a person: the kill switch."""

    by: str
    because: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ReportingOutage:
    """So many instances are silent at once that it is the network, or our own API, and not their GPUs."""

    since: datetime
    silent: int
    reporting: int
    """How many instances had ever been heard of, the silent ones among them."""
    incident_id: str

    @property
    def sentence(self) -> str:
        """Why nothing is done about a silence."""
        return f"{self.silent} of {self.reporting} instances are silent at once: the network, not their GPUs"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The record of the brakes. `blamed` and `repairs` hold what is younger than their windows, so they are bounded."""

    revision: int = 0
    """Counts writes, and belongs to the store: a writer who read an older one is refused."""
    gpu_instances: int = 0
    """How many instances with GPUs the cluster has; the reconciler counts them."""
    repairing: frozenset[str] = frozenset()
    """Instances being rebooted or replaced, until proof and a passing check."""
    repairs: tuple[datetime, ...] = ()
    """When repairs began."""
    replacements: tuple[datetime, ...] = ()
    """When replacements began: the machines that follow have no past of their own."""
    blamed: Mapping[str, datetime] = field(default_factory=dict)
    """Instances with GPUs that evidence blamed, and when it last did."""
    opened_at: datetime | None = None
    opened_because: str = ""
    incident_id: str = ""
    """The incident that opened the breaker, until it is closed."""
    probe: str = ""
    """The instance that tries, while the breaker is half open."""
    pause: Pause | None = None
    deaf: ReportingOutage | None = None
    unheard: Mapping[str, str] = field(default_factory=dict)
    """Idle instances that operators know to be silent, each with the incident that told of it."""

    @property
    def breaker(self) -> Breaker:
        """The breaker's state."""
        if self.opened_at is None:
            return Breaker.CLOSED
        return Breaker.HALF_OPEN if self.probe else Breaker.OPEN


def budget(fleet: Fleet, policy: RecoveryPolicy) -> int:
    """How many instances may be under repair at once: a share of the fleet, and always one."""
    return max(1, fleet.gpu_instances * policy.repair_budget_percent // 100)


def breaker_limit(fleet: Fleet, policy: RecoveryPolicy) -> int:
    """How many blamed instances within the window open the breaker: a share, but neither a few nor very many."""
    share = fleet.gpu_instances * policy.breaker_percent // 100
    return max(policy.breaker_instances_min, min(policy.breaker_instances_max, share))


def repair_blocked_reason(
    fleet: Fleet, instance_id: str, policy: RecoveryPolicy, now: datetime, *, replacing: bool = False
) -> str:
    """Why no repair of this instance may begin now; "" if one may."""
    if fleet.pause is not None:
        return f"recovery is paused by {fleet.pause.by}: {fleet.pause.because}"
    if fleet.deaf is not None:
        return fleet.deaf.sentence
    if fleet.opened_at is not None and not _may_probe(fleet, policy, now) and fleet.probe != instance_id:
        return f"the breaker is open: {fleet.opened_because}"
    others = fleet.repairing - {instance_id}
    if len(others) >= budget(fleet, policy):
        most = budget(fleet, policy)
        return f"{len(others)} of at most {most} instance(s) are under repair: {listed(sorted(others))}"
    recent = _recent_repairs(fleet, policy, now)
    if len(recent) >= policy.fleet_repairs_max:
        return f"{len(recent)} repairs began within {policy.fleet_window_s} s, which is the most"
    replaced = _recent_replacements(fleet, policy, now)
    if replacing and len(replaced) >= policy.replacements_max:
        return f"{len(replaced)} instances were replaced within {policy.replacement_window_s} s, which is the most"
    return ""


def _may_probe(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> bool:
    return fleet.opened_at is not None and not fleet.probe and now >= fleet.opened_at + within(policy.breaker_probe_s)


def _recent_repairs(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> tuple[datetime, ...]:
    return tuple(at for at in fleet.repairs if now - at < within(policy.fleet_window_s))


def _recent_replacements(fleet: Fleet, policy: RecoveryPolicy, now: datetime) -> tuple[datetime, ...]:
    return tuple(at for at in fleet.replacements if now - at < within(policy.replacement_window_s))


def with_reporting(fleet: Fleet, silent: int, reporting: int, policy: RecoveryPolicy, now: datetime) -> Fleet:
    """The fleet once `silent` of `reporting` instances are not heard of: beyond the repair budget it is deaf.

    A failing machine is silent alone, or with its rack; a network, an expired token or an API that is away silences
    many. A fleet that is deaf repairs nothing, and decides about no LOST job, until it hears.
    """
    most = max(1, reporting * policy.repair_budget_percent // 100)
    if silent <= most:
        return fleet if fleet.deaf is None else replace(fleet, deaf=None)
    if fleet.deaf is not None:
        return fleet
    return replace(fleet, deaf=ReportingOutage(now, silent, reporting, f"silence/{now:%Y%m%dT%H%M%S}"))


def with_blame(fleet: Fleet, instance_id: str, gpus: int, policy: RecoveryPolicy, now: datetime) -> Fleet:
    """The fleet once evidence blames the instance: so many within the window open the breaker.

    An instance without GPUs does not count, one that is blamed twice counts once, and blame that is older than the
    window is forgotten. While the breaker is open nothing is counted: closing it forgets all blame in any case.
    """
    if not gpus or fleet.opened_at is not None:
        return fleet
    window = within(policy.breaker_window_s)
    blamed = {one: at for one, at in fleet.blamed.items() if now - at < window} | {instance_id: now}
    fleet = replace(fleet, blamed=blamed)
    if len(blamed) < breaker_limit(fleet, policy):
        return fleet
    because = f"{len(blamed)} of {fleet.gpu_instances} instances looked bad within {policy.breaker_window_s} s"
    incident_id = f"breaker/{now:%Y%m%dT%H%M%S}"
    return replace(fleet, opened_at=now, opened_because=because, incident_id=incident_id, probe="")


def with_repair_begun(
    fleet: Fleet, instance_id: str, policy: RecoveryPolicy, now: datetime, *, replacing: bool = False
) -> Fleet:
    """The fleet once the instance's repair begins; with the breaker open it is the one that tries."""
    repairs = (*_recent_repairs(fleet, policy, now), now)
    probe = instance_id if fleet.opened_at is not None else ""
    replacements = (*_recent_replacements(fleet, policy, now), *((now,) if replacing else ()))
    return replace(
        fleet, repairing=fleet.repairing | {instance_id}, repairs=repairs, replacements=replacements, probe=probe
    )


def with_repair_ended(fleet: Fleet, instance_id: str, healed: bool, now: datetime) -> Fleet:
    """The fleet once the instance's repair is over; the one that tried closes the breaker, or opens it again."""
    after = replace(fleet, repairing=fleet.repairing - {instance_id})
    if fleet.probe != instance_id:
        return after
    return with_breaker_closed(after) if healed else replace(after, opened_at=now, probe="")


def with_repair_undone(fleet: Fleet, instance_id: str, began_at: datetime) -> Fleet:
    """The fleet once a repair that had begun was held back before anything was asked of EC2: as if it never had."""
    probe = "" if fleet.probe == instance_id else fleet.probe
    repairs = list(fleet.repairs)
    if began_at in repairs:
        repairs.remove(began_at)
    return replace(fleet, repairing=fleet.repairing - {instance_id}, repairs=tuple(repairs), probe=probe)


def with_breaker_closed(fleet: Fleet) -> Fleet:
    """The fleet with its breaker closed and all blame forgotten: what is held may begin, within the budget."""
    return replace(fleet, blamed={}, opened_at=None, opened_because="", incident_id="", probe="")
