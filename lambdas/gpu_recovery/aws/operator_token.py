"""The operator's token, read from Secrets Manager."""

from __future__ import annotations

import time
from functools import cache, lru_cache
from typing import Any

from gpu_recovery.aws.clients import client

TOKEN_CACHE_S = 300
"""How long a token read from Secrets Manager is believed: a rotation takes effect within this time."""


def operator_token(secret: str) -> str:
    """The operator's token, from Secrets Manager; never logged."""
    return _token(secret, int(time.monotonic() // TOKEN_CACHE_S))


@cache
def _secrets() -> Any:
    return client("secretsmanager")


@lru_cache(maxsize=1)
def _token(secret: str, period: int) -> str:
    return str(_secrets().get_secret_value(SecretId=secret)["SecretString"])
