"""Connects to the deployment that the settings name."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.http_client import TIMEOUT_S
from gpu_recovery_client.iam import IamAuth
from gpu_recovery_client.settings import ClientSettings


def client_of(
    settings: ClientSettings,
    transport: httpx.BaseTransport | None,
    *,
    pause: Callable[[float], None],
    timeout_s: float = TIMEOUT_S,
) -> RecoveryClient:
    """Return a client of the deployment that authenticates as the settings say."""
    auth = IamAuth(settings.api_url) if settings.signs else None
    return RecoveryClient(settings.api_url, settings.token, transport, auth=auth, timeout_s=timeout_s, pause=pause)
