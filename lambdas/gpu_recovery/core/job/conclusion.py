"""What the diagnosis of an attempt comes to for its job: small enough for the record and for a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from ..diagnosis.words import Cause, Remedy

INSTANCES_MAX = 64
"""A rack has fewer; whoever would blame more machines than that blames none."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`cause` on `instances`, what is done about it, and how sure that is, in percent.

    where:    the scope in words; sentence: the strongest finding; gpus: those suspected, by index or UUID.
    decided:  whether it is sure enough to be acted on; undecided it is only told.
    """

    attempt: int
    cause: Cause
    where: str
    instances: tuple[str, ...]
    remedy: Remedy
    confidence: int
    decided: bool
    sentence: str
    gpus: tuple[str, ...] = ()
    spares: bool = False
    """It was acted on, and the machines were spared their check."""

    @property
    def said(self) -> str:
        """It in one sentence."""
        sure = "" if self.decided else ", undecided"
        return f"diagnosis: {self.cause} at {self.where} ({self.confidence} %{sure}): {self.sentence}"


@dataclass(frozen=True, slots=True)
class PastVerdict:
    """How the verdict on an attempt turned out: its remedy has `held`, or has not; None if that cannot be told."""

    attempt: int
    cause: Cause
    where: str
    held: bool | None
