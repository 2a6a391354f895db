"""The functions that the table of functions makes."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.policy import policy_from

from infra.functions import FUNCTIONS, PACKAGE, FunctionRow
from simulator import lambda_runtime
from simulator.cloud.rate_limits import TIMEOUT_S
from tests.infra.contexts import LAYER_ARN
from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow

NAMES = {
    "ecs_task_handler",
    "dcgm_task_monitor",
    "ecs_instance_monitor",
    "reconciler",
    "scheduler",
    "command_executor",
    "event_recorder",
    "job_api",
    "node_api",
}
ENVIRONMENT = {
    "TRAINING_JOB_TABLE_NAME",
    "CONTAINER_INSTANCE_TABLE_NAME",
    "ECS_CLUSTER_NAME",
    "DCGM_HEALTH_CHECK_TASK",
    "SNS_TOPIC_ARN",
    "CHAT_TOPIC_ARN",
    "EVENT_BUS_NAME",
    "SCHEDULER_QUEUE_URL",
    "VERDICT_BUCKET",
    "RECOVERY_POLICY",
    "ADOPT",
    "JOB_ID_PREFIX",
    "MANAGED_TAG_KEY",
    "MANAGED_TAG_VALUE",
    "CHECK_LEVEL",
    "CHECK_RESERVES_GPUS",
    "POWERTOOLS_SERVICE_NAME",
    "POWERTOOLS_METRICS_NAMESPACE",
    "POWERTOOLS_LOG_LEVEL",
}
CLAIM_S = 180
LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"]
LOG_A_LINE_OF_EACH_LEVEL = """
import sys
sys.path.insert(0, sys.argv[1])
import logging
logging.root.addHandler(logging.StreamHandler(sys.stdout))
from gpu_recovery.aws.wiring import logger, metrics
for level in ("debug", "info", "warning", "error"):
    getattr(logger, level)("a line")
metrics.add_metric(name="Reboots", unit="Count", value=1)
metrics.flush_metrics()
"""
WITH_LOOP_DETECTION = ("us-east-1", "eu-central-1")
REGIONS = (
    *WITH_LOOP_DETECTION,
    "ap-southeast-6",
    "mx-central-1",
    "cn-north-1",
    "cn-northwest-1",
    "us-gov-east-1",
    "us-gov-west-1",
)
"""Regions of each partition. Those of `aws` are two with the detection of recursive loops, and the two without it."""


def _function(deployment: Deployment, row: FunctionRow) -> dict:
    return deployment.only("AWS::Lambda::Function", row.construct_id)


def test_the_simulator_gives_each_function_the_time_that_it_has() -> None:
    """Else what takes too long in an account would be in time there."""
    assert {row.name: row.timeout_s for row in FUNCTIONS if row.name in NAMES} == TIMEOUT_S


def test_the_simulator_has_the_schedulers_queue_as_it_is_deployed(deployment: Deployment) -> None:
    """Else a failed batch would block the scheduler for another time there, or for another number of receives."""
    queue = deployment.of_type("AWS::SQS::Queue")["QueuesScheduler"]
    assert queue["VisibilityTimeout"] == lambda_runtime.VISIBILITY_S
    assert queue["RedrivePolicy"]["maxReceiveCount"] == lambda_runtime.RECEIVES_MAX
    assert deployment.only("AWS::Lambda::EventSourceMapping")["BatchSize"] == lambda_runtime.SCHEDULER_BATCH


def test_the_table_and_the_template_have_the_same_functions(deployment: Deployment) -> None:
    """Nothing else deploys a function, no helper of the CDK either."""
    assert {row.name for row in FUNCTIONS} == NAMES
    deployed = deployment.at_run_time("AWS::Lambda::Function").values()
    names = {f"gpu-recovery-{name}" for name in NAMES}
    assert {function["FunctionName"] for function in deployed} == names | {"gpu-recovery-console"}


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_the_handler_of_a_row_is_a_function_of_the_package(row: FunctionRow) -> None:
    """The string Lambda is given must lead somewhere."""
    module, name = row.handler.split(".")
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert name in defined | assigned


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_a_function_has_the_environment_of_the_contract(deployment: Deployment, row: FunctionRow) -> None:
    """Exactly these variables; secrets for the two APIs alone, dead-letter queues for the job API alone."""
    queues = {"FAILED_QUEUE_URL", "UNDELIVERED_QUEUE_URL", "SCHEDULER_DEAD_LETTERS_URL"}
    secrets = {"OPERATOR_TOKEN_SECRET", "NODE_TOKEN_KEY_SECRET", "SIGNING_KEY_SECRET"}
    executor = "COMMAND_EXECUTOR_FUNCTION"
    rules = {"TRAINING_TASK_FAMILIES", "TRAINING_ROLE_ARNS", "TRAINING_LOG_GROUPS", "USER_PRIORITY_MAX"}
    of_jobs = {"API_AUTH", "API_ROLES", *rules, executor, *queues, *secrets}
    of_tasks, of_history = {"NODE_AGENT_FAMILY"}, {"EVENT_HISTORY_TABLE_NAME"}
    of_nodes = {"NODE_ROLE_ARNS", "NODE_AGENT_ROLE_ARN", "NODE_TOKEN_KEY_SECRET", executor, "GPU_HISTORY", *of_history}
    of_jobs |= {"EVENT_RECORDER_FUNCTION", "GPU_HISTORY", *of_history}
    by_name = {"job_api": of_jobs, "node_api": of_nodes, "ecs_task_handler": of_tasks, "event_recorder": of_history}
    extra = by_name.get(row.name, set()) | ({"CONSOLE_URL"} if row.name != "event_recorder" else set())
    assert set(_function(deployment, row)["Environment"]["Variables"]) == ENVIRONMENT | extra


def test_the_environment_holds_what_the_settings_say(deployment: Deployment) -> None:
    """Values of the defaults, as the functions will read them."""
    variables = deployment.only("AWS::Lambda::Function", "JobApi")["Environment"]["Variables"]
    assert variables["TRAINING_JOB_TABLE_NAME"] == "TablesJobs"
    assert variables["CONTAINER_INSTANCE_TABLE_NAME"] == "TablesInstances"
    assert variables["ECS_CLUSTER_NAME"] == "nwcd-gpu-testing"
    assert variables["DCGM_HEALTH_CHECK_TASK"] == "HealthCheckDefinition"
    assert variables["SNS_TOPIC_ARN"] == "OperatorsTopic"
    assert variables["CHAT_TOPIC_ARN"] == ""
    assert variables["OPERATOR_TOKEN_SECRET"] == "OperatorTokenSecret.Id"
    assert variables["NODE_TOKEN_KEY_SECRET"] == "NodeTokenKeySecret.Id"
    assert variables["SIGNING_KEY_SECRET"] == "SigningKeySecret.Id"
    assert json.loads(variables["RECOVERY_POLICY"]) == {"preset": "adaptive", "record_attempts": True}
    assert variables["USER_PRIORITY_MAX"] == "NORMAL"
    assert variables["ADOPT"] == "off"
    assert variables["CHECK_LEVEL"] == "2"
    assert variables["CHECK_RESERVES_GPUS"] == "true"


def test_functions_that_notify_know_the_address_of_the_console(
    production: Deployment, own_images: Deployment, with_ray: Deployment
) -> None:
    """That of the API by default, that of the setting if there is one, and none without a console."""

    def known(where: Deployment, name: str = "Reconciler") -> str:
        return str(where.only("AWS::Lambda::Function", name)["Environment"]["Variables"]["CONSOLE_URL"])

    assert known(with_ray) == known(with_ray, "Ray") == "JobApi.ApiEndpoint/console"
    assert known(own_images) == "https://heal.example.com/console"
    assert known(production) == "", "callers sign their requests, so there is no console"


def test_the_policy_of_the_settings_reaches_the_functions(production: Deployment) -> None:
    """Preset, overrides and the switch for replacing in one object, which the functions can read."""
    variables = production.only("AWS::Lambda::Function", "Reconciler")["Environment"]["Variables"]
    told = json.loads(variables["RECOVERY_POLICY"])
    switches = {"replace": True, "record_attempts": True, "tag_repairs": True}
    assert told == {"preset": "classic", "attempts_max": 5, **switches}
    assert policy_from(told).replace is True
    assert variables["CHAT_TOPIC_ARN"] == "OperatorsChat"
    assert variables["ADOPT"] == "recover"


def test_the_roles_that_may_sign_reach_the_function_of_nodes(deployment: Deployment, production: Deployment) -> None:
    """None unless the settings name some: a role that anybody may assume would let anybody be any instance."""
    roles = [
        where.only("AWS::Lambda::Function", "NodeApi")["Environment"]["Variables"]["NODE_ROLE_ARNS"]
        for where in (deployment, production)
    ]
    assert roles == ["", "arn:aws:iam::111122223333:role/gpu-nodes arn:aws:iam::111122223333:role/teams/more-nodes"]


def test_the_principals_of_the_settings_reach_the_job_api(deployment: Deployment, production: Deployment) -> None:
    """Without their paths, which an ARN of a session does not have; by default callers send tokens."""
    found = []
    for where in (deployment, production):
        variables = where.only("AWS::Lambda::Function", "JobApi")["Environment"]["Variables"]
        found.append((variables["API_AUTH"], json.loads(variables["API_ROLES"])))
    roles = {
        "arn:aws:iam::111122223333:role/gpu-operators": "operator",
        "arn:aws:iam::111122223333:user/ana": "user",
    }
    assert found == [("token", {}), ("iam", roles)]


def test_the_families_that_may_be_launched_reach_the_job_api(deployment: Deployment, production: Deployment) -> None:
    """So that it refuses any other family without a look at the task definitions of the account."""
    families = [
        where.only("AWS::Lambda::Function", "JobApi")["Environment"]["Variables"]["TRAINING_TASK_FAMILIES"]
        for where in (deployment, production)
    ]
    assert families == ["gpu-training", "llm vision"]


def test_the_roles_and_log_groups_of_jobs_reach_the_job_api(deployment: Deployment, production: Deployment) -> None:
    """The same lists as in the policies: the API refuses at submission what IAM would refuse later."""
    told = [
        {name: variables[name] for name in ("TRAINING_ROLE_ARNS", "TRAINING_LOG_GROUPS")}
        for where in (deployment, production)
        for variables in [where.only("AWS::Lambda::Function", "JobApi")["Environment"]["Variables"]]
    ]
    assert told == [
        {"TRAINING_ROLE_ARNS": "", "TRAINING_LOG_GROUPS": "/ecs/gpu-training"},
        {
            "TRAINING_ROLE_ARNS": "arn:aws:iam::111122223333:role/training-task",
            "TRAINING_LOG_GROUPS": "/ecs/llm /ecs/vision",
        },
    ]


def test_concurrency_is_reserved_for_the_reconciler_and_the_scheduler_alone_and_only_if_asked_for(
    deployment: Deployment, production: Deployment
) -> None:
    """Two executions each by the setting; none by default, because a reservation also takes them from the account."""
    reserved = [
        {row.name: _function(where, row).get("ReservedConcurrentExecutions") for row in FUNCTIONS}
        for where in (deployment, production)
    ]
    assert set(reserved[0].values()) == {None}
    assert {name: number for name, number in reserved[1].items() if number is not None} == {
        "reconciler": 2,
        "scheduler": 2,
    }


def test_what_runs_often_leaves_no_lines_of_lambdas_own(deployment: Deployment) -> None:
    """At hundreds of runs a second START and REPORT would be the greater part of the bill."""
    levels = {
        function["FunctionName"]: function["LoggingConfig"].get("SystemLogLevel")
        for function in deployment.package_functions().values()
    }
    assert levels == {f"gpu-recovery-{row.name}": "WARN" if row.name == "node_api" else None for row in FUNCTIONS}


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_a_function_ends_well_before_its_claims_do(deployment: Deployment, row: FunctionRow) -> None:
    """A claim outlives its holder by a minute, or two functions would act on one command."""
    assert _function(deployment, row)["Timeout"] < CLAIM_S - 60


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_a_function_runs_traced_on_the_declared_platform(deployment: Deployment, row: FunctionRow) -> None:
    """Python 3.13 on ARM, X-Ray active, JSON logs."""
    function = _function(deployment, row)
    assert function["Runtime"] == "python3.13"
    assert function["Architectures"] == ["arm64"]
    assert function["TracingConfig"] == {"Mode": "Active"}
    assert function["LoggingConfig"]["LogFormat"] == "JSON"


def test_every_function_ships_the_same_package(deployment: Deployment) -> None:
    """One asset: the state machine never runs in two versions at once."""
    assert len({json.dumps(function["Code"]) for function in deployment.package_functions().values()}) == 1


def test_the_package_holds_the_sources_and_nothing_a_run_left_behind(assembly: Path) -> None:
    """The folder is the package: what is in it ships, except caches. Byte code is made for it (`test_bytecode.py`)."""
    (package,) = (path for path in assembly.glob("asset.*") if (path / "gpu_recovery").is_dir())
    shipped = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    written = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert shipped == written


def _logged(function: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The lines that a function of the package writes of a line of each level and a metric.

    Lambda tells the function the level of its own filter. Its handler of the root logger is there first, in both
    formats.
    """
    logging = function["LoggingConfig"]
    as_lambda_does = {"AWS_LAMBDA_LOG_LEVEL": logging["ApplicationLogLevel"]} if "LogFormat" in logging else {}
    command = [sys.executable, "-I", "-c", LOG_A_LINE_OF_EACH_LEVEL, str(PACKAGE)]
    variables = function["Environment"]["Variables"] | as_lambda_does
    result = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("settings", "level", "region"),
    [
        ("ray", "DEBUG", "us-east-1"),
        ("ray", "DEBUG", "us-gov-west-1"),
        ("prod", "INFO", "us-east-1"),
        ("prod", "INFO", "us-gov-west-1"),
        ("everything", "ERROR", "us-east-1"),
    ],
)
def test_a_function_logs_what_the_setting_says(
    validated: dict[str, Path], tmp_path: Path, settings: str, level: str, region: str
) -> None:
    """Powertools obeys the level of Lambda's filter unless it is told otherwise. In GovCloud there is no filter."""
    where = _in(region, validated[settings])
    *lines, metric = _logged(where.only("AWS::Lambda::Function", "JobApi"), tmp_path)
    assert [line["level"] for line in lines] == LEVELS[LEVELS.index(level) :]
    assert metric["Reboots"] == [1.0] and metric["_aws"]["CloudWatchMetrics"]


@pytest.mark.parametrize("where", ["with_ray", "deployment", "production"])
def test_lambdas_own_filter_lets_metrics_pass(where: str, request: pytest.FixtureRequest) -> None:
    """A line with metrics has no level, which Lambda counts as INFO: a stricter filter would silence every alarm."""
    functions = request.getfixturevalue(where).at_run_time("AWS::Lambda::Function").values()
    assert {function["LoggingConfig"]["ApplicationLogLevel"] for function in functions} <= {"DEBUG", "INFO"}


@pytest.mark.parametrize("region", REGIONS)
def test_lambda_writes_json_only_where_it_has_the_format(validated: dict[str, Path], region: str) -> None:
    """In GovCloud it has none, and neither filter. The log group is the same everywhere."""
    functions = _in(region, validated["ray"]).of_type("AWS::Lambda::Function")
    has_format = not region.startswith("us-gov-")
    for name, function in functions.items():
        logging = function["LoggingConfig"]
        assert logging.pop("LogGroup").endswith("Logs"), name
        assert (logging.get("LogFormat"), bool(logging)) == (("JSON", True) if has_format else (None, False)), name
    assert {"FunctionsJobApiFunction", "RayFunction", "ImagesFunction"} < set(functions)


@pytest.mark.parametrize("name", ["Scheduler", "Ray"])
@pytest.mark.parametrize("region", REGIONS)
def test_a_function_that_wakes_itself_may_do_so_where_lambda_looks_for_loops(
    validated: dict[str, Path], region: str, name: str
) -> None:
    """Elsewhere Lambda has no such detection, so its property must not be there."""
    function = _in(region, validated["ray"]).only("AWS::Lambda::Function", name)
    assert function.get("RecursiveLoop") == ("Allow" if region in WITH_LOOP_DETECTION else None)


def test_no_other_function_may_run_in_a_loop(with_ray: Deployment) -> None:
    """A loop that nobody meant is stopped by Lambda."""
    functions = with_ray.at_run_time("AWS::Lambda::Function").values()
    looping = {function["FunctionName"] for function in functions if "RecursiveLoop" in function}
    assert looping == {"gpu-recovery-scheduler", "gpu-recovery-ray_runner"}


def _in(region: str, folder: Path) -> Deployment:
    partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rsplit("-", 2)[0], "aws")
    return Deployment.read(folder, partition=partition, region=region)


def test_every_function_has_the_own_layer(deployment: Deployment, china: Deployment) -> None:
    """One template for every partition: the layer is an asset of the deployment and no publication of others."""
    for where in (deployment, china):
        assert len(where.of_type("AWS::Lambda::LayerVersion")) == 1
        for function in where.package_functions().values():
            assert function["Layers"] == ["FunctionsPowertools"]


def test_the_public_layer_is_that_of_the_partition(production: Deployment) -> None:
    """A setting for those who want no layer of their own."""
    layer = "arn:aws:lambda:us-east-1:017000801446:layer:AWSLambdaPowertoolsPythonV3-python313-arm64:27"
    assert not production.of_type("AWS::Lambda::LayerVersion")
    for function in production.at_run_time("AWS::Lambda::Function").values():
        assert function["Layers"] == [layer]


def test_a_layer_of_the_user_is_the_only_one(own_images: Deployment) -> None:
    """The setting may be the ARN of a layer version. The image of the Ray runner has no layers."""
    assert not own_images.of_type("AWS::Lambda::LayerVersion")
    functions = own_images.of_type("AWS::Lambda::Function").values()
    layers = {function["FunctionName"]: function.get("Layers") for function in functions}
    assert layers.pop("gpu-recovery-ray_runner") is layers.pop("gpu-recovery-console") is None
    assert layers == {f"gpu-recovery-{row.name}": [LAYER_ARN] for row in FUNCTIONS}
