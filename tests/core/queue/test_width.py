"""The width of an elastic job: the largest that fits, after a bounded wait where the job is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.queue.snapshot import RejectionKind, WaitingJob
from gpu_recovery.core.queue.width import Room, Width, choose_width

from tests.core.queue.build import NOW, POLICY, at, given, host, hosts, passed, recovering, running, suspended, waiting

WAIT = timedelta(seconds=POLICY.elastic_wait_s)
ENOUGH = 99


def elastic(name: str = "e", least: int = 2, most: int = 4, **fields: Any) -> WaitingJob:
    """A new job of `least` to `most` instances."""
    return waiting(name, most, widths=(least, most), **fields)


def continuing(*last: str, least: int = 2, most: int = 4, **fields: Any) -> WaitingJob:
    """A gang of this range that continues after it ran on the instances `last`."""
    return replace(recovering("e", *last, **fields), nodes=most, widths=(least, most))


def width(job: WaitingJob, free: int, cluster: int = ENOUGH, quota: int = ENOUGH, now: float = 0) -> Width:
    return choose_width(job, Room(free, cluster, quota), WAIT, at(now))


def test_a_job_of_fixed_size_asks_for_its_size() -> None:
    """However many hosts there are."""
    assert {width(waiting("a", 3), free) for free in (0, 1, 3, 9)} == {Width(3)}


@pytest.mark.parametrize(("free", "nodes"), [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_a_gang_that_continues_starts_at_once_with_the_width_that_fits(free: int, nodes: int) -> None:
    """Where its smallest width does not fit, it asks for that."""
    assert width(continuing("i-1", "i-2", "i-3", "i-4"), free) == Width(nodes)


def test_a_new_job_waits_for_more_from_the_time_at_which_it_could_start() -> None:
    """The wait is bounded, however long the job was in line before."""
    assert width(elastic(since=-9_999), 3) == Width(3, NOW + WAIT)
    known = elastic(narrow_since=at(-30))
    assert width(known, 3) == Width(3, at(-30) + WAIT)
    assert width(known, 3, now=POLICY.elastic_wait_s - 30) == Width(3)
    assert width(known, 4) == Width(4)


def test_no_job_waits_for_more_than_the_cluster_or_its_quota_has() -> None:
    """No host of the cluster could make the job wider."""
    assert width(elastic(), 3, cluster=3) == Width(3)
    assert width(elastic(), 4, quota=3) == Width(3)
    assert width(elastic(), 4, quota=1) == Width(2)


def test_a_gang_waits_while_its_own_instances_are_being_released() -> None:
    """A pass that comes between the end of the ranks and the release would make it narrow for nothing."""
    assert width(continuing("i-1", "i-2", "i-3", returning=1), 2).until is not None
    assert width(continuing("i-1", "i-2", "i-3", returning=1), 4) == Width(4)


def test_a_gang_that_accepts_only_its_own_instances_keeps_its_width() -> None:
    """It waits for the repair."""
    assert width(continuing("i-1", "i-2", "i-3", own_only=True), 2) == Width(3)


def test_a_gang_that_loses_a_host_continues_on_the_others() -> None:
    """It keeps each of its hosts, also where the lost host was that of rank 0."""
    fleet = hosts("i-2", "i-3", "i-4")
    assert given(passed([continuing("i-1", "i-2", "i-3", "i-4")], fleet)) == {"e": ("i-2", "i-3", "i-4")}
    fleet = hosts("i-1", "i-2", "i-4", "i-9")
    assert given(passed([continuing("i-1", "i-2", "i-3", "i-4", most=3)], fleet)) == {"e": ("i-1", "i-2", "i-4")}


def test_the_hosts_of_a_job_that_waits_for_more_are_kept() -> None:
    """Otherwise a later job would take them, and the wait would cost the place in line."""
    fleet = hosts("i-1", "i-2", "i-3", "i-4", "i-5")
    busy = [running("r", "i-4", "i-5")]
    fleet = (*fleet[:3], *(replace(one, free=0) for one in fleet[3:]))
    placement = passed([elastic(since=-9), waiting("b", since=-1)], fleet, busy)
    assert given(placement) == {}
    first = placement.rejected[0]
    assert (first.job_id, first.short_of, first.narrow_since) == ("e", RejectionKind.GPUS, NOW)
    assert first.sentence.startswith("needs 2 to 4 instance(s) with 8 GPU(s) each; 3 are free; waits until 00:02:00")
    assert placement.next_at == NOW + WAIT
    later = passed([elastic(since=-9, narrow_since=NOW), waiting("b", since=-1)], fleet, busy, now=NOW + WAIT)
    assert given(later) == {"e": ("i-1", "i-2", "i-3")}


def test_others_are_suspended_only_for_the_smallest_width() -> None:
    """A job does not stop the work of others to run on more instances than it needs."""
    fleet = [host("i-1"), *hosts("i-2", "i-3", "i-4", free=0)]
    busy = [running(f"r{n}", f"i-{n}", priority=Priority.LOW) for n in (2, 3, 4)]
    placement = passed([elastic(priority=Priority.HIGH)], fleet, busy)
    assert len(suspended(placement)) == 1


def test_a_job_in_line_is_promised_hosts_for_its_smallest_width() -> None:
    """The rest is left to the jobs behind it."""
    fleet = [*hosts("i-1", "i-2", free=0), host("i-3")]
    busy = [running("r", "i-1", ends=600), running("s", "i-2", ends=900)]
    placement = passed([elastic(since=-9), waiting("b", since=-1)], fleet, busy)
    assert placement.reservations[0].hosts == ("i-1", "i-3")


@pytest.mark.parametrize(("used", "nodes"), [(0, 3), (1, 2)])
def test_the_quota_limits_the_width(used: int, nodes: int) -> None:
    """It is charged for the instances of the attempt, not for the largest number."""
    limits = QuotaLimits({("ada", "NORMAL", ""): 3})
    key = QuotaKey("ada", Priority.NORMAL, "")
    fleet = hosts("i-1", "i-2", "i-3", "i-4", "i-5")
    placement = passed([elastic(user="ada")], fleet, limits=limits, used={key: used})
    assert len(given(placement)["e"]) == nodes


def test_a_gang_that_continues_may_become_wider_only_within_its_quota() -> None:
    """What it holds counts for it, and what another job of the user is given in the same pass does not."""
    limits = QuotaLimits({("ada", "NORMAL", ""): 4})
    key = QuotaKey("ada", Priority.NORMAL, "")
    fleet = hosts("i-1", "i-2", "i-3", "i-4", "i-5")
    job = continuing("i-1", "i-2", user="ada")
    assert len(given(passed([job], fleet, limits=limits, used={key: 3}))["e"]) == 3
    assert len(given(passed([job], fleet, limits=limits, used={key: 4}))["e"]) == 2
    assert len(given(passed([job], fleet, limits=limits, used={key: 9}))["e"]) == 2
    both = passed([job, waiting("b", user="ada")], fleet, limits=limits, used={key: 2})
    assert {name: len(where) for name, where in given(both).items()} == {"e": 4}


def test_a_gang_does_not_grow_onto_a_host_that_it_avoids() -> None:
    """It counts only for the smallest width, or after a repair. It is used last then."""
    fleet = [*hosts("i-1", "i-3"), host("i-2"), host("i-9")]
    job = continuing("i-1", "i-3", avoids={"i-2": at(-900)}, suspects={"i-2": 0})
    assert given(passed([job], fleet)) == {"e": ("i-1", "i-3", "i-9")}
    assert given(passed([job], fleet[:3])) == {"e": ("i-1", "i-3")}
    assert sorted(given(passed([job], fleet[1:3]))["e"]) == ["i-2", "i-3"]
    healed = host("i-2", healed_at=at(-60))
    assert given(passed([job], [*fleet[:2], healed, fleet[3]])) == {"e": ("i-1", "i-3", "i-9", "i-2")}


def test_a_new_job_starts_without_a_host_that_has_refused_it() -> None:
    """It waits for others as usual."""
    job = elastic(avoids={"i-3": at(-60)}, suspects={"i-3": -1}, narrow_since=at(-9_999))
    assert given(passed([job], hosts("i-1", "i-2", "i-3"))) == {"e": ("i-1", "i-2")}
    assert sorted(given(passed([job], hosts("i-1", "i-3")))["e"]) == ["i-1", "i-3"]
