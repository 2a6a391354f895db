"""Several instances and the one record of their brakes, told anything in any order: I5 and I6 over a whole fleet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.fleet import Breaker, Fleet, Pause, budget, with_breaker_closed
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthStatus
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import EventOutcome
from hypothesis import given
from hypothesis import strategies as st

from tests.core import all_events
from tests.core.build import ADAPTIVE, CLASSIC, NOW, available, observed, tell
from tests.core.property_runs import works_only_after_proof

FLEET_SIZE = 10
COUNTED = 5
"""What the brakes know of: one may be under repair at once, and three that are blamed open the breaker."""
QUICK = replace(ADAPTIVE, replace=True, breaker_window_s=3_600, breaker_instances_min=2, fleet_repairs_max=3)
POLICY = st.sampled_from((ADAPTIVE, CLASSIC, QUICK, replace(QUICK, observe_only=True)))
NAMES = [f"i-{n:02x}" for n in range(FLEET_SIZE)]
STEPS = st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 2_000)), min_size=30, max_size=200)


@dataclass
class Cluster:
    """The records as a store keeps them: an instance and the brakes it was decided under are saved together."""

    policy: RecoveryPolicy
    instances: dict[str, Instance]
    fleet: Fleet
    now: datetime = NOW

    def tell(self, name: str, event: Any, at: datetime) -> None:
        """One decision and its transaction, with what must hold after it."""
        self.now = max(self.now, at)
        before = self.instances[name]
        brakes = self.fleet if state_machine.needs_fleet_limits(before, event) else None
        decision = state_machine.decide(before, event, self.policy, self.now, brakes)
        if decision.outcome is not EventOutcome.APPLIED:
            assert decision.fleet is None
            return
        self.instances[name] = decision.record
        if decision.fleet is not None:
            assert decision.fleet != self.fleet, "a transaction that changes nothing"
            self.fleet = decision.fleet
        works_only_after_proof(before, event, decision.record, self.policy)
        self.check(before, decision.record)

    def check(self, before: Instance, after: Instance) -> None:
        """I5, and that the brakes know exactly who is under repair."""
        repairing = {one.instance_id for one in self.instances.values() if one.under_repair}
        assert repairing == self.fleet.repairing
        assert len(repairing) <= budget(self.fleet, self.policy)
        if self.fleet.breaker is Breaker.HALF_OPEN:
            assert self.fleet.probe in repairing
        begins = after.under_repair and not before.under_repair
        assert not (begins and self.fleet.pause is not None)
        if begins and self.fleet.opened_at is not None:
            assert self.fleet.probe == after.instance_id


def _run(policy: RecoveryPolicy, steps: list[tuple[int, int]]) -> Cluster:
    working = {name: replace(available(name), claims={"sft-1": Claim(1, 8)}) for name in NAMES[: FLEET_SIZE // 2]}
    idle = {name: available(name) for name in NAMES[FLEET_SIZE // 2 :]}
    cluster = Cluster(policy, {**working, **idle}, Fleet(gpu_instances=COUNTED))
    for pick, seconds in steps:
        cluster.now += timedelta(seconds=seconds)
        name = NAMES[pick % FLEET_SIZE]
        match (pick // FLEET_SIZE) % 40:
            case 0:
                cluster.fleet = replace(cluster.fleet, pause=Pause("ada", "moving house", cluster.now))
            case 1 | 2:
                cluster.fleet = replace(cluster.fleet, pause=None)
            case 3:
                cluster.fleet = with_breaker_closed(cluster.fleet)
            case 4 | 5:  # its claims are given back
                cluster.instances[name] = replace(cluster.instances[name], claims={})
            case _:
                record = cluster.instances[name]
                if record.status is InstanceStatus.GONE:  # another machine in its place
                    record = cluster.instances[name] = available(name)
                told = all_events.anything_for_instance(record, cluster.now)
                sick = [one for one in told if _leads_on(one[1])]
                some = sick if pick % 5 and sick else told
                at, event = some[(pick // 400) % len(some)]
                cluster.tell(name, event, at)
    return cluster


def _leads_on(event: Any) -> bool:
    """Whether an event brings a repair about, or on: told at random, most others end it before it has begun."""
    match event:
        case events.CheckEnded():
            return event.verdict.outcome.blames_hardware or event.verdict.outcome is CheckOutcome.HEALTHY
        case events.HealthReported():
            return event.status is HealthStatus.IMPAIRED
        case events.MachineSeen():
            return event.state is Ec2InstanceState.STOPPED
        case events.InstanceObserved():
            return event.ecs_status == "ACTIVE"
    return isinstance(event, events.CheckRequested | events.RepairRequested | events.InstanceLookDue)


@given(policy=POLICY, steps=STEPS)
def test_never_more_than_the_budget_is_under_repair_whatever_a_fleet_is_told(
    policy: RecoveryPolicy, steps: list[tuple[int, int]]
) -> None:
    """Checks, watchers, announcements, people, deadlines: the brakes hold after every single decision."""
    _run(policy, steps)


@given(policy=st.sampled_from((ADAPTIVE, QUICK)), steps=STEPS)
def test_a_fleet_comes_to_rest_when_nothing_more_happens_to_it(
    policy: RecoveryPolicy, steps: list[tuple[int, int]]
) -> None:
    """Nobody is under repair for ever, no probe is left over, and all who are held begin, end or reach a person."""
    cluster = _run(policy, steps)
    cluster.fleet = replace(cluster.fleet, pause=None)
    for name in NAMES:
        cluster.instances[name] = replace(cluster.instances[name], claims={})
    for _ in range(policy.repair_hold_timeout_s // policy.breaker_probe_s * 8):
        cluster.now += timedelta(seconds=policy.breaker_probe_s)
        for name, record in tuple(cluster.instances.items()):
            for event in _due(record, cluster.now):
                cluster.tell(name, event, cluster.now)
    assert cluster.fleet.repairing == frozenset() and cluster.fleet.probe == ""
    for record in cluster.instances.values():
        assert record.held is None or record.status is not InstanceStatus.QUARANTINED
        assert record.status in (InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED, InstanceStatus.GONE)


def _due(record: Instance, now: datetime) -> list[Any]:
    """What the reconciler would tell of `record`: its deadline, else its look."""
    if record.deadline_at is not None and record.deadline_at <= now:
        return [events.InstanceDeadlineReached(at=now, deadline_at=record.deadline_at)]
    if record.look_at is not None and record.look_at <= now:
        return [events.InstanceLookDue(at=now, look_at=record.look_at)]
    return []


def test_one_decision_under_brakes_that_somebody_wrote_meanwhile_is_refused_by_its_revision() -> None:
    """The decision carries the revision of the brakes that it was taken under: a store refuses it on any other."""
    record = available()
    impaired = next(
        one
        for _, one in all_events.anything_for_instance(record, NOW)
        if getattr(one, "kind", "") and one.kind == "INSTANCE_STATUS"
    )
    decision = tell(record, impaired, ADAPTIVE, NOW, Fleet(revision=7, gpu_instances=9))
    assert decision.fleet is not None and decision.fleet.revision == 7
    quiet = tell(record, observed(2), ADAPTIVE)
    assert quiet.fleet is None
