"""What the function imports at its cold start."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.cold_starts import SUBMISSION
from tests.markdown import ROOT

AT_FIRST_USE = (
    "gpu_recovery.core.diagnosis.diagnose",
    "gpu_recovery.core.logs",
    "gpu_recovery.core.queue.place",
    "gpu_recovery.job_api.diagnosis_answers",
    "gpu_recovery.job_api.models",
    "gpu_recovery.job_api.yaml_reader",
    "gpu_recovery.scheduler.schedule",
    "pydantic",
)
"""Modules that few requests need, or none without a body."""


def _imported(*statements: str) -> set[str]:
    """Return the modules of AT_FIRST_USE, and those in them, that a process with the function has imported."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "lambdas"),
        "POWERTOOLS_METRICS_NAMESPACE": "GpuRecovery",
        "POWERTOOLS_SERVICE_NAME": "gpu-recovery",
    }
    program = "; ".join(("import json, sys, job_api", *statements, "print(json.dumps([*sys.modules]))"))
    made = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return {name for name in json.loads(made.stdout) if name.startswith(AT_FIRST_USE)}


def test_a_cold_start_imports_neither_a_model_nor_what_few_requests_need() -> None:
    """pydantic and the models are imported with the first body, the rules of diagnosis with the first diagnosis."""
    assert _imported() == set()


def test_a_submission_imports_its_own_models_alone() -> None:
    """The models of other requests and of all responses take longer than those of a job."""
    models = {name for name in _imported(SUBMISSION) if not name.startswith("pydantic")}
    assert models == {f"gpu_recovery.job_api.models{name}" for name in ("", ".job_spec", ".rules")}
