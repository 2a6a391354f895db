"""Row 39: a worker that is low on memory, or whose CPUs are busy, is warned of when its report arrives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore

from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, A, B, claim, instance
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang
from tests.node_api.test_router import BEAT, REPORTS, Agent, Ear

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.fixture
def agent(functions: Functions) -> Agent:
    """The agent of instance A, on which rank 0 of a running gang has its GPUs."""
    gang(functions, instances=(A, B))
    functions.store.save_instance(instance(A, claims={JOB: replace(claim(), rank=0)}))
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


def told(agent: Agent, number: int, *reports: dict[str, Any], job: str = JOB) -> list[str]:
    """The warnings after a report of these healths."""
    entries = [
        {"type": "health", "id": f"h-{number}-{n}", "job": job, "attempt": 1, "rank": 0, "worker": "0.0", **one}
        for n, one in enumerate(reports)
    ]
    before = len(agent.functions.logged("worker_health"))
    rank = {"job": JOB, "attempt": 1, "rank": 0, "pid": 4242, "ticks": 99}
    assert agent.call(REPORTS, BEAT | {"sequence": number, "running": [rank], "diagnosis": entries}).status == 200
    return [one["sentence"] for one in agent.functions.logged("worker_health")[before:]]


LOW, BUSY = "Worker 0.0 GPU memory low", "Worker 0.0 CPU overload"


def test_a_worker_is_warned_of_once_as_long_as_it_lasts(agent: Agent) -> None:
    """Below 1 GB and above 95 %, in the words of the seed; it may end, and begin again."""
    assert told(agent, 1, {"memory_free_gb": 1.0, "cpu_percent": 95}) == []
    assert told(agent, 2, {"memory_free_gb": 0.9, "cpu_percent": 95.1}) == [LOW, BUSY]
    assert told(agent, 3, {"memory_free_gb": 0.5, "cpu_percent": 20}, {"memory_free_gb": 0.4}) == []
    assert told(agent, 4, {"memory_free_gb": 30.0, "cpu_percent": 99}, {"memory_free_gb": 0.1}) == [BUSY, LOW]
    (line, *_) = agent.functions.logged("worker_health")
    assert (line["job_id"], line["instance_id"], line["worker"], line["level"]) == (JOB, A, "0.0", "WARNING")
    assert (line["memory_free_gb"], line["cpu_percent"]) == (0.9, 95.1)


def test_nobody_is_warned_of_a_job_that_is_not_there(agent: Agent) -> None:
    """Any process may write to the socket of an agent."""
    assert told(agent, 1, {"memory_free_gb": 0.1}, job="somebody-elses") == []
