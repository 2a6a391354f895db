"""Launch holds: which waiting jobs a missing permission keeps from starting, and for how long."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.launch_holds import launch_holds
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import LaunchHold, RejectionKind

from tests.core.queue.build import NOW, at, given, host, hosts, passed, running, suspended, waiting

ROLE = "iam:PassRole on arn:aws:iam::123456789012:role/training"
OPEN, CLOSED = LaunchHold("llm:1", ROLE, is_closed=False), LaunchHold("llm:1", ROLE, is_closed=True)
DENIED = Entry("a", 1, 1, "ann", Priority.NORMAL, "", 1, 8, NOW, NOW, waits=True, task_definition="llm:1", lacks=ROLE)
DENIED = replace(DENIED, denied_at=at(-60), not_before=at(60))


def test_a_closed_hold_keeps_every_job_of_its_task_definition_and_blocks_no_other() -> None:
    """The jobs stand first in the queue, and the free host goes to the job behind them."""
    line = [waiting(name, task_definition="llm:1", since=-900) for name in "ab"]
    answer = passed([*line, waiting("c", task_definition="vision:1")], hosts("i-0"), launch_holds=(CLOSED,))
    assert given(answer) == {"c": ("i-0",)}
    assert {(one.job_id, one.short_of) for one in answer.rejected} == {
        ("a", RejectionKind.PERMISSION),
        ("b", RejectionKind.PERMISSION),
    }


def test_an_open_hold_lets_one_job_start() -> None:
    """The first in the queue that fits; a larger one before it does not keep it from that."""
    line = [waiting("large", 9, task_definition="llm:1", since=-900)]
    line += [waiting(name, task_definition="llm:1", since=since) for since, name in enumerate("ab", -500)]
    assert given(passed(line, hosts("i-0", "i-1"), launch_holds=(OPEN,))) == {"a": ("i-0",)}


def test_no_job_is_suspended_for_one_that_aws_may_deny() -> None:
    """Its victim would have lost work for a launch that fails."""
    urgent = waiting("urgent", priority=Priority.HIGH, task_definition="llm:1")
    busy = [running("low", "i-0", priority=Priority.LOW)]
    assert suspended(passed([urgent], [host("i-0", free=0)], busy)) == {"low": "urgent"}
    assert suspended(passed([urgent], [host("i-0", free=0)], busy, launch_holds=(OPEN,))) == {}


def test_a_hold_is_closed_while_its_job_pauses_or_is_being_launched() -> None:
    """Then it is open for one job, also if a user holds the denied job."""
    assert launch_holds([DENIED], NOW) == (CLOSED,)
    assert launch_holds([DENIED], at(60)) == (OPEN,)
    assert launch_holds([replace(DENIED, waits=False)], at(60)) == (CLOSED,)
    assert launch_holds([replace(DENIED, held=True)], NOW) == (OPEN,)


def test_a_later_success_of_the_same_task_definition_ends_the_hold_of_all_its_jobs() -> None:
    """An earlier success, and one of another task definition, prove nothing."""
    launched = replace(DENIED, job_id="b", waits=False, lacks="", denied_at=at(-30))
    assert launch_holds([DENIED, launched], NOW) == ()
    assert launch_holds([DENIED, replace(launched, denied_at=at(-90))], NOW) == (CLOSED,)
    assert launch_holds([DENIED, replace(launched, task_definition="vision:1")], NOW) == (CLOSED,)


def test_a_permission_that_every_launch_needs_holds_every_job_until_any_succeeds() -> None:
    """The hold has no task definition."""
    everywhere = replace(DENIED, lacks="ecs:RunTask", lacks_everywhere=True)
    (hold,) = launch_holds([everywhere], NOW)
    assert (hold.scope, hold.is_closed) == ("", True)
    line = [waiting("a", task_definition="llm:1"), waiting("c", task_definition="vision:1")]
    assert given(passed(line, hosts("i-0", "i-1"), launch_holds=(hold,))) == {}
    launched = replace(DENIED, job_id="b", waits=False, lacks="", denied_at=at(-30), task_definition="vision:1")
    assert launch_holds([everywhere, launched], NOW) == ()
