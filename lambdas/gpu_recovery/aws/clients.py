"""Creation of boto3 clients: timeouts, retries, and the error that reports throttling by AWS.

The retry mode is `standard`. The mode `adaptive` delays calls by a rate that it learns within one process, and the
process of a Lambda function is too short-lived to learn a useful rate.

If AWS still throttles the last try, the client raises `TryAgainSoon`, but only if AWS definitely refused every try. If
a try may have taken effect, botocore's own error is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, IncompleteReadError

from gpu_recovery.aws.parallel_calls import PARALLEL
from gpu_recovery.aws.sdk_session import ensure_default_session
from gpu_recovery.ports.errors import StorageFailed, TryAgainSoon, Unavailable

STANDARD_RETRIES = Config(
    retries={"mode": "standard", "total_max_attempts": 5},
    connect_timeout=2,
    read_timeout=6,
    max_pool_connections=PARALLEL,
)
"""Retries and timeouts (seconds) of all clients, and a connection for each parallel call.

Five tries without an answer, and the waits between them, end before the shortest timeout of a function that handles
events.
"""
ONE_SHORT_TRY = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=0.3, read_timeout=1.2)
"""A single try, with timeouts in seconds, for what the console shows and no decision reads: the next try is near.

A caller that waits for more useful work is not kept waiting, and a reader gets the other parts of an answer.
"""
NO_RETRIES = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
"""A single try, with timeouts in seconds, for RebootInstances.

The call has no client token. So a retry inside botocore could reboot an instance twice without a trace in the record.
"""

_creation = Lock()
"""Held while a client is created: the default session of boto3 is not safe for threads."""
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
"""Error codes of throttling. A service that answers with them has not processed the request."""
_UNANSWERED = "gpu_recovery_unanswered"
NO_ANSWER_CODES = frozenset(
    {
        "Unavailable",
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "ResourceContention",
        "ScalingActivityInProgress",
        "RequestExpired",
    }
)
"""Error codes that are no refusal, as every answer with HTTP 5xx.

They are no evidence about the object of the call, and they leave open whether AWS carried out the call.
"""
SERVER_ERROR = 500
NO_CONNECTION = (HTTPClientError, ConnectionError, IncompleteReadError)
"""Errors of botocore for a call without a whole answer: no connection, a timeout, or a connection that broke."""


def client(service: str, config: Config = STANDARD_RETRIES) -> Any:
    """Create a boto3 client of `service`.

    Args:
        service: boto3's name of the service.
        config: retries and timeouts.

    Returns:
        The client. Its calls raise TryAgainSoon if AWS throttled every try.
    """
    make: Any = boto3.client  # the type stubs accept only literal service names
    with _creation:
        ensure_default_session()
        aws_client = make(service, config=config)
    aws_client.meta.events.register("response-received", _mark_unanswered, unique_id="gpu-recovery-silence")
    aws_client.meta.events.register("after-call", _raise_if_throttled, unique_id="gpu-recovery-throttle")
    return aws_client


@contextmanager
def as_unavailable(what: str) -> Iterator[None]:
    """Raise Unavailable for a call without an answer, and StorageFailed for a refused call. Their cause is the failure.

    Args:
        what: the storage, for the sentence of the error.
    """
    try:
        yield
    except (TryAgainSoon, *NO_CONNECTION) as error:
        raise Unavailable(f"{what} did not answer") from error
    except ClientError as error:
        if is_no_answer(error):
            raise Unavailable(f"{what} did not answer") from error
        raise StorageFailed(f"{what} refused the call: {error}") from error
    except BotoCoreError as error:  # the request is malformed, or the function has no credentials
        raise StorageFailed(f"{what} could not be called: {error}") from error


def is_no_answer(error: ClientError) -> bool:
    """Return whether the error leaves open whether AWS carried out the call, or would carry it out a moment later."""
    code = _code(error.response)
    return code in NO_ANSWER_CODES or code in THROTTLES or _status(error.response) >= SERVER_ERROR


def _mark_unanswered(context: dict[str, Any], parsed_response: Any, exception: Any, **_: Any) -> None:
    """Mark the call if a try had no answer or a server error: that try may have taken effect despite later answers."""
    if exception is not None or (_status(parsed_response) >= 500 and _code(parsed_response) not in THROTTLES):
        context[_UNANSWERED] = True


def _raise_if_throttled(parsed: Any, context: dict[str, Any], model: Any, **_: Any) -> None:
    """Raise TryAgainSoon if the last answer is a throttling error and no earlier try may have taken effect."""
    if _code(parsed) in THROTTLES and _status(parsed) >= 300 and not context.get(_UNANSWERED):
        raise TryAgainSoon(f"{model.service_model.service_name} {model.name}: {_code(parsed)}")


def _status(parsed: Any) -> int:
    return int(parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(parsed: Any) -> str:
    return str(parsed.get("Error", {}).get("Code", ""))
