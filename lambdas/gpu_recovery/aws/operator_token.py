"""Operator token, read from Secrets Manager."""

from __future__ import annotations

import time
from functools import cache, lru_cache
from typing import Any

from gpu_recovery.aws.clients import client

TOKEN_CACHE_S = 300
"""Seconds that a token from Secrets Manager is cached. A rotation takes effect within this time."""


def operator_token(secret: str) -> str:
    """Return the operator token from Secrets Manager. It must never be logged.

    Args:
        secret: name or ARN of the secret.
    """
    return _token(secret, int(time.monotonic() // TOKEN_CACHE_S))


@cache
def _secrets() -> Any:
    return client("secretsmanager")


@lru_cache(maxsize=1)
def _token(secret: str, period: int) -> str:
    return str(_secrets().get_secret_value(SecretId=secret)["SecretString"])
