"""Placement beside idle checks: a job stops them only if it cannot start without their hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import Assignment, CheckToStop, Host, OutOfUse, RejectionKind

from tests.core.queue.build import host, hosts, passed, running, waiting


def checked(name: str, gpus: int = 8, check_id: str | None = None) -> Host:
    """A host under an idle check."""
    found = host(name, gpus, 0, usable=False, out_of_use=OutOfUse.REPAIR, free_after_check=gpus)
    return replace(found, check_id=f"check/{name}/1" if check_id is None else check_id)


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
