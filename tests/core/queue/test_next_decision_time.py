"""When the clock alone may change the answer: until then an idle tick has nothing to decide."""

from __future__ import annotations

from gpu_recovery.core.queue.priority import Priority

from tests.core.queue.build import POLICY, at, given, host, hosts, passed, running, suspended, waiting


def test_nothing_changes_by_itself_where_nobody_waits() -> None:
    """Whatever runs out or falls back concerns nobody."""
    busy = [running("r", "i-1", priority=Priority.ABOVE_NORMAL, demotes_at=at(50), since=-60, ends=70)]
    assert passed([], hosts("i-1", free=0), busy).next_at is None


def test_a_demotion_to_come_is_waited_for() -> None:
    """Then the job may be suspended."""
    busy = [running("r", "i-1", priority=Priority.ABOVE_NORMAL, demotes_at=at(50))]
    line = [waiting("w", priority=Priority.ABOVE_NORMAL)]
    assert passed(line, hosts("i-1", free=0), busy).next_at == at(50)
    assert suspended(passed(line, hosts("i-1", free=0), busy, now=at(50))) == {"r": "w"}


def test_the_end_of_a_protection_is_waited_for() -> None:
    """The same."""
    busy = [running("r", "i-1", since=-60, priority=Priority.LOW)]
    end = at(POLICY.preemption_protect_s - 60)
    assert passed([waiting("w")], hosts("i-1", free=0), busy).next_at == end
    assert suspended(passed([waiting("w")], hosts("i-1", free=0), busy, now=end)) == {"r": "w"}


def test_the_end_of_a_reservation_is_waited_for() -> None:
    """Then the host is anybody's."""
    fleet = hosts("i-1", reserved_for="other", reserved_until=at(30))
    assert passed([waiting("w")], fleet).next_at == at(30)
    assert given(passed([waiting("w")], fleet, now=at(30))) == {"w": ("i-1",)}


def test_an_estimate_that_runs_out_is_waited_for() -> None:
    """The head is promised another host then, and what is free on the first is left over."""
    busy = [running("r", "i-1", gpus=4, ends=60), running("s", "i-2", ends=120)]
    fleet = [host("i-1", free=4), host("i-2", free=0)]
    line = [waiting("head", since=-9), waiting("b", since=-1, gpus=4)]
    first = passed(line, fleet, busy)
    assert (given(first), first.next_at) == ({}, at(60))
    assert given(passed(line, fleet, busy, now=at(60))) == {"b": ("i-1",)}


def test_nothing_is_waited_for_where_only_an_event_helps() -> None:
    """Nobody of lower priority, no estimate, no reservation: a tick finds nothing to decide, ever."""
    assert passed([waiting("w")], hosts("i-1", free=0), [running("r", "i-1")]).next_at is None
