"""Runs the health check: settings, examination, verdict, publication, exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from health_check.document import document
from health_check.examine import Examination, examine, judge
from health_check.publish import VerdictNotWrittenError, publish
from health_check.remedies import HealthOutcome
from health_check.settings import CheckSettings, CheckSettingsError

LOGGED_OUTPUT_MAX = 4_000
"""Largest number of characters of dcgmi's output that are logged."""


def check(environment: Mapping[str, str]) -> int:
    """Examine this instance, write the verdict document, and return the exit code of the container.

    The document is written before the exit, because the control plane reads it when the task has stopped. If it cannot
    be written, the outcome becomes inconclusive: exit codes 0, 1 and 42 all need the document, which carries the boot
    and the evidence, and a failure of S3 must be visible. Exit code 43 stays: a configuration error costs no instance,
    and the missing document is probably another configuration error.

    The control plane supplies the settings without which no document can be written. Their absence is no configuration
    error of the host, so the outcome is inconclusive as well.
    """
    try:
        settings = CheckSettings.from_environment(environment)
    except CheckSettingsError as error:
        print(f"health check: {error}", file=sys.stderr, flush=True)
        return HealthOutcome.INCONCLUSIVE.exit_code
    started_at = datetime.now(UTC)
    examination = examine(settings)
    verdict = judge(examination, level=settings.level, expected_gpus=settings.expected_gpus)
    written = document(verdict, examination, settings, started_at=started_at, ended_at=datetime.now(UTC))
    print(json.dumps(written), flush=True)
    if verdict.outcome is not HealthOutcome.HEALTHY:
        _log_evidence(examination)
    try:
        publish(settings, written)
    except VerdictNotWrittenError as error:
        print(f"health check: {error}", file=sys.stderr, flush=True)
        outcome = (
            HealthOutcome.CONFIGURATION
            if verdict.outcome is HealthOutcome.CONFIGURATION
            else HealthOutcome.INCONCLUSIVE
        )
        return outcome.exit_code
    return verdict.outcome.exit_code


def _log_evidence(examination: Examination) -> None:
    """Log the output of dcgmi for operators. ASCII only: the output may contain any bytes."""
    for diagnosis in examination.diagnoses:
        run = diagnosis.run
        print(f"health check: dcgmi diag -r {diagnosis.step.level} ended with {run.exit_code}", file=sys.stderr)
        for name, text in (("stdout", run.output), ("stderr", run.error)):
            if text:
                print(f"health check: {name}: {text[:LOGGED_OUTPUT_MAX]!a}", file=sys.stderr)
    sys.stderr.flush()
