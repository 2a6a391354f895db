"""Health check verdict of an instance, from the check container's exit code and verdict document.

The container of `health_check/` writes the document and exits with the codes of `EXIT_CODES`. The codes of dcgmi stay
inside the container.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass


class CheckOutcome(StrEnum):
    """Outcome of a health check. INCONCLUSIVE neither finds the instance faulty nor passes it."""

    HEALTHY = "HEALTHY"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"
    CONFIGURATION = "CONFIGURATION"
    INCONCLUSIVE = "INCONCLUSIVE"
    GONE = "GONE"  # not from a check: the instance left before its check
    SUSPECTED = "SUSPECTED"  # the check found no fault, but the job failed on the instance again and again

    @property
    def blames_hardware(self) -> bool:
        """Whether this outcome is evidence against the instance: its GPUs are broken, or it left the cluster."""
        return self in (CheckOutcome.REBOOT, CheckOutcome.REPLACE, CheckOutcome.GONE)


DRAINED_BY_OTHERS = "it is set to DRAINING in ECS, not by gpu-recovery"
"""Sentence about an instance on which no check starts. A person drained it, or ECS itself."""
REASON_CHARACTERS_MAX = 300
"""Characters of a container's reason that a summary quotes."""

EXIT_CODES: dict[int, CheckOutcome] = {
    0: CheckOutcome.HEALTHY,
    1: CheckOutcome.REBOOT,
    42: CheckOutcome.REPLACE,
    43: CheckOutcome.CONFIGURATION,
    44: CheckOutcome.INCONCLUSIVE,
}
"""Outcomes by the exit code of the check container. Any other code is INCONCLUSIVE."""


_NO_GPU_FOR_CONTAINERS = re.compile(r"nvidia-container-cli: |/dev/nvidia")
"""Errors of NVIDIA's container runtime if the devices or the driver are gone (libnvidia-container; unverified)."""


@frozen_dataclass()
class Verdict:
    """Verdict of a finished check. `boot_id` and `booted_at` are the instance's values, read inside the container.

    reset: whether the outcome is REBOOT and the driver asks for no more than a reset of GPUs.
    """

    outcome: CheckOutcome
    summary: str
    boot_id: str | None = None
    booted_at: datetime | None = None
    reset: bool = False


CURED_BY_RESET = ("GPU_RESET", "DRAIN_AND_RESET", "BUS_RESET")
"""Recovery actions of the driver that a reset of the GPU carries out (`health_check/recovery_action.py`)."""
ASK_NOTHING = ("NONE", "UNKNOWN")
"""Recovery actions of a GPU that ask for nothing."""


def is_cured_by_reset(outcome: CheckOutcome, actions: Mapping[Any, str], faulty: Collection[int | str | None]) -> bool:
    """Return whether a reset of the GPUs is enough.

    The driver must ask for a reset of GPUs and for nothing more, and no other GPU may be faulty.

    Args:
        outcome: outcome of the check.
        actions: the driver's recovery action of each GPU by its index or PCI address, as the verdict document names it.
        faulty: the GPU of each finding that asks for a reboot; None for a finding about the whole instance.
    """
    asked = {index: action for index, action in actions.items() if action not in ASK_NOTHING}
    only_resets = bool(asked) and all(action in CURED_BY_RESET for action in asked.values())
    return outcome is CheckOutcome.REBOOT and only_resets and set(faulty) <= set(asked)


def verdict_of(exit_code: int | None, document: Verdict | None, *, document_required: bool) -> Verdict:
    """Return the verdict of a check that ended.

    Args:
        exit_code: exit code of the container, None if ECS gives none.
        document: the verdict document with the same check id, None if there is none.
        document_required: whether a finding of faulty hardware (codes 1 and 42) without a document is only
            INCONCLUSIVE. A broken image exits with code 1, too.
    """
    if exit_code is None:
        return _with_boot(document, CheckOutcome.INCONCLUSIVE, "the health check ended without an exit code")
    outcome = EXIT_CODES.get(exit_code, CheckOutcome.INCONCLUSIVE)
    if outcome.blames_hardware and document is None and document_required:
        return Verdict(
            CheckOutcome.INCONCLUSIVE,
            f"the health check exited with {exit_code} but left no verdict document, so it is no evidence of a fault",
        )
    default = f"the health check exited with {exit_code}"
    if document is None:
        return Verdict(outcome, default)
    if document.outcome != outcome:
        return _with_boot(document, CheckOutcome.INCONCLUSIVE, f"{default} but its document says {document.outcome}")
    return document


def verdict_of_unstarted(reason: str) -> Verdict:
    """Return the verdict of a check that ECS could not start. `reason` is the reason of the container.

    A host that lost its GPUs may still offer them to ECS: tasks are placed there, and none of them starts. Such a
    check leaves no document, so the error of the host's container runtime is the evidence. Any other reason concerns
    the image, or is no evidence about the instance.
    """
    broken = _NO_GPU_FOR_CONTAINERS.search(reason) is not None
    outcome = CheckOutcome.REBOOT if broken else CheckOutcome.INCONCLUSIVE
    quoted = reason.strip()[:REASON_CHARACTERS_MAX] or "no reason given"
    return Verdict(outcome, f"the health check could not be started: {quoted}")


def _with_boot(document: Verdict | None, outcome: CheckOutcome, summary: str) -> Verdict:
    if document is None:
        return Verdict(outcome, summary)
    return Verdict(outcome, summary, document.boot_id, document.booted_at)
