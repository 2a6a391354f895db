"""The node API on DynamoDB and AWS, created once per cold start."""

from __future__ import annotations

from functools import cache

from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.aws.api_wiring import api_recovery, node_token_key, tokens
from gpu_recovery.aws.decision_log import PowertoolsDecisionLog
from gpu_recovery.aws.gpu_history_store import DynamoGpuHistory
from gpu_recovery.aws.token_store import NodeTokensWithInstance
from gpu_recovery.aws.wiring import logger, metrics, settings
from gpu_recovery.core.commands import RecordAttempt
from gpu_recovery.node_api.gauge_recorder import GaugeRecorder
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.node_api.router import NodeApi
from gpu_recovery.node_api.time_budget import TimeBudget

time_budget = TimeBudget(seconds=3.0)
"""Time budget of one call. The agent waits 5 s, and a boot that ends a whole gang can cause hundreds of AWS calls."""


@cache
def api() -> NodeApi:
    """Return the API, which lives as long as the function's process, with its caches of tokens and ranks."""
    recovery = api_recovery(RecordAttempt, has_time=time_budget.has_time_left)
    receiver = HeartbeatReceiver(recovery, logger.warning, gauge_recorder())
    token_store = NodeTokensWithInstance(tokens(), receiver.lookup.needs_claims_of, receiver.lookup.use_record)
    authenticator = TokenAuthenticator(token_store, recovery.clock, TokenKind.NODE, node_token_key)
    return NodeApi(receiver, authenticator, settings().node_roles, _log_busy, settings().agent_role)


def _log_busy(error: BaseException) -> None:
    logger.warning("busy", exc_info=error)


def gauge_recorder() -> GaugeRecorder | None:
    """Return the recorder of the GPUs' gauges; None if the deployment keeps no GPU history."""
    environment = settings()
    if not environment.gpu_history or not environment.event_history_table:
        return None
    failed = PowertoolsDecisionLog(logger, metrics).gpu_sample_failed
    return GaugeRecorder(DynamoGpuHistory(environment.event_history_table), failed)
