"""The diagnosis result of an attempt: small enough for the job's record and for one sentence."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

INSTANCES_MAX = 64
"""Upper bound of the instances that a diagnosis result finds faulty. A rack has fewer; a result that would find more
faulty finds none."""
SHARED_STORAGE = "shared storage"
"""The scope in words if storage is full that belongs to no single instance."""
RESTART_REMEDIES = (Remedy.RESTART, Remedy.LEAVE_OUT, Remedy.WAIT, Remedy.RELEASE)
"""Remedies that start the job again."""
INSTANCE_CAUSES = (Cause.GPU_FAULT, Cause.DRIVER, Cause.NODE_FAULT)
"""Causes that lie in an instance and never in the program. The job does not end for such a cause, even if the instance
passes its check."""


@frozen_dataclass()
class DiagnosisResult:
    """The cause of a failure with its instances and its remedy, and the confidence in percent.

    Attributes:
        where: the scope in words.
        sentence: the strongest finding.
        gpus: the suspected GPUs, by index or UUID.
        decided: the confidence is high enough to act. An undecided result is only reported.
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
    """Whether the job acted on the result and skipped the health checks, except those of the suspected instances."""
    followed: bool = False
    """Whether the job acted on the result after the checks had found nothing."""
    repeated: bool = False
    """Whether the attempt before had the same decided cause, and that cause lies in the program."""
    possible: tuple[str, ...] = ()
    """The possible causes of an undecided result with their confidence, the most probable first."""
    quoted: str = ""
    """The line of the failed rank's output that names its error, with the place in the program; "" if unknown."""

    @property
    def allows_restart(self) -> bool:
        """Whether the job can be started again without finding an instance faulty."""
        return self.decided and self.remedy in RESTART_REMEDIES

    @property
    def blames_instance(self) -> bool:
        """Whether an instance is certainly faulty, even if its check passes."""
        return self.decided and self.cause in INSTANCE_CAUSES

    @property
    def suspects_instance(self) -> bool:
        """Whether the job continues without the instances of the result while only these are checked.

        Besides the faulty instances, these are the instances of a rank that the flight records of the others wait
        for. Whether the rank hangs for its GPU or for its program, only the check can tell.
        """
        return self.blames_instance or (
            self.decided and self.cause is Cause.WORKER_HANG and self.remedy is Remedy.CHECK and bool(self.instances)
        )

    @property
    def blames_program(self) -> bool:
        """Whether the program itself is certainly faulty."""
        return self.decided and self.remedy is Remedy.FAIL

    @property
    def needs_person(self) -> bool:
        """Whether only an operator can fix the cause, so that no further attempt helps."""
        return self.decided and self.remedy is Remedy.PERSON

    @property
    def excluded_instances(self) -> tuple[str, ...]:
        """The instances that the next attempt should not use."""
        elsewhere = self.allows_restart and self.remedy in (Remedy.LEAVE_OUT, Remedy.WAIT)
        return self.instances if elsewhere or self.suspects_instance else ()

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        if self.decided:
            return f"diagnosis: {self.cause} at {self.where} ({self.confidence} %): {self.sentence}"
        causes = ", ".join(self.possible) or f"{self.cause} ({self.confidence} %)"
        return f"diagnosis: undecided, possible causes: {causes}: {self.sentence}"


@frozen_dataclass()
class PastDiagnosis:
    """The outcome of an earlier diagnosis: `held` says whether its remedy held, None if that is unknown."""

    attempt: int
    cause: Cause
    where: str
    held: bool | None
