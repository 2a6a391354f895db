"""The client of gpu-recovery: `RecoveryClient` speaks HTTP, `cli` is the command line."""

from .api import RecoveryClient
from .errors import (
    AnswerUnreadable,
    ClientError,
    ListIncomplete,
    RequestRefused,
    ServiceUnreachable,
    SettingsMissing,
)

__all__ = [
    "AnswerUnreadable", "ClientError", "ListIncomplete", "RecoveryClient", "RequestRefused", "ServiceUnreachable",
    "SettingsMissing",
]  # fmt: skip
