"""Growth: a running elastic job gets instances that no waiting job can use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.cluster_snapshot import snapshot_of
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import Placement, RejectionKind, RunningJob

from tests.core.queue.build import HOUR, NOW, POLICY, at, given, host, hosts, passed, running, waiting

BUSY = [host("i-1", free=0), host("i-2", free=0)]


def narrow(name: str = "e", *on: str, most: int = 4, **fields: Any) -> RunningJob:
    """A job that runs on fewer instances than it may have, and may grow now."""
    return running(name, *(on or ("i-1", "i-2")), nodes_max=most, **{"grows_at": NOW, **fields})


def grown(placement: Placement) -> dict[str, int]:
    return {one.job_id: one.width for one in placement.growths}


def recalled(placement: Placement) -> dict[str, str]:
    """The jobs whose warm spares give way, each with the job that can grow then."""
    return {one.job_id: one.for_job for one in placement.recalls}


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
    job = narrow(avoids={"i-3": at(-HOUR)})
    assert grown(passed([], [*BUSY, host("i-3")], [job])) == {}
    healed = host("i-3", healed_at=at(-60))
    assert grown(passed([], [*BUSY, healed], [job])) == {"e": 3}
    before = host("i-3", healed_at=at(-99_999))
    assert grown(passed([], [*BUSY, before], [job])) == {}
    assert grown(passed([], [*BUSY, before, host("i-4")], [job])) == {"e": 3}


def test_a_job_that_pauses_has_precedence() -> None:
    """It is no part of the pass. Its instances are free until its next try."""
    fleet = [*BUSY, host("i-3")]
    assert grown(passed([], fleet, [narrow()], paused=frozenset({""}))) == {}
    assert grown(passed([], fleet, [narrow()], paused=frozenset({"b"}))) == {"e": 3}


@pytest.mark.parametrize(
    ("changes", "pauses"),
    [
        ({"recovering": True}, True),
        ({"known_short": "check"}, True),
        ({"held": True}, False),
        ({"not_before": NOW}, False),
        ({"known_short": "permission"}, False),
        ({"known_short": "quota"}, False),
    ],
)
def test_which_jobs_pause(changes: dict[str, Any], pauses: bool) -> None:
    """Those that will need instances at the time of their next try."""
    entry = Entry("j", 1, 1, "ada", Priority.HIGH, "b", 2, 8, NOW, NOW, waits=True, not_before=at(60))
    snapshot = snapshot_of([replace(entry, **changes)], (), POLICY, NOW, {}, QuotaLimits())
    assert snapshot.paused == (frozenset({"b"}) if pauses else frozenset())


def test_a_job_that_waits_for_the_stop_of_an_idle_check_has_precedence() -> None:
    """It keeps the free instance. Nothing grows onto an instance under a check."""
    checked = [host(f"i-{n}", usable=False, free=0, free_after_check=8, check_id=f"c-{n}") for n in (5, 6)]
    placement = passed([waiting("w", 2)], [*BUSY, host("i-3"), *checked], [narrow()])
    assert [(one.job_id, one.short_of) for one in placement.rejected] == [("w", RejectionKind.CHECK)]
    assert len(placement.stops) == 1 and grown(placement) == {}
    assert grown(passed([], [*BUSY, *checked], [narrow()])) == {}


def test_the_stop_of_an_idle_check_delays_no_growth_of_another_group() -> None:
    """It grows onto its free instance."""
    checked = host("j-1", group="b", usable=False, free=0, free_after_check=8, check_id="c-1")
    placement = passed([waiting("w", group="b")], [*BUSY, host("i-3"), checked], [narrow()])
    assert placement.stops and grown(placement) == {"e": 3}


def test_a_job_grows_onto_its_ready_warm_spares() -> None:
    """A spare that still starts is no room, and neither is one on an instance that the job avoids."""
    fleet = [*BUSY, host("i-3", free=0)]
    assert grown(passed([], fleet, [narrow(spares=("i-3",), ready=("i-3",))])) == {"e": 3}
    assert grown(passed([], [*fleet, host("i-4")], [narrow(spares=("i-3",), ready=("i-3",))])) == {"e": 4}
    assert grown(passed([], fleet, [narrow(spares=("i-3",))])) == {}
    job = narrow(spares=("i-3",), ready=("i-3",), avoids={"i-3": NOW})
    assert grown(passed([], fleet, [job])) == {}


@pytest.mark.parametrize(("priority", "gives_way"), [("LOW", True), ("NORMAL", True), ("HIGH", False)])
def test_the_warm_spares_of_others_give_way_to_a_growth(priority: str, gives_way: bool) -> None:
    """Those of jobs of a higher priority stay. The growth follows in a later pass."""
    fleet = [*BUSY, *hosts("i-3", "i-4", "i-5", free=0)]
    owner = running("o", "i-3", priority=Priority[priority], spares=("i-4",))
    placement = passed([], fleet, [narrow(), owner])
    assert (grown(placement), recalled(placement)) == ({}, {"o": "e"} if gives_way else {})


def test_no_more_warm_spares_give_way_than_are_needed() -> None:
    """Those of the lowest priority come first. A free instance is used before any of them."""
    fleet = [*BUSY, *hosts("i-3", "i-4", "i-5", "i-6", free=0)]
    owners = [
        running("o", "i-3", spares=("i-4",)),
        running("p", "i-5", priority=Priority.LOW, spares=("i-6",)),
    ]
    assert recalled(passed([], fleet, [narrow(most=3), *owners])) == {"p": "e"}
    assert recalled(passed([], fleet, [narrow(most=4), *owners])) == {"p": "e", "o": "e"}
    placement = passed([], [*fleet, host("i-7")], [narrow(most=4), *owners])
    assert (grown(placement), recalled(placement)) == ({"e": 3}, {})


@pytest.mark.parametrize("why", ["a job waits", "its quota", "avoided", "not due", "too few GPUs"])
def test_no_warm_spare_gives_way_in_vain(why: str) -> None:
    """The growth would not follow."""
    fleet = [*BUSY, *hosts("i-3", "i-4", free=0)]
    changes: dict[str, Any] = {"avoided": {"avoids": {"i-4": NOW}}, "not due": {"grows_at": at(60)}}
    job = narrow(user="ada", **changes.get(why, {}))
    owner = running("o", "i-3", gpus=4 if why == "too few GPUs" else 8, spares=("i-4",))
    limits = QuotaLimits({("ada", "NORMAL", ""): 2 if why == "its quota" else 9})
    line = [waiting("w", 2)] if why == "a job waits" else []
    assert recalled(passed(line, fleet, [job, owner], limits=limits)) == {}
