"""The client of gpu-recovery: `RecoveryClient` speaks HTTP, `cli` is the command line."""

from .api import RecoveryClient
from .errors import AnswerUnreadable, ClientError, RequestRefused, ServiceUnreachable, SettingsMissing

__all__ = [
    "AnswerUnreadable", "ClientError", "RecoveryClient", "RequestRefused", "ServiceUnreachable", "SettingsMissing",
]  # fmt: skip
