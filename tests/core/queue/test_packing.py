"""Which hosts: whole gangs, small jobs packed, one rack, and nothing that is not free."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import RejectionKind

from tests.core.queue.build import HOUR, NOW, at, given, host, hosts, passed, running, waiting, why


def test_a_gang_gets_every_host_or_none() -> None:
    """Half a gang would hold GPUs and wait."""
    answer = passed([waiting("a", 3)], [*hosts("i-1", "i-2"), host("i-3", free=4)])
    assert given(answer) == {}
    assert why(answer) == {"a": "needs 3 instance(s) with 8 GPU(s) each; 2 are free"}


def test_small_jobs_are_packed_onto_hosts_in_use() -> None:
    """Whole hosts stay whole for gangs: the host that is left with least takes the job."""
    fleet = [host("i-1"), host("i-2", free=6), host("i-3", free=3)]
    line = [waiting("a", gpus=2, since=-3), waiting("b", gpus=2, since=-2), waiting("gang", gpus=8, since=-1)]
    assert given(passed(line, fleet)) == {"a": ("i-3",), "b": ("i-2",), "gang": ("i-1",)}


def test_what_fits_exactly_is_taken_before_a_larger_host_is_broken() -> None:
    """A host of 4 GPUs is whole work for a job of 4, one of 8 is not."""
    assert given(passed([waiting("a", gpus=4)], [host("i-1", 8), host("i-2", 4)])) == {"a": ("i-2",)}


def test_two_ranks_of_a_gang_never_share_a_host() -> None:
    """A rank has its instance; a gang of two halves needs two."""
    assert given(passed([waiting("a", 2, gpus=4)], [host("i-1")])) == {}


def test_a_gang_is_placed_in_one_rack_the_smallest_that_has_enough() -> None:
    """Near together, and the large racks stay whole for large gangs."""
    fleet = [*hosts("a-1", "a-2", "a-3", rack="a"), host("b-1", rack="b"), *hosts("c-1", "c-2", rack="c")]
    assert given(passed([waiting("g", 2)], fleet)) == {"g": ("c-1", "c-2")}


def test_a_gang_that_no_rack_holds_stays_in_one_zone_and_in_few_racks() -> None:
    """The next best, before it is spread over everything."""
    fleet = [
        *hosts("a-1", "a-2", rack="a", zone="x"),
        host("b-1", rack="b", zone="x"),
        host("c-1", rack="c", zone="x"),
        *hosts("d-1", "d-2", rack="d", zone="y"),
        *hosts("e-1", "e-2", rack="e", zone="y"),
    ]
    assert set(given(passed([waiting("g", 4)], fleet[:-1]))["g"]) == {"a-1", "a-2", "b-1", "c-1"}
    assert set(given(passed([waiting("g", 3)], fleet[3:]))["g"]) == {"d-1", "d-2", "e-1"}


def test_a_gang_that_no_zone_holds_is_spread() -> None:
    """Distance is a wish, not a condition; hosts of which no place is known take part."""
    fleet = [host("a-1", rack="a", zone="x"), host("b-1", rack="b", zone="y"), host("c-1")]
    assert set(given(passed([waiting("g", 3)], fleet))["g"]) == {"a-1", "b-1", "c-1"}


@pytest.mark.parametrize(
    "fields", [{"reserved_for": "other"}, {"free": 7}, {"usable": False}, {"usable": False, "counts": False}]
)
def test_what_is_not_free_is_not_given_away(fields: dict[str, Any]) -> None:
    """Kept for another, in use, or not in working order."""
    assert given(passed([waiting("a")], [host("i-1", **fields)])) == {}


def test_what_is_kept_for_a_job_is_used_first_by_it_and_by_nobody_else_until_the_time_is_over() -> None:
    """A reservation has an owner and an end."""
    kept = host("i-2", reserved_for="a", reserved_until=at(60))
    assert given(passed([waiting("a")], [host("i-1"), kept])) == {"a": ("i-2",)}
    assert given(passed([waiting("b")], [kept])) == {}
    assert given(passed([waiting("b")], [kept], now=at(60))) == {"b": ("i-2",)}


def test_a_job_that_not_even_the_empty_cluster_holds_is_passed_and_told() -> None:
    """It would hold the others back for nothing."""
    fleet = [*hosts("i-1", "i-2"), host("i-3", usable=False, counts=False)]
    answer = passed([waiting("huge", 3, since=-2), waiting("b", since=-1)], fleet)
    assert given(answer) == {"b": ("i-1",)}
    assert why(answer)["huge"].endswith("the cluster has fewer, used or free")
    assert answer.rejected[0].short_of is RejectionKind.CLUSTER


def test_each_group_is_a_pool_of_its_own() -> None:
    """A job of one group neither uses nor waits for the other's."""
    fleet = [host("a-1", group="a"), host("b-1", group="b")]
    line = [waiting("x", 2, group="a", since=-3), waiting("y", group="b"), waiting("z", group="c")]
    answer = passed(line, fleet)
    assert given(answer) == {"y": ("b-1",)}
    assert why(answer)["z"] == "needs 1 instance(s) with 8 GPU(s) each; the group c has fewer, used or free"


def test_a_host_that_leaves_soon_is_for_jobs_that_end_before_and_last_for_others() -> None:
    """Whoever outlasts it would be moved again."""
    fleet = [host("i-1", leaves_at=at(600)), host("i-2")]
    long, short = waiting("long", runs_for_s=601), waiting("short", runs_for_s=600)
    assert given(passed([long], fleet)) == {"long": ("i-2",)}
    assert given(passed([short], fleet)) == {"short": ("i-1",)}
    assert given(passed([waiting("unknown")], fleet)) == {"unknown": ("i-2",)}
    assert given(passed([waiting("gang", 2)], fleet)) == {"gang": ("i-2", "i-1")}


def test_a_port_offset_is_unused_on_every_host_of_the_gang() -> None:
    """Also by those that this very pass has put there."""
    fleet = [host("i-1", free=4, port_offsets=(0, 2)), host("i-2", free=4, port_offsets=(1,))]
    line = [waiting("a", 2, gpus=2, since=-2), waiting("b", 2, gpus=2, since=-1)]
    assert [one.port_offset for one in passed(line, fleet).assignments] == [3, 4]


def test_an_assignment_carries_what_it_was_decided_from() -> None:
    """The job's version and the hosts' epochs: whoever has moved since refuses it."""
    (one,) = passed([waiting("a")], [host("i-1", epoch=3)]).assignments
    assert (one.version, one.attempt, one.epochs) == (1, 0, (3,))


def test_the_line_is_by_priority_then_recovering_then_having_made_room_then_first_submission() -> None:
    """Each job alone fits; who comes first takes the host."""
    in_order = [
        waiting("high", since=-1, priority=Priority.HIGH),
        waiting("back", since=-1, recovering=True),
        waiting("suspended", since=-2, suspensions=1),
        waiting("z-old", since=-9),
        waiting("young", since=-8),
        waiting("twin", since=-8),
        waiting("low", since=-99, priority=Priority.LOW),
    ]
    left = list(in_order)
    taken = []
    while left:
        taken += list(given(passed(left[::-1], hosts("i-1"), now=NOW)))
        left = [one for one in left if one.job_id not in taken]
    assert taken == ["high", "back", "suspended", "z-old", "twin", "young", "low"]


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_a_gang_takes_hosts_without_a_rack_only_as_far_as_racks_do_not_suffice(nodes: int) -> None:
    """As many hosts as it has ranks, and not one more."""
    fleet = [*hosts("a-1", "a-2", rack="a", zone="x"), *hosts("p-1", "p-2", "p-3")]
    (instances,) = given(passed([waiting("gang", nodes)], fleet)).values()
    assert len(instances) == nodes and set(instances) >= {"a-1", "a-2"}


def test_a_gang_over_several_pools_takes_only_what_is_missing() -> None:
    """Behind a waiting head: what is promised to the head first, then what is left over."""
    fleet = [*hosts("i-1", "i-2", free=0), *hosts("i-3", "i-4"), *hosts("i-5", "i-6", "i-7")]
    busy = [running("r", "i-1", "i-2", ends=HOUR), running("s", "i-5", ends=2 * HOUR)]
    fleet[4] = host("i-5", free=0)
    line = [waiting("head", 5, since=-9), waiting("b", 3, since=-1, runs_for_s=HOUR)]
    (instances,) = given(passed(line, fleet, busy)).values()
    assert len(instances) == 3 and len(set(instances)) == 3
