"""The writes of which a gang needs one for each of its instances: made side by side, and what a refusal leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.events import CancelRequested
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.rate_limits import TIMEOUT_S, Costs
from simulator.fast.fidelity import LARGE
from simulator.invocations import Effect
from simulator.world import World

OTHER = "sft-of-somebody-else"
EACH_ONE = ("store.claim_instance", "store.release_instance", "store.add_agent_command")


class Threads:
    """`each` as threads may do it: the last piece of work first. Knows whether one is being done."""

    def __init__(self) -> None:
        self.inside = 0

    def each(self, work: Callable[[Any], object], items: Iterable[Any]) -> None:
        """Do every piece of work."""
        self.inside += 1
        try:
            for item in reversed(list(items)):
                work(item)
        finally:
            self.inside -= 1


class Taker:
    """Takes instances in the moment in which the first launch begins; counts writes within and without `threads`."""

    def __init__(self, threads: Threads, takes: tuple[int, ...] = ()) -> None:
        self.world: World
        self.threads, self.takes = threads, takes
        self.within: list[str] = []
        self.without: list[str] = []

    def before(self, step: Effect) -> None:
        """Somebody else was faster."""
        if step.name in EACH_ONE:
            (self.within if self.threads.inside else self.without).append(step.name)
        if step.name == "store.begin_attempt" and self.takes:
            for number in self.takes:
                self.world.store.claim_instance(
                    self.world.model_instance(number).instance_id, OTHER, Claim(1, 8, 0), None
                )
            self.takes = ()

    def after(self, step: Effect) -> None:
        """Nothing more."""


def world_with(taker: Taker, instances: int, agents: bool = False) -> World:
    """A world whose loop works by `taker.threads`."""
    world = World(instances=instances, nemesis=taker, agents=agents)
    world.recovery = replace(world.recovery, for_each=taker.threads.each)
    taker.world = world
    return world


def test_a_gang_that_takes_longer_than_a_function_lives_one_by_one_is_launched_and_ended() -> None:
    """Sixty claims of two seconds each are two minutes; side by side they are four seconds, and so is their end."""
    world = World(instances=60, fidelity=LARGE, costs=Costs(call_s=0.1, store_s=2.0))
    world.asleep["reconciler"] = world.timeline.start + timedelta(hours=1)  # it tells its news one by one
    job_id = world.submit(60)
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.job(job_id).attempt == 1
    world.finish(job_id)
    world.until(lambda: not any(one.claims for one in world.instances()), "claims stayed")
    assert not world.invocations.killed
    assert world.meter is not None
    assert max(world.meter.longest.values()) < TIMEOUT_S["scheduler"]


@pytest.mark.slow
def test_two_thousand_instances_are_claimed_and_started_within_one_invocation() -> None:
    """At 50 ms a call the claims alone would take 102 s of the launcher's 110, one by one."""
    world = World(instances=2_048, fidelity=LARGE, costs=Costs(call_s=0.05))
    job_id = world.submit(2_048)
    world.until_status(job_id, JobStatus.RUNNING)
    assert world.job(job_id).attempt == 1
    assert world.meter is not None
    assert world.meter.longest["scheduler"] < TIMEOUT_S["scheduler"]


@pytest.mark.parametrize("taken", [(2, 1), (3, 0), (2,)])
def test_the_lowest_rank_whose_instance_is_taken_is_the_one_that_is_named(taken: tuple[int, ...]) -> None:
    """Whichever thread comes first."""
    taker = Taker(Threads(), taken)
    world = world_with(taker, 4)
    job_id = world.submit(4)
    world.until_status(job_id, JobStatus.PENDING_RESOURCES)
    reasons = [entry.reason for entry in world.job(job_id).history]
    refused = [reason for reason in reasons if "was no longer free" in reason]
    assert len(refused) == 1
    assert world.model_instance(min(taken)).instance_id in refused[0]


def test_a_refused_launch_gives_back_all_that_it_had_claimed() -> None:
    """Every instance that was not taken is free again, no rank was started, and who was faster keeps what they have."""
    taker = Taker(Threads(), (1, 2))
    world = world_with(taker, 4)
    job_id = world.submit(4)
    world.until_status(job_id, JobStatus.PENDING_RESOURCES)
    claims = {one.instance_id: set(one.claims) for one in world.instances()}
    taken = {world.model_instance(number).instance_id for number in (1, 2)}
    assert claims == {one: ({OTHER} if one in taken else set()) for one in claims}
    assert not world.calls("RunTask")
    claimed = [name for name in taker.within if name == "store.claim_instance"]
    assert len(claimed) == 4


def test_claims_releases_and_orders_of_a_gang_are_each_pieces_of_work_of_their_own() -> None:
    """Two launches, a cancel by force and an end: no such write is made by the invocation's own thread."""
    taker = Taker(Threads())
    world = world_with(taker, 3, agents=True)
    job_id = world.submit(3)
    world.until_status(job_id, JobStatus.RUNNING)
    world.exit(job_id, 1, 139)
    world.until(lambda: world.job(job_id).attempt == 2, "no second attempt")
    world.until_status(job_id, JobStatus.RUNNING)
    by_force = CancelRequested(at=world.timeline.now, attempt=2, by="an operator", force=True)
    world.invocations.run("job_api", lambda: world.recovery.handle(job_id, by_force))
    world.until_end(job_id)
    assert {name: taker.within.count(name) >= 3 for name in EACH_ONE} == dict.fromkeys(EACH_ONE, True)
    assert not taker.without
