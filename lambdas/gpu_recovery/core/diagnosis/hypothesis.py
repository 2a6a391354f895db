"""Hypothesis of a diagnosis: a possible cause, its scope, and the findings that support it."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.rule import RuleFinding
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope
from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass()
class Hypothesis:
    """A possible cause and its scope, with its score and its confidence.

    score: sum of weights, in log-odds.
    confidence: between 0 and 1.
    follows: every finding for it is a consequence of another fault.
    """

    cause: Cause
    scope: Scope
    score: float
    confidence: float
    follows: bool
    findings: tuple[RuleFinding, ...]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Report ids of the observations that support the hypothesis, sorted."""
        return tuple(sorted({report_id for finding in self.findings for report_id in finding.evidence}))
