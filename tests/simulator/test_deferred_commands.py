"""What AWS puts off: who may have been told all the same, and what is not said before it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.core import commands
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.recovery import REMOVE_ATTEMPTS_MAX

from simulator.memory_store.store import MemoryStore
from simulator.trials.scenario import FOLDER, read
from simulator.trials.trial import play
from simulator.world import World

POKE = commands.PokeScheduler("sft-1/9")


def test_who_was_told_has_moved_even_if_what_it_wrote_then_was_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first machine has failed the job, and its last write is refused: the second is kept for nobody."""
    settle, refused = MemoryStore.remove_finished_instance_commands, list[object]()

    def busy(store: MemoryStore, *given: Any) -> None:
        if len(refused) < REMOVE_ATTEMPTS_MAX and any(
            job.status is JobStatus.FAILED for job in store.jobs.records.values()
        ):
            refused.append(given)
            raise TryAgainSoon("busy")
        settle(store, *given)

    monkeypatch.setattr(MemoryStore, "remove_finished_instance_commands", busy)
    assert play(read(FOLDER / "one_of_two_stuck_ranks_is_given_up.toml")).violations == []
    assert len(refused) == REMOVE_ATTEMPTS_MAX


def _carried_out(order: Any, refused: str, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Mapping[str, datetime]]:
    """A world in which `order` of a job was put off, which is followed by a poke; and until when anything was."""
    world = World(instances=1)
    job_id = world.submit(nnodes=1)
    world.until_status(job_id, JobStatus.RUNNING)
    put_off: dict[str, datetime] = {}

    def busy(*given: Any, **named: Any) -> None:
        raise TryAgainSoon("busy")

    def settled(job: Job, done: Sequence[str], deferred: Mapping[str, datetime]) -> None:
        put_off.update(deferred)

    monkeypatch.setattr(world.actions if refused == "stop_tasks" else world.store, refused, busy)
    monkeypatch.setattr(world.store, "remove_finished_job_commands", settled)
    claim = world.timeline.now
    pending = [PendingCommand("sft-1/9/1", order, claim), PendingCommand("sft-1/9/2", POKE, claim)]
    world.invocations.run("ecs_task_handler", lambda: world.recovery.execute(world.job(job_id), pending))
    return world, put_off


def test_the_scheduler_is_not_woken_before_what_it_is_to_find_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The poke waits as long as the release that has been put off: no longer, and no less."""
    release = commands.ReleaseInstances(("i-1",), attempt=1)
    world, put_off = _carried_out(release, "release_instance", monkeypatch)
    assert POKE.key not in world.functions.asked
    assert set(put_off) == {"sft-1/9/1", "sft-1/9/2"}
    assert put_off["sft-1/9/1"] == put_off["sft-1/9/2"] > world.timeline.now


def test_the_scheduler_is_woken_though_something_else_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the tasks have got their signal makes no difference to what it finds."""
    world, put_off = _carried_out(commands.StopAttempt(1), "stop_tasks", monkeypatch)
    assert POKE.key in world.functions.asked
    assert set(put_off) == {"sft-1/9/1"}
