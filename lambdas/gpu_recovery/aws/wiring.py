"""Objects that all Lambda functions share, created once per cold start: settings, clients, stores, `Recovery`.

What only some functions need is in modules of its own, so that the others do not import it: `api_wiring`,
`event_history_wiring`, `snapshot_wiring`, `job_api_wiring`, `node_api_wiring`.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from random import random
from time import sleep
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.decision_log import PowertoolsDecisionLog
from gpu_recovery.aws.fields import fields_of
from gpu_recovery.aws.parallel_calls import in_parallel
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.commands import Channel
from gpu_recovery.core.event_origin import SOURCES
from gpu_recovery.execution.context import COMMAND_S
from gpu_recovery.ports.back_off import BackOff
from gpu_recovery.recovery import Recovery

if TYPE_CHECKING:
    from gpu_recovery.aws.ray_client import RayQueue
    from gpu_recovery.execution.ray import QueuedRayCommands

# Most invocations change no status and emit no metric. Powertools would warn at each of them.
warnings.filterwarnings("ignore", message="No application metrics to publish")
logger = Logger()
# Powertools sets the level of Lambda's own filter (AWS_LAMBDA_LOG_LEVEL), which must stay at INFO or below, because it
# would also drop the lines with metrics. The setting may leave out more.
logging.getLogger(logger.name).setLevel(os.environ.get("POWERTOOLS_LOG_LEVEL", "INFO"))
metrics = Metrics()


def utc_now() -> datetime:
    """Return the present time in UTC. The functions take the time of events and decisions only from here."""
    return datetime.now(UTC)


@cache
def settings() -> LambdaSettings:
    """Return the settings of the function's environment, read once."""
    return LambdaSettings.from_environment()


@cache
def dynamodb() -> Any:
    """Return the DynamoDB client of all stores."""
    return client("dynamodb")


@cache
def ray_queue() -> RayQueue:
    """Return the queue of the function that reaches the Ray cluster."""
    from gpu_recovery.aws.ray_client import RayQueue  # noqa: PLC0415 - most deployments have no Ray cluster

    return RayQueue(client("sqs"), settings().ray_queue_url)


@cache
def recovery() -> Recovery:
    """Return the loop that handles events, on DynamoDB and AWS."""
    environment = settings()
    store = DynamoStore(dynamodb(), environment.job_table, environment.instance_table)
    return Recovery(
        store=store,
        actions=AwsActions(environment, utc_now),
        policy=environment.policy,
        clock=utc_now,
        decision_log=PowertoolsDecisionLog(logger, metrics),
        adoption=environment.adoption,
        for_each=in_parallel,
        wait=sleep,
        channels=(Channel.MAIL, Channel.CHAT) if environment.chat_topic_arn else (Channel.MAIL,),
        ray=_ray_commands() if environment.ray_queue_url else None,
    )


def _ray_commands() -> QueuedRayCommands:
    from gpu_recovery.execution.ray import QueuedRayCommands  # noqa: PLC0415 - most deployments have no Ray cluster

    return QueuedRayCommands(ray_queue())


def timed_recovery(context: Any) -> Recovery:
    """Return the loop for one invocation: commands that would begin shortly before its timeout stay due at once.

    A throttled command is tried again while there is time.

    Args:
        context: the Lambda context of the invocation.
    """
    return replace(
        recovery(),
        has_time=lambda: context.get_remaining_time_in_millis() > COMMAND_S * 1_000,
        back_off=BackOff(sleep, random),
    )


def is_refused(event: Mapping[str, Any], sources: frozenset[str] = SOURCES) -> bool:
    """Return whether an EventBridge event is of another origin than the deployment's rules, and log the reason.

    The functions do nothing with such an event. It costs no read, and it is not raised, because no retry changes it.

    Args:
        event: the event.
        sources: sources of the rules that invoke the function.

    Raises:
        EventUnreadable: the event names no source, account or region, as no event of EventBridge does.
    """
    fields = fields_of(event).required("source").required("account").required("region")
    origin = {name: fields.values[name] for name in ("source", "account", "region")}
    reason = settings().event_origin.refusal_of(**origin, sources=sources)
    if reason:
        logger.warning("event_refused", extra={"reason": reason, "refused_event": event.get("id")})
    return bool(reason)
