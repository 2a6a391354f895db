"""An instance wakes the scheduler when a pass could give more of it than before, and not for anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, Instance, Orphans, RankOnInstance
from gpu_recovery.core.state_machine import Decision

from tests.core.build import NOW, applied, available, checking, claimed, later, observed, orders, tell, verdict_of


def wakes(decision: Decision[Any]) -> bool:
    return bool(orders(decision, commands.PokeScheduler))


def given_by_ecs(record: Instance, gpus_free: int | None) -> Instance:
    """The record when ECS has last said so."""
    return replace(record, gpus_free=gpus_free)


@pytest.mark.parametrize(
    ("record", "before", "after", "woken"),
    [
        (available(), 0, 8, True),  # somebody's task has ended
        (available(), 4, 8, True),
        (available(), 8, 8, False),
        (available(), 8, 0, False),
        (available(), 8, None, False),
        (available(), 0, None, True),  # all that ECS registers
        (claimed(), 0, 8, False),  # a rank has ended whose job has the claim still
        (available(claims={"sft-1": Claim(1, 4)}), 0, 4, True),  # the others are nobody's
        (available(claims={"sft-1": Claim(1, 4)}), 4, 8, False),
    ],
)
def test_gpus_that_are_free_wake_a_pass_only_where_nobody_has_claimed_them(
    record: Instance, before: int | None, after: int | None, woken: bool
) -> None:
    """Who gives a claim back wakes the pass that may give it to others."""
    assert wakes(tell(given_by_ecs(record, before), observed(2, gpus_free=after))) is woken


def test_more_gpus_and_an_agent_that_is_back_wake_a_pass() -> None:
    """Whoever has claims there: those at work may be the ones to make room."""
    assert wakes(tell(available(gpus=7, gpus_free=7), observed(2, gpus_free=8)))
    assert wakes(tell(claimed(agent_connected=False, gpus_free=0), observed(2, gpus_free=0)))
    assert wakes(tell(claimed(ecs_status="DRAINING", gpus_free=0), observed(2, gpus_free=0)))


@pytest.mark.parametrize(
    ("gpus_free", "claims", "woken"),
    [
        (0, {}, False),  # held by the check that has just ended: ECS says when they are free
        (8, {}, True),
        (None, {}, True),
        (4, {"other": Claim(1, 4)}, True),
        (0, {"other": Claim(1, 8)}, True),  # it works again, so another job may have to leave it
    ],
)
def test_the_end_of_a_check_wakes_a_pass_if_there_is_anything_to_give_or_to_vacate(
    gpus_free: int | None, claims: dict[str, Claim], woken: bool
) -> None:
    """Until ECS says that the check's GPUs are free nothing can be placed on them."""
    record = replace(checking(), gpus_free=gpus_free, claims=claims)
    ended = tell(record, verdict_of(record, CheckOutcome.HEALTHY))
    assert wakes(ended) is woken
    if not claims:
        assert wakes(tell(applied(ended), observed(5, gpus_free=8))) is (gpus_free == 0)


def test_a_rank_that_is_no_orphan_after_all_wakes_a_pass() -> None:
    """Nothing new is placed beside an orphan. One orphan of another job is left, and the instance is avoided for it."""
    ranks = RankOnInstance("sft-1", 1), RankOnInstance("sft-2", 1)
    record = available(gpus_free=4, claims={"sft-1": Claim(1, 2), "sft-2": Claim(1, 2)}, orphans=Orphans(NOW, ranks))
    found = tell(record, observed(2, looked=True, gpus_free=4, ranks={"sft-1": 1}))
    assert wakes(found) and found.record.orphaned_ranks == ranks[1:]
    assert not tell(record, observed(2, looked=True, gpus_free=4, ranks={"sft-1": 1, "sft-2": 1})).record.avoid_reason


def test_a_reservation_that_runs_out_wakes_a_pass_and_one_that_was_used_does_not() -> None:
    """The claim has taken the place of the reservation, and left its time behind."""
    record = checking()
    kept = replace(applied(tell(record, verdict_of(record, CheckOutcome.HEALTHY))), gpus_free=8)
    assert kept.reserved_for == "sft-1" and kept.deadline_at is not None
    due = events.InstanceDeadlineReached(at=later(900), deadline_at=kept.deadline_at)
    over = tell(kept, due, now=kept.deadline_at)
    assert wakes(over) and applied(over).reserved_for == ""
    used = tell(replace(kept, reserved_for="", claims={"sft-1": Claim(2, 8)}), due, now=kept.deadline_at)
    assert not wakes(used) and applied(used).deadline_at is None
