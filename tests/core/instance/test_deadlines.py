"""The deadline and the next poll of each status of an instance."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.instance.deadlines import deadlines
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Reboot
from gpu_recovery.core.state_machine import DecisionContext

from tests.core.build import ADAPTIVE, NOW, applied, available, checking, later, observed, overdue, tell, verifying

CONTEXT = DecisionContext(ADAPTIVE, NOW)
CHECK_POLL, POLL = ADAPTIVE.check_poll_interval_s, ADAPTIVE.poll_interval_s


@pytest.mark.parametrize(
    ("status", "limit_s", "poll_s"),
    [
        (InstanceStatus.CHECKING, ADAPTIVE.check_timeout_s, CHECK_POLL),
        (InstanceStatus.REBOOTING, ADAPTIVE.reboot_timeout_s, POLL),
        (InstanceStatus.REPLACING, ADAPTIVE.replace_timeout_s, POLL),
        (InstanceStatus.VERIFYING, ADAPTIVE.verify_timeout_s, CHECK_POLL),
        (InstanceStatus.QUARANTINED, ADAPTIVE.quarantine_reminder_s, None),
        (InstanceStatus.GONE, None, None),
    ],
)
def test_a_status_gives_up_after_its_time(status: InstanceStatus, limit_s: int | None, poll_s: int | None) -> None:
    """Each time is one of the policy, from now on."""
    found = deadlines(available(status=status), CONTEXT)
    assert found == tuple(None if s is None else NOW + timedelta(seconds=s) for s in (limit_s, poll_s))


@pytest.mark.parametrize("status", [InstanceStatus.REBOOTING, InstanceStatus.REPLACING])
def test_a_repair_keeps_the_deadline_of_its_request(status: InstanceStatus) -> None:
    """Without a deadline of the request, the time of the policy counts."""
    requested = available(status=status, reboot=Reboot(NOW, "boot-1", "", 0, deadline_at=later(7)))
    assert deadlines(requested, CONTEXT)[0] == later(7)
    without = available(status=status, reboot=Reboot(NOW, "boot-1", "", 0))
    assert deadlines(without, CONTEXT)[0] == deadlines(available(status=status), CONTEXT)[0]


def reboot_under_check(record: Instance, seconds: int) -> Instance:
    """The instance after a boot so many seconds after the check began."""
    at = record.status_at + timedelta(seconds=seconds)
    event = events.InstanceBooted(at=later(900), boot_id="boot-9", booted_at=at)
    found: Instance = tell(record, event).record
    return found


def test_only_a_boot_after_the_check_began_makes_it_run_again() -> None:
    """A boot before it is the one that the check verifies."""
    record = verifying()
    assert record.check is not None
    for seconds, again in ((-1, False), (0, False), (1, True)):
        after = reboot_under_check(record, seconds)
        assert after.check is not None and (after.check.check_id != record.check.check_id) is again, seconds


@pytest.mark.parametrize(
    ("record", "limit_s"),
    [(checking(), ADAPTIVE.check_timeout_s), (replace(verifying(), commands=()), ADAPTIVE.verify_timeout_s)],
)
def test_a_check_that_starts_before_ecs_says_active_has_its_whole_time(record: Instance, limit_s: int) -> None:
    """A person had drained the instance. The check that they then allow is found running before their change is."""
    waits = applied(tell(record, observed(4, ecs_status="DRAINING"), now=later(5)))
    assert waits.check is not None and waits.deadline_at < later(limit_s)
    started = replace(waits, check=replace(waits.check, task_id="task-1"))
    active = applied(tell(started, observed(5), now=later(20)))
    decision = overdue(active)
    assert (decision.record.status, decision.record.deadline_at) == (record.status, later(limit_s))
    assert overdue(applied(decision)).record.status is InstanceStatus.QUARANTINED


@pytest.mark.parametrize(
    ("record", "limit_s"),
    [(checking(), ADAPTIVE.check_timeout_s), (replace(verifying(), commands=()), ADAPTIVE.verify_timeout_s)],
)
def test_the_check_of_an_ended_registration_has_its_whole_time(record: Instance, limit_s: int) -> None:
    """Its process runs until it gives up. The short wait for a drained instance does not start another check."""
    waits = applied(tell(record, observed(4, ecs_status="DRAINING"), now=later(5)))
    assert waits.check is not None
    started = replace(waits, check=replace(waits.check, task_id="task-1"))
    orphaned = applied(tell(started, observed(1, container_instance_id="ci-2"), now=later(20)))
    decision = overdue(orphaned)
    assert (decision.record.status, decision.record.deadline_at) == (record.status, later(limit_s))
    assert decision.record.check.check_id == waits.check.check_id
    assert overdue(applied(decision)).record.status is InstanceStatus.VERIFYING
