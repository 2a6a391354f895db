"""A forced cancel: the agents of the instances end the ranks, too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job.record import JobStatus, StopPurpose
from gpu_recovery.core.state_machine import EventOutcome, PendingCommand

from tests.core.build import NOW, later, lost, orders, tell
from tests.core.job.test_recovering import MAKE

S = JobStatus


@pytest.mark.parametrize("status", [S.SUBMITTING, S.SUBMITTED, S.RUNNING, S.LOST, S.STOPPING])
def test_a_forced_cancel_has_the_agents_end_the_ranks_too(status: JobStatus) -> None:
    """Each new wish is obeyed, also while it is being stopped; the same one delivered twice is obeyed once."""
    record = MAKE[status]()
    wish = events.CancelRequested(at=later(5), attempt=record.attempt, by="ada", force=True)
    decision = tell(record, wish)
    after = decision.record
    assert (after.status, after.stop_purpose) == (S.STOPPING, StopPurpose.CANCEL)
    assert orders(decision, commands.EndRanks) == [commands.EndRanks(1)] and orders(decision, commands.StopAttempt)
    assert tell(after, wish).outcome is EventOutcome.OUTDATED
    again = tell(replace(after, commands=()), replace(wish, at=later(6)))
    assert orders(again, commands.EndRanks) and orders(again, commands.StopAttempt)


@pytest.mark.parametrize("status", [S.RUNNING, S.LOST, S.STOPPING])
def test_a_plain_cancel_has_no_agent_end_anything(status: JobStatus) -> None:
    """ECS stops the tasks; force is asked for by name."""
    record = MAKE[status]()
    decision = tell(record, events.CancelRequested(at=NOW, attempt=record.attempt, by="ada"))
    assert decision.record.status is S.STOPPING and not orders(decision, commands.EndRanks)


def test_orders_to_the_agents_do_not_pile_up() -> None:
    """One that is still to be carried out is enough."""
    record = replace(lost(), commands=(PendingCommand("x/1/1", commands.EndRanks(1), later(180)),))
    wish = events.CancelRequested(at=later(5), attempt=1, by="ada", force=True)
    assert not orders(tell(record, wish), commands.EndRanks)


@pytest.mark.parametrize(("kept", "force", "obeyed"), [(True, True, True), (True, False, False), (False, True, False)])
def test_what_is_left_of_a_failed_job_can_be_ended_by_force(kept: bool, force: bool, obeyed: bool) -> None:
    """Only where a rank was never confirmed to have ended; its status, and its reason, stay what they are."""
    record = replace(MAKE[S.FAILED](), claims_kept=kept, commands=())
    decision = tell(record, events.CancelRequested(at=later(5), attempt=1, by="ada", force=force))
    assert (decision.outcome is EventOutcome.APPLIED) is obeyed and decision.record.status is S.FAILED
    assert bool(orders(decision, commands.EndRanks)) is obeyed
    if obeyed:
        again = tell(decision.record, events.CancelRequested(at=later(6), attempt=1, by="ada", force=True))
        assert again.record.reason == decision.record.reason
        assert tell(decision.record, events.AllRanksStopped(at=NOW, attempt=1)).record.claims_kept is False
