"""Our boto3 clients: how long they wait, how often they ask, and how they say that AWS was asked too often.

`standard` retries, not `adaptive`: the latter holds calls back by a rate that it learns within one process, and a
function's process is too short-lived to learn anything but how to wait. What AWS still refuses after the last try is
told apart: `TryAgainSoon` if every try was definitely refused, botocore's own error if one of them may have been heard.
"""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from gpu_recovery.ports.errors import TryAgainSoon

STANDARD_RETRIES = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=2, read_timeout=6)
"""Five tries that nobody answers, and the waits between them, end before the shortest of our events' functions does."""
NO_RETRIES = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
"""For the one call that must not be made twice behind our back: RebootInstances has no client token."""

THROTTLES = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "Throttled",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "EC2ThrottledException",
        "ProvisionedThroughputExceededException",
        "SlowDown",
        "KMSThrottling",
        "KmsThrottled",
    }
)
"""Errors by which a service refuses a request unread."""
_UNANSWERED = "gpu_recovery_unanswered"


def client(service: str, config: Config = STANDARD_RETRIES) -> Any:
    """A boto3 client of `service` that raises TryAgainSoon."""
    make: Any = boto3.client  # its stubs want a literal
    made = make(service, config=config)
    made.meta.events.register("response-received", _remember_no_answer, unique_id="gpu-recovery-silence")
    made.meta.events.register("after-call", _raise_asked_too_often, unique_id="gpu-recovery-throttle")
    return made


def _remember_no_answer(context: dict[str, Any], parsed_response: Any, exception: Any, **_: Any) -> None:
    """One try was not answered, or by a server in trouble: it may have taken effect, whatever the next ones say."""
    if exception is not None or (_status(parsed_response) >= 500 and _code(parsed_response) not in THROTTLES):
        context[_UNANSWERED] = True


def _raise_asked_too_often(parsed: Any, context: dict[str, Any], model: Any, **_: Any) -> None:
    if _code(parsed) in THROTTLES and _status(parsed) >= 300 and not context.get(_UNANSWERED):
        raise TryAgainSoon(f"{model.service_model.service_name} {model.name}: {_code(parsed)}")


def _status(parsed: Any) -> int:
    return int(parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(parsed: Any) -> str:
    return str(parsed.get("Error", {}).get("Code", ""))
