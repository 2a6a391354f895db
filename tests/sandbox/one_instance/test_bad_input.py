"""Bad input to a deployment: the event is among the dead letters, with the reason, and no record is changed.

This file is the first of its folder: no job of another test changes a record while it compares the tables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from sandbox.cluster.event_publisher import event_bridge
from sandbox.ministack import command
from tests.sandbox.patience import wait_until
from tests.sandbox.tables import tables, tables_at_rest

pytestmark = pytest.mark.slow
FUNCTIONS = ("EcsTaskHandler", "DcgmTaskMonitor", "EcsInstanceMonitor")
MISFIT = {
    "taskArn": 7,
    "containerInstanceArn": "arn/x",
    "ec2InstanceId": "no id",
    "status": "A",
    "agentConnected": True,
}
ORIGIN = {"source": "aws.ecs", "account": command.ACCOUNT, "region": command.REGION}
GARBAGE: list[Any] = [[], {**ORIGIN, "detail": MISFIT}]
"""Every other kind is given to the functions in this process; here each costs three deliveries and a dead letter."""
ARN = f"arn:aws:ecs:{command.REGION}:{command.ACCOUNT}"
SPEC = {"workload": "behind", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": sandbox.TRAINING_FAMILY}


@dataclass(frozen=True)
class Deployed:
    """A sandbox that is up: its state, and the outputs of its stacks by name."""

    state: dict[str, Any]
    outputs: dict[str, str]

    def client(self, service: str) -> Any:
        """Return a client of the sandbox's AWS."""
        return sandbox.client(service, self.state["endpoint_url"], self.state)

    def waiting(self, queue: str) -> int:
        """Return the number of messages that a queue holds, those in flight included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self.client("sqs").get_queue_attributes(QueueUrl=self.outputs[f"{queue}QueueUrl"], AttributeNames=names)
        return sum(int(number) for number in told["Attributes"].values())

    def taken(self, queue: str) -> list[str]:
        """Receive and delete every message of a dead-letter queue. Returns the bodies."""
        sqs, url, bodies = self.client("sqs"), self.outputs[f"{queue}QueueUrl"], []
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in found:
                bodies.append(message["Body"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bodies


@pytest.fixture
def deployed(directory: Path, state: dict[str, Any]) -> Deployed:
    """The deployment of this folder, once its instance is available."""
    with RecoveryClient(state["api_url"], state["operator_token"]) as client:
        wait_until(lambda: [one for one in client.instances() if one["status"] == "AVAILABLE"])
    outputs: dict[str, str] = json.loads((directory / "state.json").read_text())["outputs"]
    return Deployed(state, outputs)


def test_what_a_function_cannot_read_is_kept_with_the_reason(deployed: Deployed) -> None:
    """Garbage of each kind to each event function: after the retries every event is in the Failed queue, unchanged."""
    functions, before = deployed.client("lambda"), tables_at_rest(deployed.state)
    sent = []
    for function in FUNCTIONS:
        name = deployed.outputs[f"{function}FunctionName"]
        for event in GARBAGE:
            sent.append((name, event))
            functions.invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps(event))
    wait_until(lambda: deployed.waiting("Failed") == len(sent))
    letters = [json.loads(body) for body in deployed.taken("Failed")]
    kept = [(letter["requestContext"]["functionArn"].split(":function:")[1], letter) for letter in letters]
    found = sorted(json.dumps([name.split(":")[0], letter["requestPayload"]]) for name, letter in kept)
    assert found == sorted(json.dumps([name, event]) for name, event in sent)
    reasons = {letter["responsePayload"]["errorMessage"].partition(":")[0] for letter in letters}
    assert reasons == {"the document", "taskArn", "ec2InstanceId"}
    assert tables(deployed.state) == before


def test_an_event_that_a_rule_lets_through_is_kept_too(deployed: Deployed) -> None:
    """As ECS would send it, but for one field of the wrong kind, which the error names."""
    before = tables_at_rest(deployed.state)
    detail = {
        "clusterArn": f"{ARN}:cluster/{deployed.state['cluster']}",
        "taskArn": f"{ARN}:task/x/0a1b",
        "taskDefinitionArn": f"{ARN}:task-definition/gpu-training:1",
        "lastStatus": "STOPPED",
        "startedBy": "sft--a01",
        "containers": [{"name": "trainer", "exitCode": "one"}],
    }
    ecs = event_bridge(deployed.state["endpoint_url"], command.REGION, deployed.state)
    ecs([{"Source": "aws.ecs", "DetailType": "ECS Task State Change", "Detail": json.dumps(detail)}])
    wait_until(lambda: deployed.waiting("Failed"))
    (letter,) = [json.loads(body) for body in deployed.taken("Failed")]
    assert letter["requestPayload"]["detail"] == detail
    assert letter["responsePayload"]["errorMessage"].startswith("containers[0].exitCode: must be a whole number")
    assert tables(deployed.state) == before


def test_garbage_in_the_schedulers_queue_wakes_it_and_blocks_nobody(deployed: Deployed) -> None:
    """A message only says that something changed: whatever it holds, it is worked, and so is the one behind it."""
    sqs, url = deployed.client("sqs"), deployed.outputs["SchedulerQueueUrl"]
    for number, body in enumerate(("{", "\u00e9", "null", "[" * 5_000, json.dumps({"good": True}))):
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId="scheduler", MessageDeduplicationId=f"garbage-{number}"
        )
    wait_until(lambda: deployed.waiting("Scheduler") == 0)
    assert deployed.waiting("SchedulerDeadLetters") == 0


def test_a_record_that_cannot_be_read_keeps_nobody_waiting(deployed: Deployed) -> None:
    """It stands in line and no pass can read it: the job behind it is launched, and no message is buried for it."""
    dynamodb, table = deployed.client("dynamodb"), deployed.state["tables"]["jobs"]
    fields = {"job_id_rank": "spoilt", "status": "QUEUED", "line": "waiting", "line_at": "2026-11-21T09:00:00.000Z"}
    spoilt = {name: {"S": value} for name, value in {**fields, "line_entry": "{"}.items()}
    dynamodb.put_item(TableName=table, Item=spoilt)
    with RecoveryClient(deployed.state["api_url"], deployed.state["operator_token"]) as client:
        job_id = client.submit(SPEC | {"command": ["true"]})["job_id"]
        wait_until(lambda: client.job(job_id)["status"] == "SUCCEEDED")
    wait_until(lambda: deployed.waiting("Scheduler") == 0)
    assert deployed.taken("SchedulerDeadLetters") == []
    found = dynamodb.query(
        TableName=table,
        IndexName="line",
        KeyConditionExpression="line = :waiting",
        ExpressionAttributeValues={":waiting": {"S": "waiting"}},
    )["Items"]
    assert [item["line_entry"]["S"] for item in found] == ["{"]  # it was read with the others
    dynamodb.delete_item(TableName=table, Key={"job_id_rank": {"S": "spoilt"}})


def test_a_message_that_always_fails_ends_among_the_dead_letters_and_the_group_goes_on(deployed: Deployed) -> None:
    """While no pass can be begun every message fails; when one can, the job that came meanwhile is launched."""
    sqs, url = deployed.client("sqs"), deployed.outputs["SchedulerQueueUrl"]
    dynamodb, table = deployed.client("dynamodb"), deployed.state["tables"]["jobs"]
    name = "VisibilityTimeout"
    usual = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={name: "1"})  # on AWS two minutes pass each time
    key = {"job_id_rank": {"S": "#scheduler"}}
    kept = dynamodb.get_item(TableName=table, Key=key)["Item"]
    dynamodb.put_item(TableName=table, Item=kept | {"term": {"S": "no number"}})
    poison = json.dumps({"key": "poison/1"})
    sqs.send_message(QueueUrl=url, MessageBody=poison, MessageGroupId="scheduler", MessageDeduplicationId="poison")
    buried: list[str] = []
    wait_until(lambda: buried.extend(deployed.taken("SchedulerDeadLetters")) or poison in buried)
    with RecoveryClient(deployed.state["api_url"], deployed.state["operator_token"]) as client:
        job_id = client.submit(SPEC | {"command": ["true"]})["job_id"]
        dynamodb.put_item(TableName=table, Item=kept)
        wait_until(lambda: client.job(job_id)["status"] == "SUCCEEDED")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={name: usual})
