"""Placing a large gang again: what each of its ranks costs does not grow with their number."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import commands, events
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import JobSpec

from tests.core.build import NOW, orders, queued, tell
from tests.core.queue.build import given, hosts, passed, recovering

RANKS = 300
COMPARED_MAX = 20
"""How often each name may be compared with another one: dictionaries and sets do, a few times."""


class Name(str):
    """An instance's id that counts how often any is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other) is True

    __hash__ = str.__hash__


def names() -> tuple[Name, ...]:
    """The ids of a gang by rank, none of them the same object as anybody else's."""
    return tuple(Name(f"i-{rank:04}") for rank in range(RANKS))


def test_a_large_gang_finds_its_own_hosts_again_without_comparing_each_rank_with_each() -> None:
    """Every rank goes back to where it was, in some comparisons for each."""
    line, fleet = [recovering("back", *names())], hosts(*names())
    Name.compared = 0
    answer = passed(line, fleet)
    assert given(answer) == {"back": tuple(f"i-{rank:04}" for rank in range(RANKS))}
    assert Name.compared <= COMPARED_MAX * RANKS


def test_a_large_gang_gives_back_what_it_leaves_without_comparing_each_rank_with_each() -> None:
    """Rank 0 has moved: its instance alone is given back, in some comparisons for each rank."""
    spec = JobSpec("sft", RANKS, 8, "gpu-training", container="train")
    job = replace(queued(), spec=spec, status=JobStatus.PENDING_RESOURCES, attempt=1, instances=names())
    moved = (Name("i-9999"), *names()[1:])
    event = events.JobPlaced(
        at=NOW, attempt=1, version=job.version, instances=moved, epochs=(0,) * RANKS, port_offset=0
    )
    Name.compared = 0
    left = orders(tell(job, event), commands.ReleaseInstances)
    assert [one.instances for one in left] == [("i-0000",)]
    assert Name.compared <= COMPARED_MAX * RANKS
