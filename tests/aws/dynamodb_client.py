"""A boto3 client of the DynamoDB double. Clients are slow to make, so all tests of a process share one."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3

from simulator.dynamodb.botocore_handler import answer
from simulator.dynamodb.service import DynamoDb
from tests.aws.environment import REGION

_current: list[DynamoDb] = []


def dynamodb_client(service: DynamoDb) -> Any:
    """Return the shared client. From now on it reaches `service`."""
    _current[:] = [service]
    return _shared()


@cache
def _shared() -> Any:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    client = boto3.client("dynamodb", region_name=REGION, **keys)
    client.meta.events.register_first("before-parameter-build", _keep)
    client.meta.events.register("before-call", _answer)
    return client


def _keep(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context["asked"] = params


def _answer(model: Any, context: dict[str, Any], **_: Any) -> Any:
    return answer(_current[0], model, context["asked"])
