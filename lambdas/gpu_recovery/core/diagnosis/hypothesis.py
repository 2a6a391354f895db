"""A possible explanation of what the observations of a run show: a cause, its place, and the findings for it."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_recovery.core.diagnosis.rule import RuleFinding
from gpu_recovery.core.diagnosis.taxonomy import Cause, Scope


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A cause, where it is, and what speaks for it. `follows`: nothing but consequences of something else do."""

    cause: Cause
    scope: Scope
    score: float
    confidence: float
    follows: bool
    findings: tuple[RuleFinding, ...]

    @property
    def evidence(self) -> tuple[str, ...]:
        """The ids of the reports that speak for it."""
        return tuple(sorted({one for finding in self.findings for one in finding.evidence}))
