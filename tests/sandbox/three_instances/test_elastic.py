"""An elastic job as deployed: real processes go on with two ranks while an instance reboots, and with three later."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from sandbox import sandbox
from tests.sandbox.patience import wait_until
from tests.sandbox.time_sharing import Shared, told

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
ENDLESS = 1_000_000
"""Number of steps that the training does not reach."""


def runs_on(shared: Shared, job_id: str, width: int) -> dict[str, Any]:
    """The job once it runs on so many instances, and all its ranks have made a step."""
    job = shared.until(job_id, lambda job: job["status"] == "RUNNING" and job["width"] == width)
    shared.works(job_id, job["attempt"])
    return job


def resumed_from(shared: Shared, job_id: str, attempt: int) -> int:
    """The step from which an attempt continued."""
    found = re.search(r"resumed from step (\d+)", shared.written(job_id, attempt))
    return int(found[1]) if found else 0


def test_a_job_goes_on_with_two_of_three_instances_and_grows_again(shared: Shared) -> None:
    """No step is lost by the growth: rank 0 saves when it is asked to leave."""
    client = shared.operator
    job_id = shared.submit("ana", "elastic", ENDLESS, nnodes={"min": 2, "max": 3})
    job = runs_on(shared, job_id, 3)
    sick = str(job["instances"][1])
    sandbox.fault(shared.directory, sick, "xid79")
    job = runs_on(shared, job_id, 2)
    assert sick not in job["instances"] and job["attempt"] == 2, told(job)
    assert client.instance(sick)["status"] != "AVAILABLE", told(client.instance(sick))
    job = runs_on(shared, job_id, 3)
    assert sick in job["instances"] and job["attempt"] == 3, told(job)
    assert "grows from 2 to 3 instance(s)" in told(job)
    # The first attempt is counted only if its rank ended before the report of the agent stopped the gang.
    repaired = 1 - job["attempts_counted"]
    assert job["attempts_uncounted"] == {"GROWN": 1} | ({"REPAIR": 1} if repaired else {}), told(job)
    left = int(re.findall(r"suspended after step (\d+)", shared.written(job_id, 2))[0])
    assert resumed_from(shared, job_id, 3) == left > 0
    client.cancel(job_id)
    wait_until(lambda: all(not one["claims"] for one in client.instances()))
