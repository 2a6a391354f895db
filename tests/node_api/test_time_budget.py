"""The node API answers before its agent has gone: what it has not begun by then is the reconciler's."""

from __future__ import annotations

import node_api
import pytest
from gpu_recovery.node_api.time_budget import TimeBudget
from gpu_recovery_agent.http_client import TIMEOUT_S

from tests.node_api.test_router import BEAT, REPORTS, Agent, agent

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
__all__ = ["agent"]


def test_patience_lasts_from_when_somebody_asks() -> None:
    """And anew for the next who does."""
    seconds = iter([10.0, 12.9, 13.0, 20.0, 22.9])
    patience = TimeBudget(3.0, lambda: next(seconds))
    patience.start()
    assert [patience.has_time_left(), patience.has_time_left()] == [True, False]
    patience.start()
    assert patience.has_time_left()


def test_the_node_api_begins_nothing_more_before_its_agent_gives_up(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request has the whole of it, in a function that lives for hours."""
    assert node_api.time_budget.seconds < TIMEOUT_S
    begun: list[float] = []
    monkeypatch.setattr(TimeBudget, "start", lambda self: begun.append(self.seconds))
    assert [agent.call(REPORTS, BEAT).status for _ in range(2)] == [200, 200]
    assert begun == [node_api.time_budget.seconds] * 2
    assert node_api.api()._recovery.has_time == node_api.time_budget.has_time_left
