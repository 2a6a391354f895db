"""The order of things: settings, examine, judge, publish, and the exit code of the container."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from health_check.document import document
from health_check.examine import Examination, examine, judge
from health_check.publish import VerdictNotWrittenError, publish
from health_check.remedies import Outcome
from health_check.settings import Settings, SettingsError

LOGGED_OUTPUT_MAX = 4_000


def check(environment: Mapping[str, str]) -> int:
    """Examines this instance, writes the verdict, and returns the exit code of the container.

    The document is written before the code is returned, for the control plane reads it when the task has
    stopped. A verdict that could not be written becomes "could not tell": 0, 1 and 42 all need the document
    (it carries which boot was examined, and the evidence), and a failure of S3 must show. 43 stays: a
    configuration error costs no machine, and the missing document is most likely one more of the same.
    Settings without which no document can be written are the control plane's, so their lack is no configuration
    error of the host: it is "could not tell", too.
    """
    try:
        settings = Settings.from_environment(environment)
    except SettingsError as error:
        print(f"health check: {error}", file=sys.stderr, flush=True)
        return Outcome.INCONCLUSIVE.exit_code
    started_at = datetime.now(UTC)
    examination = examine(settings)
    verdict = judge(examination, level=settings.level, expected_gpus=settings.expected_gpus)
    written = document(verdict, examination, settings, started_at=started_at, ended_at=datetime.now(UTC))
    print(json.dumps(written), flush=True)
    if verdict.outcome is not Outcome.HEALTHY:
        _log_evidence(examination)
    try:
        publish(settings, written)
    except VerdictNotWrittenError as error:
        print(f"health check: {error}", file=sys.stderr, flush=True)
        kept = Outcome.CONFIGURATION if verdict.outcome is Outcome.CONFIGURATION else Outcome.INCONCLUSIVE
        return kept.exit_code
    return verdict.outcome.exit_code


def _log_evidence(examination: Examination) -> None:
    """What dcgmi itself said, for whoever reads the task's log. ASCII only: the output may hold any bytes."""
    for diagnosis in examination.diagnoses:
        run = diagnosis.run
        print(f"health check: dcgmi diag -r {diagnosis.step.level} ended with {run.exit_code}", file=sys.stderr)
        for name, text in (("stdout", run.output), ("stderr", run.error)):
            if text:
                print(f"health check: {name}: {text[:LOGGED_OUTPUT_MAX]!a}", file=sys.stderr)
    sys.stderr.flush()
