"""How much a pass does, counted: what waits costs nothing per host, and what is alike is worked out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery.core.queue import backfill, release_forecast
from gpu_recovery.core.queue.packing import HostLevels, OpenHosts
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.preemption import Preemption
from gpu_recovery.core.queue.snapshot import Placement, RejectionKind

from benchmarks.placement import NOW, POLICY, SHAPES, SIZES, snapshot_of

WATCHED = {
    "looks for places": (OpenHosts, "pick"),
    "hosts moved": (HostLevels, "lower"),
    "promises": (backfill, "promise"),
    "hosts estimated": (release_forecast.ReleaseForecast, "free_in"),
    "hosts offered": (Preemption, "_who_must_leave"),
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of the watched things is done."""
    done: Counter[str] = Counter()

    def counted(what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            done[what] += 1
            return original(*given, **named)

        return call

    for what, (owner, name) in WATCHED.items():
        monkeypatch.setattr(owner, name, counted(what, getattr(owner, name)))
    return done


def _pass(work: Counter[str], hosts: int, jobs: int) -> Placement:
    work.clear()
    return place(snapshot_of(hosts, jobs), POLICY, NOW)


@pytest.mark.parametrize(("hosts", "jobs"), [(100, 400), (100, 8_000), (800, 3_200)])
def test_who_waits_costs_no_look_at_any_host(work: Counter[str], hosts: int, jobs: int) -> None:
    """Places are looked for only where there are some: for who starts, and for whom others make room. Hosts are gone
    through for the head of the line, with and without the jobs that passed it, and once for each number of GPUs that
    room is made for."""
    answer = _pass(work, hosts, jobs)
    making_room = sum(one.short_of is RejectionKind.ROOM for one in answer.rejected)
    assert len(answer.rejected) > jobs / 2
    assert making_room > 0
    assert work["looks for places"] <= 2 * len(answer.assignments) + making_room
    assert work["hosts moved"] <= 3 * sum(len(one.instances) for one in answer.assignments)
    assert work["promises"] == 2
    assert work["hosts estimated"] <= 2 * hosts
    assert work["hosts offered"] <= hosts * len({gpus for _, gpus in SHAPES})


def test_the_generator_is_what_it_says() -> None:
    """Half of the hosts in use, by no more than they have; the same snapshot for the same seed."""
    hosts, jobs = SIZES[0]
    snapshot = snapshot_of(hosts, jobs)
    assert snapshot == snapshot_of(hosts, jobs) != snapshot_of(hosts, jobs, seed=1)
    assert sum(host.free < host.gpus for host in snapshot.hosts) == hosts // 2
    assert all(host.free >= 0 for host in snapshot.hosts)
    answer = place(snapshot, POLICY, NOW)
    assert len(answer.assignments) + len(answer.rejected) == jobs
    assert len({one.short_of for one in answer.rejected}) >= 3
