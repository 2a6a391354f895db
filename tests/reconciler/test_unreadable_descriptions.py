"""Descriptions of ECS that nobody can read, among others: the rest is compared, and the round fails at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, A, B, instance, job, later, launched
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ARN = "arn:aws:ecs:us-east-1:123456789012"
NEW = "i-0ddd00000000000d4"


def round_fails(functions: Functions) -> list[str]:
    """The unreadable documents that a round of the reconciler raises, and nothing else."""
    with pytest.raises(ExceptionGroup) as raised:
        functions.call("reconciler", {})
    unreadable, others = raised.value.split(EventUnreadable)
    assert others is None and unreadable is not None
    return sorted(str(error) for one in unreadable.exceptions for error in one.exceptions)  # type: ignore[attr-defined]


def show_instances(functions: Functions, *shown: dict[str, Any]) -> None:
    """What ECS lists as ACTIVE and describes."""
    by_arn = {f"{ARN}:container-instance/ci-{one['ec2InstanceId']}": one for one in shown}
    usual = {"agentConnected": True, "version": 7, "status": "ACTIVE"}

    def listed(asked: dict[str, Any]) -> dict[str, Any]:
        return {"containerInstanceArns": list(by_arn) if asked["status"] == "ACTIVE" else []}

    def described(asked: dict[str, Any]) -> dict[str, Any]:
        found = [
            usual | {"containerInstanceArn": arn} | one
            for arn, one in by_arn.items()
            if {arn, arn.rsplit("/", 1)[-1]} & set(asked["containerInstances"])
        ]
        return {"containerInstances": found, "failures": []}

    functions.aws.answers |= {"ListContainerInstances": listed, "DescribeContainerInstances": described}


def test_an_instance_that_cannot_be_read_hides_no_other(functions: Functions) -> None:
    """One that is new, one whose agent is lost, and one that has left are all found beside it."""
    functions.store.save_instance(instance(A, deadline_at=None))
    functions.store.save_instance(instance(B))
    garbled = {"ec2InstanceId": B, "agentConnected": "perhaps"}
    show_instances(functions, garbled, {"ec2InstanceId": A, "agentConnected": False}, {"ec2InstanceId": NEW})
    assert set(round_fails(functions)) == {"agentConnected: must be true or false, not a text"}
    assert functions.instance(NEW).container_instance_id == f"ci-{NEW}"
    assert not functions.instance(A).agent_connected
    assert functions.instance(B).agent_connected


def test_a_task_that_cannot_be_read_hides_no_other(functions: Functions) -> None:
    """The orphan behind it is stopped in the same round."""
    ended = job(status=JobStatus.FAILED, attempt=1, status_at=later(-600))
    functions.store.create_job(ended, "")
    functions.store.begin_attempt(replace(launched(), task_ids=("0a1b", "0a1c")))
    orphan = f"{ARN}:task/cluster/0a1b"
    overrides = {
        "overrides": {"containerOverrides": [{"name": "main", "environment": [{"name": "RANK", "value": "0"}]}]}
    }
    tasks: list[dict[str, Any]] = [
        {"taskArn": f"{ARN}:task/cluster/0c0c", "lastStatus": "RUNNING", "containers": "none"},
        {"taskArn": orphan, "lastStatus": "RUNNING", "startedBy": attempt_id(JOB, 1), **overrides},
    ]

    def listed(asked: dict[str, Any]) -> dict[str, Any]:
        whole = asked["desiredStatus"] == "RUNNING" and "startedBy" not in asked
        return {"taskArns": [one["taskArn"] for one in tasks] if whole else []}

    functions.aws.answers |= {"ListTasks": listed, "DescribeTasks": lambda asked: {"tasks": tasks, "failures": []}}
    assert round_fails(functions) == ["containers: must be a list, not a text"]
    assert [asked["task"] for asked in functions.aws.asked("StopTask")] == ["0a1b"]
