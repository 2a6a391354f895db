"""What the diagnosis of an attempt comes to for its job: small enough for the record and for a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy

INSTANCES_MAX = 64
"""A rack has fewer; whoever would blame more machines than that blames none."""
RESTART_REMEDIES = (Remedy.RESTART, Remedy.LEAVE_OUT, Remedy.WAIT, Remedy.RELEASE)
INSTANCE_CAUSES = (Cause.GPU_FAULT, Cause.DRIVER, Cause.NODE_FAULT)
"""Causes that no program can have: a machine that passes its check all the same is no reason to end the job."""


@dataclass(frozen=True, slots=True)
class DiagnosisResult:
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
    """It was acted on, and the machines were spared their check, but for those that it names."""
    followed: bool = False
    """It was acted on once the checks had found nothing."""

    @property
    def allows_restart(self) -> bool:
        """Whether the job can be started again after it, and no machine be blamed."""
        return self.decided and self.remedy in RESTART_REMEDIES

    @property
    def blames_instance(self) -> bool:
        """Whether a machine is to blame for sure, whatever its check finds."""
        return self.decided and self.cause in INSTANCE_CAUSES

    @property
    def excluded_instances(self) -> tuple[str, ...]:
        """The instances that the next attempt is better without."""
        elsewhere = self.allows_restart and self.remedy in (Remedy.LEAVE_OUT, Remedy.WAIT)
        return self.instances if elsewhere or self.blames_instance else ()

    @property
    def summary(self) -> str:
        """It in one sentence."""
        sure = "" if self.decided else ", undecided"
        return f"diagnosis: {self.cause} at {self.where} ({self.confidence} %{sure}): {self.sentence}"


@dataclass(frozen=True, slots=True)
class PastDiagnosis:
    """How the verdict on an attempt turned out: its remedy has `held`, or has not; None if that cannot be told."""

    attempt: int
    cause: Cause
    where: str
    held: bool | None
