"""What both machines do, explored once for all tests that ask about every row."""

from typing import Any

import pytest
from gpu_recovery.core import instance, job

from tests.core import tellings
from tests.core.build import POLICIES

Edge = tuple[Any, Any, Any]


@pytest.fixture(scope="session")
def job_edges() -> list[Edge]:
    """Every (job, event, job after) that exploring finds under either policy."""
    found: list[Edge] = []
    for policy in POLICIES:
        found += tellings.explore(
            job, tellings.first_jobs(policy), tellings.anything_for_job, policy, tellings.job_signature(policy)
        )
    return found


@pytest.fixture(scope="session")
def instance_edges() -> list[Edge]:
    """Every (instance, event, instance after) that exploring finds under either policy."""
    found: list[Edge] = []
    for policy in POLICIES:
        found += tellings.explore(
            instance,
            tellings.first_instances(policy),
            tellings.anything_for_instance,
            policy,
            tellings.instance_signature(policy),
            tellings.claims_that_may_come,
        )
    return found
