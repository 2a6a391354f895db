"""Operator token and signing keys, read from Secrets Manager."""

from __future__ import annotations

import time
from functools import cache, lru_cache
from typing import Any

from gpu_recovery.auth.key_derivation import derive_key
from gpu_recovery.aws.clients import client

TOKEN_CACHE_S = 300
"""Seconds that the operator token is cached. A rotation takes effect within this time."""


def operator_token(secret: str) -> str:
    """Return the operator token from Secrets Manager. It must never be logged.

    Args:
        secret: name or ARN of the secret.
    """
    return _token(secret, int(time.monotonic() // TOKEN_CACHE_S))


@cache
def signing_key(secret: str, label: str) -> bytes:
    """Return the key of one purpose, derived from a secret in Secrets Manager. It must never be logged.

    The secret is read once per process: reports of agents are received even if Secrets Manager fails later.

    Args:
        secret: name or ARN of the secret.
        label: the purpose of the key.
    """
    return derive_key(_kept(secret), label)


@cache
def _secrets() -> Any:
    return client("secretsmanager")


@lru_cache(maxsize=1)
def _token(secret: str, period: int) -> str:
    return _read(secret)


@cache
def _kept(secret: str) -> str:
    return _read(secret)


def _read(secret: str) -> str:
    return str(_secrets().get_secret_value(SecretId=secret)["SecretString"])
