"""Makes a world leave out what its `Fidelity` says: the one place that turns the modules of this package on."""

from __future__ import annotations

from simulator.fast.cached_clients import CachedEc2, CachedEcs
from simulator.fast.describe_cache import EcsDescribeCache
from simulator.fast.fidelity import Fidelity
from simulator.fast.idle_skip import IdleSkip, IdlingWorld
from simulator.memory_store.store import MemoryStore

ATTEMPTS_KEPT = 3
"""Attempts kept of each job by a world that remembers little: late events are about the last ones only."""


def leave_out(world: IdlingWorld, fidelity: Fidelity) -> IdleSkip | None:
    """Apply `fidelity` to a world in which nothing has happened yet.

    Args:
        world: A world with its functions, actions and store, but without instances.
        fidelity: What the world leaves out.

    Returns:
        The filter of the ticks that wake functions; None if no tick is to be passed over.
    """
    in_memory = world.store if isinstance(world.store, MemoryStore) else None
    for one in (world.invocations, world.transcript, world.actions, world.checks):
        one.remembers = fidelity.remembers
    if not fidelity.remembers:
        world.cluster.mute = world.functions.is_unselected
        if in_memory is not None:
            in_memory.attempts_kept = ATTEMPTS_KEPT
    if not fidelity.skips:
        return None
    record_of = in_memory.load_instance if in_memory is not None else lambda name: None
    actions = world.actions
    actions.ecs = CachedEcs(actions.ecs.client, actions.ecs.cluster, EcsDescribeCache(world.fleet, record_of))
    actions.ec2 = CachedEc2(world.fleet, world.invocations)
    return IdleSkip(world, in_memory) if in_memory is not None else None
