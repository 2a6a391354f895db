"""What the function imports at its cold start."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.markdown import ROOT

PROGRAM = """
import json, sys
import job_api
print(json.dumps([name for name in sys.modules if name.startswith(("pydantic", "gpu_recovery.job_api.models"))]))
"""


def test_a_cold_start_imports_no_model() -> None:
    """Most requests have no body; pydantic and the models are imported with the first body."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "lambdas"),
        "POWERTOOLS_METRICS_NAMESPACE": "GpuRecovery",
        "POWERTOOLS_SERVICE_NAME": "gpu-recovery",
    }
    command = [sys.executable, "-c", PROGRAM]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(made.stdout) == []
