"""Sentences of healthy runs change no decided diagnosis, wherever they stand and however often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.case import History
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.job.diagnosing import END_PERCENT, ENDS
from gpu_recovery.core.logs.kinds import LineKind
from gpu_recovery.execution.evidence import log_findings
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import log_kinds
from benchmarks.fault_cases.case import AT_S, TOPOLOGY, FaultCase
from benchmarks.fault_cases.catalogue import fault_cases
from tests.aws.records import NOW
from tests.core.logs.failed_gangs import GANGS, MOE_NOTE, PLAN, RANKS, TIMEOUT, found_in
from tests.tiers import examples

NOTES = (
    MOE_NOTE,
    "NVRM: RmFetchGspRmImages: Failed to load gsp_log_ga10x.bin, no GSP-RM logs will be printed (non-fatal)",
    "pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5",
    "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)",
    "warning: Cuda API error detected: cudaDeviceEnablePeerAccess returned (0x2c0)",
    "2024-03-01 10:00:00,123 WARNING model.py:3 -- CUDA out of memory, trying a smaller batch",
    "bash: line 3: nvidia-smi: command not found",
    "(raylet) file_system_monitor.cc:116: /tmp/ray/session_2025 is over 95% full, available space: 42.6 GB; capacity: "
    "876.1 GB. Object creation will fail if spilling is required.",
    "wandb: Network error (ReadTimeout), entering retry loop.",
)
"""Notes that were taken for causes, and warnings after which a program goes on."""
BENIGN = [
    *NOTES,
    *(row["line"] for rows in log_kinds.parts().values() for row in rows if row["kind"] == LineKind.BENIGN),
]
CASES = fault_cases()


def consequence(diagnosis: Diagnosis) -> tuple[object, ...]:
    """Return what follows from a diagnosis: nothing but checks if it is undecided."""
    if not diagnosis.decided:
        return ("undecided",)
    return diagnosis.cause, diagnosis.remedy, diagnosis.scope


def with_inserted(
    logs: Mapping[int, Sequence[str]], notes: Sequence[tuple[int, float, str, int]]
) -> dict[int, list[str]]:
    """Return the logs with notes: each at a rank, at a place (a share of the log), a line, and a number of times."""
    longer = {rank: list(logs.get(rank, ())) for rank in RANKS}
    for rank, place, line, times in notes:
        at = round(place * len(longer[rank]))
        longer[rank][at:at] = [line] * times
    return longer


INSERTED = st.lists(
    st.tuples(st.sampled_from(RANKS), st.floats(0, 1), st.sampled_from(BENIGN), st.integers(1, 40)),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("name", GANGS)
@examples(0.5)
@given(notes=INSERTED)
def test_no_benign_line_changes_what_follows_from_the_logs(name: str, notes: list[tuple[int, float, str, int]]) -> None:
    """At any place of the log of any rank, also between the frames of a traceback."""
    assert consequence(found_in(with_inserted(GANGS[name], notes))) == consequence(found_in(GANGS[name]))


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("name", GANGS)
def test_a_note_of_every_rank_changes_no_decided_diagnosis(name: str, note: str) -> None:
    """Engines print their notes on each rank."""
    noted = {rank: [note] * 3 + list(GANGS[name].get(rank, ())) for rank in RANKS}
    assert consequence(found_in(noted)) == consequence(found_in(GANGS[name]))


@pytest.mark.parametrize("note", NOTES)
def test_a_note_alone_decides_nothing(note: str) -> None:
    """No remedy may rest on it."""
    assert not found_in({rank: [note] * 20 for rank in RANKS}).decided


@given(
    case=st.sampled_from(CASES),
    rank=st.sampled_from(RANKS),
    notes=st.lists(st.sampled_from(BENIGN), min_size=1, max_size=40),
)
def test_no_benign_line_changes_what_follows_from_an_injected_fault(
    case: FaultCase, rank: int, notes: list[str]
) -> None:
    """The injected faults of the scoreboard, with the log of one rank beside them."""
    plan = replace(PLAN, instances=tuple(f"n{number}" for number in RANKS))
    beside = diagnose([*case.reports, *log_findings(rank, notes, plan, NOW)], TOPOLOGY, History(), AT_S)
    assert consequence(beside) == consequence(diagnose(case.reports, TOPOLOGY, History(), AT_S))


def test_a_sentence_of_every_rank_counts_once() -> None:
    """All ranks of a gang meet the same error. Their number says nothing about the cause."""
    for line in ("ModuleNotFoundError: No module named 'apex'", TIMEOUT.format(3), "KeyError: 'hidden_size'"):
        one, all_ranks = found_in({0: [line]}), found_in({rank: [line] * 5 for rank in RANKS})
        assert (one.cause, one.confidence, one.decided) == (all_ranks.cause, all_ranks.confidence, all_ranks.decided)
        assert len(one.findings) == len(all_ranks.findings)
        assert {cited.split("/")[1] for cited in all_ranks.evidence} == {"0", "1", "2", "3"}


def test_an_error_of_the_program_still_ends_the_job() -> None:
    """An exception is a definite statement, with benign lines around it as without them."""
    found = found_in(with_inserted(GANGS["a missing library"], [(0, 0.5, MOE_NOTE, 10)]))
    assert (found.cause, found.remedy, found.decided) == (Cause.CONFIGURATION, Remedy.FAIL, True)
    assert found.cause in ENDS
    assert found.confidence * 100 >= END_PERCENT


def test_the_order_of_two_roots_is_that_of_their_lines() -> None:
    """The ninth line is before the tenth, also in the ids by which findings of one time are sorted."""
    ecc, full = GANGS["two roots, ten lines apart"][1][6], "OSError: [Errno 28] No space left on device"
    for before in range(12):
        lines = ["step 1 loss 2.31"] * before
        found = found_in({1: [*lines, ecc, full]})
        assert found.cause is Cause.GPU_FAULT, before
