"""Placement beside idle checks: a job stops them only if it cannot start without their hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import Assignment, CheckToStop, Growth, Host, OutOfUse, RejectionKind, RunningJob

from tests.core.queue.build import NOW, POLICY, at, given, host, hosts, passed, recovering, running, suspended, waiting


def checked(name: str, gpus: int = 8, check_id: str | None = None, **fields: Any) -> Host:
    """A host under an idle check."""
    found = host(name, gpus, 0, usable=False, out_of_use=OutOfUse.REPAIR, free_after_check=gpus, **fields)
    return replace(found, check_id=f"check/{name}/1" if check_id is None else check_id)


def stop(name: str, job_id: str) -> CheckToStop:
    """The stop of the check of a host for a job."""
    return CheckToStop(name, f"check/{name}/1", job_id)


def narrow(name: str = "e", *on: str, most: int = 4, **fields: Any) -> RunningJob:
    """An elastic job that runs on fewer instances than it may have, and may grow now."""
    return running(name, *(on or ("i-1", "i-2")), nodes_max=most, **{"grows_at": NOW, **fields})


BUSY = hosts("i-1", "i-2", free=0)


def places(assignments: tuple[Assignment, ...]) -> dict[str, tuple[str, ...]]:
    """The hosts of each job that starts."""
    return {one.job_id: one.instances for one in assignments}


def test_a_job_that_fits_on_free_hosts_stops_no_check() -> None:
    """Neither does a smaller host under a check that would fit better."""
    found = passed([waiting("a", gpus=4)], [checked("c", 4), host("f", 8)])
    assert places(found.assignments) == {"a": ("f",)} and not found.stops


def test_a_job_that_needs_the_host_of_a_check_waits_for_its_stop() -> None:
    """It keeps the other hosts that it would get, so a later job does not take them."""
    line = [waiting("big", 2, since=-200), waiting("small", 1, since=-100, runs_for_s=60)]
    found = passed(line, [checked("c"), *hosts("f")])
    assert found.stops == (CheckToStop("c", "check/c/1", "big"),) and not found.assignments
    big, small = found.rejected
    assert (big.job_id, big.short_of, big.position) == ("big", RejectionKind.CHECK, 1)
    assert "1 instance(s)" in big.sentence and small.job_id == "small"


def test_only_as_many_checks_are_stopped_as_the_job_needs() -> None:
    """One of three."""
    found = passed([waiting("a", 2)], [checked("c"), checked("d"), checked("e"), host("f")])
    assert len(found.stops) == 1


def test_a_check_that_is_being_stopped_is_not_stopped_again() -> None:
    """The job waits on."""
    found = passed([waiting("a")], [checked("c", check_id="")])
    assert not found.stops and not found.assignments and found.rejected[0].short_of is RejectionKind.CHECK


def test_no_check_is_stopped_for_a_job_that_does_not_fit_all_the_same() -> None:
    """The stop would gain nothing."""
    found = passed([waiting("a", 3)], [checked("c"), host("f"), host("g", free=0)], [running("r", "g")])
    assert not found.stops and found.rejected[0].short_of is RejectionKind.GPUS


def test_a_check_is_stopped_before_a_job_is_suspended() -> None:
    """The job of high priority takes no place of a running job."""
    low = running("low", "b", priority=Priority.LOW)
    line = [waiting("high", priority=Priority.HIGH)]
    assert passed(line, [host("b", free=0)], [low]).suspensions
    found = passed(line, [checked("c"), host("b", free=0)], [low])
    assert not found.suspensions and found.stops == (CheckToStop("c", "check/c/1", "high"),)


@pytest.mark.parametrize("nodes", [1, 2])
def test_hosts_that_passed_an_idle_check_are_used_first(nodes: int) -> None:
    """Among hosts that fit equally well, whatever their names."""
    fleet = [host("a"), host("b"), host("c", passed_check=True), host("d", passed_check=True)]
    found = passed([waiting("one", nodes)], fleet)
    assert places(found.assignments)["one"] == ("c", "d")[:nodes]
    worse = [host("a"), replace(fleet[2], lemon=0.2)]
    assert places(passed([waiting("one")], worse).assignments)["one"] == ("a",)


# -- beside preemption -------------------------------------------------------------------------------------------------


def test_a_job_that_needs_a_checked_and_an_occupied_host_has_both_vacated_at_once() -> None:
    """It waits for the end of the check and of the other job, not for one after the other."""
    low, line = running("low", "b", priority=Priority.LOW), [waiting("high", 3, priority=Priority.HIGH)]
    found = passed(line, [checked("c"), host("b", free=0), host("f")], [low])
    assert found.stops == (stop("c", "high"),) and suspended(found) == {"low": "high"}
    (high,) = found.rejected
    assert (high.short_of, high.blockers) == (RejectionKind.ROOM, ("low",))
    assert "waits for low to make room, and for the stop of the idle check of 1 instance(s)" in high.sentence


def test_a_job_that_would_have_two_others_suspended_has_the_check_stopped_and_one_suspended() -> None:
    """The host of the check takes the place of one of them."""
    low = [running(name, on, priority=Priority.LOW) for name, on in (("l", "a"), ("m", "b"))]
    found = passed([waiting("high", 2, priority=Priority.HIGH)], [checked("c"), *hosts("a", "b", free=0)], low)
    assert found.stops == (stop("c", "high"),) and len(suspended(found)) == 1


def test_a_job_keeps_the_checked_host_while_another_job_leaves_for_it() -> None:
    """Until both are free. The later job does not get the host of the check, and no second check is stopped."""
    leaving = running("low", "b", priority=Priority.LOW, leaving=True, for_job="high")
    high, small = waiting("high", 2, priority=Priority.HIGH), waiting("small", since=-1)
    found = passed([high, small], [checked("c", check_id=""), host("b", free=0)], [leaving])
    assert not found.stops and not found.suspensions and not found.assignments
    assert {one.job_id: one.short_of for one in found.rejected}["high"] is RejectionKind.ROOM
    found = passed([high], [checked("c", check_id=""), host("b", reserved_for="high", reserved_until=at(60))])
    assert [one.short_of for one in found.rejected] == [RejectionKind.CHECK]


def test_no_check_is_stopped_for_a_job_whose_room_is_being_made_already() -> None:
    """Two jobs leave for it, so it does not need the host of the check."""
    low = [running(n, h, priority=Priority.LOW, leaving=True, for_job="high") for n, h in (("l", "a"), ("m", "b"))]
    found = passed([waiting("high", 2, priority=Priority.HIGH)], [checked("c"), *hosts("a", "b", free=0)], low)
    assert not found.stops and [one.short_of for one in found.rejected] == [RejectionKind.ROOM]


# -- beside elastic jobs -----------------------------------------------------------------------------------------------


def test_no_job_grows_onto_a_host_whose_check_is_not_stopped() -> None:
    """A job waits for the stop of another check, so no gang is stopped to grow."""
    found = passed([waiting("w")], [*BUSY, checked("i-3"), checked("i-4")], [narrow()])
    assert [one.job_id for one in found.stops] == ["w"] and not found.growths


def test_a_gang_that_continues_waits_for_the_stop_rather_than_start_narrow() -> None:
    """It keeps its instances meanwhile. A restart for the growth would cost more than the stop of a check."""
    job = replace(recovering("e", "i-1", "i-2", "i-3", "i-4"), widths=(2, 4))
    fleet = hosts("i-1", "i-2", "i-3")
    found = passed([job, waiting("w", since=-1)], [*fleet, checked("c")])
    assert found.stops == (stop("c", "e"),) and not found.assignments
    assert found.rejected[0].short_of is RejectionKind.CHECK and found.next_at is not None
    assert given(passed([job], [*fleet, host("c")])) == {"e": ("i-1", "i-2", "i-3", "c")}


def test_a_gang_that_continues_starts_with_the_width_that_its_quota_allows() -> None:
    """The host of a check would not make it wider."""
    job = replace(recovering("e", "i-1", "i-2", "i-3", user="ada"), nodes=4, widths=(2, 4))
    limits, used = QuotaLimits({("ada", "NORMAL", ""): 3}), {("ada", Priority.NORMAL, ""): 3}
    found = passed([job], [*hosts("i-1", "i-2", "i-3"), checked("c")], limits=limits, used=used)
    assert not found.stops and given(found) == {"e": ("i-1", "i-2", "i-3")}


def test_a_new_job_that_waits_for_a_larger_width_stops_the_checks_of_its_hosts() -> None:
    """Without them it could not start at all. The wait for more is bounded from the first pass on."""
    job = waiting("e", 4, widths=(2, 4))
    fleet = [host("f"), checked("c"), *hosts("i-1", "i-2", free=0)]
    found = passed([job], fleet, [running("r", "i-1", "i-2")])
    assert found.stops == (stop("c", "e"),) and not found.assignments
    assert found.rejected[0].narrow_since == NOW
    later = passed([replace(job, narrow_since=at(-POLICY.elastic_wait_s))], fleet, [running("r", "i-1", "i-2")])
    assert later.stops == (stop("c", "e"),) and later.rejected[0].short_of is RejectionKind.CHECK


def test_a_growth_that_is_due_stops_the_check_of_the_host_that_it_needs() -> None:
    """The gang is stopped only when the host is free. A check that is being stopped is not stopped again."""
    found = passed([], [*BUSY, checked("i-3"), checked("i-4")], [narrow(most=3)])
    assert found.stops == (stop("i-3", "e"),) and not found.growths and found.next_at is not None
    found = passed([], [*BUSY, checked("i-3"), checked("i-4", check_id="")], [narrow(most=3)])
    assert not found.stops and not found.growths
    found = passed([], [*BUSY, host("i-3"), checked("i-4")], [narrow(most=3)])
    assert not found.stops and found.growths == (Growth("e", 1, 1, 3),)


def test_a_growth_waits_for_the_hosts_under_a_check_that_make_it_wider() -> None:
    """One growth to four instances instead of one to three and one to four."""
    found = passed([], [*BUSY, host("i-3"), checked("i-4")], [narrow()])
    assert found.stops == (stop("i-4", "e"),) and not found.growths
    for check_id in ("i-4", ""):  # the stop is ordered in this pass, or in a pass before
        found = passed([], [*BUSY, host("i-3"), checked("i-4", check_id=check_id)], [narrow()])
        assert found.waiting_growths == ("e",)


@pytest.mark.parametrize(
    "job",
    [narrow(grows_at=at(60)), narrow(avoids={"i-3": at(0)}), narrow(most=2), narrow(gpus=9), narrow(group="b")],
    ids=["not due", "avoided", "widest", "size", "group"],
)
def test_no_check_is_stopped_for_a_growth_that_it_does_not_help(job: RunningJob) -> None:
    """The host under the check gives the job nothing."""
    found = passed([], [*BUSY, checked("i-3")], [job])
    assert not found.stops and not found.growths


def test_a_growth_takes_no_host_that_a_waiting_job_needs() -> None:
    """The waiting job stops the check. A job of another group grows meanwhile."""
    busy = [narrow(), narrow("f", "j-1", group="b", most=2)]
    fleet = [*BUSY, checked("i-3"), checked("i-4"), host("j-1", free=0, group="b"), host("j-2", group="b")]
    found = passed([waiting("w", 2)], fleet, busy)
    assert {one.job_id for one in found.stops} == {"w"} and len(found.stops) == 2
    assert [one.job_id for one in found.growths] == ["f"]
