"""Applies a `Fidelity` to a world. Only this module turns on the other modules of the package."""

from __future__ import annotations

from simulator.fast.cached_clients import CachedEc2, CachedEcs
from simulator.fast.describe_cache import EcsDescribeCache
from simulator.fast.fidelity import Fidelity
from simulator.fast.idle_skip import IdleSkip, IdlingWorld
from simulator.memory_store.store import MemoryStore

ATTEMPTS_KEPT = 3
"""Attempts per job that a world with `remembers=False` saves. Late events concern only the latest attempts."""


def leave_out(world: IdlingWorld, fidelity: Fidelity) -> IdleSkip | None:
    """Apply `fidelity` to a new world, before its first event.

    Args:
        world: a world with its functions, actions and store, but without instances.
        fidelity: records, checks and ticks that the world omits.

    Returns:
        The filter of the ticks that wake functions, or None if no tick is skipped.
    """
    in_memory = world.store if isinstance(world.store, MemoryStore) else None
    for recorder in (world.invocations, world.transcript, world.actions, world.checks):
        recorder.remembers = fidelity.remembers
    if not fidelity.remembers:
        world.cluster.mute = world.functions.is_unselected
        if in_memory is not None:
            in_memory.attempts_kept = ATTEMPTS_KEPT
    if not fidelity.skips:
        return None
    record_of = in_memory.load_instance if in_memory is not None else lambda instance_id: None
    actions = world.actions
    actions.ecs = CachedEcs(actions.ecs.client, actions.ecs.cluster, EcsDescribeCache(world.fleet, record_of))
    actions.ec2 = CachedEc2(world.fleet, world.invocations)
    return IdleSkip(world, in_memory) if in_memory is not None else None
