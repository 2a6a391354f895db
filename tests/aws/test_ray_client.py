"""The way to the function that reaches the Ray cluster: a queue in which the same call counts once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from gpu_recovery.aws.ray_client import GROUP, RayQueue
from moto import mock_aws

KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}


@pytest.fixture
def sqs() -> Iterator[Any]:
    """A client that reaches nobody but moto."""
    with mock_aws():
        yield boto3.client("sqs", **KEYS)


def test_a_call_that_is_made_twice_is_delivered_once(sqs: Any) -> None:
    """Another try of the same order is another call; all are of one group, so they are delivered one after another."""
    url = sqs.create_queue(QueueName="ray.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    queue = RayQueue(sqs, url)
    for job_id, key in [("ppo-1", "ppo-1/3/1/1"), ("ppo-1", "ppo-1/3/1/1"), ("ppo-1", "ppo-1/3/1/2"), ("", "ppo-2/1")]:
        queue.wake(job_id, key)
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["MessageGroupId"])
    bodies = [json.loads(message["Body"]) for message in answer["Messages"]]
    assert [(body["job_id"], body["key"]) for body in bodies] == [
        ("ppo-1", "ppo-1/3/1/1"),
        ("ppo-1", "ppo-1/3/1/2"),
        ("", "ppo-2/1"),
    ]
    assert {message["Attributes"]["MessageGroupId"] for message in answer["Messages"]} == {GROUP}
