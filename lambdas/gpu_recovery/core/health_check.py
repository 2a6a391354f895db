"""The health check of an instance: what the check container's exit code and verdict document mean.

The container of `health_check/` exits with codes of ours and writes a document; dcgmi's own codes never leave it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class CheckOutcome(StrEnum):
    """What a check says about an instance. INCONCLUSIVE is not bad, and it is not a pass."""

    HEALTHY = "HEALTHY"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"
    CONFIGURATION = "CONFIGURATION"
    INCONCLUSIVE = "INCONCLUSIVE"
    GONE = "GONE"  # no check says so: the instance left before it could be checked
    SUSPECTED = "SUSPECTED"  # the check found nothing; what its job has seen there again and again says so

    @property
    def blames_hardware(self) -> bool:
        """Whether this outcome is evidence against the instance: its GPUs are broken, or it is there no more."""
        return self in (CheckOutcome.REBOOT, CheckOutcome.REPLACE, CheckOutcome.GONE)


REASON_CHARACTERS_MAX = 300

EXIT_CODES: dict[int, CheckOutcome] = {
    0: CheckOutcome.HEALTHY,
    1: CheckOutcome.REBOOT,
    42: CheckOutcome.REPLACE,
    43: CheckOutcome.CONFIGURATION,
    44: CheckOutcome.INCONCLUSIVE,
}


_NO_GPU_FOR_CONTAINERS = re.compile(r"nvidia-container-cli: |/dev/nvidia")
"""What NVIDIA's container runtime says where the devices or their driver are gone (libnvidia-container; unverified)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finished check. `boot_id` and `booted_at` are the instance's own words, read inside the container."""

    outcome: CheckOutcome
    summary: str
    boot_id: str | None = None
    booted_at: datetime | None = None


def verdict_of(exit_code: int | None, document: Verdict | None, *, document_required: bool) -> Verdict:
    """The verdict of a check that ended with `exit_code` and left `document` (None: none with the same check id).

    With `document_required`, blame (codes 1 and 42) without its document is only INCONCLUSIVE: an exit code 1 is also
    what a broken image gives.
    """
    if exit_code is None:
        return _with(document, CheckOutcome.INCONCLUSIVE, "the health check ended without an exit code")
    outcome = EXIT_CODES.get(exit_code, CheckOutcome.INCONCLUSIVE)
    if outcome.blames_hardware and document is None and document_required:
        return Verdict(
            CheckOutcome.INCONCLUSIVE,
            f"the health check exited with {exit_code} but left no verdict document, so it blames nothing",
        )
    default = f"the health check exited with {exit_code}"
    if document is None:
        return Verdict(outcome, default)
    if document.outcome != outcome:
        return _with(document, CheckOutcome.INCONCLUSIVE, f"{default} but its document says {document.outcome}")
    return document


def verdict_of_unstarted(reason: str) -> Verdict:
    """The verdict of a check whose container ECS could not start; `reason` is the container's.

    A host that has lost its GPUs may go on advertising them: tasks are placed there, and none starts. No document can
    say so, but the host's own runtime does. Any other reason says something about the image, or nothing.
    """
    broken = _NO_GPU_FOR_CONTAINERS.search(reason) is not None
    outcome = CheckOutcome.REBOOT if broken else CheckOutcome.INCONCLUSIVE
    said = reason.strip()[:REASON_CHARACTERS_MAX] or "no reason given"
    return Verdict(outcome, f"the health check could not be started: {said}")


def _with(document: Verdict | None, outcome: CheckOutcome, summary: str) -> Verdict:
    if document is None:
        return Verdict(outcome, summary)
    return Verdict(outcome, summary, document.boot_id, document.booted_at)
