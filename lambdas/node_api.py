"""HTTP: what the agents on the GPU instances report. Each speaks for the instance that its token was issued for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.aws.token_store import NodeTokensWithInstance
from gpu_recovery.aws.wiring import logger, metrics, recovery, settings, tokens
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.node_api.router import NodeApi
from gpu_recovery.node_api.time_budget import TimeBudget

time_budget = TimeBudget(seconds=3.0)
"""The agent waits five. The end of a whole gang that a boot confirms may ask for hundreds of calls."""


@cache
def api() -> NodeApi:
    """The API, with what it remembers of tokens, for as long as the function lives."""
    hearing = HeartbeatReceiver(replace(recovery(), has_time=time_budget.has_time_left))
    kept = NodeTokensWithInstance(tokens(), hearing.lookup.needs_claims_of, hearing.lookup.use_record)
    door = TokenAuthenticator(kept, hearing.recovery.clock, TokenKind.NODE)
    return NodeApi(hearing, door, settings().node_roles, _note)


def _note(error: BaseException) -> None:
    logger.warning("busy", exc_info=error)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP request, payload format 2.0."""
    time_budget.start()
    return api().answer(event)
