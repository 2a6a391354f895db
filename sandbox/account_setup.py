"""Setup of the sandbox's AWS account around the deployment: task definition, operator token, mailbox, node tokens.

On AWS the users and operators of a cluster take these steps themselves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.errors import ClientError, RequestRefused, ServiceUnreachable

from sandbox import processes
from sandbox.ministack import command as ministack
from sandbox.processes import SandboxError

TRAINER_COMMAND = ["python", "-m", "sandbox.trainers.plain_python"]


def register_trainer(ecs: Any, family: str, log_group: str) -> None:
    """Register the task definition of the training jobs, which the users of a real cluster register themselves."""
    ecs.register_task_definition(
        family=family,
        networkMode="host",
        requiresCompatibilities=["EC2"],
        containerDefinitions=[
            {
                "name": "trainer",
                "image": "trainer:latest",
                "memory": 1024,
                "essential": True,
                "command": TRAINER_COMMAND,
                "resourceRequirements": [{"type": "GPU", "value": "8"}],
                "logConfiguration": {
                    "logDriver": "awslogs",
                    "options": {
                        "awslogs-group": log_group,
                        "awslogs-region": ministack.REGION,
                        "awslogs-stream-prefix": "train",
                    },
                },
            }
        ],
    )


def set_operator_token(secretsmanager: Any, secret_arn: str, token: str) -> None:
    """Replace the operator token of the deployment, which no process outside AWS knows, by `token`."""
    secretsmanager.put_secret_value(SecretId=secret_arn, SecretString=token)


def open_mailbox(sqs: Any, sns: Any, topic_arn: str) -> str:
    """Create a queue that receives the operators' e-mails, because MiniStack discards e-mail. Returns its URL."""
    url: str = sqs.create_queue(QueueName="sandbox-mailbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    sns.subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=arn)
    return url


def wait_for_functions(awslambda: Any) -> None:
    """Wait until every Lambda function is active.

    Raises:
        SandboxError: A function is not active after `processes.READY_WITHIN_S` seconds.
    """
    deadline = time.monotonic() + processes.READY_WITHIN_S
    while waiting := [f["FunctionName"] for f in _functions(awslambda) if f["State"] != "Active"]:
        if time.monotonic() > deadline:
            raise SandboxError(f"functions not active after {processes.READY_WITHIN_S:g} s: {', '.join(waiting)}")
        time.sleep(processes.POLL_S)


def _functions(awslambda: Any) -> Iterator[dict[str, Any]]:
    for page in awslambda.get_paginator("list_functions").paginate():
        yield from page["Functions"]


def issue_node_tokens(api_url: str, operator_token: str, instance_ids: Sequence[str]) -> dict[str, Any]:
    """Issue a token for the node agent of each instance, as an operator does, once the API answers.

    A token is asked for once only: a repetition after a lost response would issue a second token.

    Returns:
        `node_tokens`, the tokens by instance id, and `node_token`, that of the first instance.

    Raises:
        SandboxError: The API refused a token, or did not answer within `processes.READY_WITHIN_S` seconds.
    """
    try:
        with RecoveryClient(api_url, operator_token, timeout_s=processes.READY_WITHIN_S) as api:
            _wait_for_answer(api)
            issued = {name: api.issue_token(name, note="sandbox")["token"] for name in instance_ids}
    except ClientError as refusal:
        raise SandboxError(f"no token for an instance: {refusal}") from refusal
    return {"node_token": next(iter(issued.values())), "node_tokens": issued}


def _wait_for_answer(api: RecoveryClient) -> None:
    """Repeat a read until the API answers. On a busy machine its first responses are late, or are server errors."""
    deadline = time.monotonic() + processes.READY_WITHIN_S
    while True:
        try:
            list(api.instances())
            return
        except (RequestRefused, ServiceUnreachable) as error:
            refused = isinstance(error, RequestRefused) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            if refused or time.monotonic() > deadline:
                raise
        time.sleep(processes.POLL_S)
