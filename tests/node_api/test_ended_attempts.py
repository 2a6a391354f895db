"""Reports of attempts that are over, before several warm functions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.heartbeat import running_log_id

from tests.aws.records import JOB, A, claim, later
from tests.node_api.test_report_to_tables import RANK, agent
from tests.node_api.test_router import BEAT, OLDER, REPORTS, Agent
from tests.node_api.warm_functions import WarmFunctions

__all__ = ["agent"]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_an_attempt_that_is_over_is_refused_by_each_function_that_has_heard_it(agent: Agent) -> None:
    """A minute after its end at the latest, also if no newer attempt is reported there."""
    warm = WarmFunctions(agent.functions)
    running = BEAT | {"running": [RANK]}
    for number in warm.each():
        assert agent.call(REPORTS, running | {"sequence": 10 + number}).body["refused"] == []
    agent.functions.store.save_instance(replace(agent.functions.instance(), claims={}))
    agent.functions.now = later(62)
    for number in warm.each():
        said = agent.call(REPORTS, running | {"sequence": 20 + number, "uptime_s": 86_470})
        assert [(one["job"], one["attempt"]) for one in said.body["refused"]] == [(JOB, 1)], number
        assert agent.older(OLDER[1], tasks=[{"running_log_id": running_log_id(JOB, 1, 0)}]).body["updated"] == 0
    assert {one.seen_at for one in agent.functions.store.load_heartbeats([A])[A].ranks.values()} == {later(2)}


def test_an_attempt_that_was_followed_by_another_is_refused_as_soon_as_the_other_is_known(agent: Agent) -> None:
    """The claims that tell of the next attempt end the last one at once."""
    assert agent.call(REPORTS, BEAT | {"running": [RANK]}).body["refused"] == []
    agent.functions.store.save_instance(replace(agent.functions.instance(), claims={JOB: replace(claim(2), rank=0)}))
    agent.functions.now = later(15)
    said = agent.call(REPORTS, BEAT | {"sequence": 8, "uptime_s": 86_415.5, "running": [RANK, RANK | {"attempt": 2}]})
    assert [one["attempt"] for one in said.body["refused"]] == [1]
