"""Rows 47-52: who has the lock of a GPU, and who holds its memory."""

import pytest
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    LockReport,
    LockState,
    Observation,
    Occupant,
    SilenceReport,
    StageReport,
)
from gpu_recovery.core.diagnosis.rules.gpu_locks import RULES
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Remedy, Scope, ScopeKind

from tests.core.diagnosis.rule_results import asked, found, instance

TRAIN = Scope.of(ScopeKind.WORKER, "train/0")


def lock(state: LockState, owner: str = "rollout/0", holder: str = "train/0", **given: object) -> LockReport:
    """What the rollout worker of i-1 says of the lock that train has."""
    return LockReport(
        **{  # type: ignore[arg-type]
            "report_id": "",
            "at_s": 0.0,
            "instance_id": "i-1",
            "lock": "gpu_0",
            "owner": owner,
            "state": state,
            "holder": holder,
            **given,
        }
    )


def on_gpu(moment: str, stage: str, *occupants: Occupant, **given: object) -> StageReport:
    """Who is on a GPU of i-1."""
    return StageReport(
        **{  # type: ignore[arg-type]
            "report_id": "",
            "at_s": 0.0,
            "instance_id": "i-1",
            "gpu": "GPU-a",
            "stage": stage,
            "moment": moment,
            "occupants": occupants,
            **given,
        }
    )


TIMED_OUT = lock(LockState.TIMED_OUT, waited_s=60.0)


# -- rows 47, 48, 50 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "report", "english"),
    [
        ("47", lock(LockState.HELD, owner="train"), "GPU locked by train"),
        ("47a", lock(LockState.WAITING), "GPU locked by train/0, waiting..."),
        ("47b", TIMED_OUT, "Failed to acquire GPU for rollout/0"),
        ("48", lock(LockState.REFUSED), "GPU owned by train/0, cannot release"),
    ],
)
def test_rows_47_and_48_each_answer_of_the_lock_has_its_sentence(row: str, report: Observation, english: str) -> None:
    """Held, waiting, in vain, refused: they are said, and blame nobody by themselves."""
    (said,) = found(RULES, row, report)
    assert (said.english, said.cause) == (english, None)


def test_row_47_who_waits_says_it_once() -> None:
    """It asks ten times a second."""
    assert len(found(RULES, "47a", *(lock(LockState.WAITING, waited_s=n / 10) for n in range(50)))) == 1


def test_row_50_a_wait_in_vain_names_the_holder() -> None:
    """The lock timed out: the holder has not released, and is ended."""
    verdict = asked(RULES, TIMED_OUT)
    assert (verdict.cause, verdict.scope, verdict.remedy) == (Cause.LOCK_HELD, TRAIN, Remedy.RELEASE)
    assert [one.chinese for one in verdict.findings] == ["GPU锁超时 → 知道是train/0未释放"]


def test_row_50_a_wait_of_60_seconds_is_in_vain_whether_or_not_it_was_given_up() -> None:
    """Who waits may have died before it could say that it gave up."""
    assert asked(RULES, lock(LockState.WAITING, waited_s=59.0)).cause is Cause.UNKNOWN
    assert asked(RULES, lock(LockState.WAITING, waited_s=60.0)).cause is Cause.LOCK_HELD


@pytest.mark.parametrize("state", [LockState.HELD, LockState.RELEASED])
def test_row_50_who_got_the_lock_after_all_waited_for_something(state: LockState) -> None:
    """Nobody is ended for a wait that is over."""
    assert asked(RULES, TIMED_OUT, lock(state, holder="")).cause is Cause.UNKNOWN
    assert asked(RULES, TIMED_OUT, lock(state, owner="train/1", holder="")).cause is Cause.LOCK_HELD


def test_row_50_another_wait_does_not_undo_one_that_was_in_vain() -> None:
    """It tries again; the holder still has not let go."""
    assert asked(RULES, TIMED_OUT, lock(LockState.WAITING, waited_s=5.0)).cause is Cause.LOCK_HELD


def test_row_50_nobody_waits_for_itself() -> None:
    """The lock is re-entrant for its owner."""
    assert asked(RULES, lock(LockState.TIMED_OUT, owner="train/0")).cause is Cause.UNKNOWN


def test_row_50_a_holder_that_is_known_by_its_role_is_looked_up_on_that_machine() -> None:
    """ "train" is another worker on each instance."""
    assert asked(RULES, lock(LockState.TIMED_OUT, holder="train")).scope == TRAIN
    there = lock(LockState.TIMED_OUT, holder="train", instance_id="i-2")
    assert asked(RULES, there).scope == Scope.of(ScopeKind.WORKER, "train/1")
    assert asked(RULES, lock(LockState.TIMED_OUT, holder="")).scope == JOB


@pytest.mark.parametrize(
    "end",
    [
        ExitReport(report_id="", at_s=0.0, worker="train/0", code=137),
        ExitReport(report_id="", at_s=0.0, rank=0, code=0),
    ],
    ids=["by its worker", "by its rank"],
)
def test_row_50_a_holder_that_has_ended_is_proof(end: ExitReport) -> None:
    """A crashed holder keeps the lock for ever: the specified rule waits for it."""
    verdict = asked(RULES, end, TIMED_OUT)
    assert (verdict.cause, verdict.scope) == (Cause.LOCK_HELD, TRAIN)
    assert verdict.confidence > asked(RULES, TIMED_OUT).confidence
    assert "50a+" in {one.row for one in verdict.findings} and verdict.evidence == ("r0", "r1")


@pytest.mark.parametrize(
    "end",
    [
        ExitReport(report_id="", at_s=0.0, worker="train/1", code=137),
        ExitReport(report_id="", at_s=0.0, worker="train/0"),
        ExitReport(report_id="", at_s=0.0, code=137),
    ],
    ids=["another's", "nobody knows how", "nobody knows whose"],
)
def test_row_50_another_end_proves_nothing(end: ExitReport) -> None:
    """The lock of a living holder is not taken away."""
    assert not found(RULES, "50a+", end, TIMED_OUT)


@pytest.mark.parametrize(
    "reports",
    [
        [lock(LockState.TIMED_OUT, holder_heard_s=61.0)],
        [SilenceReport(report_id="", at_s=0.0, instance_id="i-1", silent_s=61.0), TIMED_OUT],
    ],
    ids=["by the lock", "by its machine"],
)
def test_row_50_a_silent_holder_is_suspected_but_silence_is_no_proof_of_death(reports: list[Observation]) -> None:
    """Cut off, it may still work on the GPU: the rival is named, and the sentence says so."""
    said = found(RULES, "50b+", *reports)
    assert {one.cause for one in said} == {Cause.LOCK_HELD, Cause.WORKER_HANG}
    assert all("may still use the GPU" in one.english for one in said)
    assert not found(RULES, "50b+", lock(LockState.TIMED_OUT, holder_heard_s=5.0))


def test_row_50_two_holders_at_once_are_seen_by_their_tokens() -> None:
    """The lease passed to another while the first was cut off; it comes back and believes that it still has it."""
    first = lock(LockState.HELD, "train/0", "train/0", token=1)
    second = lock(LockState.HELD, "rollout/0", "rollout/0", token=2)
    assert not found(RULES, "50c+", first, second)
    (said,) = found(RULES, "50c+", first, second, first)
    assert (said.cause, said.scope) == (Cause.LOCK_HELD, TRAIN) and "token 1" in said.english
    assert not found(RULES, "50c+", first, first, second, second)


# -- rows 51, 52 -------------------------------------------------------------------------------------------------------


def test_row_51_who_is_on_the_gpu_is_published() -> None:
    """The specified sentence, with the sum."""
    occupants = (Occupant(1, 40_000.0, "train"), Occupant(2, 500.0), Occupant(3, float("nan")))
    (said,) = found(RULES, "51", on_gpu("before", "rollout", *occupants))
    assert said.english == "[rollout] GPU occupied by 3 processes, total memory: 40500 MB"
    (nobody,) = found(RULES, "51", on_gpu("before", "rollout"))
    assert nobody.english == "[rollout] GPU occupied by 0 processes, total memory: 0 MB"


def test_row_52_a_process_in_both_sets_is_published_as_a_leak() -> None:
    """The specified sentence; with one look there is no verdict."""
    after = on_gpu("after", "weights_update", Occupant(1, 40_000.0), Occupant(7, 1.0))
    before = on_gpu("before", "rollout", Occupant(1, 40_000.0))
    (said,) = found(RULES, "52", after, before)
    assert said.english == "GPU leak detected! Processes 1 still occupying GPU after weights_update"
    assert said.cause is None and not found(RULES, "52", after) and not found(RULES, "52", before)
    assert not found(RULES, "52", after, on_gpu("before", "rollout", Occupant(1, 1.0), gpu="GPU-b"))


@pytest.mark.parametrize(
    "occupant",
    [Occupant(2, 30_000.0, "rollout"), Occupant(1, 1_023.0, "train"), Occupant(1, 40_000.0)],
    ids=["its own", "resident", "nobody's"],
)
def test_row_52_a_resident_process_is_no_leak(occupant: Occupant) -> None:
    """The rollout engine is in both sets by design: the owner and the memory decide, not the process id."""
    reports = [on_gpu("after", "weights_update", occupant), on_gpu("before", "rollout", occupant)]
    assert found(RULES, "52", *reports)
    assert asked(RULES, *reports).cause is Cause.UNKNOWN


def test_row_52_anothers_memory_in_its_turn_is_not_released() -> None:
    """Train holds 40 GB before the rollout, in both sets or not."""
    verdict = asked(RULES, on_gpu("before", "rollout", Occupant(1, 40_000.0, "train"), Occupant(2, 500.0, "rollout")))
    assert (verdict.cause, verdict.scope, verdict.remedy) == (
        Cause.GPU_NOT_RELEASED,
        instance("i-1"),
        Remedy.RELEASE,
    )
    assert [one.english for one in verdict.findings] == [
        "[rollout] train still holds 40000 MB of the GPU in rollout's turn (processes 1)"
    ]


def test_row_52_after_a_stage_it_is_nobody_elses_turn_yet() -> None:
    """Train may still be there when weights_update has just ended; and what is gone since is no leak."""
    train = Occupant(1, 40_000.0, "train")
    assert asked(RULES, on_gpu("after", "rollout", train)).cause is Cause.UNKNOWN
    released = on_gpu("before", "rollout", Occupant(2, 500.0, "rollout"))
    assert asked(RULES, on_gpu("before", "rollout", train), released).cause is Cause.UNKNOWN
