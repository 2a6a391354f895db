"""Eventual consistency of ECS: what is read is how the cluster was, and listings lack the newest tasks."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import sandbox.cluster.model.cluster as cluster_model
from tests.platform.cloud import Request
from tests.platform.incident import Heal, Incident, assert_same_end
from tests.platform.platform_world import PlatformWorld
from tests.tiers import seeds

LAGS_S = (0, 2, 10, 30)


def lagging(seed: int) -> object:
    """Each read sees another past: one may be older than the one before it."""

    def prepare(world: PlatformWorld) -> None:
        draw = random.Random(f"lag {seed}")
        world.cloud.remember_the_past()
        world.cloud.shown = lambda request: draw.choice(LAGS_S)

    return prepare


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, default=1))
@pytest.mark.parametrize("runs_s", [20, 250])
def test_reads_of_different_pasts_change_no_end(heal: Heal, undisturbed: Incident, seed: int, runs_s: int) -> None:
    """Events are newer than answers, and an answer never undoes what an event said."""
    assert_same_end(heal(prepare=lagging(seed), runs_s=runs_s), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("lag_s", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_reads_that_always_lag_change_no_end(heal: Heal, undisturbed: Incident, lag_s: float) -> None:
    """No call sees what the call before it did."""

    def prepare(world: PlatformWorld) -> None:
        world.cloud.remember_the_past()
        world.cloud.shown = lambda request: lag_s

    assert_same_end(heal(prepare=prepare), undisturbed)


@pytest.mark.slow
def test_the_past_is_what_reads_see(heal: Heal) -> None:
    """The lag is real: right after RunTask no listing shows the task."""
    found: list[int] = []

    def prepare(world: PlatformWorld) -> None:
        world.cloud.remember_the_past()
        world.cloud.shown = lambda request: 1.0
        happened = world.cloud.happened

        def look(request: Request) -> None:
            happened(request)
            if request.operation == "RunTask":
                answer = world.cloud.quiet_client("ecs").list_tasks(cluster=world.cluster.name)
                found.append(len(answer["taskArns"]))

        world.cloud.happened = look

    heal(prepare=prepare)
    assert found[0] == found[1] == 0


@pytest.mark.slow
def test_stopped_tasks_that_vanish_at_once_change_no_end(
    heal: Heal, undisturbed: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ECS promises an hour; nothing that was said by an event is asked for again."""
    monkeypatch.setattr(cluster_model, "STOPPED_TASKS_MAX", timedelta(0))
    assert_same_end(heal(), undisturbed)
