"""Findings, and the verdict that follows: the worst finding decides, from any source."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from health_check.remedies import OUTCOME_OF, ErrorSeverity, FindingRemedy, HealthOutcome

FINDINGS_MAX = 64
"""Largest number of findings in a verdict."""
SUMMARY_MAX = 400
MESSAGE_MAX = 500

DCGM = "dcgm"  # reported by the diagnostic
KERNEL_LOG = "kernel_log"  # logged by the driver in the kernel log
DRIVER = "driver"  # the present state of a GPU, from the driver
CHECK = "check"  # concluded by the check itself, from an exit code or from missing data

ADVICE = {
    HealthOutcome.INCONCLUSIVE: "could not tell",
    HealthOutcome.CONFIGURATION: "fix the host's configuration",
    HealthOutcome.REBOOT: "reboot the instance",
    HealthOutcome.REPLACE: "replace the instance",
}
"""The beginning of the summary, by outcome."""


@dataclass(frozen=True)
class CheckFinding:
    """One finding. `gpu_index` is None for the whole instance, `severity` is None if the source has none.

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
        """Return the outcome of the remedy."""
        return OUTCOME_OF[self.remedy]

    @property
    def blames_hardware(self) -> bool:
        """Return whether the outcome is a reboot or a replacement."""
        return self.outcome in (HealthOutcome.REBOOT, HealthOutcome.REPLACE)


@dataclass(frozen=True)
class InstanceVerdict:
    """The verdict. `findings` are ordered from worst to least, without repetition, at most FINDINGS_MAX."""

    outcome: HealthOutcome
    summary: str
    findings: tuple[CheckFinding, ...]


def conclude(findings: Iterable[CheckFinding], healthy: str, suspects: Set[int] = frozenset()) -> InstanceVerdict:
    """Return the verdict.

    Its summary is "healthy: " and the text `healthy` if the outcome is HEALTHY, otherwise the worst finding.

    Among equally bad findings, those on suspects come first. DCGM may report every GPU of a group because of one bad
    GPU, and a second source finds the suspect faulty.
    """
    ordered = sorted(
        dict.fromkeys(findings), key=lambda finding: (-finding.outcome.gravity, finding.gpu_index not in suspects)
    )
    outcome = ordered[0].outcome if ordered else HealthOutcome.HEALTHY
    if outcome is HealthOutcome.HEALTHY:
        notes = [finding for finding in ordered if finding.source != CHECK]
        noted = f"; noted: {_sentence(notes[0])}" if notes else ""
        summary = f"healthy: {healthy}{noted}"
    else:
        summary = _of_the_worst(ordered)
    return InstanceVerdict(outcome, summary[:SUMMARY_MAX], tuple(ordered[:FINDINGS_MAX]))


def _of_the_worst(findings: list[CheckFinding]) -> str:
    worst = findings[0]
    others = sum(finding.outcome is worst.outcome for finding in findings) - 1
    more = f" (and {others} more)" if others else ""
    room = SUMMARY_MAX - len(more)
    return f"{ADVICE[worst.outcome]}: {_sentence(worst)}"[:room] + more


def _sentence(finding: CheckFinding) -> str:
    where = f" on GPU {finding.gpu_index}" if finding.gpu_index is not None else ""
    code = f" {finding.code}:" if finding.code else ""
    return f"{finding.test}{where}:{code} {finding.message}"


def by_check(test: str, code: str, remedy: FindingRemedy, message: str, gpu_index: int | None = None) -> CheckFinding:
    """Return a finding of the check itself."""
    return CheckFinding(CHECK, test, gpu_index, code, None, None, remedy, message[:MESSAGE_MAX])


def counted(number: int, noun: str) -> str:
    """Return '1 GPU' or '2 GPUs'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
