"""The defects of HAI Platform's published scheduler (reference, 1.10), each as it was reproduced there: never here."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.queue.entry import waiting_job as waiting_as
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, parse_limits
from gpu_recovery.core.queue.snapshot import RejectionKind
from gpu_recovery.job_api.job_spec import parse_spec

from tests.core.queue.build import NOW, POLICY, given, host, hosts, passed, running, suspended, waiting, why


def test_a_head_that_can_never_run_does_not_block_the_line() -> None:
    """Bug a: 4 nodes, the head wants 8, and two jobs of 1 node behind it never ran."""
    answer = passed(
        [waiting("head", 8, since=-3), waiting("b", since=-2), waiting("c", since=-1)], hosts("n1", "n2", "n3", "n4")
    )
    assert set(given(answer)) == {"b", "c"}


def test_a_head_that_must_wait_does_not_block_what_its_reservation_leaves_over() -> None:
    """Bug a, the head's nodes being there but in use: what ends before it starts, or is not in its way, runs."""
    busy = [running("r1", "n1", "n2", ends=3_600), running("r2", "n5", gpus=4, ends=9_999)]
    fleet = [*hosts("n1", "n2", free=0), *hosts("n3", "n4"), host("n5", free=4)]
    line = [waiting("head", 4, since=-3), waiting("long", gpus=4, since=-2), waiting("short", since=-1, runs_for_s=600)]
    assert set(given(passed(line, fleet, busy))) == {"long", "short"}


def test_nothing_in_use_is_given_to_a_higher_priority() -> None:
    """Bug b: with n0 held by a stranger and low on n1 to n3, high got n4 and n3 and n1: three nodes, two in use."""
    busy = [running("low", "n1", "n2", "n3", priority=Priority.LOW)]
    fleet = [host("n0", free=0), *hosts("n1", "n2", "n3", free=0), host("n4")]
    answer = passed([waiting("high", 2, priority=Priority.HIGH)], fleet, busy)
    assert given(answer) == {}
    assert suspended(answer) == {"low": "high"}


def test_one_free_node_less_is_answered_too() -> None:
    """Bug b, its second face: the pass died, every second, when there was one node fewer."""
    busy = [running("low", "n1", "n2", "n3", priority=Priority.LOW)]
    fleet = [host("n0", free=0), *hosts("n1", "n2", "n3", free=0)]
    answer = passed([waiting("high", 2, priority=Priority.HIGH)], fleet, busy)
    assert set(why(answer)) == {"high"}


def test_a_gang_whose_node_died_moves_to_a_spare() -> None:
    """Bug c: a gang was told to keep running on the dead node, with spare nodes beside it."""
    gang = waiting("gang", 2, recovering=True, last=("n1", "n2"), holds_quota=True)
    answer = passed([gang], [host("n1", usable=False), host("n2"), host("n3")])
    assert given(answer) == {"gang": ("n3", "n2")}


def test_nobody_starts_on_no_nodes() -> None:
    """Bug d: a job that could run was started with an empty list of nodes when none was found."""
    answer = passed([waiting("a", 2)], [host("n1"), host("n2", usable=False)])
    assert given(answer) == {}
    assert why(answer) == {"a": "needs 2 instance(s) with 8 GPU(s) each; 1 are free"}


def test_a_preemptor_starts_only_when_its_victim_has_left() -> None:
    """Bug e: it was started in the very pass that suspended the victim, 5 to 10 s before that one was gone."""
    high = waiting("high", priority=Priority.HIGH)
    victim = running("low", "n1", priority=Priority.LOW)
    first = passed([high], hosts("n1", free=0), [victim])
    assert (given(first), suspended(first)) == ({}, {"low": "high"})
    leaving = running("low", "n1", priority=Priority.LOW, leaving=True, for_job="high")
    between = passed([high], hosts("n1", free=0, reserved_for="high"), [leaving])
    assert (given(between), suspended(between)) == ({}, {})
    assert given(passed([high], hosts("n1", reserved_for="high"))) == {"high": ("n1",)}


def test_a_user_never_interrupts_himself_at_one_priority() -> None:
    """Bug f: an earlier queued job of the same user and priority suspended the running one."""
    for effective in (Priority.ABOVE_NORMAL, Priority.NORMAL):
        busy = [running("r", "n1", user="ann", asked=Priority.ABOVE_NORMAL, priority=effective)]
        line = [waiting("w", since=-9_999, user="ann", priority=Priority.ABOVE_NORMAL)]
        assert suspended(passed(line, hosts("n1", free=0), busy)) == {}


@pytest.mark.parametrize("asked", [{}, {"priority": None}, {"priority": "EXTREME_HIGH"}], ids=["none", "null", "one"])
def test_the_priority_asked_for_is_the_priority_paid_for(asked: dict[str, Any]) -> None:
    """Bug g: a job without a wish took its user's EXTREME_HIGH quota first. Here it is NORMAL, and counted as that."""
    document = {"workload": "sft", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": "t", "user": "ann"}
    job = state_machine.created("a", parse_spec(document | asked), POLICY, NOW).record
    key = QuotaKey("ann", Priority.EXTREME_HIGH if asked.get("priority") else Priority.NORMAL, "")
    for only, starts in (("EXTREME_HIGH", bool(asked.get("priority"))), ("NORMAL", not asked.get("priority"))):
        others = dict.fromkeys(Priority.__members__, 0) | {only: 1}
        limits = parse_limits({"instances": {f"ann/{name}/*": number for name, number in others.items()}})
        entry = entry_of(job)
        assert entry is not None
        answer = passed([waiting_as(entry, POLICY, NOW)], hosts("n1"), limits=limits)
        assert bool(given(answer)) is starts
        assert starts or [one.short_of for one in answer.rejected] == [RejectionKind.QUOTA]
    placed = events.JobPlaced(at=NOW, attempt=0, version=job.version, instances=("n1",), epochs=(0,), term=1)
    decision = state_machine.decide(job, placed, POLICY, NOW)
    assert decision.quota is not None and (decision.quota.key, decision.quota.nodes) == (key.text, 1)


@pytest.mark.parametrize("priority", ["AUTO", "auto", "", "highest", 15, True, ["HIGH"]])
def test_a_priority_that_somebody_else_would_choose_is_none(priority: object) -> None:
    """Bug g: AUTO is whatever quota is left. Whoever submits names the priority, or has NORMAL."""
    document = {"workload": "sft", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": "t", "priority": priority}
    with pytest.raises(SpecInvalid) as caught:
        parse_spec(document)
    assert caught.value.field == "priority"
