"""Flight recorders: for whom a hang waits. Sixteen ranks: tensor-parallel groups of 4, data-parallel ones across."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.flight_recorder import Culprits, culprits, groups, odd_frames
from gpu_recovery.core.diagnosis.observations import FlightReport, Observation, ProgressReport, RpcStage
from gpu_recovery.core.diagnosis.rules.collectives import RULES
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind

from tests.core.diagnosis.small_cases import AT_S, cluster, found_by, judged, late, of_row

TP = {f"tp{n}": tuple(range(4 * n, 4 * n + 4)) for n in range(4)}
DP = {f"dp{n}": tuple(range(n, 16, 4)) for n in range(4)}


def says(group: str, members: tuple[int, ...], rank: int, enqueued: int | None, completed: int | None) -> FlightReport:
    """What a rank's recorder says of one group."""
    return FlightReport(
        report_id=f"{group}-{rank}",
        at_s=AT_S,
        rank=rank,
        group=group,
        members=members,
        last_enqueued=enqueued,
        last_completed=completed,
        frame="wait" if enqueued != completed else "compute",
    )


def hang(stuck: Collection[int], silent: Collection[int] = ()) -> list[FlightReport]:
    """Step 10: first each tensor-parallel group meets, then each data-parallel one; the `stuck` come to neither.

    Whoever shares a tensor-parallel group with them waits there, and so is missed by its data-parallel group.
    """
    held = {rank for members in TP.values() if set(members) & set(stuck) for rank in members}
    reports = []
    for of, name_first in ((TP, True), (DP, False)):
        for name, members in of.items():
            for rank in members:
                if rank in silent:
                    continue
                if name_first:
                    came = rank not in stuck
                    done = rank not in held
                else:
                    came = rank not in held
                    done = not set(members) & held
                reports.append(says(name, members, rank, 10 if came else 9, 10 if came and done else 9))
    return reports


@pytest.mark.parametrize("truth", [(12, 14), (9, 14), (10, 15)])
def test_the_ranks_that_all_others_wait_for_are_named(truth: tuple[int, int]) -> None:
    """In one tensor-parallel group or in two; those that wait for them are missing elsewhere, and not to blame."""
    of = culprits(hang(truth))
    assert of.ranks == truth
    assert not of.circular
    behind = {rank for group in groups(hang(truth)) for rank in group.missing}
    assert behind > set(truth)


@pytest.mark.parametrize("rank", range(16))
def test_any_single_rank_is_named(rank: int) -> None:
    """Wherever it is; one that left no dump is missing as well, and may have died."""
    assert culprits(hang([rank])).ranks == (rank,)
    of = culprits(hang([rank], silent=[rank]))
    assert (of.ranks, of.unreported) == ((rank,), (rank,))


def test_nobody_is_missing_where_everybody_is_done() -> None:
    """Nor where a group is under way with all its members, nor in a group that has done nothing yet."""
    assert culprits(hang(())) == Culprits()
    assert culprits([says("g", (0, 1), rank, 5, 4) for rank in (0, 1)]) == Culprits()
    assert culprits([says("g", (0, 1), 0, None, None)]) == Culprits()
    assert culprits([]) == Culprits()


def test_a_rank_that_is_behind_without_anybody_waiting_is_not_missing() -> None:
    """The others have completed: a group that some members left early."""
    assert culprits([says("g", (0, 1), 0, 5, 5), says("g", (0, 1), 1, 4, 4)]) == Culprits()


def test_groups_that_wait_for_one_another_name_nobody() -> None:
    """Two ranks that call two collectives in different orders."""
    reports = [says("a", (0, 1), 0, 5, 4), says("a", (0, 1), 1, 4, 4)]
    reports += [says("b", (0, 1), 1, 5, 4), says("b", (0, 1), 0, 4, 4)]
    of = culprits(reports)
    assert of == Culprits(groups=("a", "b"), circular=True)
    found = of_row(found_by(RULES, reports), "flightc")
    assert [one.cause for one in found] == [Cause.APPLICATION]
    assert found[0].english.startswith("process groups a, b wait for one another")
    assert found[0].chinese == "进程组a, b相互等待 → 集合通信调用顺序不一致"


def test_the_later_report_of_a_rank_counts_and_order_does_not() -> None:
    """A rank that came in the end is not missing."""
    reports = hang((12, 14))
    assert culprits(list(reversed(reports))) == culprits(reports)
    late = replace(says("tp3", TP["tp3"], 12, 10, 9), report_id="later", at_s=AT_S + 1)
    assert culprits([late, *reports]).ranks == (14,)


def test_ranks_whose_top_frame_is_unusual_are_named() -> None:
    """The many wait; the few are somewhere else."""
    assert odd_frames(says("g", (), rank, 5, 4 if rank else 5) for rank in range(6)) == {"compute": (0,)}
    assert odd_frames([replace(says("g", (), 0, 1, 1), frame="")]) == {}


def test_the_missing_ranks_are_the_verdict() -> None:
    """Their workers where they are known, else their ranks."""
    verdict = judged(hang((9, 14)), cluster(nodes=4, workers=4))
    assert (verdict.cause, verdict.scope) == (Cause.WORKER_HANG, Scope.of(ScopeKind.WORKER, "w14", "w9"))
    assert verdict.decided
    assert verdict.findings[0].english == (
        "ranks 9, 14 are missing in process group tp2, tp3: the others wait for them"
    )
    assert verdict.findings[0].chinese == "进程组tp2, tp3缺少rank 9, 14，其余rank在等待"
    assert judged(hang((9, 14))).scope == Scope.of(ScopeKind.RANK, "9", "14")


def test_the_missing_rank_goes_before_everybody_who_hangs() -> None:
    """All calls ran out of time and nobody has moved for long: the recorder alone says for whom they wait."""
    reports: list[Observation] = [*hang((9,)), *(late(f"w{n}", RpcStage.HEADER, request_id="q") for n in range(16))]
    reports += [
        ProgressReport(report_id=f"beat-{n}-{k}", at_s=AT_S - 200 * k, worker=f"w{n}", value=7.0)
        for n in range(16)
        for k in range(5)
    ]
    verdict = judged(reports, cluster(nodes=4, workers=4))
    assert (verdict.cause, verdict.scope) == (Cause.WORKER_HANG, Scope.of(ScopeKind.WORKER, "w9"))


def test_a_rank_that_said_nothing_may_have_died() -> None:
    """A crash is the rival."""
    assert [one.cause for one in judged(hang([7], silent=[7])).rivals] == [Cause.WORKER_CRASH]
    assert not judged(hang([7])).rivals
