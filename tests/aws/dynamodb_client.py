"""Clients of the DynamoDB double. The calls pass botocore's validation and handlers, but no HTTP."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import boto3

from simulator.dynamodb.botocore_handler import answer
from simulator.dynamodb.double import DynamoDb
from tests.aws.environment import REGION

_REAL_CLIENT = boto3.client
_called: list[DynamoDb] = []
"""The double that the present call is for."""


class DoubleClient:
    """The methods of a boto3 client, carried out by one double. boto3's clients are slow to make, so all share one."""

    def __init__(self, service: DynamoDb) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(_shared(), name)

        def call(*arguments: Any, **parameters: Any) -> Any:
            _called[:] = [self._service]
            return method(*arguments, **parameters)

        setattr(self, name, call)
        return call


@cache
def _shared() -> Any:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    client = _REAL_CLIENT("dynamodb", region_name=REGION, **keys)
    client.meta.events.register_first("before-parameter-build", _keep_parameters)
    client.meta.events.register("before-call", _answer)
    return client


def _keep_parameters(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context["asked"] = params


def _answer(model: Any, context: dict[str, Any], **_: Any) -> Any:
    return answer(_called[0], model, context["asked"])
