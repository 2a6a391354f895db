"""Which ranks a hang waits for, by what each rank's NCCL flight recorder says of its process groups.

The rule of NVRx's attribution (reference, part 3): missing in a group are the members that said nothing of it and those
whose last enqueued collective is behind the others'. Groups form a wavefront: a rank that is missing here because it
waits there is not to blame; what is missing at the head, where nobody who is missing waits for anybody, is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.observations import FlightReport


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process group: who is missing, who waits for them, and whether any of them never said a word of it."""

    name: str
    missing: frozenset[int]
    waiting: frozenset[int]
    silent: frozenset[int]


@dataclass(frozen=True, slots=True)
class Culprits:
    """ranks: for whom all others wait. silent: those of them that appear in no group at all. groups: the head's names.

    circular: every group waits for another, as when ranks call collectives in different orders; then nobody is named.
    """

    ranks: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    circular: bool = False


def groups(reports: Iterable[FlightReport]) -> tuple[ProcessGroup, ...]:
    """Every process group that waits for somebody, by its name. Of two reports of a rank the later one counts."""
    by_name: dict[str, dict[int, FlightReport]] = {}
    for one in sorted(reports, key=lambda one: (one.at_s, one.report_id)):
        if one.rank is not None:
            by_name.setdefault(one.group, {})[one.rank] = one
    made = (_group(name, of) for name, of in sorted(by_name.items()))
    return tuple(group for group in made if group.missing)


def _group(name: str, of: Mapping[int, FlightReport]) -> ProcessGroup:
    expected = {rank for one in of.values() for rank in one.members} | set(of)
    newest = max((one.last_enqueued for one in of.values() if one.last_enqueued is not None), default=None)
    silent = frozenset(expected - set(of))
    if newest is None:
        return ProcessGroup(name, frozenset(), frozenset(), silent)
    behind = {rank for rank, one in of.items() if one.last_enqueued is None or one.last_enqueued < newest}
    waiting = {
        rank
        for rank, one in of.items()
        if one.last_enqueued == newest and (one.last_completed is None or one.last_completed < newest)
    }
    return ProcessGroup(name, silent | behind if waiting else frozenset(), frozenset(waiting), silent)


def culprits(reports: Iterable[FlightReport]) -> Culprits:
    """For whom the run waits. Groups whose last collective is complete with everybody wait for nobody."""
    given = list(reports)
    stuck = groups(given)
    if not stuck:
        return Culprits()
    waiting = frozenset(rank for group in stuck for rank in group.waiting)
    head = [group for group in stuck if not group.missing & waiting]
    if not head:
        free = {rank for group in stuck for rank in group.missing} - waiting
        if not free:
            return Culprits(groups=tuple(group.name for group in stuck), circular=True)
        head = [group for group in stuck if group.missing & free]
    ranks = {rank for group in head for rank in group.missing} - waiting
    heard = {one.rank for one in given}
    silent = tuple(sorted(rank for rank in ranks if rank not in heard))
    return Culprits(tuple(sorted(ranks)), silent, tuple(group.name for group in head))


def odd_frames(reports: Iterable[FlightReport]) -> Mapping[str, tuple[int, ...]]:
    """The ranks whose top frame is not the one that most have, by frame; none where no frame is known."""
    of: dict[str, set[int]] = {}
    for one in reports:
        if one.frame and one.rank is not None:
            of.setdefault(one.frame, set()).add(one.rank)
    if not of:
        return {}
    usual = max(sorted(of), key=lambda frame: len(of[frame]))
    return {frame: tuple(sorted(ranks)) for frame, ranks in sorted(of.items()) if frame != usual}
