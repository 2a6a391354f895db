"""Records and decisions that the tests of escalation, replacement and held repairs share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet, Pause
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import Decision

from tests.core.build import ADAPTIVE, FLEET, NOW, applied, checking, orders, tell, verdict_of

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
PAUSED = replace(FLEET, pause=Pause("ada", "moving house", NOW))
FULL = Fleet(gpu_instances=5, repairing=frozenset({"i-other"}))


def at_its_look(
    record: Instance, policy: RecoveryPolicy = ADAPTIVE, fleet: Fleet = FLEET, at: Any = None
) -> Decision[Any]:
    """Return what is decided when the instance is next looked at, or at `at`."""
    assert record.look_at is not None
    when = at or record.look_at
    return tell(record, events.InstanceLookDue(at=when, look_at=record.look_at), policy, when, fleet)


def blamed_by_check(
    outcome: CheckOutcome, policy: RecoveryPolicy = ADAPTIVE, fleet: Fleet = FLEET, **fields: Any
) -> Any:
    """Return the decision on a check that ended with `outcome`; `fields` are set in the record before."""
    record = checking(policy, **fields)
    return tell(record, verdict_of(record, outcome), policy, NOW, fleet)


def held_instance(fleet: Fleet = FULL, policy: RecoveryPolicy = ADAPTIVE, **fields: Any) -> Instance:
    """Return an instance blamed for the failure of sft-1, whose reboot the fleet limits hold back."""
    return applied(blamed_by_check(REBOOT, policy, fleet, **fields))


def repair_ends(decision: Decision[Any]) -> list[tuple[str, bool]]:
    """Return the jobs that are told the end of the repair, each with whether the instance is healthy."""
    told = orders(decision, commands.TellJob)
    return [(one.job_id, one.event.healed) for one in told if isinstance(one.event, events.RepairEnded)]
