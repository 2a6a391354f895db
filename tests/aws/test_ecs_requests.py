"""The RunTask requests: on which instance, under which token, and what the container is told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from itertools import product
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from gpu_recovery.auth.tokens import SECRET, TokenKind
from gpu_recovery.aws.ecs_requests import PASSIVE_LEVEL, CheckTask, check_request, rank_request
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery.core.instance.record import CheckRun
from gpu_recovery.core.job.rank_overrides import MASTER_PORT, OVERRIDES_CHARACTERS_MAX, characters_of_launch
from gpu_recovery.core.job.spec import COMMAND_AND_ENV_CHARACTERS_MAX, OUR_VARIABLES
from gpu_recovery.core.launch_signature import launch_signature, verdict_name
from gpu_recovery.job_api.job_spec import parse_spec

from health_check import settings as health_check_settings
from tests.aws.environment import CHECK_TASK, CLUSTER
from tests.aws.records import JOB, A, instance, job, launched, spec

RUN_TASK = botocore.session.get_session().get_service_model("ecs").operation_model("RunTask").input_shape
LONG = "j" * 100
KEY = "launch-key"


def rank(number: int = 0, **changes: Any) -> dict[str, Any]:
    """The request for one rank of the usual job."""
    return rank_request(CLUSTER, job(attempt=1, **changes), launched(), number, "10.0.0.7", KEY)


def check(refusals: int = 0, *, number: int = 1, reserve: bool = True, gpus: int = 8) -> dict[str, Any]:
    """The request for one health check."""
    check_id = f"check/{A}/{number}"
    machine = instance(gpus=gpus, check=CheckRun(check_id, signed=True))
    return check_request(CLUSTER, CheckTask(CHECK_TASK, "bucket", 2, reserve, 2_400), machine, check_id, refusals, KEY)


def override_of(request: dict[str, Any]) -> dict[str, Any]:
    """Its only container override."""
    (override,) = request["overrides"]["containerOverrides"]
    return dict(override)


def environment_of(request: dict[str, Any]) -> dict[str, str]:
    """What the container is told; no name twice."""
    pairs = override_of(request)["environment"]
    environment = {pair["name"]: pair["value"] for pair in pairs}
    assert len(environment) == len(pairs)
    return environment


@pytest.mark.parametrize("request_", [rank(), rank(1), check(), check(reserve=False)])
def test_every_request_is_one_that_ecs_understands(request_: dict[str, Any]) -> None:
    """By the model of the API itself."""
    report = ParamValidator().validate(request_, RUN_TASK)
    assert not report.has_errors(), report.generate_report()


def test_a_rank_is_placed_on_its_instance_and_on_no_other() -> None:
    """One task, one constraint, a GPU requirement."""
    request = rank(1)
    expression = f"ec2InstanceId == {launched().instances[1]}"
    assert request["placementConstraints"] == [{"type": "memberOf", "expression": expression}]
    assert (request["count"], request["cluster"], request["taskDefinition"]) == (1, CLUSTER, "gpu-training:3")
    assert request["startedBy"] == f"{JOB}--a01"
    assert override_of(request)["name"] == "main"
    assert override_of(request)["resourceRequirements"] == [{"type": "GPU", "value": "8"}]
    assert override_of(request)["command"] == ["python", "train.py"]


def test_a_rank_is_told_everything_it_needs() -> None:
    """Every variable that ranks carry, and the user's own."""
    told = environment_of(rank(1, spec=spec(suspend_grace_s=9, checkpoint_dir="/fsx/run-7")))
    assert {name: told[name] for name in OUR_VARIABLES} == {
        "JOB_ID": JOB,
        "ATTEMPT": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "NNODES": "2",
        "GPUS_PER_NODE": "8",
        "MASTER_IP": "10.0.0.7",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "2222",
        "INSTANCE_ID": launched().instances[1],
        "RUNNING_LOG_ID": str(running_log_id(JOB, 1, 1)),
        "EPOCH": "0",
        "SUSPEND_GRACE_S": "9",
    }
    assert (told["LR"], told["CHECKPOINT_DIR"]) == ("0.1", "/fsx/run-7")


@pytest.mark.parametrize("request_", [rank(), rank(1, spec=spec(checkpoint_dir="/fsx")), check(), check(reserve=False)])
def test_no_token_is_in_what_a_task_is_told(request_: dict[str, Any]) -> None:
    """Events show overrides to everybody who may read the bus: what a task is told is named here, one by one."""
    ours = OUR_VARIABLES | {"CHECKPOINT_DIR", "GPU_RECOVERY_STOP_TIMEOUT_S", "GPU_RECOVERY_LAUNCH_SIGNATURE"}
    of_check = {
        "CHECK_ID",
        "INSTANCE_ID",
        "VERDICT_BUCKET",
        "VERDICT_KEY",
        "CHECK_LEVEL",
        "EXPECTED_GPUS",
        "CHECK_TIMEOUT_S",
        "SINCE",
        "GPU_RECOVERY_LAUNCH_SIGNATURE",
    }
    told = environment_of(request_)
    assert set(told) - {"LR"} <= (of_check if "CHECK_ID" in told else ours)
    assert not [name for name in told if re.search("TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY$(?<!VERDICT_KEY)", name)]
    text = json.dumps(request_["overrides"])
    assert not re.search(SECRET, text) and not [kind for kind in TokenKind if kind.prefix in text]


def test_two_masters_on_one_instance_listen_on_two_ports() -> None:
    """The offset of the plan is added to the port of the seed."""
    request = rank_request(CLUSTER, job(), replace(launched(), port_offset=3), 0, "10.0.0.7", KEY)
    assert environment_of(request)["MASTER_PORT"] == str(MASTER_PORT + 3)


def test_without_a_command_the_task_definitions_own_is_kept() -> None:
    """An empty override would replace it by nothing."""
    assert "command" not in override_of(rank(spec=spec(command=())))


def test_what_we_say_cannot_be_overridden_by_the_user() -> None:
    """Even a template adopted from a person's task."""
    told = environment_of(rank(spec=spec(env={"RANK": "9", "JOB_ID": "mine", "GPU_RECOVERY_LAUNCH_SIGNATURE": "mine"})))
    assert (told["RANK"], told["GPU_RECOVERY_LAUNCH_SIGNATURE"]) == ("0", launch_signature(KEY, f"{JOB}--a01", 0))


def test_the_same_rank_of_the_same_attempt_has_the_same_token() -> None:
    """That is what makes a launch safe to repeat."""
    assert rank(1)["clientToken"] == rank(1)["clientToken"]
    assert check(2)["clientToken"] == check(2)["clientToken"]


def test_nobody_without_the_key_knows_the_token_before_us() -> None:
    """With a token that can be computed, a task of others started first would be taken for the rank or the check."""
    other = rank_request(CLUSTER, job(attempt=1), launched(), 1, "10.0.0.7", "another key")
    assert other["clientToken"] != rank(1)["clientToken"]
    machine = instance(check=CheckRun(f"check/{A}/1", signed=True))
    task = CheckTask(CHECK_TASK, "bucket", 2, True, 2_400)
    assert (
        check_request(CLUSTER, task, machine, f"check/{A}/1", 0, "another key")["clientToken"] != check()["clientToken"]
    )


def test_a_launch_that_an_older_release_began_keeps_its_token() -> None:
    """Another token would start the rank a second time."""
    request = rank_request(CLUSTER, job(attempt=1), replace(launched(), signed=False), 1, "10.0.0.7", KEY)
    assert request["clientToken"] == sha256(f"{JOB}/1/1".encode()).hexdigest()
    assert "GPU_RECOVERY_LAUNCH_SIGNATURE" not in environment_of(request)


def test_a_check_that_an_older_release_ordered_keeps_its_token_and_its_key() -> None:
    """ECS refuses a repeated request that has the token of the first one and another environment."""
    machine = instance(check=CheckRun(f"check/{A}/1"))
    request = check_request(CLUSTER, CheckTask(CHECK_TASK, "bucket", 2, True, 2_400), machine, f"check/{A}/1", 0, KEY)
    assert request["clientToken"] == sha256(f"check/{A}/1/0".encode()).hexdigest()
    assert environment_of(request)["VERDICT_KEY"] == f"verdicts/check/{A}/1.json"
    assert "GPU_RECOVERY_LAUNCH_SIGNATURE" not in environment_of(request)


def test_whatever_differs_has_another_token() -> None:
    """Rank, attempt, job; a check's number and its refusals."""
    ranks = [
        rank_request(CLUSTER, job(job_id), launched(job_id, attempt), number, "10.0.0.7", KEY)["clientToken"]
        for job_id, attempt, number in product((JOB, "other"), (1, 2, 11), (0, 1))
    ]
    checks = [check(refusals, number=number)["clientToken"] for refusals, number in product((0, 1, 10), (1, 2))]
    assert len({*ranks, *checks}) == len(ranks) + len(checks)


@pytest.mark.parametrize(
    "request_", [rank(1), check(3), rank_request(CLUSTER, job(LONG), launched(LONG), 0, "::1", KEY)]
)
def test_tokens_and_names_fit_what_ecs_allows(request_: dict[str, Any]) -> None:
    """clientToken 64 characters of ASCII, startedBy 128."""
    assert 1 <= len(request_["clientToken"]) <= 64 and request_["clientToken"].isascii()
    assert len(request_["startedBy"]) <= 128


@pytest.mark.parametrize(
    "document",
    [
        {"command": ["x" * 5_900]},
        {"env": {f"V{n:03d}": "v" for n in range(180)}},
        {"command": ["é"] * 500},
        {"command": ['"'] * 900},
        {"env": {"TEXT": "\n" * 2_900}},
    ],
)
def test_the_largest_job_that_is_accepted_still_fits(document: dict[str, Any]) -> None:
    """Overrides of 8,192 characters as JSON, whatever the user's part of them is made of."""
    asked = {"workload": "w" * 40, "nnodes": 2000, "n_gpus_per_node": 16, "task_definition": "t"}
    accepted = parse_spec(asked | {"container": "c" * 255} | document)
    user = json.dumps([*accepted.command, *({"name": k, "value": v} for k, v in accepted.env.items())])
    assert len(user) > 0.8 * COMMAND_AND_ENV_CHARACTERS_MAX
    request = rank_request(CLUSTER, job(LONG, spec=accepted), launched(LONG), 1, "255.255.255.255", KEY)
    size = len(json.dumps(request["overrides"]))
    spare = replace(launched(LONG), hold_s=9_999, is_warm=True, preflight=True)
    warm = rank_request(CLUSTER, job(LONG, spec=accepted), spare, 1, "255.255.255.255", KEY)
    assert len(json.dumps(warm["overrides"])) <= characters_of_launch(LONG, accepted) <= OVERRIDES_CHARACTERS_MAX
    # The bound is no more than longer numbers, and the variables of a hold, of a warm spare and of a preflight.
    assert size < characters_of_launch(LONG, accepted) < size + 210


def test_a_check_is_told_who_it_is_and_where_to_leave_its_verdict() -> None:
    """Everything but the GPUs is in its environment."""
    told = environment_of(check(number=3))
    assert told == {
        "CHECK_ID": f"check/{A}/3",
        "INSTANCE_ID": A,
        "VERDICT_BUCKET": "bucket",
        "VERDICT_KEY": f"verdicts/check/{A}/3/{verdict_name(KEY, f'check/{A}/3')}.json",
        "CHECK_LEVEL": "2",
        "EXPECTED_GPUS": "8",
        "CHECK_TIMEOUT_S": "2220",
        "GPU_RECOVERY_LAUNCH_SIGNATURE": launch_signature(KEY, f"check/{A}/3"),
    }
    assert check(number=3)["startedBy"] == f"check/{A}/3"
    assert override_of(check())["name"] == "health-check"


def test_a_check_reserves_every_gpu_the_instance_has() -> None:
    """By number: ALL would be satisfied with those that happen to be free. ALL only where none is known."""
    assert override_of(check())["resourceRequirements"] == [{"type": "GPU", "value": "8"}]
    assert override_of(check(gpus=0))["resourceRequirements"] == [{"type": "GPU", "value": "ALL"}]
    assert "resourceRequirements" not in override_of(check(reserve=False))


def test_a_passive_check_takes_no_gpu_and_runs_no_diagnostic() -> None:
    """Others work there: level 0, whatever the deployment's level, and no GPU to wait for."""
    for passive, level in ((False, "2"), (True, "0")):
        machine = instance(check=CheckRun(f"check/{A}/1", passive=passive))
        request = check_request(
            CLUSTER, CheckTask(CHECK_TASK, "bucket", 2, True, 2_400), machine, f"check/{A}/1", 0, KEY
        )
        assert environment_of(request)["CHECK_LEVEL"] == level
        assert ("resourceRequirements" in override_of(request)) is not passive
        assert environment_of(request)["EXPECTED_GPUS"] == "8"


def test_a_check_with_a_level_of_its_own_gets_the_time_of_that_level() -> None:
    """An idle check at level 3 takes up to 45 minutes, whatever the level of the deployment is."""
    machine = instance(check=CheckRun(f"check/{A}/1", level=3))
    request = check_request(CLUSTER, CheckTask(CHECK_TASK, "bucket", 2, True, 2_400), machine, f"check/{A}/1", 0, KEY)
    assert environment_of(request)["CHECK_LEVEL"] == "3" and environment_of(request)["CHECK_TIMEOUT_S"] == "2700"
    beside = replace(machine, check=CheckRun(f"check/{A}/1", level=3, passive=True))
    request = check_request(CLUSTER, CheckTask(CHECK_TASK, "bucket", 2, True, 2_400), beside, f"check/{A}/1", 0, KEY)
    assert environment_of(request)["CHECK_LEVEL"] == "0"


def test_the_levels_of_a_check_are_those_that_the_container_knows() -> None:
    """Two places that cannot import each other."""
    assert PASSIVE_LEVEL == health_check_settings.PASSIVE


def test_a_check_expects_the_most_gpus_the_instance_ever_had() -> None:
    """One that lost a GPU registers fewer; the check must miss it."""
    lost = instance(gpus=7, gpus_most=8)
    request = check_request(CLUSTER, CheckTask(CHECK_TASK, "bucket", 2, True, 2_400), lost, f"check/{A}/1", 0, KEY)
    assert environment_of(request)["EXPECTED_GPUS"] == "8"
    assert override_of(request)["resourceRequirements"] == [{"type": "GPU", "value": "7"}]


def test_a_rank_knows_how_long_ecs_lets_it_leave() -> None:
    """What the task definition says; nothing is said where nobody looked."""
    assert environment_of(rank(spec=spec(stop_timeout_s=90)))["GPU_RECOVERY_STOP_TIMEOUT_S"] == "90"
    assert "GPU_RECOVERY_STOP_TIMEOUT_S" not in environment_of(rank())
