"""What was found, and the verdict that follows: the worst finding decides, whoever found it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from health_check.remedies import OUTCOME_OF, ErrorSeverity, FindingRemedy, HealthOutcome

FINDINGS_MAX = 64
SUMMARY_MAX = 400
MESSAGE_MAX = 500

DCGM = "dcgm"  # the diagnostic said so
KERNEL_LOG = "kernel_log"  # the driver wrote it into the kernel's log
DRIVER = "driver"  # the driver says it of a GPU's present state
CHECK = "check"  # the check itself concludes it, from an exit code or from what is missing

ADVICE = {
    HealthOutcome.INCONCLUSIVE: "could not tell",
    HealthOutcome.CONFIGURATION: "fix the host's configuration",
    HealthOutcome.REBOOT: "reboot the instance",
    HealthOutcome.REPLACE: "replace the instance",
}


@dataclass(frozen=True)
class CheckFinding:
    """One thing found. `gpu_index` is None for the whole instance, `severity` is None when nobody gave one.

    `id` is DCGM's error id, or the number of an XID or SXid, as `code` says.
    """

    source: str
    test: str
    gpu_index: int | None
    code: str | None
    id: int | None
    severity: ErrorSeverity | None
    remedy: FindingRemedy
    message: str

    @property
    def outcome(self) -> HealthOutcome:
        return OUTCOME_OF[self.remedy]

    @property
    def blames_hardware(self) -> bool:
        return self.outcome in (HealthOutcome.REBOOT, HealthOutcome.REPLACE)


@dataclass(frozen=True)
class InstanceVerdict:
    """`findings` are ordered from worst to least, without repetition, FINDINGS_MAX at most."""

    outcome: HealthOutcome
    summary: str
    findings: tuple[CheckFinding, ...]


def conclude(findings: Iterable[CheckFinding], healthy: str, suspects: Set[int] = frozenset()) -> InstanceVerdict:
    """The verdict; its summary is `healthy` if nothing needs doing, else the worst finding.

    Of findings equally bad one on a suspect comes first: DCGM may report every GPU of a group for one bad one, and
    the suspect is the one that something else accuses too.
    """
    ordered = sorted(
        dict.fromkeys(findings), key=lambda finding: (-finding.outcome.gravity, finding.gpu_index not in suspects)
    )
    outcome = ordered[0].outcome if ordered else HealthOutcome.HEALTHY
    if outcome is HealthOutcome.HEALTHY:
        notes = [finding for finding in ordered if finding.source != CHECK]
        noted = f"; noted: {_told(notes[0])}" if notes else ""
        summary = f"healthy: {healthy}{noted}"
    else:
        summary = _of_the_worst(ordered)
    return InstanceVerdict(outcome, summary[:SUMMARY_MAX], tuple(ordered[:FINDINGS_MAX]))


def _of_the_worst(findings: list[CheckFinding]) -> str:
    worst = findings[0]
    others = sum(finding.outcome is worst.outcome for finding in findings) - 1
    more = f" (and {others} more)" if others else ""
    room = SUMMARY_MAX - len(more)
    return f"{ADVICE[worst.outcome]}: {_told(worst)}"[:room] + more


def _told(finding: CheckFinding) -> str:
    where = f" on GPU {finding.gpu_index}" if finding.gpu_index is not None else ""
    code = f" {finding.code}:" if finding.code else ""
    return f"{finding.test}{where}:{code} {finding.message}"


def by_check(test: str, code: str, remedy: FindingRemedy, message: str, gpu_index: int | None = None) -> CheckFinding:
    """A finding of the check itself."""
    return CheckFinding(CHECK, test, gpu_index, code, None, None, remedy, message[:MESSAGE_MAX])


def counted(number: int, noun: str) -> str:
    """'1 GPU', '2 GPUs'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
