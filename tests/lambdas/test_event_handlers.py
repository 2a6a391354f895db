"""The functions that EventBridge, SQS and the clock wake: a real event in, the right effect, every failure raised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.ecs_events import EventUnreadable
from gpu_recovery.aws.queue_store import WAITING
from gpu_recovery.aws.settings import LambdaSettingsInvalid
from gpu_recovery.core import commands
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import InstanceStatus, Reboot
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon

from sandbox.payload_limits import PAYLOAD_BYTES_MAX, entry_bytes
from tests.aws.ecs_events import check_event, instance_event, rank_event, task_event
from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.aws.records import JOB, NOW, OTHER_JOB, A, instance, job, later, pending, plan
from tests.lambdas.conftest import HANDLERS, Functions
from tests.lambdas.starting_states import checking, gang

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
PUBLISHED = sorted((ROOT / "tests" / "events").glob("ecs_task_*.json"))


def throttled(asked: dict[str, Any]) -> dict[str, Any]:
    """An answer that passes."""
    raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "Any")


@pytest.mark.slow
def test_every_handler_is_imported_in_the_deployed_environment() -> None:
    """From the package alone, in an isolated interpreter, with nothing but the variables of the deployment."""
    code = f"import sys; sys.path.insert(0, 'lambdas')\nfor name in {HANDLERS}:\n    assert __import__(name).handler"
    environment = FUNCTION | CREDENTIALS | {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", HANDLERS)
def test_a_function_without_its_settings_fails_before_it_does_anything(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A missing variable is an error of every invocation, never a default."""
    monkeypatch.delenv("ECS_CLUSTER_NAME")
    events = {
        "ecs_task_handler": rank_event(JOB, 1, 0, "RUNNING"),
        "dcgm_task_monitor": check_event(A, 1, 0),
        "ecs_instance_monitor": instance_event(A, 1),
        "reconciler": {},
        "scheduler": {},
        "command_executor": {"job_id": JOB},
        "event_recorder": {"source": "gpu.recovery", "account": "1", "region": "r"},
        "job_api": {
            "version": "2.0",
            "rawPath": "/api/v2/jobs",
            "headers": {},
            "requestContext": {"http": {"method": "GET", "path": "/api/v2/jobs"}, "stage": "$default"},
        },
        "node_api": {
            "version": "2.0",
            "rawPath": "/api/v1/reports",
            "headers": {},
            "requestContext": {"http": {"method": "POST", "path": "/api/v1/reports"}, "stage": "$default"},
        },
    }
    with pytest.raises(LambdaSettingsInvalid, match="ECS_CLUSTER_NAME"):
        functions.call(name, events[name])
    assert functions.aws.calls == []


# -- ecs_task_handler --------------------------------------------------------------------------------------------------


def test_a_failed_rank_stops_its_gang(functions: Functions) -> None:
    """The event of one rank moves the job and stops the other task, and the log says why.

    ECS describes neither task here. The progress of the attempt shows which rank has ended.
    """
    gang(functions)
    functions.call("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=139))
    assert functions.job().status is JobStatus.STOPPING
    assert [asked["task"] for asked in functions.aws.asked("StopTask")] == [f"{JOB}-1-1"]
    assert functions.aws.operations()["Publish"] == 1
    (line,) = functions.logged("job_decided")
    assert (line["job_id"], line["before"], line["after"]) == (JOB, "RUNNING", "STOPPING")
    assert line["reason"] == functions.job().reason


def test_a_reason_of_any_length_makes_an_event_that_the_bus_takes(functions: Functions) -> None:
    """EventBridge refuses an entry of 256 KB as a whole, and the refused command would be repeated for ever."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=None)
    event["detail"] |= {"stopCode": "TaskFailedToStart", "stoppedReason": "\u9519" * 60_000}
    event["detail"]["containers"][0]["reason"] = event["detail"]["stoppedReason"]
    functions.call("ecs_task_handler", event)
    entries = [one for asked in functions.aws.asked("PutEvents") for one in asked["Entries"]]
    assert [one["DetailType"] for one in entries] == ["Recovery Started", "Job State Changed"]
    assert max(map(entry_bytes, entries)) < PAYLOAD_BYTES_MAX // 16


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_other_peoples_tasks_are_left_alone(functions: Functions, path: Path) -> None:
    """Every published task event passes through without a call."""
    functions.call("ecs_task_handler", json.loads(path.read_text()))
    assert functions.aws.calls == []


def test_a_failure_while_acting_is_raised_and_the_order_stays(functions: Functions) -> None:
    """Lambda delivers again, and the reconciler finds the order in the record."""
    gang(functions)
    functions.aws.answers["StopTask"] = throttled
    with pytest.raises(ClientError, match="Throttling"):
        functions.call("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=139))
    assert functions.job().status is JobStatus.STOPPING
    assert "StopAttempt" in {type(one.command).__name__ for one in functions.job().commands}


@pytest.mark.parametrize("event", [{}, {"detail": {}}, {"detail": {"lastStatus": "STOPPED"}}])
def test_an_event_about_nothing_is_raised(functions: Functions, event: dict[str, Any]) -> None:
    """It ends in the dead-letter queue, where it is seen."""
    with pytest.raises(EventUnreadable):
        functions.call("ecs_task_handler", event)


def test_somebody_who_uses_our_names_costs_one_read(functions: Functions) -> None:
    """A `startedBy` like ours of a job that we do not have: another program has the same naming. It is no error."""
    functions.call("ecs_task_handler", task_event("t", attempt_id("nightly", 1), "RUNNING", {}))
    assert functions.aws.operations() == {"GetItem": 1}


def test_a_persons_task_is_adopted_when_that_is_switched_on(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB_ID, RANK and WORLD_SIZE make a record; with adoption off they make nothing."""
    carried = {"JOB_ID": "mine", "RANK": "0", "WORLD_SIZE": "1"}
    event = task_event("t", "", "RUNNING", carried)
    functions.call("ecs_task_handler", event)
    assert functions.aws.calls == []
    monkeypatch.setenv("ADOPT", "recover")
    functions.chill()
    functions.call("ecs_task_handler", event)
    assert functions.job("mine").status is JobStatus.RUNNING


# -- dcgm_task_monitor -------------------------------------------------------------------------------------------------


def test_a_verdict_reaches_its_instance_and_its_job(functions: Functions) -> None:
    """Exit code and document agree: the instance is rebooted and the job's barrier has its result."""
    checking(functions, "REBOOT")
    machine = plan().instances[0]
    functions.call("dcgm_task_monitor", check_event(machine, 1, 1))
    assert functions.instance(machine).status is InstanceStatus.REBOOTING
    assert [asked["InstanceIds"] for asked in functions.aws.asked("RebootInstances")] == [[machine]]
    assert functions.aws.asked("UpdateContainerInstancesState")[0]["status"] == "DRAINING"
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.checked[0].repairing


def test_the_same_verdict_again_does_nothing(functions: Functions) -> None:
    """No second reboot."""
    checking(functions, "REBOOT")
    for _ in range(2):
        functions.call("dcgm_task_monitor", check_event(plan().instances[0], 1, 1))
    assert functions.aws.operations("ec2") == {}


@pytest.mark.parametrize("started_by", ["", "ecs-svc/1", "somebody", "check/i-xyz/1"])
def test_somebody_elses_run_of_the_check_is_left_alone(functions: Functions, started_by: str) -> None:
    """Only our own startedBy names an instance."""
    functions.call("dcgm_task_monitor", task_event("t", started_by, "STOPPED", {}, exit_code=1))
    assert functions.aws.calls == []


@pytest.mark.parametrize("exit_code", [0, 1, 42])
def test_a_document_that_is_no_verdict_could_not_tell(functions: Functions, exit_code: int) -> None:
    """Neither blame nor a pass, whatever the exit code says; the reason names the document."""
    checking(functions, "SPLENDID")
    functions.call("dcgm_task_monitor", check_event(plan().instances[0], 1, exit_code))
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.checked[0].outcome is CheckOutcome.INCONCLUSIVE
    assert "no verdict" in functions.instance(plan().instances[0]).reason
    assert functions.aws.count("ec2") == 0


# -- ecs_instance_monitor ----------------------------------------------------------------------------------------------


def test_a_new_instance_is_entered_and_found_by_its_registration(functions: Functions) -> None:
    """With its GPUs, and the scheduler is told."""
    functions.call("ecs_instance_monitor", instance_event(A, 1))
    assert (functions.instance().status, functions.instance().gpus) == (InstanceStatus.AVAILABLE, 8)
    assert functions.store.instance_of(f"ci-{A}") == A
    assert functions.aws.operations()["SendMessage"] == 1


def test_active_while_rebooting_is_noise(functions: Functions) -> None:
    """The stop of the failed task itself makes such an event; it proves nothing."""
    reboot = Reboot(NOW, "b-1", JOB, 1, deadline_at=later(1800))
    functions.store.save_instance(instance(status=InstanceStatus.REBOOTING, reboot=reboot, epoch=1))
    functions.call("ecs_instance_monitor", instance_event(A, 4))
    assert functions.instance().status is InstanceStatus.REBOOTING
    functions.call("ecs_instance_monitor", instance_event(A, 5, agentConnected=False))
    functions.call("ecs_instance_monitor", instance_event(A, 6))
    assert functions.instance().status is InstanceStatus.VERIFYING


# -- scheduler ---------------------------------------------------------------------------------------------------------


def test_one_pass_answers_every_message(functions: Functions) -> None:
    """A queued job gets its instances and its tasks."""
    functions.store.create_job(job(), "")
    for machine in plan().instances:
        functions.store.save_instance(instance(machine))
    functions.call("scheduler", {"Records": [{"body": "{}"}, {"body": "{}"}]})
    assert functions.job().status is JobStatus.SUBMITTED
    assert functions.aws.operations("ecs") == {"RunTask": 2}
    assert set(functions.instance(plan().instances[1]).claims) == {JOB}
    (line,) = functions.logged("placed")
    assert line["jobs"] == 1


def tick(number: int) -> dict[str, Any]:
    """What the clock puts into the scheduler's queue."""
    body = {"detail-type": "Scheduled Event", "id": f"tick-{number}", "source": "aws.events"}
    return {"Records": [{"messageId": f"m-{number}", "body": json.dumps(body)}]}


def test_a_pass_over_an_empty_line_reads_no_instance_and_the_next_tick_is_one_read(functions: Functions) -> None:
    """The first has to look who is there; what it leaves behind is enough for every minute after it.

    It also reads the quota limits, which the web console shows while no job waits.
    """
    functions.call("scheduler", tick(1))
    assert functions.aws.operations("dynamodb") == {"GetItem": 2, "UpdateItem": 2, "Query": len(WAITING) + 1}
    functions.aws.forget()
    functions.call("scheduler", tick(2))
    assert functions.aws.operations("dynamodb") == {"GetItem": 1}


def test_a_launch_that_fails_is_logged_and_counted_and_holds_neither_the_queue_nor_another_job(
    functions: Functions,
) -> None:
    """The order stays in the record of the job for the reconciler. SQS shows no message again."""
    functions.store.create_job(job(), "")
    functions.store.create_job(job(OTHER_JOB, queued_at=later(1)), "")
    for machine in plan(world=4).instances:
        functions.store.save_instance(instance(machine))
    usual = functions.aws.usual("RunTask")
    functions.aws.answers["RunTask"] = lambda asked: (throttled if JOB in asked["startedBy"] else usual)(asked)
    functions.call("scheduler", {"Records": []})
    (line,) = functions.logged("placement_failed")
    assert "ThrottlingException" in line["exception"] and line["level"] == "ERROR"
    assert functions.job(JOB).status is JobStatus.SUBMITTING
    assert commands.LaunchAttempt in [type(each.command) for each in functions.job(JOB).commands]
    assert functions.job(OTHER_JOB).status is JobStatus.SUBMITTED


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ({"State": {"Name": "terminated"}}, "EC2 shows {0} terminated"),
        ({"State": {"Name": "shutting-down"}}, "EC2 shows {0} shutting-down"),
        ({"State": {"Name": "running"}}, "EC2 shows no address of {0}"),
        (None, "EC2 shows no address of {0}"),
    ],
    ids=["terminated", "shutting-down", "no-address", "forgotten"],
)
def test_a_launch_without_the_instance_of_its_rank_0_ends_at_once_and_places_the_next_job(
    functions: Functions, shown: dict[str, Any] | None, reason: str
) -> None:
    """EC2 shows a terminated instance without its address for an hour, and then no more."""
    functions.store.create_job(job(), "")
    functions.store.create_job(job(OTHER_JOB, queued_at=later(1)), "")
    for machine in plan(world=4).instances:
        functions.store.save_instance(instance(machine))
    usual, gone_id = functions.aws.usual("DescribeInstances"), list[str]()

    def describe(asked: dict[str, Any]) -> dict[str, Any]:
        (named,) = [each["Values"] for each in asked["Filters"]]
        gone_id.extend(named[:1] if not gone_id else ())  # the first launch is that of the first job
        found = [each for each in usual(asked)["Reservations"][0]["Instances"] if each["InstanceId"] not in gone_id]
        gone = [{"InstanceId": name, **shown} for name in named if name in gone_id] if shown is not None else []
        return {"Reservations": [{"Instances": found + gone}]}

    functions.aws.answers["DescribeInstances"] = describe
    functions.call("scheduler", {"Records": []})
    assert functions.job(OTHER_JOB).status is JobStatus.SUBMITTED
    assert functions.job(JOB).status is JobStatus.PENDING_RESOURCES
    assert reason.format(*gone_id) in str([entry.reason for entry in functions.job(JOB).history])
    assert {asked["startedBy"] for asked in functions.aws.asked("RunTask")} == {attempt_id(OTHER_JOB, 1)}


# -- reconciler --------------------------------------------------------------------------------------------------------


def test_an_order_whose_actor_died_is_carried_out(functions: Functions) -> None:
    """Once its claim has expired, and not before."""
    gang(functions, status=JobStatus.STOPPING)
    stopping = functions.job()
    functions.store.save_job(replace(stopping, commands=(pending(JOB, 1, until=180),)))
    functions.now = later(179)
    functions.call("reconciler", {})
    assert functions.aws.operations()["SendMessage"] == 0
    functions.now = later(180)
    functions.call("reconciler", {})
    assert functions.aws.operations()["SendMessage"] == 1
    assert functions.job().commands == ()


def test_a_record_that_fails_does_not_keep_the_others_and_is_raised_at_the_end(functions: Functions) -> None:
    """One job's order is throttled; the other job's and the instance's are carried out."""
    gang(functions, JOB, status=JobStatus.STOPPING, commands=(pending(JOB, 1, commands.StopAttempt(1), until=1),))
    gang(functions, OTHER_JOB, status=JobStatus.RUNNING, commands=(pending(OTHER_JOB, 1, until=1),))
    functions.store.save_instance(instance(commands=(pending(A, 1, until=1),)))
    functions.aws.answers["StopTask"] = throttled
    functions.now = later(10)
    with pytest.raises(ExceptionGroup) as raised:
        functions.call("reconciler", {})
    assert raised.group_contains(ClientError, match="Throttling")
    assert len(functions.job(JOB).commands) == 1
    assert functions.job(OTHER_JOB).commands == functions.instance().commands == ()


def test_a_cycle_without_time_left_begins_no_record(functions: Functions) -> None:
    """It still compares the cluster; the record stays due for the next cycle."""
    gang(functions, status=JobStatus.STOPPING, commands=(pending(JOB, 1, until=1),))
    functions.now = later(10)
    functions.left_s = 39.0
    functions.call("reconciler", {})
    assert functions.aws.operations("ecs")["ListTasks"]
    assert len(functions.job().commands) == 1
    functions.left_s = 110.0
    functions.call("reconciler", {})
    assert functions.job().commands == ()


def test_a_task_of_an_attempt_that_is_over_is_stopped(functions: Functions) -> None:
    """ECS lists it, the job knows better; a stranger's task is left alone."""
    gang(functions, status=JobStatus.RUNNING, attempt=2)
    old, foreign = rank_event(JOB, 1, 0, "RUNNING"), task_event("web", "ecs-svc/1", "RUNNING", {})
    details = {event["detail"]["taskArn"].rsplit("/", 1)[-1]: event["detail"] for event in (old, foreign)}
    arns = [detail["taskArn"] for detail in details.values()]
    functions.aws.answers["ListTasks"] = lambda asked: {"taskArns": arns if "startedBy" not in asked else []}
    functions.aws.answers["DescribeTasks"] = lambda asked: {"tasks": list(details.values()), "failures": []}
    functions.call("reconciler", {})
    stopped = [(asked["task"], asked["reason"]) for asked in functions.aws.asked("StopTask")]
    assert stopped == [(f"{JOB}-1-0", f"gpu-recovery: {JOB}--a01 is over")]


def test_a_throttled_stop_is_repeated_by_the_same_function(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function waits longer each time, and goes on with the ranks that ECS shows as running."""
    gang(functions)
    waits: list[float] = []
    monkeypatch.setattr("gpu_recovery.aws.wiring.sleep", waits.append)
    monkeypatch.setattr("gpu_recovery.aws.wiring.random", lambda: 0.5)

    def throttled(asked: dict[str, Any]) -> dict[str, Any]:
        if len(waits) < 3:
            raise TryAgainSoon("ecs StopTask: ThrottlingException")
        return {}

    functions.aws.answers["StopTask"] = throttled
    functions.call("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=139))
    assert [asked["task"] for asked in functions.aws.asked("StopTask")] == [f"{JOB}-1-1"] * 4
    assert waits == [0.75, 1.5, 3.0]
    assert functions.job().commands == ()
