"""The agent as a daemon service: ECS says where its task runs, and the signature of the task's role says which task."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.heartbeat import AGENT_TASK_TTL, BY_DAEMON

from tests.aws.ecs_events import task_event
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import NOW, A, instance
from tests.lambdas.conftest import Functions
from tests.node_api.test_report_to_tables import BEAT, SIGNED, SIGNER
from tests.node_api.test_router import Agent, Ear, refused

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
AGENT_ROLE = "arn:aws:iam::123456789012:role/GpuRecovery-NodeAgentTaskRole-1X"
TASK = "0123456789abcdef0123456789abcdef"
SESSION = "arn:aws:sts::123456789012:assumed-role/GpuRecovery-NodeAgentTaskRole-1X/{}"
FAMILY = "gpu-recovery-agent"


@pytest.fixture
def service(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The functions of a deployment with the service, and a registered instance."""
    monkeypatch.setenv("NODE_AGENT_ROLE_ARN", AGENT_ROLE)
    monkeypatch.setenv("NODE_AGENT_FAMILY", FAMILY)
    record = instance(A)
    functions.store.save_instance(record)
    functions.store.remember_registration(record)
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


def event(status: str = "RUNNING", family: str = FAMILY, task: str = TASK) -> dict[str, Any]:
    """The event of a task of the service on instance A."""
    told = task_event(task, "ecs-svc/1234567890123456789", status, {})
    detail = told["detail"]
    detail["taskDefinitionArn"] = detail["taskDefinitionArn"].replace("gpu-training", family)
    registrations, _, _ = detail["containerInstanceArn"].rpartition("/")
    detail["containerInstanceArn"] = f"{registrations}/{instance(A).container_instance_id}"
    detail["group"] = f"service:{family}"
    return told


def report(agent: Agent, sequence: int = 1, task: str = TASK) -> Any:
    return agent.call(SIGNED, BEAT | {"sequence": sequence}, headers={}, signer=SESSION.format(task))


def test_a_report_of_the_service_is_of_the_instance_that_ecs_names(service: Agent) -> None:
    """Before the event the agent is asked to come again; no token exists anywhere."""
    early = report(service)
    assert (early.status, early.headers["Retry-After"]) == (503, "5")
    service.functions.call("ecs_task_handler", event())
    assert report(service).status == 200
    beat = service.functions.store.load_heartbeats([A])[A]
    assert set(beat.heard) == {BY_DAEMON}


@pytest.mark.parametrize("session", [A, "ana", TASK.upper(), f"{TASK}0", TASK[:-1]])
def test_only_tasks_sign_with_the_role_of_the_service(service: Agent, session: str) -> None:
    """A person who may assume the role does not choose the instance."""
    service.functions.call("ecs_task_handler", event())
    refused(report(service, task=session), 403, "invalid_signer")


def test_a_task_signs_with_no_other_role(service: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles of the setting belong to instances."""
    monkeypatch.setenv("NODE_ROLE_ARNS", "arn:aws:iam::123456789012:role/training-nodes")
    service.functions.chill()
    service.functions.call("ecs_task_handler", event())
    refused(service.call(SIGNED, BEAT, headers={}, signer=SIGNER.format(TASK)), 403, "invalid_signer")


@pytest.mark.parametrize("told", [event(family="gpu-recovery-agent-2"), event("STOPPED")])
def test_other_tasks_are_no_agents(service: Agent, told: dict[str, Any]) -> None:
    """The family decides, and only a task that runs has an agent."""
    service.functions.call("ecs_task_handler", told)
    assert report(service).status == 503


def test_without_the_service_a_task_of_that_family_is_any_task(service: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployment knows no role to trust."""
    monkeypatch.setenv("NODE_AGENT_ROLE_ARN", "")
    monkeypatch.setenv("NODE_AGENT_FAMILY", "")
    service.functions.chill()
    before = service.functions.kept()
    service.functions.call("ecs_task_handler", event())
    assert service.functions.kept() == before
    refused(report(service), 403, "invalid_signer")


def test_the_instance_of_a_task_is_read_once_a_minute(service: Agent) -> None:
    """As a token is."""
    service.functions.call("ecs_task_handler", event())
    reads = []
    for second in range(0, 180, 15):
        service.functions.now = NOW + timedelta(seconds=second)
        body = BEAT | {"sequence": second + 1, "uptime_s": 600 + second}
        assert service.call(SIGNED, body, headers={}, signer=SESSION.format(TASK)).status == 200
        reads.append(service.functions.aws.operations("dynamodb")["GetItem"])
    assert sum(reads[1:]) == 2


def test_a_task_that_runs_for_months_is_known_to_its_end(service: Agent) -> None:
    """Its item would expire: half of the time before, a report has it written again."""
    service.functions.call("ecs_task_handler", event())
    for days in range(0, 120, 10):
        service.functions.now = NOW + timedelta(days=days)
        body = BEAT | {"sequence": days + 1, "uptime_s": 600 + 86_400 * days}
        assert service.call(SIGNED, body, headers={}, signer=SESSION.format(TASK)).status == 200
    service.functions.now += AGENT_TASK_TTL
    assert report(service, 10_000).status == 503
