"""What was found, and the verdict that follows: the worst finding decides, whoever found it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from health_check.remedies import OUTCOME_OF, Outcome, Remedy, Severity

FINDINGS_MAX = 64
SUMMARY_MAX = 400
MESSAGE_MAX = 500

DCGM = "dcgm"  # the diagnostic said so
KERNEL_LOG = "kernel_log"  # the driver wrote it into the kernel's log
DRIVER = "driver"  # the driver says it of a GPU's present state
CHECK = "check"  # the check itself concludes it, from an exit code or from what is missing

ADVICE = {
    Outcome.INCONCLUSIVE: "could not tell",
    Outcome.CONFIGURATION: "fix the host's configuration",
    Outcome.REBOOT: "reboot the instance",
    Outcome.REPLACE: "replace the instance",
}


@dataclass(frozen=True)
class Finding:
    """One thing found. `gpu_index` is None for the whole instance, `severity` is None when nobody gave one.

    `id` is DCGM's error id, or the number of an XID or SXid, as `code` says.
    """

    source: str
    test: str
    gpu_index: int | None
    code: str | None
    id: int | None
    severity: Severity | None
    remedy: Remedy
    message: str

    @property
    def outcome(self) -> Outcome:
        return OUTCOME_OF[self.remedy]

    @property
    def blames_hardware(self) -> bool:
        return self.outcome in (Outcome.REBOOT, Outcome.REPLACE)


@dataclass(frozen=True)
class Verdict:
    """`findings` are ordered from worst to least, without repetition, FINDINGS_MAX at most."""

    outcome: Outcome
    summary: str
    findings: tuple[Finding, ...]


def conclude(findings: Iterable[Finding], healthy: str, suspects: Set[int] = frozenset()) -> Verdict:
    """The verdict; its summary is `healthy` if nothing needs doing, else the worst finding.

    Of findings equally bad one on a suspect comes first: DCGM may report every GPU of a group for one bad one, and
    the suspect is the one that something else accuses too.
    """
    ordered = sorted(
        dict.fromkeys(findings), key=lambda finding: (-finding.outcome.gravity, finding.gpu_index not in suspects)
    )
    outcome = ordered[0].outcome if ordered else Outcome.HEALTHY
    if outcome is Outcome.HEALTHY:
        notes = [finding for finding in ordered if finding.source != CHECK]
        noted = f"; noted: {_told(notes[0])}" if notes else ""
        summary = f"healthy: {healthy}{noted}"
    else:
        summary = _of_the_worst(ordered)
    return Verdict(outcome, summary[:SUMMARY_MAX], tuple(ordered[:FINDINGS_MAX]))


def _of_the_worst(findings: list[Finding]) -> str:
    worst = findings[0]
    others = sum(finding.outcome is worst.outcome for finding in findings) - 1
    more = f" (and {others} more)" if others else ""
    room = SUMMARY_MAX - len(more)
    return f"{ADVICE[worst.outcome]}: {_told(worst)}"[:room] + more


def _told(finding: Finding) -> str:
    where = f" on GPU {finding.gpu_index}" if finding.gpu_index is not None else ""
    code = f" {finding.code}:" if finding.code else ""
    return f"{finding.test}{where}:{code} {finding.message}"


def by_check(test: str, code: str, remedy: Remedy, message: str, gpu_index: int | None = None) -> Finding:
    """A finding of the check itself."""
    return Finding(CHECK, test, gpu_index, code, None, None, remedy, message[:MESSAGE_MAX])


def counted(number: int, noun: str) -> str:
    """'1 GPU', '2 GPUs'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
