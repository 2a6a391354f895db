"""Generations of memory checkpoints: their names, the ring of copies, and which generations are complete. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

NAME = re.compile(r"(\d{6,})-(\d{12,})-(\d+)-([0-9a-f]{8})")
Inventory = Sequence["tuple[str, int]"]
"""The shards in the folder of an instance: the name of the generation and the rank of each."""


class Generation(NamedTuple):
    """One step of one run of the training. Generations compare by age: the larger one is newer.

    session: number of the run. A run that starts later has a larger number, so steps that it repeats are newer.
    world: number of processes, each with one shard.
    nonce: tells two runs apart that chose the same number, because neither saw the other's data.
    """

    session: int
    step: int
    world: int
    nonce: str

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.session:06d}-{self.step:012d}-{self.world}-{self.nonce}"


def generation_of(name: str) -> Generation | None:
    """Return the generation with this name; None if the name is not of this form."""
    found = NAME.fullmatch(name)
    return Generation(int(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


def ring(instances: Sequence[int]) -> list[int | None]:
    """Return for each rank the rank that keeps the copy of its shard: the same local place on the next instance.

    Args:
        instances: for each rank the number of its instance.

    A job on one instance has no copies: each rank gets None.
    """
    members: dict[int, list[int]] = {}
    for rank, instance in enumerate(instances):
        members.setdefault(instance, []).append(rank)
    order = sorted(members)
    if len(order) < 2:
        return [None] * len(instances)
    following = {instance: members[order[(place + 1) % len(order)]] for place, instance in enumerate(order)}
    return [
        following[instance][members[instance].index(rank) % len(following[instance])]
        for rank, instance in enumerate(instances)
    ]


def holders(inventories: Sequence[Inventory], world: int, newer_than: int) -> dict[Generation, dict[int, list[int]]]:
    """Return the generations of which every shard is on some instance, and which ranks see each shard.

    Args:
        inventories: for each rank the shards in the folder of its instance.
        world: number of processes now. Generations of another number are left out.
        newer_than: step of the durable checkpoint. Generations up to this step are left out.
    """
    found: dict[Generation, dict[int, list[int]]] = {}
    for rank, inventory in enumerate(inventories):
        for name, shard in inventory:
            generation = generation_of(name)
            if generation and generation.world == world and generation.step > newer_than:
                found.setdefault(generation, {}).setdefault(shard, []).append(rank)
    return {generation: shards for generation, shards in found.items() if set(shards) == set(range(world))}


def newest_first(found: Mapping[Generation, Mapping[int, list[int]]]) -> list[Generation]:
    """Return the generations, the newest first."""
    return sorted(found, reverse=True)


def next_session(names: Iterable[str], attempt: int) -> int:
    """Return the number of a run that starts now: newer than all generations that any process sees."""
    seen = [generation.session for generation in map(generation_of, names) if generation]
    return max([attempt, *(number + 1 for number in seen)])
