"""Sets of cases that the health check judges: documents of the diagnostic, and lines of the kernel log.

The health check is the only part that orders a reboot or a replacement because of a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpu_recovery.core.logs.kinds import LineKind

from benchmarks.log_kinds import ROOT
from benchmarks.scoreboard.diagnosis_sets import GPU_KINDS
from benchmarks.scoreboard.score import CaseResult, verdict_of
from health_check.driver import DriverReport
from health_check.remedies import HealthOutcome
from tests.health_check.diagnostics import output
from tests.health_check.examinations import evidence_of, judged, log

TRUTH = ROOT / "tests/health_check/outputs_truth.json"
"""For each document the exit code of dcgmi, the expected number of GPUs, and whether a GPU is faulty; null: unknown."""
REPAIRS = (HealthOutcome.REBOOT, HealthOutcome.REPLACE)
OF_THE_DRIVER = ("nvrm", "nvidia-nvswitch", "xid")
"""Parts of lines that the NVIDIA driver writes to the kernel log."""
OF_ANOTHER_FAULT = frozenset({LineKind.XID_CASCADE})
"""Labels of lines that do not say whether a GPU is faulty."""


def document_truths() -> dict[str, dict[str, Any]]:
    """Return the truth of each document by the name of its file."""
    return dict(json.loads(TRUTH.read_text(encoding="utf-8")))


def document_results() -> Iterator[CaseResult]:
    """Judge each document of the diagnostic alone.

    If nobody knows whether a GPU is faulty, a verdict is right that neither passes nor repairs the instance.
    """
    for name, truth in document_truths().items():
        outcome = judged(output(name), truth["exit_code"], expected_gpus=truth["gpus"]).outcome
        repaired, faulty = outcome in REPAIRS, truth["faulty"]
        if faulty is None:
            yield CaseResult(verdict=verdict_of(True, not repaired and outcome is not HealthOutcome.HEALTHY))
            continue
        yield CaseResult(
            verdict=verdict_of(outcome is not HealthOutcome.INCONCLUSIVE, repaired == faulty),
            wrongful_repair=None if faulty else repaired,
            # After an inconclusive check the job goes on as if no GPU were faulty.
            missed=not repaired if faulty else None,
        )


def kernel_results(rows: Iterable[Mapping[str, str]]) -> Iterator[CaseResult]:
    """Judge each line of the driver as the whole kernel log of an instance whose driver does not answer.

    The truth is the label of the line, which its authors gave before any grading. If such a line orders no repair, the
    diagnostic of every GPU follows. So a line about a faulty GPU is then undecided, and no fault is missed.
    """
    silent = DriverReport(no_answer="nvidia-smi ended with 127: nvidia-smi is not installed")
    for row in rows:
        label = LineKind(row["kind"])
        if label in OF_ANOTHER_FAULT or not any(part in row["line"].casefold() for part in OF_THE_DRIVER):
            continue
        repaired = evidence_of(log(row["line"]), silent, expected_gpus=None).decides
        faulty = label in GPU_KINDS
        yield CaseResult(
            verdict=verdict_of(repaired or not faulty, repaired == faulty),
            wrongful_repair=None if faulty else repaired,
        )
