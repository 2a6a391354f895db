"""Whether verdicts were right, by whether their remedies held."""

import pytest
from gpu_recovery.core.diagnosis.families.gpu_stages import RULES
from gpu_recovery.core.diagnosis.outcomes import Failure, Tally, Verdict, outcomes
from gpu_recovery.core.diagnosis.reports import StageReport
from gpu_recovery.core.diagnosis.words import JOB, Cause, Scope, ScopeKind

from tests.core.diagnosis.asked import asked, instance

ONE = instance("i-1")
STEADY_S, DONE_S = 1_800.0, 10_000.0
LATER_S = DONE_S + STEADY_S + 1.0


def verdict(cause: Cause = Cause.GPU_FAULT, scope: Scope = ONE, **given: object) -> Verdict:
    """A verdict over job a whose remedy was done at DONE_S."""
    return Verdict(**{  # type: ignore[arg-type]
        "job_id": "a", "at_s": DONE_S, "cause": cause, "scope": scope, "rows": ("3+",), "version": "1", **given,
    })  # fmt: skip


def failure(after_s: float = 60.0, scope: Scope = ONE, cause: Cause = Cause.NETWORK, job: str = "a") -> Failure:
    """A failure so long after it."""
    return Failure(job, DONE_S + after_s, scope, cause)


def test_a_remedy_has_held_when_nothing_failed_for_the_steady_time() -> None:
    """Before that it is not known."""
    early, late = (outcomes([verdict()], [], STEADY_S, now_s) for now_s in (DONE_S + STEADY_S, LATER_S))
    assert early.causes == {Cause.GPU_FAULT: Tally(open=1)} and early.causes[Cause.GPU_FAULT].precision is None
    assert late.causes == {Cause.GPU_FAULT: Tally(held=1)} and late.causes[Cause.GPU_FAULT].precision == 1.0
    assert not early.seen and late.seen == {(Cause.GPU_FAULT, Cause.GPU_FAULT): 1}


SPEAKS = [
    (verdict(), failure(), "the same machine"),
    (verdict(), failure(job="b"), "the same machine under another job"),
    (verdict(), failure(scope=Scope.of(ScopeKind.INSTANCE, "i-1", "i-2")), "one of several machines"),
    (verdict(), failure(scope=instance("i-2"), cause=Cause.GPU_FAULT), "the same cause of the same job elsewhere"),
    (verdict(Cause.APPLICATION, JOB), failure(scope=instance("i-7")), "a verdict over the whole job"),
    (verdict(), failure(STEADY_S), "at the end of the time"),
]
SILENT = [
    (verdict(), failure(scope=instance("i-2")), "another machine, another cause"),
    (verdict(), failure(scope=instance("i-2"), cause=Cause.GPU_FAULT, job="b"), "another job's machine"),
    (verdict(), failure(STEADY_S + 0.5), "too late"),
    (verdict(), failure(0.0), "the failure itself"),
    (verdict(), failure(-5.0), "before it"),
    (verdict(scope=Scope.of(ScopeKind.WORKER, "w")), failure(scope=Scope.of(ScopeKind.WORKER, "w"), job="b"),
     "a worker of another job has only the same name"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "failed"), [case[:2] for case in SPEAKS], ids=[case[2] for case in SPEAKS])
def test_what_speaks_against_a_verdict(said: Verdict, failed: Failure) -> None:
    """Its remedy has not held, from the moment of that failure."""
    found = outcomes([said], [failed], STEADY_S, failed.at_s)
    assert found.causes == {said.cause: Tally(failed=1)}
    assert found.seen == {(said.cause, failed.cause): 1}


@pytest.mark.parametrize(("said", "failed"), [case[:2] for case in SILENT], ids=[case[2] for case in SILENT])
def test_what_does_not_speak_against_it(said: Verdict, failed: Failure) -> None:
    """Another place's failure is another matter."""
    assert outcomes([said], [failed], STEADY_S, LATER_S).causes == {said.cause: Tally(held=1)}


def test_the_first_failure_after_it_shows_the_cause() -> None:
    """What came later may have been caused by the next remedy."""
    failures = [failure(90.0, cause=Cause.DRIVER), failure(30.0, cause=Cause.RDMA)]
    assert outcomes([verdict()], failures, STEADY_S, LATER_S).seen == {(Cause.GPU_FAULT, Cause.RDMA): 1}


def test_each_rule_is_judged_by_the_version_it_spoke_under() -> None:
    """A rule that was changed begins anew; one that spoke twice for a verdict is counted once."""
    verdicts = [
        verdict(rows=("3+", "5+", "5+")), verdict(scope=instance("i-2"), rows=("3+",)),
        verdict(scope=instance("i-2"), rows=("3+",), version="2"),
    ]  # fmt: skip
    rows = outcomes(verdicts, [failure(cause=Cause.RDMA)], STEADY_S, LATER_S).rows
    assert rows == {("3+", "1"): Tally(1, 1), ("5+", "1"): Tally(0, 1), ("3+", "2"): Tally(1, 0)}
    assert rows["3+", "1"].precision == 0.5


def test_the_table_counts_every_verdict_that_said_something_once() -> None:
    """UNKNOWN said nothing: it can be neither right nor wrong."""
    said = [verdict(), verdict(Cause.NETWORK, JOB), verdict(Cause.UNKNOWN, JOB), verdict(scope=instance("i-9"))]
    found = outcomes(said, [failure(cause=Cause.UNKNOWN)], STEADY_S, LATER_S)
    assert sum(found.seen.values()) == 3
    assert found.causes == {Cause.GPU_FAULT: Tally(1, 1), Cause.NETWORK: Tally(0, 1)}


def test_a_diagnosis_is_remembered_with_the_rules_that_spoke_for_it() -> None:
    """Not with those of its rivals, nor with what was only said."""
    reading = {"instance_id": "i-1", "gpu": "g", "stage": "rollout"}
    reports = [StageReport(report_id="", at_s=0.0, uncorrected=n, corrected=n, **reading) for n in (0, 1)]  # type: ignore[arg-type]
    made = Verdict.of(asked(RULES, *reports), "a", DONE_S)
    assert made == verdict(rows=("3+",))
