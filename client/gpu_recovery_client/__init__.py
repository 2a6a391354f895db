"""The client of gpu-recovery: HTTP client, command line and library for training programs.

`RecoveryClient` calls the HTTP API, `cli` is the command line, `training` is for training programs. The HTTP library
is imported only with `RecoveryClient`, because `training` must work without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_recovery_client.errors import (
    AnswerUnreadable,
    ClientError,
    ListIncomplete,
    RequestRefused,
    ServiceUnreachable,
    SettingsMissing,
)

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

__all__ = [
    "AnswerUnreadable",
    "ClientError",
    "ListIncomplete",
    "RecoveryClient",
    "RequestRefused",
    "ServiceUnreachable",
    "SettingsMissing",
]


def __getattr__(name: str) -> Any:
    if name == "RecoveryClient":
        from gpu_recovery_client.api import RecoveryClient  # noqa: PLC0415

        return RecoveryClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
