"""Items of the progress of an attempt: one for each PART_RANKS ranks, so that no partition key takes too many writes.

Ranks 0 to 63 are in the head, `<job>#a01`, the next 64 ranks in `<job>#a01#part1`, and so on. The key follows from the
rank, so a fact is one conditional ADD without a read. DynamoDB returns the item after the write.

A gang of at most PART_RANKS ranks has only the head. The head of a larger gang also has `parts` (the number of items),
the first failure of the attempt, and the sets `running_parts`, `stopped_parts`, `held_parts` and `checked_parts`: the
parts of which every rank runs or ran, ended, ended at least as a process, was checked. A second write updates the head
after the first failure in a part, and after a fact that completes a part. The write that completes such a set reads all
parts.

A function may be killed between the two writes. The whole progress, which the reconciler reads, holds the fact
nevertheless (`core.attempt.joined`), and the reconciler delivers the event.

An earlier release kept each attempt in one item of any size: a head without `parts`. Its attempts stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.aws.item_codec import SCHEMA, decode, encode, reading
from gpu_recovery.aws.rank_parts import ItemsInParts, create, part_of, part_ranks, parts_in
from gpu_recovery.core.attempt import AttemptProgress, joined
from gpu_recovery.core.events import Checked
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.values import ProgressUpdate


def progress_key(job_id: str, attempt: int, part: int = 0) -> str:
    """Return the key of an item of an attempt's progress; part 0 is the head."""
    head = f"{job_id}#a{attempt:02d}"
    return f"{head}#part{part}" if part else head


@frozen_dataclass()
class _Addition:
    """A fact about a rank as a conditional update of its item. `fact`: the progress with this fact alone."""

    fact: AttemptProgress
    set_name: str
    change: str
    condition: str
    names: Mapping[str, str]
    values: Mapping[str, Any]
    failure: RankFailure | None = None


class ProgressItems(ItemsInParts[AttemptProgress]):
    """The items of the progress in the job table."""

    name, key = "progress", staticmethod(progress_key)

    def begin(self, job_id: str, attempt: int, world: int) -> None:
        """Write an empty progress unless there is one. All items are written together or not at all.

        Raises:
            TryAgainSoon: DynamoDB throttled the write, or other functions held the items at every try.
        """
        count = parts_in(world)
        empty = {"job_id": job_id, "attempt": attempt, "world": world, "checked": {}, "schema": SCHEMA}
        items = [{"job_id_rank": progress_key(job_id, attempt, part), **empty} for part in range(count)]
        if count > 1:
            items[0]["parts"] = count
        create(self.jobs, items)

    def has_rank(self, job_id: str, attempt: int, rank: int) -> bool:
        """Return whether the attempt has a progress. Reads the item of the rank, so no key is read by all ranks."""
        keys = dict.fromkeys((progress_key(job_id, attempt, part_of(rank)), progress_key(job_id, attempt)))
        return any(self.jobs.get(key) is not None for key in keys)

    def add_running(self, job_id: str, attempt: int, rank: int) -> ProgressUpdate | None:
        """Add the rank to the running ranks; see `ports.store.AttemptStore`."""
        fact = AttemptProgress(job_id, attempt, rank + 1, running=frozenset({rank}))
        known = "world > :r AND NOT contains(running, :r) AND NOT contains(stopped, :r) AND NOT contains(held, :r)"
        values = {":r": rank, ":ranks": {rank}}
        return self._add(rank, _Addition(fact, "running", "ADD running :ranks", known, {}, values))

    def add_stopped(self, job_id: str, attempt: int, rank: int, failure: RankFailure | None) -> ProgressUpdate | None:
        """Add the rank to the stopped ranks; see `ports.store.AttemptStore`."""
        fact = AttemptProgress(job_id, attempt, rank + 1, stopped=frozenset({rank}))
        ended = _Addition(
            fact,
            "stopped",
            "ADD stopped :ranks",
            "world > :r AND NOT contains(stopped, :r)",
            {},
            {":r": rank, ":ranks": {rank}},
        )
        if failure is None:
            return self._add(rank, ended)
        # The failure of a held rank was recorded at the end of its process, and counted once.
        return self._add(rank, _failed(ended, failure), of_held_rank=ended)

    def add_held(self, job_id: str, attempt: int, rank: int, failure: RankFailure) -> ProgressUpdate | None:
        """Add the rank to the held ranks; see `ports.store.AttemptStore`."""
        fact = AttemptProgress(job_id, attempt, rank + 1, held=frozenset({rank}))
        known = "world > :r AND NOT contains(stopped, :r)"
        held = _Addition(fact, "held", "ADD held :ranks", known, {}, {":r": rank, ":ranks": {rank}})
        return self._add(rank, _failed(held, failure))

    def add_checked(self, job_id: str, attempt: int, rank: int, result: Checked) -> ProgressUpdate | None:
        """Add the check result of the rank's instance; see `ports.store.AttemptStore`."""
        fact = AttemptProgress(job_id, attempt, rank + 1, checked={rank: result})
        known = "world > :r AND attribute_not_exists(checked.#r)"
        names, values = {"#r": str(rank)}, {":r": rank, ":c": encode(result)}
        return self._add(rank, _Addition(fact, "checked", "SET checked.#r = :c", known, names, values))

    def _add(self, rank: int, addition: _Addition, of_held_rank: _Addition | None = None) -> ProgressUpdate | None:
        """Write the fact, and update the head if the fact concerns the whole gang.

        `of_held_rank`: the addition that takes the place of `addition` if the rank is held.
        """
        job_id, attempt, part = addition.fact.job_id, addition.fact.attempt, part_of(rank)
        after, stored = self._update(progress_key(job_id, attempt, part), addition)
        if after is None and stored is None and part > 0:
            # No such part: an earlier release began the attempt, or there is no such rank.
            part = 0
            after, stored = self._update(progress_key(job_id, attempt), addition)
        if after is None and of_held_rank is not None and stored is not None:
            known = _progress(stored)
            if rank in known.held and rank not in known.stopped:
                addition = of_held_rank
                after, _ = self._update(progress_key(job_id, attempt, part), addition)
        if after is None:
            return None
        progress = _progress(after)
        is_first = addition.failure is not None and progress.failure is not None and progress.failure.rank == rank
        if part == 0 and "parts" not in after:
            return ProgressUpdate(progress, is_first)
        return self._update_head(part, addition, progress, rank, is_first)

    def _update(self, key: str, addition: _Addition) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        return self.jobs.try_update(key, addition.change, addition.condition, addition.names, addition.values)

    def _update_head(
        self, part: int, addition: _Addition, after: AttemptProgress, rank: int, is_first: bool
    ) -> ProgressUpdate:
        """Write into the head what a fact means for the whole gang, and return the answer to the fact.

        Args:
            part: the part with the rank.
            addition: the fact.
            after: the part after the fact.
            rank: the rank.
            is_first: whether the fact is the first failure of the part, or of the attempt if the part is the head.
        """
        fact = replace(addition.fact, world=after.world)
        completed = _completed(part, addition.set_name, after, rank)
        changes = ["ADD " + ", ".join(f"{name}_parts :part" for name in completed)] if completed else []
        values: dict[str, Any] = {":part": {part}} if completed else {}
        if is_first and part > 0:
            changes.insert(0, "SET failure = if_not_exists(failure, :f)")
            values[":f"] = encode(addition.failure)
        head: dict[str, Any] = {}
        if changes:
            key = progress_key(fact.job_id, fact.attempt)
            head = self.jobs.update(key, " ".join(changes), "attribute_exists(parts)", {}, values) or {}
        if is_first and part > 0:
            first = _progress(head).failure if head else None
            is_first = first is not None and first.rank == rank
        if addition.set_name in completed and len(head.get(f"{addition.set_name}_parts", ())) == parts_in(after.world):
            return ProgressUpdate(self.whole(head), is_first)
        if addition.set_name in ("held", "stopped") and completed:
            ended = {*head.get("held_parts", ()), *head.get("stopped_parts", ())}
            if len(ended) == parts_in(after.world):
                return ProgressUpdate(self.whole(head), is_first)
        return ProgressUpdate(replace(fact, failure=addition.failure if is_first else None), is_first)

    def whole(self, head: Mapping[str, Any]) -> AttemptProgress:
        """Return the whole progress of an attempt from its head."""
        return joined([_progress(item) for item in self.parts(head)])


def _failed(addition: _Addition, failure: RankFailure) -> _Addition:
    """Return the addition of a rank that failed and was not held before. The first failure stays: it causes the later.

    Args:
        addition: the addition of the rank to a set.
        failure: the failure of the rank.
    """
    change = f"SET failure = if_not_exists(failure, :f) {addition.change}"
    fact, values = addition.fact, {**addition.values, ":f": encode(failure)}
    if failure.ending.is_own:
        fact, change, values = replace(fact, own_ends=1), f"{change}, own_ends :one", {**values, ":one": 1}
    condition = f"{addition.condition} AND NOT contains(held, :r)"
    return replace(addition, fact=fact, change=change, condition=condition, values=values, failure=failure)


def _completed(part: int, set_name: str, after: AttemptProgress, rank: int) -> list[str]:
    """Return the sets that a fact about `rank` has completed in its part: "running", "stopped", "checked"."""
    ranks = frozenset(part_ranks(part, after.world))
    if set_name == "checked":
        return ["checked"] if ranks <= after.checked.keys() else []
    # The end of a rank that was never seen running completes the running ranks, too.
    is_new = set_name == "running" or rank not in after.running
    completed = ["running"] if is_new and ranks <= after.running | after.stopped | after.held else []
    if set_name == "running":
        return completed
    if ranks <= after.stopped:
        return [*completed, "stopped"]
    # The process of every rank of the part has ended. Some of the containers wait for the next attempt.
    return [*completed, "held"] if ranks <= after.stopped | after.held else completed


def _progress(item: Mapping[str, Any]) -> AttemptProgress:
    with reading(f"progress {item['job_id_rank']}", item):
        progress: AttemptProgress = decode(AttemptProgress, item)
        return progress
