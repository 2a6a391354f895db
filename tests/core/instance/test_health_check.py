"""A check that ended before the machine booted once more: what ECS shows of that, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.state_machine import Decision

from tests.core.build import applied, later, observed, orders, tell, verdict_of, verifying

S = InstanceStatus
ENDED_S = 400
"""When the check of these tests ended, after NOW."""


def away(record: Instance, left_s: int, back_s: int | None, version: int = 10, **facts: str) -> Instance:
    """The agent of ECS left after `left_s`, and came back after `back_s` or not at all."""
    gone = observed(version, at=later(left_s), agent_connected=False)
    record = applied(tell(record, gone, now=later(left_s)))
    if back_s is None:
        return record
    return applied(tell(record, observed(version + 1, at=later(back_s), **facts), now=later(back_s)))


def ended(record: Instance, outcome: CheckOutcome, at: datetime, heard_s: int = 900) -> Decision[Instance]:
    """What is decided when the end of its check is heard of, after `heard_s`."""
    event = replace(verdict_of(record, outcome, "boot-2", later(300)), at=at)
    return tell(record, event, now=later(heard_s))


@pytest.mark.parametrize("outcome", [CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.INCONCLUSIVE])
@pytest.mark.parametrize(
    ("left_s", "back_s"), [(500, 600), (390, 410), (390, None), (500, None)], ids=["since", "then", "still", "gone"]
)
def test_a_check_is_made_once_more_if_the_agent_was_away_at_its_end_or_since(
    outcome: CheckOutcome, left_s: int, back_s: int | None
) -> None:
    """The machine may have booted meanwhile, and whatever was found is about the boot before."""
    before = away(verifying(), left_s, back_s)
    decision = ended(before, outcome, later(ENDED_S))
    after = decision.record
    assert (after.status, len(orders(decision, commands.RunCheck))) == (S.VERIFYING, 1)
    assert before.check is not None and after.check is not None
    assert (after.check.check_id != before.check.check_id, after.check.proof_needed) == (True, True)
    assert after.check.repeats == before.check.repeats and after.deadline_at == before.deadline_at
    assert after.need == before.need and after.boot_id == before.boot_id


def test_the_check_made_once_more_is_believed() -> None:
    """It began after the agent was back, and another absence would have to come."""
    again = applied(ended(away(verifying(), 500, 600), CheckOutcome.HEALTHY, later(ENDED_S)))
    assert ended(again, CheckOutcome.HEALTHY, later(1_000), 1_001).record.status is S.AVAILABLE


def test_an_agent_that_was_away_during_the_check_voids_nothing() -> None:
    """A boot would have ended the check; most absences are none."""
    before = away(verifying(), 350, 390)
    assert ended(before, CheckOutcome.HEALTHY, later(ENDED_S)).record.status is S.AVAILABLE


def test_the_absence_that_the_repair_made_voids_nothing() -> None:
    """The check began because of the return."""
    assert ended(verifying(), CheckOutcome.HEALTHY, later(ENDED_S)).record.status is S.AVAILABLE


def test_an_agent_under_another_registration_has_been_away() -> None:
    """Of the old one nobody says that its agent left."""
    anew = observed(1, at=later(500), container_instance_id="ci-2")
    before = applied(tell(verifying(), anew, now=later(500)))
    assert ended(before, CheckOutcome.HEALTHY, later(ENDED_S)).record.status is S.VERIFYING


def test_no_check_is_made_again_for_ever() -> None:
    """The deadline is that of the first, however often the agent flaps."""
    record = first = verifying()
    for number in range(1, 4):
        back_s = 500 * number
        record = away(record, back_s - 10, back_s, version=10 * number)
        record = applied(ended(record, CheckOutcome.HEALTHY, later(back_s - 5), back_s + 5))
    assert record.status is S.VERIFYING and record.deadline_at == first.deadline_at
    assert first.deadline_at is not None
    over = events.InstanceDeadlineReached(at=first.deadline_at, deadline_at=first.deadline_at)
    assert tell(record, over, now=first.deadline_at).record.status is S.QUARANTINED
