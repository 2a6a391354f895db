"""What lines of logs speak for in a diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.case import Case, History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose, ranking
from gpu_recovery.core.diagnosis.observations import (
    Delivery,
    EventReport,
    LogFinding,
    Observation,
    Occupant,
    StageReport,
)
from gpu_recovery.core.diagnosis.rule import findings
from gpu_recovery.core.diagnosis.rules import log_lines
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Remedy, Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from hypothesis import given
from hypothesis import strategies as st

WHERE = Topology.of([Worker(f"w{n}", f"i-{n // 2}", rank=n) for n in range(4)])
ON_1 = Scope.of(ScopeKind.INSTANCE, "i-1")


def said(
    kind: LineKind, role: LineRole = LineRole.ROOT, rank: int | None = 2, at_s: float = 10.0, **more: Any
) -> LogFinding:
    """A finding of a rank's log."""
    name = more.pop("report_id", f"{kind}-{role}-{rank}-{at_s}")
    return LogFinding(report_id=name, at_s=at_s, rank=rank, line=f"a line of {kind}", kind=kind, role=role, **more)


def verdict(*reports: Observation) -> Diagnosis:
    """The diagnosis by the rules of log lines alone."""
    return diagnose(reports, WHERE, History(), 100.0, Thresholds(), log_lines.RULES)


def scores(*reports: Observation) -> dict[tuple[Cause, Scope], float]:
    """How much speaks for each hypothesis."""
    case = Case.of(reports, WHERE, History(), 100.0, Thresholds())
    return {(one.cause, one.scope): one.score for one in ranking(findings(log_lines.RULES, case), case)}


@pytest.mark.parametrize(
    ("kind", "cause", "scope"),
    [
        (LineKind.HARDWARE_GPU_ECC, Cause.GPU_FAULT, ON_1),
        (LineKind.HARDWARE_GPU_LOST, Cause.GPU_FAULT, ON_1),
        (LineKind.RUNTIME_ERROR_CUDA, Cause.GPU_CONTEXT, ON_1),
        (LineKind.DRIVER_ENVIRONMENT, Cause.DRIVER, ON_1),
        (LineKind.NODE_KERNEL, Cause.NODE_FAULT, ON_1),
        (LineKind.NETWORK_RDMA, Cause.RDMA, ON_1),
        (LineKind.USER_ERROR_CONFIG, Cause.CONFIGURATION, JOB),
        (LineKind.USER_ERROR_CHECKPOINT, Cause.APPLICATION, JOB),
        (LineKind.DEVICE_ASSERT, Cause.APPLICATION, JOB),
        (LineKind.NUMERICAL_NAN, Cause.NUMERICAL, JOB),
        (LineKind.CUDA_OOM, Cause.GPU_MEMORY, JOB),
        (LineKind.HOST_OOM, Cause.HOST_MEMORY, ON_1),
        (LineKind.STORAGE_FULL, Cause.STORAGE, ON_1),
        (LineKind.INSUFFICIENT_RESOURCES, Cause.RESOURCES, JOB),
        (LineKind.NETWORK_EXTERNAL, Cause.EXTERNAL, JOB),
        (LineKind.SCHEDULER_PREEMPT, Cause.PREEMPTED, JOB),
        (LineKind.PROCESS_CRASH, Cause.WORKER_CRASH, ON_1),
        (LineKind.XID_APPLICATION, Cause.APPLICATION, JOB),
    ],
)
def test_a_kind_speaks_for_its_cause_where_the_line_was_written(kind: LineKind, cause: Cause, scope: Scope) -> None:
    """A machine's fault is on that machine, a program's is the job's; the report is cited."""
    found = verdict(said(kind))
    assert (found.cause, found.scope) == (cause, scope)
    assert found.evidence == (said(kind).report_id,)


@pytest.mark.parametrize(
    ("lines", "scope", "remedy"),
    [
        ({2: "[Errno 28] No space left on device: '/data/checkpoints/step-4.pt'"}, JOB, Remedy.PERSON),
        ({2: "[Errno 28] No space left on device: '/fsx/run/out.log'"}, JOB, Remedy.PERSON),
        ({2: "[Errno 28] No space left on device"}, ON_1, Remedy.LEAVE_OUT),
        ({2: "[Errno 28] No space left on device: '/tmp/ckpt/step-4.pt'"}, ON_1, Remedy.LEAVE_OUT),
        ({2: "[Errno 28] No space left on device: '/data/out'"}, ON_1, Remedy.LEAVE_OUT),
        ({0: "[Errno 28] No space left on device", 2: "[Errno 28] No space left on device"}, JOB, Remedy.PERSON),
    ],
)
def test_full_storage_is_shared_by_its_path_or_by_several_instances(
    lines: dict[int, str], scope: Scope, remedy: Remedy
) -> None:
    """A job resumes on any machine, so the storage of its checkpoints is shared. What is local is left out."""
    found = verdict(*(replace(said(LineKind.STORAGE_FULL, rank=rank), line=line) for rank, line in lines.items()))
    assert (found.cause, found.scope, found.remedy) == (Cause.STORAGE, scope, remedy)
    assert verdict(said(LineKind.STORAGE_IO)).remedy is Remedy.WAIT


def test_an_exception_of_the_program_is_an_application_error() -> None:
    """A KeyError is no word about the configuration. It stays a consequence of what names the fault."""
    generic = said(LineKind.USER_ERROR_CONFIG, generic=True)
    assert verdict(generic).cause is Cause.APPLICATION and verdict(generic).confidence < 0.75
    assert verdict(generic, said(LineKind.HARDWARE_GPU_LOST)).cause is Cause.GPU_FAULT
    assert verdict(said(LineKind.USER_ERROR_CONFIG)).cause is Cause.CONFIGURATION


def test_every_kind_but_benign_says_something_in_both_languages() -> None:
    """The line is quoted, and whose it is."""
    for kind in set(LineKind) - {LineKind.BENIGN}:
        found = verdict(said(kind)).findings
        assert found, kind
        for one in found:
            assert "rank 2" in one.english and f"a line of {kind}" in one.english
            assert "rank 2" in one.chinese and any(ord(character) > 0x2E7F for character in one.chinese)


def test_advice_and_unknown_words_say_nothing() -> None:
    """A hypothesis of the printing program is no evidence; a newer agent may know more words."""
    strange = LogFinding(report_id="x", at_s=1.0, line="{}", kind="of tomorrow", role="root")
    found = verdict(said(LineKind.HARDWARE_GPU_ECC, LineRole.ADVICE), said(LineKind.BENIGN), strange)
    assert (found.cause, found.findings, found.informational) == (Cause.UNKNOWN, (), ())


def test_a_cascade_never_anchors_while_there_is_a_root_on_any_rank() -> None:
    """However many ranks say that their peer is gone."""
    gone = [said(LineKind.NETWORK_PEER_EXIT, LineRole.CASCADE, rank, 1.0) for rank in range(4)]
    late = [said(LineKind.COLLECTIVE_TIMEOUT, LineRole.CASCADE, rank, 2.0) for rank in range(4)]
    found = verdict(*gone, *late, said(LineKind.PROCESS_KILLED_UNKNOWN, at_s=3.0))
    assert (found.cause, found.scope) == (Cause.WORKER_CRASH, ON_1)
    assert verdict(*gone, *late).cause is Cause.NETWORK


def test_a_confirmation_adds_to_what_it_confirms() -> None:
    """The kernel's kill makes an out-of-memory surer."""
    alone = scores(said(LineKind.HOST_OOM))[Cause.HOST_MEMORY, ON_1]
    confirmed = scores(said(LineKind.HOST_OOM), said(LineKind.HOST_OOM, LineRole.CONFIRMATION))[Cause.HOST_MEMORY, ON_1]
    assert confirmed > alone


def test_of_two_roots_the_first_in_time_is_likelier() -> None:
    """What breaks first breaks the rest."""
    ecc, lost = said(LineKind.HARDWARE_GPU_ECC, rank=0, at_s=5.0), said(LineKind.HARDWARE_GPU_LOST, rank=2, at_s=6.0)
    assert verdict(ecc, lost).scope == Scope.of(ScopeKind.INSTANCE, "i-0")
    later = said(LineKind.HARDWARE_GPU_ECC, rank=0, at_s=7.0)
    assert verdict(later, lost).scope == ON_1


def test_nan_names_silent_corruption_as_its_rival() -> None:
    """The same step elsewhere tells them apart."""
    rivals = verdict(said(LineKind.NUMERICAL_NAN)).rivals
    assert [(one.cause, one.scope) for one in rivals] == [(Cause.GPU_FAULT, ON_1)]


@pytest.mark.parametrize(
    "why",
    [
        EventReport(report_id="why", at_s=1.0, request_id="r", event="rollout_start", state=Delivery.SENT),
        StageReport(
            report_id="why", at_s=1.0, stage="rollout", occupants=(Occupant(7, 40_000.0, "train"),), instance_id="i-1"
        ),
    ],
    ids=["a notice that was not acknowledged", "a stranger on the GPU"],
)
def test_row_46_an_out_of_memory_that_is_explained_blames_no_batch_size(why: Observation) -> None:
    """It is said, with what explains it, and speaks for nobody here."""
    found = verdict(said(LineKind.CUDA_OOM), why)
    assert found.cause is Cause.UNKNOWN
    assert [set(one.evidence) for one in found.informational] == [{"why", said(LineKind.CUDA_OOM).report_id}]
    assert verdict(said(LineKind.CUDA_OOM)).remedy is Remedy.FAIL


def test_a_time_limit_is_not_run_into_again() -> None:
    """A restart would reach it again; a preempted job is started again."""
    assert verdict(said(LineKind.SCHEDULER_TIME_LIMIT)).remedy is Remedy.FAIL
    assert verdict(said(LineKind.SCHEDULER_PREEMPT)).remedy is Remedy.RESTART


def test_what_the_classifier_finds_is_what_the_rules_read() -> None:
    """The words of the one are those of the other."""
    one = classify(["[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered"]).findings[0]
    report = LogFinding(report_id="l", at_s=1.0, rank=2, line=one.line, kind=one.kind.value, role=one.role.value)
    assert verdict(report).cause is Cause.GPU_FAULT


ANY = st.builds(
    said,
    st.sampled_from(list(LineKind)),
    st.sampled_from(list(LineRole)),
    st.sampled_from([None, 0, 1, 2, 3, 9]),
    st.floats(allow_nan=True, allow_infinity=True),
)


@given(st.lists(ANY, max_size=8), ANY)
def test_one_more_line_never_speaks_against_what_it_speaks_for(reports: list[LogFinding], more: LogFinding) -> None:
    """More evidence for a hypothesis never lowers its score."""
    before, after, alone = scores(*reports), scores(*reports, more), scores(more)
    says = log_lines._MEANINGS.get(LineKind(more.kind))
    for key in alone:
        if says is not None and key[0] is says.cause:
            assert after[key] >= before.get(key, 0.0)


@given(st.lists(ANY, max_size=6, unique_by=lambda one: one.report_id), st.randoms())
def test_the_order_of_the_lines_is_irrelevant(reports: list[LogFinding], drawn: Any) -> None:
    """Ranks are read in any order."""
    mixed = list(reports)
    drawn.shuffle(mixed)
    assert verdict(*mixed) == verdict(*reports)
