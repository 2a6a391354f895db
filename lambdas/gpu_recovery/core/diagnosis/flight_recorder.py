"""NCCL flight recorder: the ranks that a hang waits for, by each rank's entries on its process groups.

The rule is that of NVRx's attribution (reference, part 3). A rank is missing in a group if it has no entry, or if its
last enqueued collective is behind that of the others.

The groups form a wavefront. A rank that is missing in one group because it waits in another is not the cause. The cause
is at the head: the groups with missing ranks that do not wait in any group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.observations import FlightReport


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group: its missing ranks, and the ranks that wait for them.

    missing: ranks that the group waits for.
    waiting: ranks that wait in the group.
    unreported: ranks of the group without any entry on it.
    """

    name: str
    missing: frozenset[int]
    waiting: frozenset[int]
    unreported: frozenset[int]


@dataclass(frozen=True, slots=True)
class Culprits:
    """Result of the analysis.

    ranks: ranks that all others wait for.
    unreported: those of the ranks that appear in no group at all.
    groups: names of the groups at the head of the wavefront.
    circular: each group waits for another, as when ranks call collectives in different orders. No rank is then named.
    """

    ranks: tuple[int, ...] = ()
    unreported: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    circular: bool = False


def groups(reports: Iterable[FlightReport]) -> tuple[ProcessGroup, ...]:
    """Process groups that wait for a rank, by name. Of two observations of a rank the later counts."""
    by_name: dict[str, dict[int, FlightReport]] = {}
    for report in sorted(reports, key=lambda report: (report.at_s, report.report_id)):
        if report.rank is not None:
            by_name.setdefault(report.group, {})[report.rank] = report
    process_groups = (_group(name, by_rank) for name, by_rank in sorted(by_name.items()))
    return tuple(group for group in process_groups if group.missing)


def _group(name: str, by_rank: Mapping[int, FlightReport]) -> ProcessGroup:
    expected = {rank for report in by_rank.values() for rank in report.members} | set(by_rank)
    newest = max(
        (report.last_enqueued for report in by_rank.values() if report.last_enqueued is not None), default=None
    )
    silent = frozenset(expected - set(by_rank))
    if newest is None:
        return ProcessGroup(name, frozenset(), frozenset(), silent)
    behind = {rank for rank, report in by_rank.items() if report.last_enqueued is None or report.last_enqueued < newest}
    waiting = {
        rank
        for rank, report in by_rank.items()
        if report.last_enqueued == newest and (report.last_completed is None or report.last_completed < newest)
    }
    return ProcessGroup(name, silent | behind if waiting else frozenset(), frozenset(waiting), silent)


def culprits(reports: Iterable[FlightReport]) -> Culprits:
    """Ranks that the run waits for. A group waits for no rank if its last collective is complete on every rank."""
    entries = list(reports)
    stuck = groups(entries)
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
    reporting = {entry.rank for entry in entries}
    silent = tuple(sorted(rank for rank in ranks if rank not in reporting))
    return Culprits(tuple(sorted(ranks)), silent, tuple(group.name for group in head))


def odd_frames(reports: Iterable[FlightReport]) -> Mapping[str, tuple[int, ...]]:
    """Ranks with another top frame than most ranks, by frame. Empty if no frame is known."""
    by_frame: dict[str, set[int]] = {}
    for report in reports:
        if report.frame and report.rank is not None:
            by_frame.setdefault(report.frame, set()).add(report.rank)
    if not by_frame:
        return {}
    usual = max(sorted(by_frame), key=lambda frame: len(by_frame[frame]))
    return {frame: tuple(sorted(ranks)) for frame, ranks in sorted(by_frame.items()) if frame != usual}
