"""The API functions leave commands for the cluster to the command executor: their roles allow none of the calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.command_executor import RequestInvalid
from gpu_recovery.aws.settings import LambdaSettingsInvalid
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.instance.record import CheckRun, InstanceStatus
from gpu_recovery.core.job.record import JobStatus, WarmSpare
from gpu_recovery.core.job.spec import Backend

from infra.functions import FUNCTIONS
from infra.permissions import Permission as P
from tests.aws.ecs_events import rank_event
from tests.aws.environment import CHECK_TASK
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, A, B, claim, instance, job, later, launched, spec
from tests.lambdas.api_gateway import Api, with_ray
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
CLUSTER = frozenset(
    {
        P.RUN_CHECKS,
        P.RUN_TRAINING,
        P.STOP_TASKS,
        P.DESCRIBE_TASKS,
        P.LIST_TASKS,
        P.SET_CONTAINER_INSTANCE_STATE,
        P.DESCRIBE_CONTAINER_INSTANCES,
        P.LIST_CONTAINER_INSTANCES,
        P.DEREGISTER_CONTAINER_INSTANCES,
        P.REBOOT_INSTANCES,
        P.REPLACE_INSTANCES,
        P.DESCRIBE_EC2_INSTANCES,
        P.DESCRIBE_EC2_STATUS,
    }
)
"""The permissions that reach tasks, container instances and EC2 instances."""
XID = {"xid": 79, "gpu": "0000:1b:00.0", "count": 1, "age_s": 1}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The job API on empty tables."""
    return Api(functions)


def report(functions: Functions, **told: Any) -> int:
    """The status of the node API's answer to a report of instance A."""
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    issued = issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken())
    event = {
        "version": "2.0",
        "rawPath": "/api/v1/reports",
        "headers": {"authorization": f"Bearer {issued.token}"},
        "isBase64Encoded": False,
        "body": json.dumps(
            {"boot_id": "0b7f3c1e-6a55-4e0c-9f3b-2a9c7d1e4f60", "uptime_s": 86_400.5, "sequence": 7} | told
        ),
        "requestContext": {"http": {"method": "POST", "path": "/api/v1/reports"}, "stage": "$default"},
    }
    return int(functions.call("node_api", event)["statusCode"])


def stopped(functions: Functions) -> list[str]:
    """The tasks that the last function stopped."""
    return sorted(asked["task"] for asked in functions.aws.asked("StopTask"))


def left(functions: Functions) -> list[type]:
    """The types of the commands that are left in the record of the job."""
    return [type(each.command) for each in functions.job().commands]


# -- what the roles allow ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["job_api", "node_api"])
def test_a_function_that_answers_the_internet_reaches_neither_tasks_nor_instances(name: str) -> None:
    """An attacker who controls it cannot run the privileged health check, stop a task or drain an instance."""
    (row,) = (row for row in FUNCTIONS if row.name == name)
    assert not row.permissions & CLUSTER


def test_the_node_api_reads_no_log_and_no_task_definition() -> None:
    """It parses reports of up to a mebibyte from agents, and needs tables, the bus, wake-ups and its issuer key.

    Into the event history it may put gauges alone.
    """
    (row,) = (row for row in FUNCTIONS if row.name == "node_api")
    assert row.permissions == {
        P.WRITE_JOBS,
        P.WRITE_INSTANCES,
        P.NOTIFY_OPERATORS,
        P.PUBLISH_EVENTS,
        P.WAKE_SCHEDULER,
        P.WAKE_COMMAND_EXECUTOR,
        P.READ_NODE_TOKEN_KEY,
        P.WRITE_GAUGES,
    }


@pytest.mark.parametrize("name", ["job_api", "node_api"])
def test_an_api_function_without_a_command_executor_fails_before_it_does_anything(
    api: Api, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its commands would wait for the reconciler each time, and nobody would notice."""
    monkeypatch.delenv("COMMAND_EXECUTOR_FUNCTION")
    api.functions.chill()
    with pytest.raises(LambdaSettingsInvalid, match="COMMAND_EXECUTOR_FUNCTION"):
        api.get("/jobs") if name == "job_api" else report(api.functions)


@pytest.mark.parametrize("name", ["dcgm-health-check", "dcgm-health-check:7", CHECK_TASK])
def test_a_forged_job_runs_no_command_with_the_rights_of_the_health_check(functions: Functions, name: str) -> None:
    """The API functions may write any record, and the scheduler's role may run the health check."""
    for instance_id in (A, B):
        functions.store.save_instance(instance(instance_id))
    functions.store.create_job(job(spec=spec(task_definition=name, command=("sh", "-c", "id"))), "")
    functions.call("scheduler", {})
    assert not functions.aws.asked("RunTask")
    assert functions.job().status is JobStatus.FAILED
    assert "health check" in functions.job().reason


# -- what users and agents ask for -------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"force": "1"}])
def test_a_canceled_gang_is_stopped_by_the_command_executor(api: Api, query: dict[str, str]) -> None:
    """The API answers as before, stops no task itself, and leaves the commands due at once."""
    gang(api.functions)
    answer = api.post(f"/jobs/{JOB}/cancel", **query)
    assert (answer.status, answer.body["status"]) == (202, "STOPPING")
    assert stopped(api.functions) == []
    assert left(api.functions) == [commands.StopAttempt, *([commands.EndRanks] if query else [])]
    assert api.functions.wake_ups() == [{"job_id": JOB}]
    api.functions.wake()
    assert stopped(api.functions) == list(launched().task_ids)
    assert left(api.functions) == []
    for rank in range(2):
        ended = rank_event(JOB, 1, rank, "STOPPED", exit_code=143, stop_code="UserInitiated")
        api.functions.call("ecs_task_handler", ended)
    assert api.functions.job().status is JobStatus.CANCELED


def test_a_warm_spare_of_a_suspended_job_is_stopped_by_the_command_executor(api: Api) -> None:
    """The release asks ECS about the container, also of a job whose ranks were never held."""
    spare = WarmSpare("i-0c0c0c0c0c0c0c0c0", 2, 1, 0, "t-spare", runs=True)
    gang(api.functions, spares=(spare,), spares_started=1)
    assert api.post(f"/jobs/{JOB}/suspend").body["status"] == "SUSPENDING"
    assert not api.functions.aws.operations("ecs")
    assert commands.ReleaseInstances in left(api.functions)
    api.functions.wake()
    assert ["t-spare"] in [asked["tasks"] for asked in api.functions.aws.asked("DescribeTasks")]


def test_a_released_instance_is_activated_and_checked_by_the_command_executor(api: Api) -> None:
    """In this order: ECS places no check on a draining instance."""
    held = instance(status=InstanceStatus.QUARANTINED, ecs_status="DRAINING", drained=True)
    api.functions.store.save_instance(held)
    assert api.post(f"/instances/{A}/release").body["status"] == "VERIFYING"
    assert not api.functions.aws.operations("ecs")
    assert api.functions.wake_ups() == [{"instance_id": A}]
    api.functions.wake()
    changes = [name for _, name, _ in api.functions.aws.calls if name in ("UpdateContainerInstancesState", "RunTask")]
    assert changes == ["UpdateContainerInstancesState", "RunTask"]
    assert not api.functions.instance().commands


def test_commands_keep_their_order_behind_a_command_that_is_left(api: Api) -> None:
    """The job hears of the quarantine only after the task of the check was stopped, which still holds the GPUs."""
    check = CheckRun(f"check/{A}/1", JOB, 1)
    api.functions.store.save_instance(instance(status=InstanceStatus.CHECKING, check=check, checks=1))
    assert api.post(f"/instances/{A}/quarantine").body["status"] == "QUARANTINED"
    waiting = [type(each.command) for each in api.functions.instance().commands]
    assert waiting == [commands.StopCheck, commands.ReportCheck, commands.DrainInstance]
    api.functions.wake()
    assert not api.functions.instance().commands


def test_a_reported_xid_leads_to_a_check_through_the_command_executor(functions: Functions) -> None:
    """The node API calls ECS not once; the operators' message and the events of the bus do not wait."""
    functions.store.save_instance(instance())
    assert report(functions, xids=[XID], health={"status": "impaired", "sentence": "GPU 3"}) == 200
    assert functions.instance().status is InstanceStatus.CHECKING
    assert not functions.aws.operations("ecs")
    assert functions.aws.operations("events")["PutEvents"] > 0
    assert functions.wake_ups() == [{"instance_id": A}]
    functions.wake()
    (run,) = functions.aws.asked("RunTask")
    check = functions.instance().check
    assert check is not None and run["startedBy"] == check.check_id


def test_an_attempt_that_a_reboot_ended_is_recorded_by_the_command_executor(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the attempt has a log tail, which the node API may not read."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"preset": "adaptive", "record_attempts": True}))
    functions.chill()
    there = Plan(JOB, 1, (A,), (0,), 0, ("task-0",))
    functions.store.save_instance(instance(claims={JOB: claim()}))
    placed = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True, "instances": there.instances}
    functions.store.create_job(job(spec=spec(nnodes=1), **placed), "")
    functions.store.begin_attempt(there)
    rank = {"job": JOB, "attempt": 1, "rank": 0, "epoch": 0, "pid": 7, "ticks": 1}
    assert report(functions, running=[rank]) == 200
    functions.now = later(300)
    assert report(functions, boot_id="1c8a4d2f-7b66-4f1d-8a4c-3b0d8e2f5a71", uptime_s=60.0, running=[]) == 200
    assert functions.job().status is JobStatus.RECOVERING
    assert left(functions) == [commands.RecordAttempt]
    assert not functions.aws.operations("ecs") + functions.aws.operations("s3") + functions.aws.operations("logs")
    functions.wake()
    assert left(functions) == []
    assert [put["Key"] for put in functions.aws.asked("PutObject")] == [f"jobs/{JOB}/a01/attempt.json"]


def test_a_canceled_job_on_ray_wakes_the_function_of_the_ray_cluster(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands have a hand-over of their own; the command executor could only pass them on."""
    with_ray(api, monkeypatch)
    driver = spec(backend=Backend.RAY, entrypoint="python train.py", task_definition="", nnodes=1)
    runs = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True, "instances": ("",)}
    api.functions.store.create_job(job(spec=driver, **runs), "")
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "STOPPING"
    woken = [json.loads(asked["MessageBody"]) for asked in api.functions.aws.asked("SendMessage")]
    assert [message["job_id"] for message in woken if "job_id" in message] == [JOB]
    assert api.functions.wake_ups() == []


# -- a wake-up that is lost, late or doubled ---------------------------------------------------------------------------


def test_what_is_left_is_due_at_once_for_the_reconciler(api: Api) -> None:
    """A lost wake-up costs a minute and no more: the commands wait for no lease."""
    gang(api.functions)
    api.post(f"/jobs/{JOB}/cancel")
    api.functions.call("reconciler", {})
    assert stopped(api.functions) == list(launched().task_ids)


def test_a_wake_up_that_fails_fails_no_request(api: Api) -> None:
    """The user would cancel twice. The failure is logged, and counted for the alarm."""
    gang(api.functions)

    def unreachable(asked: dict[str, Any]) -> dict[str, Any]:
        raise ConnectTimeoutError(endpoint_url="https://lambda")

    api.functions.aws.answers["Invoke"] = unreachable
    assert api.post(f"/jobs/{JOB}/cancel").status == 202
    (line,) = api.functions.logged("word_unsaid")
    assert (line["job_id"], line["command"], line["failure"]) == (JOB, "HandOver", "ConnectTimeoutError")
    api.functions.call("reconciler", {})
    assert stopped(api.functions) == list(launched().task_ids)


def test_a_wake_up_that_is_delivered_twice_acts_once(api: Api) -> None:
    """Lambda delivers an asynchronous invocation at least once."""
    gang(api.functions)
    api.post(f"/jobs/{JOB}/cancel")
    (request,) = api.functions.wake_ups()
    api.functions.call("command_executor", request)
    assert stopped(api.functions) == list(launched().task_ids)
    api.functions.call("command_executor", request)
    assert stopped(api.functions) == []


def test_two_wake_ups_at_the_same_time_act_once(api: Api) -> None:
    """The second has read the record, then the first leases the commands: the write of the second is refused."""
    gang(api.functions)
    api.post(f"/jobs/{JOB}/cancel")
    (request,) = api.functions.wake_ups()
    handled = []

    def overtaken(asked: dict[str, Any]) -> None:
        if not handled:
            handled.append(request)
            api.functions.call("command_executor", request)
            handled.extend(stopped(api.functions))
            api.functions.aws.forget()

    api.functions.aws.dynamodb["PutItem"] = overtaken
    api.functions.call("command_executor", request)
    assert handled == [request, *launched().task_ids]
    assert stopped(api.functions) == []


def test_a_function_whose_clock_is_behind_finds_the_commands_due(api: Api) -> None:
    """The wake-up arrives within milliseconds, and the clocks of two functions differ by more."""
    gang(api.functions)
    api.post(f"/jobs/{JOB}/cancel")
    api.functions.now = later(-0.5)
    api.functions.wake()
    assert stopped(api.functions) == list(launched().task_ids)


def test_a_command_that_another_function_executes_is_left_to_it(functions: Functions) -> None:
    """Its lease has not expired, so a stray wake-up stops nothing."""
    gang(functions)
    functions.aws.answers["StopTask"] = lambda asked: (_ for _ in ()).throw(ConnectionError("no answer"))
    with pytest.raises(ConnectionError):
        functions.call("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=134))
    del functions.aws.answers["StopTask"]
    functions.call("command_executor", {"job_id": JOB})
    assert stopped(functions) == []


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [{"job_id": JOB}, {"instance_id": A}])
def test_a_wake_up_for_a_record_that_is_gone_does_nothing(functions: Functions, request_: dict[str, str]) -> None:
    """No retry would bring it back."""
    functions.call("command_executor", request_)
    assert not functions.aws.operations("ecs")


@pytest.mark.parametrize("request_", [{}, {"job_id": 7}, {"detail-type": "Scheduled Event"}])
def test_a_request_that_names_no_record_is_an_error(functions: Functions, request_: dict[str, Any]) -> None:
    """It becomes a dead letter, and an alarm."""
    with pytest.raises(RequestInvalid):
        functions.call("command_executor", request_)
