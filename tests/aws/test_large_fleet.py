"""A thousand instances with full histories: the calls of each operation that reads all of them, counted at botocore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from gpu_recovery.aws.instance_index import SHARDS
from gpu_recovery.aws.instance_store import instance_item
from gpu_recovery.aws.queue_store import WAITING
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.job_api.placement_preview import read_queue_view
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.scheduler.schedule import schedule

from tests.aws.counted_aws import ARN
from tests.aws.records import NOW, instance, job, spec
from tests.aws.test_cost import World, counted_world
from tests.aws.test_long_queue import write

pytestmark = pytest.mark.slow
COUNT = 1_000
DUE_QUERIES = 8
"""Four partition keys of the index `due` in each table."""
HISTORY = (HistoryEntry(NOW, "AVAILABLE", "AVAILABLE", "InstanceObserved", 1, "nothing has to be done"),) * 60
NAMES = tuple(f"i-{number:017x}" for number in range(COUNT))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Instances that report, as ECS and EC2 show them, and a job that waits for more than there are."""
    with counted_world(monkeypatch) as made:
        records = [instance_item(instance(name, revision=1, history=HISTORY, boot_id="boot")) for name in NAMES]
        write(made.store.table.client, made.store.table.name, records)
        for name in NAMES:
            made.store.save_heartbeat(Heartbeat(name, NOW, "boot", NOW, 1, 15), present=True)
        waits = {"status": JobStatus.PENDING_RESOURCES, "short_of": "gpus"}
        made.store.create_job(job(spec=spec(nnodes=2_000), **waits), "")
        made.aws.answers |= {
            "ListContainerInstances": _listed,
            "DescribeContainerInstances": _described,
            "DescribeInstanceStatus": _statuses,
        }
        reconcile(made.recovery)  # counts the instances
        made.aws.forget()
        yield made


def _listed(asked: dict[str, Any]) -> dict[str, Any]:
    names = NAMES if asked["status"] == "ACTIVE" else ()
    return {"containerInstanceArns": [f"{ARN}:container-instance/ci-{name}" for name in names]}


def _described(asked: dict[str, Any]) -> dict[str, Any]:
    shown = [
        {
            "containerInstanceArn": arn,
            "ec2InstanceId": arn.partition("/ci-")[2],
            "status": "ACTIVE",
            "agentConnected": True,
            "version": 3,
        }
        for arn in asked["containerInstances"]
    ]
    return {"containerInstances": shown, "failures": []}


def _statuses(asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "InstanceStatuses": [
            {"InstanceId": name, "InstanceState": {"Name": "running"}} for name in asked["InstanceIds"]
        ]
    }


def test_operations_on_a_thousand_instances_make_a_few_calls_and_read_no_history(world: World) -> None:
    """Only heartbeats are read a hundred to a call. A list is as many queries as it has partition keys."""
    histories: list[str] = []
    answer = world.aws.tables.call

    def noted(operation: str, asked: Any) -> Any:
        found = answer(operation, asked)
        items = [*found.get("Items", ()), *(item for each in found.get("Responses", {}).values() for item in each)]
        histories.extend(operation for item in items if "history" in item)
        return found

    world.aws.tables.call = noted  # type: ignore[method-assign]
    queue = len(WAITING) + 1

    reconcile(world.recovery)
    calls = world.aws.operations("dynamodb")
    assert calls["Query"] == SHARDS + queue + DUE_QUERIES
    assert calls["BatchGetItem"] == COUNT // 100
    assert calls.total() - calls["Query"] - calls["BatchGetItem"] <= 4, calls

    world.aws.forget()
    assert schedule(world.recovery) == 0
    calls = world.aws.operations("dynamodb")
    assert calls["Query"] == SHARDS + queue
    assert calls.total() - calls["Query"] <= 8, calls

    world.aws.forget()
    assert len(read_queue_view(world.recovery).snapshot.hosts) == COUNT
    calls = world.aws.operations("dynamodb")
    assert calls["Query"] == SHARDS + queue
    assert calls.total() - calls["Query"] <= 4, calls

    world.aws.forget()
    assert len(world.store.list_instances(COUNT, None).instances) == COUNT
    assert SHARDS <= world.aws.count("dynamodb") <= 2 * SHARDS
    assert world.aws.operations("dynamodb").keys() == {"Query"}

    world.aws.forget()
    assert len(world.store.list_jobs(None, 200, None).jobs) == 1
    assert world.aws.operations("dynamodb")["BatchGetItem"] == 1
    assert histories == []
