"""Diagnosis rules on the preflight of the ranks (`core.diagnosis.preflight`).

A failed step that proves a fault of the hardware decides. A result that only sets an instance apart supports a cause
there, and decides nothing alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import PreflightReport
from gpu_recovery.core.diagnosis.preflight import COUNTED, differences, newest, proof_of
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope, ScopeKind, Weight

SOURCE = "the recovery loop"
"""Source of these rules, as documents name it."""
CAUSES: Mapping[str, Cause] = {COUNTED: Cause.RDMA}
"""Cause that a difference supports, by step. Every other step is about the GPUs."""


def _failed(case: Case) -> Iterator[Match]:
    for place, report in sorted(newest(case.all(PreflightReport)).items()):
        step = proof_of(report)
        if step is not None:
            values = {"instance": place, "step": step.name, "sentence": step.sentence}
            scope = Scope.of(ScopeKind.INSTANCE, place)
            yield Match(Cause.GPU_FAULT, scope, Weight.PROOF, (report.report_id,), values)


def _apart(case: Case) -> Iterator[Match]:
    reports = newest(case.all(PreflightReport))
    for place, difference in sorted(differences(reports).items()):
        if proof_of(reports[place]) is None:
            values = {"instance": place, "sentence": difference.sentence}
            scope, cause = Scope.of(ScopeKind.INSTANCE, place), CAUSES.get(difference.step, Cause.GPU_FAULT)
            yield Match(cause, scope, Weight.HINT, (difference.report_id,), values)


RULES: tuple[Rule, ...] = (
    Rule(
        "preflight",
        "the preflight on {instance} failed before the training started: {step}: {sentence}",
        "{instance}上的启动前检查在训练开始前失败：{step}：{sentence}",
        (PreflightReport,),
        _failed,
        SOURCE,
    ),
    Rule(
        "preflight-apart",
        "{instance} differs from the others of its gang: {sentence}",
        "{instance}与同组其他实例不同：{sentence}",
        (PreflightReport,),
        _apart,
        SOURCE,
    ),
)
