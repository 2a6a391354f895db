"""PyTorch flight recorder: the ranks that a hang waits for, by the records of each rank on its process groups.

Collectives of a process group are numbered. A rank that waits in collective n proves that another rank is missing if
that rank has called no collective from n on. Numbers beyond n prove nothing: ranks call ahead of their GPUs.

A send or a receive waits for its other side. It has no number that both sides share, so it never proves anything, but a
rank that waits in one is not the cause.

A rank that has completed collective n proves that every member has called n. A record of a member with a smaller number
is then older, or the processes have been started again between the two records. The older record is dropped. If both
records are of the same time, the group proves nothing.

The groups form a wavefront. A rank that is missing in one group because it waits for a rank in another group is not the
cause. The cause are the missing ranks that wait for no other rank. This is the rule of NVRx's attribution (reference,
part 3), with the numbers of `entries` instead of those of `pg_status`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice

from gpu_recovery.core.diagnosis.observations import FlightReport
from gpu_recovery.core.diagnosis.rank_ranges import RankRanges, of_ranks, parsed

WAIT_S = 30.0
"""Seconds from which an operation counts as waiting. A younger one may belong to a run that gets on."""
AGE_S = 5.0
"""Accuracy of the time of a dump in seconds, as `gpu-recovery-run` measures it."""
BEHIND_LEAST = 2
"""Collectives that others have completed and a rank has not, from which the rank does not see their end. One collective
may end on one rank a little before the other."""
SILENT_MAX = 64
"""Upper bound of the ranks without a record that a group names. With more the records are incomplete."""
PEERS_MAX = 64
"""Upper bound of the other sides of sends and receives that count, for each rank and group."""


@dataclass(frozen=True)
class ProcessGroup:
    """A process group: its missing ranks, and the ranks that wait for them.

    missing: ranks that the group waits for.
    waiting: ranks that wait in the group for a missing rank.
    unreported: ranks of the group without any entry on it.
    proved: missing ranks whose own numbers show that they have not called the collective.
    late: ranks that have not seen the end of collectives which the others have completed.
    joined: every rank has called the collective in which the group waits, and it does not end.
    doubted: ranks whose record does not fit the records of the others.
    """

    name: str
    missing: frozenset[int]
    waiting: frozenset[int]
    unreported: frozenset[int]
    proved: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    joined: frozenset[int] = frozenset()
    doubted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Culprits:
    """Result of the analysis.

    ranks: ranks that all others wait for.
    unreported: those of the ranks that appear in no group at all.
    groups: names of the groups at the head of the wavefront.
    circular: each group waits for another, as when ranks call collectives in different orders. No rank is then named.
    proved: the ranks' own numbers show that they have not called the collective.
    """

    ranks: tuple[int, ...] = ()
    unreported: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    circular: bool = False
    proved: bool = False


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks that call another operation than most ranks as the same collective of a group."""

    group: str
    ranks: tuple[int, ...]
    op: str
    usual: str


@dataclass
class _Records:
    """The newest report of each rank on one group.

    outdated: ranks whose record is dropped, because it is older than what the others show.
    """

    name: str
    by_rank: dict[int, FlightReport] = field(default_factory=dict)
    outdated: set[int] = field(default_factory=set)

    def members(self) -> RankRanges:
        """Ranks of the group as most reports name them, and the ranks that report. Empty texts have no effect."""
        texts = Counter(report.member_ranges for report in self.by_rank.values() if report.member_ranges)
        lists = Counter(report.members for report in self.by_rank.values() if report.members)
        ranges = parsed(max(texts, key=lambda text: (texts[text], text))) if texts else None
        most = max(lists.items(), key=lambda item: (item[1], item[0]))[0] if lists else ()
        listed = of_ranks(most)
        own = of_ranks({*self.by_rank, *self.outdated})
        return RankRanges(((ranges or RankRanges()).ranges) + listed.ranges + own.ranges)

    def contradicting(self) -> frozenset[int]:
        """Return the ranks that have completed a collective that another has not called, and the others."""
        numbers = self.numbered()
        most = max((completed for _, completed in numbers.values()), default=0)
        least = min((enqueued for enqueued, _ in numbers.values()), default=0)
        return frozenset(
            rank for rank, (enqueued, completed) in numbers.items() if enqueued < most or completed > least
        )

    def older(self) -> dict[int, float]:
        """Return the time of each record that a later record contradicts, by its rank."""
        numbers = self.numbered()
        found: dict[int, float] = {}
        kept: list[tuple[float, int, int]] = []
        later, completed_most, enqueued_least = 0, -1, None
        for rank in sorted(numbers, key=lambda rank: (-self.by_rank[rank].at_s, rank)):
            at_s, (enqueued, completed) = self.by_rank[rank].at_s, numbers[rank]
            while later < len(kept) and kept[later][0] > at_s + AGE_S:
                _, of_later, done_later = kept[later]
                completed_most = max(completed_most, done_later)
                enqueued_least = of_later if enqueued_least is None else min(enqueued_least, of_later)
                later += 1
            if enqueued_least is not None and (completed_most > enqueued or enqueued_least < completed):
                found[rank] = at_s
            else:
                kept.append((at_s, enqueued, completed))
        return found

    def numbered(self) -> dict[int, tuple[int, int]]:
        """Last called and last completed collective of each rank where both are known.

        `pg_status` counts sends and receives, too. So its numbers count only in a group without any.
        """
        mixed = any(report.uses_p2p or report.sends_to or report.receives_from for report in self.by_rank.values())
        return {
            rank: (report.last_enqueued, -1 if report.last_completed is None else report.last_completed)
            for rank, report in self.by_rank.items()
            if report.last_enqueued is not None and not (mixed and report.from_status)
        }


@dataclass(frozen=True)
class FlightAnalysis:
    """Groups of all reports, with the records that they were made of, and the ranks with any report."""

    groups: tuple[ProcessGroup, ...]
    records: tuple[_Records, ...]
    reporting: frozenset[int]

    @classmethod
    def of(cls, reports: Iterable[FlightReport]) -> FlightAnalysis:
        """Analyse the reports. Of two observations of a rank the later counts."""
        records = tuple(_without_older(_records(reports)))
        late = frozenset(rank for of in records for rank in _late(of))
        reporting = frozenset(rank for of in records for rank in of.by_rank)
        return cls(tuple(_group(of, late) for of in records), records, reporting)


def groups(reports: Iterable[FlightReport]) -> tuple[ProcessGroup, ...]:
    """Process groups that wait for a rank, by name."""
    return tuple(group for group in FlightAnalysis.of(reports).groups if group.missing)


def _records(reports: Iterable[FlightReport]) -> list[_Records]:
    """Records of each group. Groups of the same name with other members are other groups."""
    members: dict[str, set[tuple[object, object]]] = {}
    known = [report for report in reports if report.rank is not None]
    for report in known:
        if report.members or report.member_ranges:
            members.setdefault(report.group, set()).add((report.members, report.member_ranges))
    found: dict[tuple[str, object], _Records] = {}
    for report in sorted(known, key=lambda report: (report.at_s, report.report_id)):
        of_name = members.get(report.group, set())
        own = (report.members, report.member_ranges) if report.members or report.member_ranges else None
        key = own if own is not None or len(of_name) != 1 else next(iter(of_name))
        records = found.setdefault((report.group, key), _Records(report.group))
        records.by_rank[report.rank or 0] = report
    return [found[key] for key in sorted(found, key=repr)]


def _without_older(found: list[_Records]) -> list[_Records]:
    """Drop the records that later ones contradict, and the other records of the same dumps."""
    older: dict[int, float] = {}
    for records in found:
        for rank, at_s in records.older().items():
            older[rank] = max(older.get(rank, at_s), at_s)
    for records in found:
        records.outdated = {
            rank for rank, report in records.by_rank.items() if rank in older and report.at_s <= older[rank] + AGE_S
        }
        records.by_rank = {rank: of for rank, of in records.by_rank.items() if rank not in records.outdated}
    return found


def _began_s(report: FlightReport) -> float | None:
    """Time from which every record shows the state after the rank began to wait; None if it is unknown."""
    return None if report.waits_s is None else report.at_s - report.waits_s + AGE_S


def _waits(report: FlightReport) -> bool:
    return report.waits_s is None or report.waits_s >= WAIT_S


def _late(records: _Records) -> frozenset[int]:
    """Ranks that have not seen the end of collectives which ranks of the group have completed by the same time."""
    numbers = {rank: of for rank, of in records.numbered().items() if not records.by_rank[rank].from_status}
    if not numbers or records.contradicting():
        return frozenset()
    newest = max(completed for _, completed in numbers.values())
    first_s = min(records.by_rank[rank].at_s for rank, (_, completed) in numbers.items() if completed == newest)
    return frozenset(
        rank
        for rank, (enqueued, completed) in numbers.items()
        if enqueued > completed >= 0 and newest - completed >= BEHIND_LEAST
        if _waits(records.by_rank[rank]) and records.by_rank[rank].at_s >= first_s
    )


def _group(records: _Records, late: Set[int]) -> ProcessGroup:
    numbers = records.numbered()
    members = records.members()
    silent = frozenset(islice((rank for rank in members if rank not in records.by_rank), SILENT_MAX + 1))
    unknown = frozenset(records.by_rank) - set(numbers) | (silent if len(silent) <= SILENT_MAX else frozenset())
    proved: set[int] = set()
    missing: set[int] = set()
    waiting: set[int] = set()
    joined: set[int] = set()
    contradicting = records.contradicting()
    doubted = contradicting | records.outdated
    pending = {
        rank: completed
        for rank, (enqueued, completed) in numbers.items()
        if enqueued > completed and rank not in late and _waits(records.by_rank[rank])
    }
    if pending:
        stuck = max(pending.values())
        at = [rank for rank, completed in pending.items() if completed == stuck]
        began = [_began_s(records.by_rank[rank]) for rank in at]
        begun = min((at_s for at_s in began if at_s is not None), default=None)
        proved = {
            rank
            for rank, (enqueued, _) in numbers.items()
            if enqueued <= stuck and (begun is None or records.by_rank[rank].at_s >= begun)
        }
        behind = {rank for rank, (enqueued, _) in numbers.items() if enqueued <= stuck}
        if contradicting:
            proved, waiting = set(), set(pending)
        least = min((numbers[rank][0] for rank in proved), default=None)
        if least is not None:
            waiting = {rank for rank, completed in pending.items() if least <= completed}
        if unknown and not behind:
            waiting |= set(at)
        missing = proved | (unknown | doubted if waiting else set())
        joined = set(at) if not doubted and not behind and not unknown and len(silent) <= SILENT_MAX else set()
    for rank, report in records.by_rank.items():
        peers = _peers(rank, report, records.by_rank) if rank not in late and _waits(report) else frozenset()
        if peers:
            waiting.add(rank)
            missing |= peers
    return ProcessGroup(
        records.name,
        frozenset(missing),
        frozenset(waiting),
        silent,
        frozenset(proved),
        _late(records),
        frozenset(joined),
        frozenset(doubted),
    )


def _peers(rank: int, report: FlightReport, by_rank: Mapping[int, FlightReport]) -> frozenset[int]:
    """Ranks that have not called the other side of a send or a receive in which `rank` waits."""
    began = _began_s(report)
    found = set()
    for own, other in ((report.receives_from, "sends_to"), (report.sends_to, "receives_from")):
        for peer in islice(parsed(own) or RankRanges(), PEERS_MAX):
            answer = by_rank.get(peer)
            silent = answer is None or rank not in (parsed(getattr(answer, other)) or ())
            if silent and (answer is None or began is None or answer.at_s >= began):
                found.add(peer)
    return frozenset(found - {rank})


def culprits(reports: Iterable[FlightReport]) -> Culprits:
    """Ranks that the run waits for. A group waits for no rank if its last collective is complete on every rank."""
    return missing_ranks(FlightAnalysis.of(reports))


def missing_ranks(analysis: FlightAnalysis) -> Culprits:
    """Ranks that the run waits for, by their numbers if possible, else by missing records."""
    reporting = analysis.reporting
    stuck = [group for group in analysis.groups if group.missing]
    if not stuck:
        return Culprits()
    waiting = frozenset(rank for group in stuck for rank in group.waiting)
    free = frozenset(rank for group in stuck for rank in group.missing) - waiting
    doubted = frozenset(rank for group in analysis.groups for rank in group.doubted)
    if not free:
        names = tuple(dict.fromkeys(group.name for group in stuck))
        return Culprits() if doubted else Culprits(groups=names, circular=True)
    # A rank in a collective that every rank has called may wait for the network, and is then not the cause.
    held = frozenset(rank for group in analysis.groups for rank in group.joined)
    proved = frozenset(rank for group in stuck for rank in group.proved) - waiting - held - doubted
    named = proved or free & reporting - held or free - reporting
    if not named or (free & doubted and not proved):
        return Culprits()
    head = [group for group in stuck if not group.missing & waiting and group.missing & named]
    head = head or [group for group in stuck if group.missing & named]
    silent = tuple(sorted(rank for rank in named if rank not in reporting))
    names = tuple(dict.fromkeys(group.name for group in head))
    return Culprits(tuple(sorted(named)), silent, names, proved=bool(proved))


def late_ranks(analysis: FlightAnalysis) -> Culprits:
    """Ranks that have not seen the end of collectives which the others have completed, as after an error of their GPU.

    They are named only if they are fewer than the other ranks.
    """
    late = [group for group in analysis.groups if group.late]
    ranks = tuple(sorted({rank for group in late for rank in group.late}))
    if not ranks or 2 * len(ranks) >= len(analysis.reporting):
        return Culprits()
    return Culprits(ranks, groups=tuple(dict.fromkeys(group.name for group in late)))


def joined_groups(analysis: FlightAnalysis) -> tuple[ProcessGroup, ...]:
    """Groups of several ranks that wait in a collective which every rank has called."""
    return tuple(group for group in analysis.groups if len(group.joined) > 1 and not group.missing)


def mismatches(analysis: FlightAnalysis) -> tuple[Mismatch, ...]:
    """Ranks that call another operation than most ranks as the same collective, by group."""
    found = []
    for records in analysis.records:
        by_number: dict[int, dict[int, str]] = {}
        for rank, report in records.by_rank.items():
            if report.op and not report.from_status and _waits(report):
                number = -1 if report.last_completed is None else report.last_completed
                by_number.setdefault(number, {})[rank] = report.op
        for ops in by_number.values():
            counts = Counter(ops.values())
            usual = max(sorted(counts), key=lambda op: counts[op])
            for op in sorted(counts):
                if op != usual:
                    ranks = tuple(sorted(rank for rank, called in ops.items() if called == op))
                    found.append(Mismatch(records.name, ranks, op, usual))
    return tuple(found)


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
