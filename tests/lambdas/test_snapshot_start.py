"""The job API that starts from a snapshot loads before the snapshot what a first request needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from gpu_recovery.aws.snapshot_start import INITIALIZATION_TYPE

from benchmarks.cold_starts import ENVIRONMENT

PROGRAM = """
import json, sys
import job_api
from gpu_recovery.aws.job_api_wiring import dependencies
loaded = {name in sys.modules for name in job_api.AT_FIRST_USE}
print(json.dumps({"made": dependencies.cache_info().currsize, "loaded": sorted(loaded)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "made", "loaded"), [("snap-start", 1, True), ("on-demand", 0, False)])
def test_clients_and_models_are_loaded_before_a_snapshot_alone(kind: str, made: int, loaded: bool) -> None:
    """Without a snapshot each request loads only what it needs."""
    environment = {**ENVIRONMENT, "PATH": os.environ["PATH"], INITIALIZATION_TYPE: kind}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {"made": made, "loaded": [loaded]}
