"""The client of gpu-recovery: `RecoveryClient` speaks HTTP, `cli` is the command line, `training` is for ranks.

Importing the package costs nothing beyond the standard library: training code imports it in containers without httpx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    AnswerUnreadable,
    ClientError,
    ListIncomplete,
    RequestRefused,
    ServiceUnreachable,
    SettingsMissing,
)

if TYPE_CHECKING:
    from .api import RecoveryClient

__all__ = [
    "AnswerUnreadable", "ClientError", "ListIncomplete", "RecoveryClient", "RequestRefused", "ServiceUnreachable",
    "SettingsMissing",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`RecoveryClient`, and with it httpx, once somebody asks for it (PEP 562)."""
    if name != "RecoveryClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .api import RecoveryClient  # noqa: PLC0415

    return RecoveryClient
