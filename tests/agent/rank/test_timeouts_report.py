"""The timeouts that the wrapper of rank 0 tells the agent: known names with whole numbers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.diagnosis.observations import TimeoutsReport
from gpu_recovery.core.job import timeout_variables
from gpu_recovery_agent.rank import timeout_variables as of_the_agent
from gpu_recovery_agent.sensors.training_socket import TrainingSocket

from tests.agent.api import WITHIN_S
from tests.agent.conftest import NOW_S
from tests.agent.node import Node, wait_until

VARIABLES = {"NCCL_TIMEOUT": "3600", "TORCHFT_TIMEOUT_SEC": "grn_abc", "HF_TOKEN": "98765", "RANK_SECRET": "1"}


def heard(ear: TrainingSocket) -> list[TimeoutsReport]:
    """What the API would read of what has come."""
    ear.poll(NOW_S)
    found, left_out = observed("i-1", [one.to_json(NOW_S) for one in ear.batch()])
    assert left_out == 0
    return [one.report for one in found if isinstance(one.report, TimeoutsReport)]


@pytest.mark.slow
def test_rank_0_reports_its_known_timeouts_and_no_other_value(node: Node, ear: TrainingSocket) -> None:
    """While its command runs. The command's options count as its variables do."""
    rank = node.rank("sh", "-c", "exec sleep 600", "--ddp_timeout=1800", **VARIABLES)
    (report,) = wait_until(lambda: heard(ear))
    assert report.rank == 0
    found = {variable.name: variable.value for variable in report.variables}
    assert found == {"NCCL_TIMEOUT": 3_600, "SUSPEND_GRACE_S": 0, "--ddp_timeout": 1_800}
    rank.terminate()
    assert rank.wait(WITHIN_S) == 143


@pytest.mark.slow
@pytest.mark.parametrize(("number", "variables"), [(1, VARIABLES), (0, {"HF_TOKEN": "98765"})])
def test_nothing_is_reported_by_other_ranks_or_without_a_known_timeout(
    node: Node, ear: TrainingSocket, number: int, variables: dict[str, str]
) -> None:
    """The ranks of a gang have one environment, and most have no such variable."""
    assert node.rank("true", rank=number, **variables).wait(WITHIN_S) == 0
    assert heard(ear) == []


def test_agent_and_server_read_the_same_names() -> None:
    """The agent's image holds nothing of the functions, so it has a copy."""
    assert Path(of_the_agent.__file__).read_bytes() == Path(timeout_variables.__file__).read_bytes()
