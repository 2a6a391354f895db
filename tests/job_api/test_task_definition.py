"""What the API refuses of a task definition: roles, network mode, container and log that the deployment cannot use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.aws.counted_aws import LOGGING
from tests.aws.environment import ACCOUNT, FUNCTION
from tests.job_api.submissions import ASKED, with_definition
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
TASK, EXECUTION = FUNCTION["TRAINING_ROLE_ARNS"].split()
OTHER = f"arn:aws:iam::{ACCOUNT}:role/payments"


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def logs(**changes: Any) -> dict[str, Any]:
    """A container that logs like others, but for the changed options; "" removes an option."""
    driver = changes.pop("driver", "awslogs")
    options = {name: value for name, value in (LOGGING["options"] | changes).items() if value}
    return {"name": "a", "logConfiguration": {"logDriver": driver, "options": options}}


def refusal(api: Api, field: str = "task_definition", **asked: str) -> str:
    """The sentence of a refused submission, which a dry run says too. Nothing is stored."""
    detail = refused(api.post("/jobs", ASKED | asked), 422, field)
    assert refused(api.call("POST", "/api/v2/jobs", ASKED | asked, dry_run="1"), 422, field) == detail
    assert not [name for name in api.functions.kept() if name.startswith(ASKED["workload"])]
    return detail


@pytest.mark.parametrize(("key", "words"), [("taskRoleArn", "task role"), ("executionRoleArn", "execution role")])
@pytest.mark.parametrize("role", [OTHER, "payments", f"{TASK}-2", TASK.replace(ACCOUNT, "210987654321")])
def test_a_role_that_the_deployment_may_not_pass_is_refused(api: Api, key: str, words: str, role: str) -> None:
    """ECS would deny the launch. The answer names the role, the setting and what the setting holds."""
    with_definition(api, **{"taskRoleArn": TASK, "executionRoleArn": EXECUTION, key: role})
    detail = refusal(api)
    assert f"its {words} {role} is not in the setting training_role_arns" in detail
    assert TASK in detail and EXECUTION in detail


@pytest.mark.parametrize(
    "roles",
    [
        {},
        {"taskRoleArn": "", "executionRoleArn": None},
        {"taskRoleArn": TASK, "executionRoleArn": EXECUTION},
        {"taskRoleArn": "training-task", "executionRoleArn": "training-execution"},
    ],
)
def test_a_task_definition_without_roles_or_with_passable_ones_is_accepted(api: Api, roles: dict[str, str]) -> None:
    """ECS also accepts the name of a role in place of its ARN."""
    with_definition(api, **roles)
    assert api.post("/jobs", ASKED).status == 201


def test_a_network_mode_without_instance_addresses_is_refused(api: Api) -> None:
    """Ranks find each other by the address of the instance of rank 0."""
    with_definition(api, networkMode="awsvpc")
    assert "host" in refusal(api)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (logs(**{"awslogs-group": "/ecs/payments"}), "logs to /ecs/payments"),
        (logs(**{"awslogs-group": ""}), "awslogs"),
        (logs(**{"awslogs-stream-prefix": ""}), "prefix"),
        (logs(driver="fluentd"), "awslogs"),
        ({"name": "a", "logConfiguration": None}, "awslogs"),
    ],
)
def test_a_log_that_the_deployment_cannot_read_is_refused(api: Api, container: dict[str, Any], words: str) -> None:
    """Diagnosis and `gpu-recovery logs` would find nothing. Only the job's own container counts."""
    with_definition(api, containerDefinitions=[container, {"name": "b"}])
    detail = refusal(api)
    assert words in detail and "training_log_groups" in detail and "/ecs/gpu-training, /ecs/llm" in detail
    assert api.post("/jobs", ASKED | {"container": "b"}).status == 201


def test_a_deployment_that_reads_no_logs_lets_jobs_log_anywhere(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty training_log_groups says so."""
    monkeypatch.setenv("TRAINING_LOG_GROUPS", "")
    api.functions.chill()
    with_definition(api, containerDefinitions=[logs(driver="fluentd")])
    assert api.post("/jobs", ASKED).status == 201


def test_a_container_that_is_not_in_the_task_definition_is_refused(api: Api) -> None:
    """The answer names those that there are."""
    with_definition(api)
    assert "a, b" in refusal(api, "container", container="trainer")
