"""Flight recorders: for whom a hang waits. Sixteen ranks: tensor-parallel groups of 4, data-parallel ones across."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.flight_recorder import (
    AGE_S,
    SILENT_MAX,
    WAIT_S,
    Culprits,
    FlightAnalysis,
    culprits,
    groups,
    late_ranks,
    odd_frames,
)
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    FlightReport,
    LogFinding,
    Observation,
    ProgressReport,
    RpcStage,
)
from gpu_recovery.core.diagnosis.rules.collectives import RULES
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy, Scope, ScopeKind, Weight
from gpu_recovery.core.logs.kinds import LineKind, LineRole

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


# -- what proves that a rank is missing --------------------------------------------------------------------------------


def of_world(rank: int, enqueued: int | None, completed: int | None, size: int = 8, **more: Any) -> FlightReport:
    """A record of one group of all ranks, as `gpu-recovery-run` sends it."""
    return replace(says("0", (), rank, enqueued, completed), member_ranges=f"0-{size - 1}", **more)


def weights(reports: list[FlightReport], topology: Topology | None = None) -> dict[str, float]:
    """The greatest weight of each row of the recorder."""
    found: dict[str, float] = {}
    for one in found_by(RULES, reports, topology):
        found[one.row] = max(found.get(one.row, 0.0), one.weight)
    return found


def test_a_rank_that_has_called_what_the_others_wait_in_is_not_missing() -> None:
    """All are stuck in collective 10. That some have called further ahead of their GPUs says nothing of the others."""
    reports = [of_world(rank, 10 if rank in (2, 5) else 14, 9) for rank in range(8)]
    assert culprits(reports) == Culprits()
    assert weights(reports) == {"flightj": Weight.HINT}


def test_numbers_of_pg_status_name_nobody_where_sends_are_counted_too() -> None:
    """They are the number of a send, and smaller or larger than that of any collective."""
    waits = [of_world(rank, 10, 9, uses_p2p=True) for rank in range(1, 8)]
    mixed = of_world(0, 3, 3, from_status=True)
    assert weights([*waits, mixed]) == {"flightu": Weight.STRONG}
    alone = [*(replace(one, uses_p2p=False) for one in waits), of_world(0, 9, 9, from_status=True)]
    assert weights(alone) == {"flight": Weight.PROOF}
    assert culprits(alone).ranks == (0,)


def test_a_rank_that_waits_to_receive_is_not_the_cause() -> None:
    """Stage 1 receives from stage 0, which hangs: both are missing in their data-parallel groups, one is to blame."""
    reports = [
        says("dp0", (0, 2), 2, 10, 9),
        says("dp0", (0, 2), 0, 9, 9),
        says("dp1", (1, 3), 3, 10, 9),
        says("dp1", (1, 3), 1, 9, 9),
        replace(says("pp", (0, 1), 1, 3, 3), receives_from="0", uses_p2p=True),
        replace(says("pp", (0, 1), 0, 3, 3), uses_p2p=True),
    ]
    found = culprits(reports)
    assert (found.ranks, found.proved) == ((0,), True)
    answered = replace(reports[-1], sends_to="1")
    assert culprits([*reports[:-1], answered]).ranks == (0, 1)


def test_a_wait_between_two_ranks_alone_is_no_proof() -> None:
    """A send may end on one side before the other; a broken receiver would blame its partner."""
    reports = [
        replace(says("pp", (0, 1), 1, 0, 0), receives_from="0", uses_p2p=True),
        replace(says("pp", (0, 1), 0, 0, 0), uses_p2p=True),
    ]
    assert weights(reports) == {"flightu": Weight.STRONG}


def test_a_record_that_is_older_than_the_wait_proves_nothing() -> None:
    """Its rank may have joined since. Nor does a wait of a few seconds: the run may get on."""
    waits = [of_world(rank, 10, 9, waits_s=60.0) for rank in range(1, 8)]
    older = of_world(0, 9, 9)
    assert weights([*waits, replace(older, at_s=AT_S - 60 + AGE_S)]) == {"flight": Weight.PROOF}
    assert weights([*waits, replace(older, at_s=AT_S - 61 + AGE_S)]) == {}
    assert weights([*(replace(one, waits_s=WAIT_S - 1) for one in waits), older]) == {}


def test_a_rank_that_does_not_see_the_end_of_what_the_others_completed_is_named() -> None:
    """Its GPU may be broken: it has called everything. One collective may end a little later on it."""
    reports = [of_world(rank, 12, 5 if rank == 3 else 9) for rank in range(8)]
    assert late_ranks(FlightAnalysis.of(reports)).ranks == (3,)
    assert weights(reports) == {"flightl": Weight.FAIR}
    assert late_ranks(FlightAnalysis.of([of_world(rank, 12, 8 if rank == 3 else 9) for rank in range(8)])) == Culprits()
    many = [of_world(rank, 12, 5 if rank < 4 else 9) for rank in range(8)]
    assert late_ranks(FlightAnalysis.of(many)) == Culprits()


def test_the_waits_of_a_rank_with_a_broken_gpu_prove_nothing() -> None:
    """It has called ahead in a pair, and receives from a rank whose send has ended."""
    world = [of_world(rank, 9, 5 if rank == 3 else 9) for rank in range(8)]
    pair = [says("pair", (3, 4), 3, 5, 4), says("pair", (3, 4), 4, 4, 4)]
    assert weights([*world, *pair]) == {"flightl": Weight.FAIR}
    receives = [replace(says("pp", (3, 4), 3, 0, 0), receives_from="4"), says("pp", (3, 4), 4, 0, 0)]
    assert weights([*world, *receives]) == {"flightl": Weight.FAIR}


def test_groups_of_the_same_name_with_other_members_are_other_groups() -> None:
    """Else each would miss the ranks of the other."""
    reports = [says("pp", (0, 1), rank, 5, 5) for rank in (0, 1)] + [says("pp", (2, 3), rank, 9, 8) for rank in (2, 3)]
    assert culprits(reports) == Culprits()


# -- ranks without a record --------------------------------------------------------------------------------------------


def test_a_rank_without_a_dump_is_named_without_proof() -> None:
    """Beside ranks that are proved to be missing it is not named at all."""
    waits = [of_world(rank, 10, 9) for rank in range(8)]
    assert weights(waits[:7]) == {"flightu": Weight.STRONG}
    assert culprits(waits[:7]).unreported == (7,)
    proved = [*waits[:6], of_world(6, 9, 9)]
    assert (culprits(proved).ranks, weights(proved)["flight"]) == ((6,), Weight.PROOF)


@pytest.mark.parametrize("waiting", [1, 7])
def test_ranks_that_wait_for_most_ranks_locate_no_fault(waiting: int) -> None:
    """`if rank == 0: all_reduce()`. All instances would be left out of the next attempt. Half a gang may be a rack."""
    reports = [says("0", tuple(range(16)), rank, 10 if rank < waiting else 9, 9) for rank in range(16)]
    verdict = judged(reports, cluster(4, 4))
    assert (verdict.cause, verdict.scope.kind, verdict.decided) == (Cause.WORKER_HANG, ScopeKind.JOB, False)
    half = [says("0", tuple(range(16)), rank, 10 if rank < 8 else 9, 9) for rank in range(16)]
    assert judged(half, cluster(4, 4)).decided


@pytest.mark.parametrize("hung", [0, 1])
def test_of_two_ranks_the_one_that_the_other_waits_for_is_proved(hung: int) -> None:
    """That is half of the gang."""
    reports = [of_world(rank, 9 if rank == hung else 10, 9, 2, instance_id=f"i-{rank}") for rank in range(2)]
    assert weights(reports, plan(2)) == {"flight": Weight.PROOF}
    verdict = judged(reports, plan(2))
    assert (verdict.decided, plan(2).instances_of(verdict.scope)) == (True, {f"i-{hung}"})


def test_a_record_of_an_earlier_start_of_the_processes_blames_no_other_rank() -> None:
    """`torchrun` has started all processes again, and rank 3 has not written its dump again. Its numbers are older."""
    members = tuple(range(16))
    again = [replace(says("0", members, rank, 51, 50), waits_s=600.0) for rank in members if rank != 3]
    old = replace(says("0", members, 3, 100, 99), at_s=AT_S - 1_000, waits_s=600.0)
    assert not judged([*again, old], cluster(4, 4)).decided


EIGHT = tuple(range(8))
REST = [says("rest", tuple(range(8, 16)), rank, 5, 5) for rank in range(8, 16)]


def around(rank: int, enqueued: int, completed: int, age_s: float) -> list[FlightReport]:
    """Seven ranks that wait in collective 51, and a record of the eighth that does not fit. Half of the job is idle."""
    waits = [replace(says("0", EIGHT, other, 51, 50), waits_s=600.0) for other in EIGHT if other != rank]
    odd = replace(says("0", EIGHT, rank, enqueued, completed), at_s=AT_S - age_s)
    return [*waits, odd, *REST]


@pytest.mark.parametrize("age_s", [1_000.0, AGE_S, 0.0, -AGE_S, -1_000.0])
@pytest.mark.parametrize(("enqueued", "completed"), [(100, 99), (100, 100), (20, 20)])
def test_records_of_two_starts_of_the_processes_prove_nothing(enqueued: int, completed: int, age_s: float) -> None:
    """Rank 7 has completed what the others have not called, or the reverse. That is impossible within one start."""
    reports = around(7, enqueued, completed, age_s)
    assert culprits(reports) == Culprits()
    assert weights(reports) == {}


@pytest.mark.parametrize("age_s", [1_000.0, 0.0])
def test_a_record_that_does_not_fit_leaves_the_proof_of_another_group(age_s: float) -> None:
    """Ranks that wait in the group with the odd record are still not the cause elsewhere."""
    other = [says("dp", (0, 8, 9), 8, 10, 9), says("dp", (0, 8, 9), 0, 9, 9), says("dp", (0, 8, 9), 9, 9, 9)]
    found = culprits([*around(7, 100, 99, age_s), *other])
    assert (found.ranks, found.proved) == ((9,), True)


def test_all_records_of_an_outdated_dump_are_dropped() -> None:
    """The old dump of rank 7 shows another group, too. Its number there fits, and is as old."""
    old = replace(says("dp", (7, 8), 7, 9, 9), at_s=AT_S - 1_000)
    pair = [old, says("dp", (7, 8), 8, 10, 9)]
    assert culprits(pair).ranks == (7,)
    assert culprits([*around(7, 100, 99, 1_000.0), *pair]) == Culprits()
    same_time = [replace(old, at_s=AT_S), pair[1]]
    assert culprits([*around(7, 100, 99, 0.0), *same_time]) == Culprits()


def test_ranks_that_wait_for_an_outdated_record_call_no_collective_in_another_order() -> None:
    """Every missing rank waits itself, but the record of rank 7 is unknown."""
    reports = [*around(7, 100, 99, 1_000.0), says("pair", (0, 7), 0, 5, 5), says("dp", (0, 8), 8, 10, 9)]
    reports += [says("dp", (0, 8), 0, 9, 9), replace(says("pp", (7, 8), 8, 3, 3), sends_to="7")]
    assert not any(one.row == "flightc" for one in found_by(RULES, reports))


def test_an_instance_without_any_dump_decides_nothing() -> None:
    """The dumps of its eight ranks may be late."""
    waits = [of_world(rank, 10, 9, 16, instance_id=f"i-{rank // 8}", local_world=8) for rank in range(16)]
    assert weights(waits[:8], plan(2)) == {"flightu": Weight.HINT}
    assert weights([*waits[:12], *waits[13:]], plan(2)) == {"flightu": Weight.STRONG}


def test_ranks_without_a_dump_on_several_instances_decide_nothing() -> None:
    """One of them may be the cause, and the dumps of the others late. Without places two ranks are too many."""
    waits = [of_world(rank, 10, 9, 16, instance_id=f"i-{rank // 8}", local_world=8) for rank in range(16)]
    assert weights([one for one in waits if one.rank not in (3, 12)], plan(2)) == {"flightu": Weight.HINT}
    assert weights([one for one in waits if one.rank not in (12, 13)], plan(2)) == {"flightu": Weight.STRONG}
    unplaced = [of_world(rank, 10, 9) for rank in range(8)]
    assert weights(unplaced[:7]) == {"flightu": Weight.STRONG}
    assert weights(unplaced[:6]) == {"flightu": Weight.HINT}


def test_a_group_without_most_of_its_records_names_none_of_them() -> None:
    """The records of a large job are incomplete, or somebody has made its ranges up."""
    size = SILENT_MAX + 3
    assert culprits([of_world(rank, 10, 9, size) for rank in range(2)]) == Culprits()
    assert culprits([of_world(0, 10, 9, 1_000_000)]) == Culprits()


# -- places ------------------------------------------------------------------------------------------------------------


def plan(instances: int) -> Topology:
    """What a live job knows: the instances of the plan, by their number."""
    return Topology.of(Worker(f"rank {number}", f"i-{number}", "", number) for number in range(instances))


def job(instances: int, local: int, missing: int, local_world: int | None, keep: Collection[int]) -> list[FlightReport]:
    """Records of the ranks `keep`, each sent by the agent of its instance. Rank `missing` is behind."""
    size = instances * local
    return [
        of_world(rank, 9 if rank == missing else 10, 9, size, instance_id=f"i-{rank // local}", local_world=local_world)
        for rank in keep
    ]


@pytest.mark.parametrize("missing", range(16))
@pytest.mark.parametrize("local_world", [8, None])
def test_a_rank_is_at_the_instance_that_sent_its_record(missing: int, local_world: int | None) -> None:
    """Of twice eight GPUs; rank 1 is no second instance, and rank 12 has one."""
    verdict = judged(job(2, 8, missing, local_world, range(16)), plan(2))
    assert (verdict.cause, verdict.scope) == (Cause.WORKER_HANG, Scope.of(ScopeKind.INSTANCE, f"i-{missing // 8}"))
    assert (verdict.decided, verdict.remedy) == (True, Remedy.CHECK)


@pytest.mark.parametrize("missing", range(16))
def test_a_rank_without_a_record_is_placed_by_the_number_of_processes(missing: int) -> None:
    """Without that number the places of the others leave no doubt, except at the border of two instances."""
    others = [rank for rank in range(16) if rank != missing]
    verdict = judged(job(2, 8, missing, 8, others), plan(2))
    assert verdict.scope == Scope.of(ScopeKind.INSTANCE, f"i-{missing // 8}")
    untold = judged(job(2, 8, missing, None, others), plan(2))
    assert plan(2).instances_of(untold.scope) == (frozenset() if missing == 8 else {f"i-{missing // 8}"})


def test_a_rank_that_cannot_be_placed_blames_no_instance() -> None:
    """Records of a few ranks of the first instance fit many numbers of processes; two instances may claim a rank."""
    few = [of_world(rank, 10, 9, 16, instance_id="i-0") for rank in range(8)]
    verdict = judged(few, plan(2))
    assert plan(2).instances_of(verdict.scope) == frozenset()
    twice = job(2, 8, 12, None, range(16))
    twice.append(replace(twice[12], report_id="other", instance_id="i-0", group="other"))
    verdict = judged(twice, plan(2))
    assert (verdict.cause, verdict.scope.kind) == (Cause.WORKER_HANG, ScopeKind.JOB)
    assert "ranks 12 are missing" in verdict.findings[0].english


def test_instances_in_another_order_than_the_plan_are_told_by_the_records() -> None:
    """The launcher has counted them otherwise: ranks 0 to 7 run on the second."""
    swapped = [replace(one, instance_id=f"i-{1 - (one.rank or 0) // 8}") for one in job(2, 8, 12, 8, range(16))]
    assert judged(swapped, plan(2)).scope == Scope.of(ScopeKind.INSTANCE, "i-0")
    assert judged([one for one in swapped if one.rank != 12], plan(2)).scope == Scope.of(ScopeKind.INSTANCE, "i-0")


def test_the_largest_gang_is_judged() -> None:
    """3,000 instances of 16 GPUs, of which 400 have sent the records of a process."""
    reports = job(3_000, 16, 16 * 399, 16, range(0, 16 * 400, 16))
    reports += [of_world(16 * 399 + 1, 10, 9, 48_000, instance_id="i-399", local_world=16)]
    verdict = judged(reports, plan(3_000))
    assert verdict.scope == Scope.of(ScopeKind.INSTANCE, "i-399")


# -- errors of the program ---------------------------------------------------------------------------------------------


def raised(number: int, kind: LineKind, *, code: int, by_us: bool = False) -> list[Observation]:
    """An error line of the program on an instance, and the end of its rank."""
    at, line = f"i-{number}", "KeyError: 'x'" if kind is LineKind.USER_ERROR_CONFIG else "CUDA out of memory"
    generic = kind is LineKind.USER_ERROR_CONFIG
    return [
        LogFinding(
            report_id=f"l{number}", at_s=AT_S, instance_id=at, line=line, kind=kind, role=LineRole.ROOT, generic=generic
        ),
        ExitReport(report_id=f"e{number}", at_s=AT_S, instance_id=at, rank=number, code=code, by_us=by_us),
    ]


MISSES_12 = [of_world(rank, 9 if rank == 12 else 10, 9, 16, instance_id=f"i-{rank // 8}") for rank in range(16)]


@pytest.mark.parametrize(
    ("errors", "cause"),
    [
        (raised(1, LineKind.USER_ERROR_CONFIG, code=1), Cause.APPLICATION),
        (raised(1, LineKind.CUDA_OOM, code=1), Cause.GPU_MEMORY),
        (raised(1, LineKind.USER_ERROR_CONFIG, code=1, by_us=True), Cause.WORKER_HANG),
        (raised(1, LineKind.USER_ERROR_CONFIG, code=124), Cause.WORKER_HANG),
        (raised(0, LineKind.USER_ERROR_CONFIG, code=1), Cause.WORKER_HANG),
        (
            [*raised(0, LineKind.USER_ERROR_CONFIG, code=1), *raised(1, LineKind.USER_ERROR_CONFIG, code=1)],
            Cause.WORKER_HANG,
        ),
    ],
)
def test_an_error_of_the_missing_rank_is_the_cause_and_no_error_of_another(
    errors: list[Observation], cause: Cause
) -> None:
    """An exception at the stop of the gang, or on every instance after the time-out, follows from the hang."""
    verdict = judged([*MISSES_12, *errors], plan(2))
    assert verdict.cause is cause
    sentence = "ranks 12 are missing in process group 0: the others wait for them"
    notes = [note.english for note in verdict.informational]
    assert (sentence in notes) is (verdict.cause is not Cause.WORKER_HANG)
