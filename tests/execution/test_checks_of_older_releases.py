"""A health check in flight at an upgrade: its task has no launch signature, and its record does not name the task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.pending_commands import due_keys
from gpu_recovery.core.identifiers import check_id
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.ecs_events import ARN, check_event, rank_event
from tests.aws.environment import CLUSTER, FUNCTION
from tests.aws.records import JOB, NOW, later, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
OLD = json.loads((Path(__file__).parents[1] / "aws" / "items_schema_1.json").read_text())["instance"]
"""An instance as the first release stored it, with every command still to be done."""
MACHINE = plan().instances[0]
CHECK = check_id(MACHINE, 1)
TASK = CHECK.replace("/", "-")
OLD_CHECK = {**OLD["check"], "check_id": CHECK, "job_id": "", "attempt": 0, "proof_needed": False}


def old_record(functions: Functions, orders: tuple[str, ...] = (), **changes: Any) -> None:
    """Store the old item for the instance MACHINE, with its check in flight and the commands of the types `orders`."""
    item = {**OLD, "instance_id": MACHINE, "container_inst_id": MACHINE, "container_instance_id": f"ci-{MACHINE}"}
    item |= {"status": "CHECKING", "check": OLD_CHECK, "checks": 1, "reboot": None, "claims": {}, **changes}
    saved = {
        name.replace(OLD["instance_id"], MACHINE): {
            **command,
            "command_id": name.replace(OLD["instance_id"], MACHINE),
            "command": {**command["command"], "check_id": CHECK},
        }
        for name, command in OLD["commands"].items()
        if command["command"]["type"] in orders
    }
    table = functions.store.table
    table.client.put_item(TableName=table.name, Item=typed({**item, "commands": saved}))
    functions.store.remember_registration(functions.instance(MACHINE))
    functions.aws.tasks[CHECK] = [TASK]
    functions.aws.answers["DescribeTasks"] = lambda asked: {"tasks": [in_flight()["detail"]], "failures": []}


def in_flight(exit_code: int | None = None) -> dict[str, Any]:
    """The task of the check as the old release started it."""
    event = check_event(MACHINE, 1, exit_code)
    event["detail"] |= {
        "containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/ci-{MACHINE}",
        "taskDefinitionArn": f"{ARN}:task-definition/{FUNCTION['DCGM_HEALTH_CHECK_TASK']}:7",
    }
    return event if exit_code is not None else {**event, "detail": {**event["detail"], "lastStatus": "RUNNING"}}


def stopped(functions: Functions) -> list[str]:
    """The tasks that the last call stopped."""
    return [asked["task"].rsplit("/", 1)[-1] for asked in functions.aws.asked("StopTask")]


def test_a_check_of_an_older_release_that_takes_too_long_is_stopped(functions: Functions) -> None:
    """The record has forgotten the check by the time its command is executed."""
    old_record(functions, deadline_at=OLD["status_at"], **due_keys(MACHINE, NOW, None, ()))
    functions.call("reconciler", {})
    assert functions.instance(MACHINE).check is None
    assert stopped(functions) == [TASK]


def test_a_stop_that_an_older_release_saved_is_carried_out(functions: Functions) -> None:
    """Its command says nothing about a signature."""
    old_record(functions, ("StopCheck",), check=None, status="QUARANTINED")
    functions.now = later(600)
    functions.call("command_executor", {"instance_id": MACHINE})
    assert stopped(functions) == [TASK] and functions.instance(MACHINE).commands == ()


def superseded(functions: Functions, **changes: Any) -> list[str]:
    """The job on the instance ends, so its check supersedes the check of the older release. The stopped tasks."""
    gang(functions)
    old_record(functions, check={**OLD_CHECK, "passive": True, **changes})
    for rank in (0, 1):
        functions.call("ecs_task_handler", rank_event(JOB, 1, rank, "STOPPED", exit_code=139))
    run = functions.instance(MACHINE).check
    assert run is not None and (run.superseded, run.signed) == (CHECK, True)
    return stopped(functions)


def test_a_superseded_check_of_an_older_release_is_stopped(functions: Functions) -> None:
    """The record names it beside the check that replaced it."""
    assert superseded(functions) == [TASK]


def test_a_superseded_check_of_an_older_release_can_still_blame(functions: Functions) -> None:
    """Its end is known by its instance and its family."""
    superseded(functions)
    left = {"check_id": CHECK, "outcome": "REBOOT", "summary": "GPU 3", "boot_id": "b-1"}
    functions.aws.documents[f"verdicts/{CHECK}.json"] = left
    functions.call("dcgm_task_monitor", in_flight(1))
    assert functions.instance(MACHINE).status is not InstanceStatus.CHECKING


def test_a_stranger_without_a_signature_is_not_taken_for_a_superseded_check(functions: Functions) -> None:
    """Only a check of an older release has none: here the present release started the superseded check."""
    assert superseded(functions, signed=True) == []
    with pytest.raises(TryAgainSoon):
        functions.call("dcgm_task_monitor", in_flight(1))
    assert functions.instance(MACHINE).status is InstanceStatus.CHECKING
