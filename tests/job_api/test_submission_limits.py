"""What the API refuses to a submission: variables, families of task definitions and priorities."""

from __future__ import annotations

import pytest
from gpu_recovery.auth.authenticator import TOKEN_CACHE_TTL
from gpu_recovery.core.queue.quota import parse_limits

from tests.job_api.submissions import ASKED, with_definition
from tests.lambdas.api_gateway import Api, refused, user_token
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ANAS = {name: value for name, value in ASKED.items() if name != "user"} | {"nnodes": 1}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def jobs_stored(api: Api) -> int:
    """Count the items of jobs."""
    return len([name for name in api.functions.kept() if name.startswith(ASKED["workload"])])


@pytest.mark.parametrize("name", ["", "A=B", "A\0", "A\n"])
def test_a_name_of_no_variable_is_refused_before_a_record_is_written(api: Api, name: str) -> None:
    """ECS refuses such a name at each launch, and the empty name stopped the function after the write."""
    assert repr(name) in refused(api.post("/jobs", ASKED | {"env": {name: "1"}}), 422, "env")
    assert jobs_stored(api) == 0


def test_a_reserved_variable_is_refused_with_its_field(api: Api) -> None:
    """The credentials of the task come from the ECS agent alone."""
    name = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    assert "cannot be given" in refused(api.post("/jobs", ASKED | {"env": {name: "http://h"}}), 422, f"env.{name}")


@pytest.mark.parametrize("how", [{}, {"dry_run": "1"}], ids=["submitted", "dry run"])
@pytest.mark.parametrize(
    "name", ["payments-prod", "payments-prod:7", "dcgm-health-check", "gpu-training-2", "GPU-training"]
)
def test_a_family_that_may_not_be_launched_is_refused_unseen(api: Api, name: str, how: dict[str, str]) -> None:
    """The answer must not show images and containers of others, nor whether a task definition exists.

    The container of the health check is privileged and may write every verdict, so it is refused like any other.
    """
    details = []
    for status in ("ACTIVE", "INACTIVE"):
        with_definition(api, status=status, family=name.partition(":")[0])
        answer = api.call("POST", "/api/v2/jobs", ASKED | {"task_definition": name}, **how)
        details.append(refused(answer, 422, "task_definition"))
        assert "DescribeTaskDefinition" not in api.functions.aws.operations() and jobs_stored(api) == 0
    assert details[0] == details[1] and details[0].endswith("gpu-training, llm")


def test_each_configured_family_may_be_submitted(api: Api) -> None:
    """With a revision or without."""
    for name in ("llm", "llm:3", "gpu-training"):
        assert api.post("/jobs", ASKED | {"task_definition": name}).status == 201


@pytest.mark.parametrize("how", [{}, {"dry_run": "1"}], ids=["submitted", "dry run"])
@pytest.mark.parametrize("priority", ["ABOVE_NORMAL", "HIGH", "EXTREME_HIGH", 50])
def test_a_user_may_not_suspend_everybody_elses_jobs(api: Api, priority: str | int, how: dict[str, str]) -> None:
    """403 with the way to get there; operators, and lower priorities, are served."""
    token, asked = user_token(api, "ana"), ANAS | {"priority": priority}
    answer = api.call("POST", "/api/v2/jobs", asked, token=token, **how)
    detail = refused(answer, 403, "priority")
    assert answer.body["code"] == "priority_too_high" and "ana may submit with NORMAL at most" in detail
    assert jobs_stored(api) == 0 and "DescribeTaskDefinition" not in api.functions.aws.operations()
    assert api.call("POST", "/api/v2/jobs", ANAS | {"priority": "NORMAL"}, token=token, **how).status in (200, 201)
    operators = user_token(api, "omar", "operator")
    for caller in ({}, {"token": operators}):
        assert api.call("POST", "/api/v2/jobs", asked | {"user": "ana"}, **caller, **how).status in (200, 201)


@pytest.mark.parametrize(
    ("quota", "status"),
    [
        ("ana/EXTREME_HIGH/*", 201),
        ("ana/EXTREME_HIGH/", 201),
        ("ana/EXTREME_HIGH/h100", 403),
        ("ana/VERY_HIGH/*", 403),
        ("ana/*/*", 403),
        ("*/EXTREME_HIGH/*", 403),
        ("bob/EXTREME_HIGH/*", 403),
    ],
)
def test_a_quota_of_the_user_and_the_priority_allows_the_priority(api: Api, quota: str, status: int) -> None:
    """Only an entry with both names says that somebody meant this user; an entry of no instances allows nothing."""
    api.functions.store.save_limits(parse_limits({"instances": {quota: 1}}).document(), 0)
    asked, token = ANAS | {"priority": "EXTREME_HIGH"}, user_token(api, "ana")
    assert api.post("/jobs", asked, token=token).status == status
    document, revision = api.functions.store.load_limits()
    api.functions.store.save_limits(document | {"instances": {quota: 0}}, revision)
    api.functions.now += TOKEN_CACHE_TTL
    assert api.post("/jobs", asked, token=token).status == 403


def test_the_highest_priority_of_users_is_a_setting(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment may give users more or less."""
    token = user_token(api, "ana")
    for setting, statuses in (("HIGH", (201, 201, 403)), ("VERY_HIGH", (201, 201, 201))):
        monkeypatch.setenv("USER_PRIORITY_MAX", setting)
        api.functions.chill()
        answers = [
            api.post("/jobs", ANAS | {"priority": name}, token=token) for name in ("NORMAL", "HIGH", "VERY_HIGH")
        ]
        assert tuple(answer.status for answer in answers) == statuses
