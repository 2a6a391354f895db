"""The fleet map says what the tables say, in every reconcile cycle of runs under faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.instance.record import PRESENT, ListedInstance
from gpu_recovery.core.job.record import JobStatus

from simulator import world as simulated
from simulator.console import ConsoleSide
from simulator.lambda_runtime import RECONCILER
from simulator.trials.generator import in_passing, scenario_of
from simulator.trials.trial import play
from simulator.world import World
from tests.core.test_console_snapshots import assert_decodes
from tests.tiers import seeds


def tables(world: World) -> tuple[ListedInstance, ...]:
    """The instances of the cluster, as the tables have them."""
    return tuple(one for one in world.instances() if one.status in PRESENT)


@contextmanager
def comparing(consoles: list[ConsoleSide], monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Compare the map with the tables after each cycle that changes no record, and count the compared statuses.

    A record that a cycle changes may be in the map of the next cycle.
    """
    compared, real = Counter[str](), simulated.reconcile

    def reconcile(*given: Any) -> None:
        console = consoles[0]
        before, written = tables(console.world), console.written[RECONCILER]
        real(*given)
        if tables(console.world) == before and console.written[RECONCILER] > written:
            documents = console.snapshots.documents
            assert_decodes(documents[SnapshotName.MAP], documents[SnapshotName.MEMBERS], before)
            assert documents[SnapshotName.LIMITS]["totals"]["instances"] == len(before)
            compared.update(one.status.value for one in before)

    monkeypatch.setattr(simulated, "reconcile", reconcile)
    yield compared


@pytest.mark.parametrize("seed", seeds(200, fast=1, default=3))
def test_the_map_decodes_to_what_the_tables_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under every fault that a seed draws."""
    consoles: list[ConsoleSide] = []
    with comparing(consoles, monkeypatch) as compared:
        run = play(scenario_of(seed), in_passing(seed), begun=lambda world: consoles.append(ConsoleSide(world)))
    assert run.violations == [] and compared.total() >= 10


def test_the_map_shows_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that is rebooted and verified, beside one that works."""
    consoles: list[ConsoleSide] = []
    with comparing(consoles, monkeypatch) as compared:
        world = World(instances=2, agents=True)
        consoles.append(ConsoleSide(world))
        job_id = world.submit(2)
        world.until_status(job_id, JobStatus.RUNNING)
        world.break_gpu(world.model_instance(0))
        world.until(lambda: world.job(job_id).attempt == 2, "the next attempt")
    assert {"AVAILABLE", "REBOOTING"} <= compared.keys()
