"""The findings of a log as a JSON document: what `gpu-recovery diagnose --log` prints, and what the API answers."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core.logs.classified_line import ClassifiedLine
from gpu_recovery.core.logs.classify import Classified
from gpu_recovery.core.logs.kinds import CLASSES, LineRole, policy_of

NOTHING_FAILED = "nothing: the program went on after this line"
"""What follows from a log in which only warnings were found."""


def findings_document(classified: Classified) -> dict[str, Any]:
    """Return the findings (number, line, kind and role of each), the kind of the cause, and the cause.

    The cause also has its class, and what gpu-recovery does after such a cause (`policy`).
    """
    cause = classified.verdict
    more = {"class": CLASSES[cause.kind], "policy": policy_after(cause)} if cause else {}
    return {
        "findings": [_view(finding) for finding in classified.findings],
        "verdict": classified.kind,
        "cause": {**_view(cause), **more} if cause else None,
    }


def policy_after(cause: ClassifiedLine) -> str:
    """Return what gpu-recovery does after a cause, as a sentence."""
    return NOTHING_FAILED if cause.role is LineRole.WARNING else policy_of(cause.kind)


def _view(finding: ClassifiedLine) -> dict[str, Any]:
    return {"number": finding.number, "line": finding.line, "kind": finding.kind, "role": finding.role}
