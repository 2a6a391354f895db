"""What both machines do, explored once for all tests that ask about every move."""

from dataclasses import replace

import pytest
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.job import state_machine as job_state_machine

from tests.core import all_events
from tests.core.build import ADAPTIVE, CLASSIC, POLICIES

OBSERVED = replace(ADAPTIVE, replace=True, observe_only=True)
SHORT_OF_BREATH = [replace(policy, attempts_max=2, uncounted_relaunches_max=1) for policy in (*POLICIES, OBSERVED)]
"""The presets with few attempts, so that exploring comes to where they are used up."""
LADDERS = (CLASSIC, replace(ADAPTIVE, replace=True), OBSERVED)
"""Policies under which instances climb: to a person after one reboot, to another host, and nowhere at all."""


@pytest.fixture(scope="session")
def job_edges() -> list[all_events.Edge]:
    """Every move of a job that exploring finds under either policy."""
    return [
        edge
        for policy in SHORT_OF_BREATH
        for edge in all_events.explore(
            job_state_machine,
            all_events.first_jobs(policy),
            all_events.anything_for_job,
            policy,
            all_events.job_signature,
        )
    ]


@pytest.fixture(scope="session")
def instance_edges() -> list[all_events.Edge]:
    """Every move of an instance that exploring finds under either policy."""
    return [
        edge
        for policy in LADDERS
        for edge in all_events.explore(
            state_machine,
            all_events.first_instances(policy),
            all_events.anything_for_instance,
            policy,
            all_events.instance_signature,
            all_events.written_by_a_store,
        )
    ]
