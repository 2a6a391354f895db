"""What only the API asks AWS for: the operator's token and the task definition of a submitted job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.clients import client

TOKEN_KEPT_S = 300
"""How long a token read from Secrets Manager is believed: a rotation takes effect within this time."""


def operator_token(secret: str) -> str:
    """The operator's token, from Secrets Manager; never logged."""
    return _token(secret, int(time.monotonic() // TOKEN_KEPT_S))


@cache
def _secrets() -> Any:
    return client("secretsmanager")


@lru_cache(maxsize=1)
def _token(secret: str, period: int) -> str:
    return str(_secrets().get_secret_value(SecretId=secret)["SecretString"])


@cache
def _ecs() -> Any:
    return client("ecs")


def task_definition(name: str) -> Mapping[str, Any] | None:
    """The ECS task definition `name` (family or family:revision); None if there is no active one."""
    try:
        definition: Mapping[str, Any] = _ecs().describe_task_definition(taskDefinition=name)["taskDefinition"]
    except ClientError as error:
        if error.response["Error"]["Code"] in ("ClientException", "InvalidParameterException"):
            return None  # no such family, or a revision that no number of ECS can be
        raise
    return definition
