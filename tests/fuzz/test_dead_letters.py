"""Bad input to a real deployment: the very event among the dead letters, with the reason, and nothing else touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from sandbox.cluster.event_publisher import event_bridge
from sandbox.ministack import command
from tests.sandbox.ministack_server import wait_for
from tests.sandbox.patience import PATIENCE_S

pytestmark = pytest.mark.slow
FUNCTIONS = ("EcsTaskHandler", "DcgmTaskMonitor", "EcsInstanceMonitor")
MISFIT = {
    "taskArn": 7,
    "containerInstanceArn": "arn/x",
    "ec2InstanceId": "no id",
    "status": "A",
    "agentConnected": True,
}
GARBAGE: list[Any] = [[], {"detail": MISFIT}]
"""Every other kind is given to the functions in this process; here each costs three cold starts."""
ARN = f"arn:aws:ecs:{command.REGION}:{command.ACCOUNT}"
SPEC = {"workload": "behind", "nnodes": 1, "n_gpus_per_node": 8, "task_definition": sandbox.TRAINING_FAMILY}


@dataclass(frozen=True)
class Deployed:
    """A sandbox that is up."""

    directory: Path
    state: dict[str, Any]

    @property
    def outputs(self) -> dict[str, str]:
        """What the stacks say about themselves."""
        found: dict[str, str] = json.loads((self.directory / "state.json").read_text())["outputs"]
        return found

    def client(self, service: str) -> Any:
        """A client of the sandbox's AWS."""
        return sandbox.client(service, self.state["endpoint_url"])

    def tables(self) -> dict[str, Any]:
        """Every item of both tables."""
        dynamodb, items = self.client("dynamodb"), {}
        for name in self.state["tables"].values():
            for page in dynamodb.get_paginator("scan").paginate(TableName=name):
                items |= {
                    json.dumps([name, item.get("job_id_rank") or item.get("container_inst_id")]): item
                    for item in page["Items"]
                }
        return items

    def waiting(self, queue: str) -> int:
        """How many messages a queue holds, seen or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self.client("sqs").get_queue_attributes(QueueUrl=self.outputs[f"{queue}QueueUrl"], AttributeNames=names)
        return sum(int(number) for number in told["Attributes"].values())

    def taken(self, queue: str) -> list[str]:
        """The bodies of a dead-letter queue, taken out of it."""
        sqs, url, bodies = self.client("sqs"), self.outputs[f"{queue}QueueUrl"], []
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in found:
                bodies.append(message["Body"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bodies


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """One deployment with one instance, which the stacks have entered."""
    directory = tmp_path_factory.mktemp("dead-letters")
    try:
        state = sandbox.up(directory, instances=1)
        with RecoveryClient(state["api_url"], state["operator_token"]) as client:
            wait_for(lambda: [one for one in client.instances() if one["status"] == "AVAILABLE"], PATIENCE_S)
        made = Deployed(directory, state)
        # The first round of the reconciler writes down how many instances there are; the next ones find nothing new.
        wait_for(lambda: any('"fleet"' in name for name in made.tables()), PATIENCE_S)
        yield made
    finally:
        sandbox.down(directory)


def test_what_a_function_cannot_read_is_kept_with_the_reason(deployed: Deployed) -> None:
    """Garbage of each kind to each event function: after the retries every event is in the Failed queue, unchanged."""
    functions, before = deployed.client("lambda"), deployed.tables()
    sent = []
    for function in FUNCTIONS:
        name = deployed.outputs[f"{function}FunctionName"]
        for event in GARBAGE:
            sent.append((name, event))
            functions.invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps(event))
    wait_for(lambda: deployed.waiting("Failed") == len(sent), PATIENCE_S)
    letters = [json.loads(body) for body in deployed.taken("Failed")]
    kept = [(letter["requestContext"]["functionArn"].split(":function:")[1], letter) for letter in letters]
    found = sorted(json.dumps([name.split(":")[0], letter["requestPayload"]]) for name, letter in kept)
    assert found == sorted(json.dumps([name, event]) for name, event in sent)
    reasons = {letter["responsePayload"]["errorMessage"].partition(":")[0] for letter in letters}
    assert reasons == {"the document", "taskArn", "ec2InstanceId"}
    assert deployed.tables() == before


def test_an_event_that_a_rule_lets_through_is_kept_too(deployed: Deployed) -> None:
    """As ECS would send it, but for one field of the wrong kind, which the error names."""
    before = deployed.tables()
    detail = {
        "clusterArn": f"{ARN}:cluster/{deployed.state['cluster']}",
        "taskArn": f"{ARN}:task/x/0a1b",
        "taskDefinitionArn": f"{ARN}:task-definition/gpu-training:1",
        "lastStatus": "STOPPED",
        "startedBy": "sft--a01",
        "containers": [{"name": "trainer", "exitCode": "one"}],
    }
    ecs = event_bridge(deployed.state["endpoint_url"], command.REGION)
    ecs([{"Source": "aws.ecs", "DetailType": "ECS Task State Change", "Detail": json.dumps(detail)}])
    wait_for(lambda: deployed.waiting("Failed"), PATIENCE_S)
    (letter,) = [json.loads(body) for body in deployed.taken("Failed")]
    assert letter["requestPayload"]["detail"] == detail
    assert letter["responsePayload"]["errorMessage"].startswith("containers[0].exitCode: must be a whole number")
    assert deployed.tables() == before


def test_garbage_in_the_schedulers_queue_wakes_it_and_blocks_nobody(deployed: Deployed) -> None:
    """A message only says that something changed: whatever it holds, it is worked, and so is the one behind it."""
    sqs, url = deployed.client("sqs"), deployed.outputs["SchedulerQueueUrl"]
    for number, body in enumerate(("{", "\u00e9", "null", "[" * 5_000, json.dumps({"good": True}))):
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId="scheduler", MessageDeduplicationId=f"garbage-{number}"
        )
    wait_for(lambda: deployed.waiting("Scheduler") == 0, PATIENCE_S)
    assert deployed.waiting("SchedulerDeadLetters") == 0


def test_a_record_that_cannot_be_read_keeps_nobody_waiting(deployed: Deployed) -> None:
    """It stands in line and no pass can read it: the job behind it is launched, and no message is buried for it."""
    dynamodb, table = deployed.client("dynamodb"), deployed.state["tables"]["jobs"]
    fields = {"job_id_rank": "spoilt", "status": "QUEUED", "line": "waiting", "line_at": "2026-11-21T09:00:00.000Z"}
    spoilt = {name: {"S": value} for name, value in {**fields, "line_entry": "{"}.items()}
    dynamodb.put_item(TableName=table, Item=spoilt)
    with RecoveryClient(deployed.state["api_url"], deployed.state["operator_token"]) as client:
        job_id = client.submit(SPEC | {"command": ["true"]})["job_id"]
        wait_for(lambda: client.job(job_id)["status"] == "SUCCEEDED", PATIENCE_S)
    wait_for(lambda: deployed.waiting("Scheduler") == 0, PATIENCE_S)
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
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})  # on AWS two minutes pass each time
    key = {"job_id_rank": {"S": "#scheduler"}}
    kept = dynamodb.get_item(TableName=table, Key=key)["Item"]
    dynamodb.put_item(TableName=table, Item=kept | {"term": {"S": "no number"}})
    poison = json.dumps({"key": "poison/1"})
    sqs.send_message(QueueUrl=url, MessageBody=poison, MessageGroupId="scheduler", MessageDeduplicationId="poison")
    buried: list[str] = []
    wait_for(lambda: buried.extend(deployed.taken("SchedulerDeadLetters")) or poison in buried, PATIENCE_S)
    with RecoveryClient(deployed.state["api_url"], deployed.state["operator_token"]) as client:
        job_id = client.submit(SPEC | {"command": ["true"]})["job_id"]
        dynamodb.put_item(TableName=table, Item=kept)
        wait_for(lambda: client.job(job_id)["status"] == "SUCCEEDED", PATIENCE_S)
