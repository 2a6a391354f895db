"""Puts the loop together for a function, once per cold start."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.decision_log import PowertoolsDecisionLog
from gpu_recovery.aws.ecs import in_parallel
from gpu_recovery.aws.ray_client import RayQueue
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.commands import Channel
from gpu_recovery.execution.ray import QueuedRayCommands
from gpu_recovery.recovery import Recovery

# Most invocations change no status and so count nothing; that is no reason for a warning each time.
warnings.filterwarnings("ignore", message="No application metrics to publish")
logger = Logger()
metrics = Metrics()


def utc_now() -> datetime:
    """The function's clock: the one place where time comes in."""
    return datetime.now(UTC)


@cache
def settings() -> LambdaSettings:
    """The function's environment, read once."""
    return LambdaSettings.from_environment()


@cache
def dynamodb() -> Any:
    """The client of every store."""
    return client("dynamodb")


@cache
def tokens() -> DynamoTokenStore:
    """The tokens of nodes, for the functions that issue or ask for them."""
    return DynamoTokenStore(dynamodb(), settings().instance_table)


@cache
def ray_queue() -> RayQueue:
    """The way to the function that reaches the Ray cluster."""
    return RayQueue(client("sqs"), settings().ray_queue_url)


@cache
def recovery() -> Recovery:
    """The loop on DynamoDB and AWS."""
    told = settings()
    store = DynamoStore(dynamodb(), told.job_table, told.instance_table)
    return Recovery(
        store=store,
        actions=AwsActions(told, utc_now),
        policy=told.policy,
        clock=utc_now,
        decision_log=PowertoolsDecisionLog(logger, metrics),
        adoption=told.adoption,
        for_each=in_parallel,
        channels=(Channel.MAIL, Channel.CHAT) if told.chat_topic_arn else (Channel.MAIL,),
        ray=QueuedRayCommands(ray_queue()) if told.ray_queue_url else None,
    )
