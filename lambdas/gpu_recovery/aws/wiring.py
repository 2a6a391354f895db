"""Objects that the Lambda functions share, created once per cold start: settings, clients, stores, `Recovery`."""

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
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.clients import ONE_SHORT_TRY, client
from gpu_recovery.aws.command_executor import CommandExecutor
from gpu_recovery.aws.console_snapshots import S3ConsoleSnapshots
from gpu_recovery.aws.decision_log import PowertoolsDecisionLog
from gpu_recovery.aws.event_history_store import DynamoEventHistory
from gpu_recovery.aws.fields import fields_of
from gpu_recovery.aws.gpu_history_store import DynamoGpuHistory
from gpu_recovery.aws.parallel_calls import in_parallel
from gpu_recovery.aws.ray_client import RayQueue
from gpu_recovery.aws.secret_values import signing_key
from gpu_recovery.aws.settings import LambdaSettings, LambdaSettingsInvalid
from gpu_recovery.aws.shown_history import ShownHistory
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.commands import Channel
from gpu_recovery.core.event_origin import SOURCES
from gpu_recovery.execution.context import COMMAND_S
from gpu_recovery.execution.hand_over import CLUSTER_COMMANDS, HandOver
from gpu_recovery.execution.ray import QueuedRayCommands
from gpu_recovery.node_api.gauge_recorder import GaugeRecorder
from gpu_recovery.ports.back_off import BackOff
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.ports.event_history import HistoryReader
from gpu_recovery.recovery import Recovery

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
def tokens() -> DynamoTokenStore:
    """Return the store of the node tokens, for the functions that issue or check them."""
    return DynamoTokenStore(dynamodb(), settings().instance_table)


def node_token_key() -> bytes:
    """Return the issuer key of the node tokens, for the functions that issue or check them."""
    return signing_key(settings().node_token_key_secret, TokenKind.NODE.key_label)


@cache
def ray_queue() -> RayQueue:
    """Return the queue of the function that reaches the Ray cluster."""
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
        ray=QueuedRayCommands(ray_queue()) if environment.ray_queue_url else None,
    )


@cache
def snapshot_writer() -> SnapshotWriter:
    """Return the writer of the console snapshots. It remembers between invocations what it wrote last."""
    loop = recovery()
    return SnapshotWriter(S3ConsoleSnapshots(settings().verdict_bucket), loop.clock, loop.decision_log.snapshot_failed)


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


def api_recovery(*also_left: type, **changes: Any) -> Recovery:
    """Return the loop of a function that answers the internet. It leaves commands for the cluster to another function.

    Args:
        also_left: further types of commands that the function leaves, for example because it may read no logs.
        changes: fields of the loop that differ for this function.

    Raises:
        LambdaSettingsInvalid: the environment does not name the command executor.
    """
    function = settings().executor_function
    if not function:
        raise LambdaSettingsInvalid("environment variable COMMAND_EXECUTOR_FUNCTION is not set")
    hand_over = HandOver((*CLUSTER_COMMANDS, *also_left), CommandExecutor(function).wake)
    return replace(recovery(), hand_over=hand_over, **changes)


@cache
def event_history() -> DynamoEventHistory:
    """Return the event history, for the function that writes it.

    Raises:
        LambdaSettingsInvalid: the environment does not name its table.
    """
    return DynamoEventHistory(dynamodb(), _event_history_table())


def shown_history() -> HistoryReader:
    """Return the reader of the event history for the function that shows it.

    Raises:
        LambdaSettingsInvalid: the environment does not name its table.
    """
    return ShownHistory(DynamoEventHistory(client("dynamodb", ONE_SHORT_TRY), _event_history_table()))


def _event_history_table() -> str:
    table = settings().event_history_table
    if not table:
        raise LambdaSettingsInvalid("environment variable EVENT_HISTORY_TABLE_NAME is not set")
    return table


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


def gauge_recorder() -> GaugeRecorder | None:
    """Return the recorder of the GPUs' gauges; None if the deployment keeps no GPU history."""
    environment = settings()
    if not environment.gpu_history or not environment.event_history_table:
        return None
    failed = PowertoolsDecisionLog(logger, metrics).gpu_sample_failed
    return GaugeRecorder(DynamoGpuHistory(environment.event_history_table), failed)
