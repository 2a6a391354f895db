"""AWS with its calls counted where botocore makes them: DynamoDB is the double, everything else answers from here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from sandbox import payload_limits
from sandbox.cluster.model.describe import check_filters
from simulator.dynamodb.botocore_handler import answer
from simulator.dynamodb.double import DynamoDb
from tests.aws.ecs_events import ARN, task_arn
from tests.aws.environment import CREDENTIALS

REAL_CLIENT = boto3.client
Answer = Callable[[dict[str, Any]], dict[str, Any]]
THROTTLED: dict[str, Any] = {
    "Error": {"Code": "ProvisionedThroughputExceededException", "Message": "slow down"},
    "ResponseMetadata": {"HTTPStatusCode": 400},
}
"""Refusal of DynamoDB at the last of botocore's tries."""

DENIED: dict[str, Any] = {
    "Error": {"Code": "AccessDeniedException", "Message": "the role of the function does not allow it"},
    "ResponseMetadata": {"HTTPStatusCode": 400},
}
"""Refusal of an operation that the role of the function does not allow."""


LOGGING = {
    "logDriver": "awslogs",
    "options": {"awslogs-group": "/ecs/gpu-training", "awslogs-stream-prefix": "train", "awslogs-region": "us-east-1"},
}
"""How the containers of jobs log."""


def refuses_nothing(service: str, operation: str) -> bool:
    """Allow every operation, as no role does."""
    return False


_latest: list[CountedAws] = []


@cache
def _client(service: str, config: Config | None) -> Any:
    """Clients are slow to make, so tests share them."""
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    client = REAL_CLIENT(service, config=config, region_name=CREDENTIALS["AWS_REGION"], **keys)
    client.meta.events.register_first("before-parameter-build", _remember)
    client.meta.events.register_first("before-call", partial(_answer, waits_s=_patience_s(config)))
    return client


def _answer(*, waits_s: float, **call: Any) -> Any:
    return _latest[0].answer(**call, waits_s=waits_s)


def _patience_s(config: Config | None) -> float:
    """Seconds after which a client with this configuration gives up on a server that never answers."""
    made = config or Config()
    return float((made.retries or {"total_max_attempts": 5})["total_max_attempts"] * made.read_timeout)


def _remember(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context["asked"] = params


@dataclass
class CountedAws:
    """Stands in for `boto3.client`.

    tasks:     the ids of running tasks by their `startedBy`; RunTask adds to them.
    documents: the objects of S3 by their key.
    answers:   an answer, or an error to raise, in place of the usual one, by operation.
    tables:    the tables of DynamoDB.
    denied:    the message with which IAM denies RunTask, by task definition.
    refuses:   whether IAM refuses an operation of a service to the function that runs.
    hangs:     whether an operation of a service never gets an answer. The client then waits until it gives up.
    wait:      receives the seconds that a client waits.
    dynamodb:  what happens before an operation of DynamoDB, which is not carried out if it returns a refusal.
    """

    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    tasks: dict[str, list[str]] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    denied: dict[str, str] = field(default_factory=dict)
    tables: DynamoDb = field(default_factory=DynamoDb)
    dynamodb: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = field(default_factory=dict)
    refuses: Callable[[str, str], bool] = refuses_nothing
    hangs: Callable[[str, dict[str, Any]], bool] = lambda service, asked: False
    wait: Callable[[float], object] = lambda seconds: None

    def __post_init__(self) -> None:
        _latest[:] = [self]

    def client(self, service: str, config: Config | None = None) -> Any:
        """A client whose calls are counted by the latest of these, and answered by it."""
        return _client(service, config)

    def answer(
        self, model: Any, context: dict[str, Any], waits_s: float, **_: Any
    ) -> tuple[AWSResponse, dict[str, Any]]:
        service, operation, asked = model.service_model.service_name, model.name, context["asked"]
        self.calls.append((service, operation, asked))
        if self.hangs(service, asked):
            self.wait(waits_s)
            raise ReadTimeoutError(endpoint_url=service)
        if self.refuses(service, operation):
            return AWSResponse("", 400, {}, None), DENIED
        if service == "dynamodb":
            refusal = self.dynamodb[operation](asked) if operation in self.dynamodb else None
            return answer(self.tables, model, asked) if refusal is None else (AWSResponse("", 400, {}, None), refusal)
        return AWSResponse("", 200, {}, None), (self.answers.get(operation) or self.usual(operation))(asked)

    def usual(self, operation: str) -> Answer:
        """How an operation is answered where no test says otherwise."""
        answer: Answer = getattr(self, f"_{operation}", lambda asked: {})
        return answer

    def forget(self) -> None:
        """Begin to count anew."""
        self.calls.clear()

    def count(self, service: str) -> int:
        """How many calls of one service were made."""
        return sum(called == service for called, _, _ in self.calls)

    def operations(self, service: str = "") -> Counter[str]:
        """How often each operation was called, of one service or of all."""
        return Counter(operation for called, operation, _ in self.calls if service in ("", called))

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """What was asked with one operation, in order."""
        return [asked for _, called, asked in self.calls if called == operation]

    # -- what ECS, EC2, S3 and EventBridge say -------------------------------------------------------------------------

    def _RunTask(self, asked: dict[str, Any]) -> dict[str, Any]:
        if message := self.denied.get(asked["taskDefinition"]):
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": message}}, "RunTask")
        environment = {one["name"]: one["value"] for one in asked["overrides"]["containerOverrides"][0]["environment"]}
        named = [environment[name] for name in ("JOB_ID", "ATTEMPT", "RANK") if name in environment]
        task_id = "-".join(named) or environment["CHECK_ID"].replace("/", "-")  # as `rank_event` and `check_event` do
        known = self.tasks.setdefault(asked["startedBy"], [])
        known += [] if task_id in known else [task_id]
        return {"tasks": [{"taskArn": task_arn(task_id)}], "failures": []}

    def _ListTasks(self, asked: dict[str, Any]) -> dict[str, Any]:
        check_filters(asked)
        running = self.tasks.get(asked.get("startedBy", ""), []) if asked["desiredStatus"] == "RUNNING" else []
        return {"taskArns": [task_arn(task_id) for task_id in running]}

    def _DescribeTasks(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"tasks": [], "failures": []}

    def _ListContainerInstances(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"containerInstanceArns": []}

    def _DescribeContainerInstances(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = [
            {
                "containerInstanceArn": f"{ARN}:container-instance/{one}",
                "ec2InstanceId": one.removeprefix("ci-"),
                "status": "ACTIVE",
                "agentConnected": True,
                "version": 3,
            }
            for one in asked["containerInstances"]
        ]
        return {"containerInstances": found, "failures": []}

    def _DescribeInstances(self, asked: dict[str, Any]) -> dict[str, Any]:
        named = [value for one in asked.get("Filters", []) for value in one["Values"]]
        shown = {"State": {"Name": "running"}, "Tags": [{"Key": "gpu-recovery:managed", "Value": "true"}]}
        found = [
            {"InstanceId": one, "PrivateIpAddress": "10.0.0.7", **shown} for one in asked.get("InstanceIds", named)
        ]
        return {"Reservations": [{"Instances": found}]}

    def _DescribeInstanceStatus(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"InstanceStatuses": []}

    def _UpdateContainerInstancesState(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"containerInstances": [], "failures": []}

    def _PutEvents(self, asked: dict[str, Any]) -> dict[str, Any]:
        _raise_refusal(payload_limits.entries_refusal(asked["Entries"]), "PutEvents")
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}

    def _Invoke(self, asked: dict[str, Any]) -> dict[str, Any]:
        _raise_refusal(payload_limits.invocation_refusal(asked.get("InvocationType", ""), asked["Payload"]), "Invoke")
        return {"StatusCode": 202}

    def _GetObject(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["Key"] not in self.documents:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "no such key"}}, "GetObject")
        return {"Body": Read(json.dumps(self.documents[asked["Key"]]).encode())}

    def _DescribeTaskDefinition(self, asked: dict[str, Any]) -> dict[str, Any]:
        main = {"name": "main", "essential": True, "logConfiguration": LOGGING}
        containers = [main, {"name": "log", "essential": False}]
        return {"taskDefinition": {"networkMode": "host", "containerDefinitions": containers}}

    def _GetQueueAttributes(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Attributes": dict.fromkeys(asked["AttributeNames"], "0")}

    def _GetSecretValue(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"SecretString": f"secret of {asked['SecretId']}"}


def _raise_refusal(refusal: tuple[str, str] | None, operation: str) -> None:
    """Raise the error of botocore for a refusal: its code and its message."""
    if refusal is not None:
        raise ClientError({"Error": {"Code": refusal[0], "Message": refusal[1]}}, operation)


@dataclass
class Read:
    """The body of an object."""

    text: bytes

    def read(self) -> bytes:
        """All of it."""
        return self.text
