"""A hung rank all the way: wrapper, agent, API, tables, diagnosis; and only its instance is checked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.diagnosis.observations import FlightReport
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.paths import SOCKET
from gpu_recovery_agent.sensors.training_socket import TrainingSocket

from tests.agent.api import WITHIN_S
from tests.agent.flight_recorder.dumps import hung, write
from tests.agent.node import Node, wait_until
from tests.agent.rank.test_flight_dumps import HANGS
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, claim, instance
from tests.execution.failed_gang import FIRST, SECOND, checked, ended, failed
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.node_api.test_router import BEAT, REPORTS, Agent, Ear

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:No application metrics")]
WORLD, HUNG = 16, 12


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Two instances, each with its own folder of ranks."""
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        found.append(Node(tmp_path / name, "http://127.0.0.1:1"))
        found[-1].running.mkdir()
    try:
        yield found
    finally:
        for node in found:
            node.end()


def hears(functions: Functions, name: str) -> Agent:
    """The agent of an instance, as the API knows it."""
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, name, NOW, "a test", AskedToken()))


def dumps_and_ends(node: Node, rank: int, folder: Path) -> list[dict[str, Any]]:
    """What the agent forwards of a hanging rank that is stopped as ECS stops it: each list is one heartbeat."""
    agent = TrainingSocket(node.running / SOCKET, AgentLog())
    agent.poll(1_000.0)
    environment = {
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/fr_",
        "NNODES": "2",
    }
    ranks = [str(local) for local in range(8 * rank, 8 * rank + 8)]
    started = node.rank(sys.executable, str(HANGS), *ranks, job=JOB, rank=rank, **environment)
    assert started.stdout is not None and started.stdout.readline() == b"hangs\n"
    started.terminate()
    wait_until(lambda: agent.poll(1_000.0), "the agent reports at once")
    told = [one.to_json(1_000.0) for one in agent.batch()]
    assert len(told) == 8 and agent.lost == 0
    agent.acknowledge(agent.batch(), 0)
    assert started.wait(WITHIN_S) == 143
    agent.close()
    return told


def test_a_hung_rank_is_found_by_the_dumps_and_only_its_machine_is_checked(
    functions: Functions, nodes: list[Node], tmp_path: Path
) -> None:
    """Rank 12 of twice eight GPUs has not called the collective in which the others wait.

    Nobody has dumped before the gang was stopped. The second machine starts with rank 8, and is rank 1 of the plan.
    """
    api = Api(functions)
    failed(api)
    for rank, name in enumerate((FIRST, SECOND)):
        functions.store.save_instance(instance(name, claims={JOB: replace(claim(), rank=rank)}))
    content = hung(WORLD, (HUNG,))
    for rank, name in enumerate((FIRST, SECOND)):
        folder = write(tmp_path / f"dumps-{rank}", content, "to_come_")
        body = BEAT | {"diagnosis": dumps_and_ends(nodes[rank], rank, folder)}
        said = hears(functions, name).call(REPORTS, body)
        assert said.status == 200 and "left_out" not in said.body
    stored = functions.store.observations_of(JOB, 1, (FIRST, SECOND))
    reports = [report for buffer in stored.values() for report in buffer.reports]
    assert sorted(report.rank for report in reports if isinstance(report, FlightReport)) == list(range(WORLD))
    after = ended(api)
    assert after.status is JobStatus.RECOVERING, after.reason
    assert (after.conclusion.cause, after.conclusion.instances) == ("WORKER_HANG", (SECOND,))
    assert "ranks 12 are missing in process group 0 (default_pg)" in after.reason
    assert tuple(after.left_out) == (SECOND,)
    assert checked(api) == {SECOND: None}
