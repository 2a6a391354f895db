"""Growth: a running elastic job gets instances that no waiting job can use."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import Placement, RunningJob

from tests.core.queue.build import NOW, at, given, host, hosts, passed, running, waiting

BUSY = [host("i-1", free=0), host("i-2", free=0)]


def narrow(name: str = "e", *on: str, most: int = 4, **fields: Any) -> RunningJob:
    """A job that runs on fewer instances than it may have, and may grow now."""
    return running(name, *(on or ("i-1", "i-2")), nodes_max=most, **{"grows_at": NOW, **fields})


def grown(placement: Placement) -> dict[str, int]:
    return {one.job_id: one.width for one in placement.growths}


@pytest.mark.parametrize(("free", "width"), [(1, 3), (2, 4), (5, 4)])
def test_a_job_grows_onto_free_instances(free: int, width: int) -> None:
    """Up to its largest width."""
    assert grown(passed([], [*BUSY, *hosts(*(f"i-{n}" for n in range(3, 3 + free)))], [narrow()])) == {"e": width}


def test_a_job_does_not_grow_without_a_free_instance() -> None:
    """An instance of its own has only room for the rank that is there, though it has free GPUs."""
    assert grown(passed([], BUSY, [narrow()])) == {}
    half = [host("i-1", free=4), host("i-2", free=4), host("i-3", free=0)]
    assert grown(passed([], half, [narrow(gpus=4)])) == {}
    assert grown(passed([], [*BUSY, host("i-3", usable=False)], [narrow()])) == {}


def test_a_job_grows_only_after_its_interval() -> None:
    """The pass says when."""
    placement = passed([], [*BUSY, host("i-3")], [narrow(grows_at=at(60))])
    assert (grown(placement), placement.next_at) == ({}, at(60))
    assert grown(passed([], [*BUSY, host("i-3")], [narrow(grows_at=at(60))], now=at(60))) == {"e": 3}


def test_a_job_of_the_line_has_precedence() -> None:
    """It gets the instance; while a job waits for instances, no running job of its group grows."""
    fleet = [*BUSY, host("i-3")]
    placement = passed([waiting("w")], fleet, [narrow()])
    assert (given(placement), grown(placement)) == ({"w": ("i-3",)}, {})
    assert grown(passed([waiting("w", 2)], fleet, [narrow()])) == {}
    of_another_group = waiting("w", 2, group="b")
    both = [*fleet, *hosts("j-1", group="b"), host("j-2", group="b", free=0)]
    assert grown(passed([of_another_group], both, [narrow()])) == {"e": 3}


def test_a_job_in_line_has_precedence_also_over_what_is_not_promised_to_it() -> None:
    """It is promised another instance, and the estimate of the job there may be wrong."""
    fleet = [host("i-1", free=4), host("i-2", free=0), host("i-3", free=4)]
    busy = [narrow("e", "i-1", gpus=4), running("r", "i-2", ends=60), running("s", "i-3", gpus=4)]
    assert grown(passed([], fleet, busy)) == {"e": 2}
    placement = passed([waiting("w")], fleet, busy)
    assert placement.reservations[0].hosts == ("i-2",)
    assert grown(placement) == {}


def test_a_job_that_no_instance_helps_stops_no_growth() -> None:
    """It waits for its quota."""
    limits = QuotaLimits({("ben", "NORMAL", ""): 0})
    placement = passed([waiting("w", user="ben")], [*BUSY, host("i-3")], [narrow()], limits=limits)
    assert grown(placement) == {"e": 3}


def test_a_job_grows_within_its_quota() -> None:
    """What the quota has left bounds it."""
    fleet = [*BUSY, *hosts("i-3", "i-4")]
    for limit, expected in ((2, {}), (3, {"e": 3}), (9, {"e": 4})):
        limits = QuotaLimits({("ada", "NORMAL", ""): limit})
        assert grown(passed([], fleet, [narrow(user="ada")], limits=limits)) == expected


def test_one_job_grows_at_a_time() -> None:
    """Nothing is reserved for it. The one of higher priority, then the first in line, is first."""
    fleet = [*BUSY, host("i-3", free=0), host("i-4")]
    first, second = narrow("a"), narrow("b", "i-3", priority=Priority.HIGH)
    assert grown(passed([], fleet, [first, second])) == {"b": 2}
    leaving = narrow("c", "i-3", grows_at=None, growing=True)
    assert grown(passed([], fleet, [first, leaving])) == {}


def test_a_job_does_not_grow_onto_an_instance_that_it_avoids() -> None:
    """Unless the instance has been repaired since the job runs."""
    assert grown(passed([], [*BUSY, host("i-3")], [narrow(avoids=("i-3",))])) == {}
    healed = host("i-3", healed_at=at(-60))
    assert grown(passed([], [*BUSY, healed], [narrow(avoids=("i-3",))])) == {"e": 3}
    before = host("i-3", healed_at=at(-99_999))
    assert grown(passed([], [*BUSY, before], [narrow(avoids=("i-3",))])) == {}
    assert grown(passed([], [*BUSY, before, host("i-4")], [narrow(avoids=("i-3",))])) == {"e": 3}
