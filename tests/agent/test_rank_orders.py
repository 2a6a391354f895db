"""The agent writes orders for held ranks, once each, and reports often while a rank may wait for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.rank.hold import AGENT_FILE, has_agent
from gpu_recovery_agent.rank_orders import HELD_PACE_FOR_S, HELD_PACE_S, HOLDABLE_PACE_S, RankOrders
from gpu_recovery_agent.report_schedule import ReportSchedule
from gpu_recovery_agent.responses import ServerCommand, read
from gpu_recovery_agent.sensors.ranks import LiveRank

RANK = RankIdentity("run-1", 1, 0, log=100)
RUNS, HELD, OLD = (LiveRank(RANK, 100, 42, 5, *flags) for flags in ((True, False), (True, True), (False, False)))
HOLD = ServerCommand("hold/run-1--a01", "hold", "run-1", 1, 5.0)
START = ServerCommand("start/run-1--a02", "start", "run-1", 1, 0.0, {"ATTEMPT": "2", "RANK": "0"})


@pytest.fixture
def orders(tmp_path: Path) -> RankOrders:
    return RankOrders(tmp_path, AgentLog())


def written(folder: Path) -> dict[str, object] | None:
    path = folder / "100.order"
    return json.loads(path.read_text()) if path.exists() else None


def test_each_order_is_written_for_the_rank_that_it_is_about(orders: RankOrders, tmp_path: Path) -> None:
    """First the hold; then, once the rank is held, the start with the variables of the next attempt."""
    orders.write(HOLD, RUNS, RANK)
    assert written(tmp_path) == {"kind": "hold", "attempt": 1, "grace_s": 5, "environment": {}}
    (tmp_path / "100.order").unlink()  # the wrapper has carried it out
    orders.write(START, HELD, RANK)
    found = written(tmp_path)
    assert found is not None and (found["kind"], found["environment"]) == ("start", {"ATTEMPT": "2", "RANK": "0"})


def test_a_start_replaces_a_hold_that_the_wrapper_has_not_removed(orders: RankOrders, tmp_path: Path) -> None:
    """The rank is held, so the hold was carried out."""
    orders.write(HOLD, RUNS, RANK)
    orders.write(START, HELD, RANK)
    found = written(tmp_path)
    assert found is not None and found["kind"] == "start"


@pytest.mark.parametrize(("command", "live"), [(HOLD, HELD), (START, RUNS), (HOLD, OLD), (START, OLD)])
def test_an_order_that_does_not_fit_the_rank_is_not_written(
    orders: RankOrders, tmp_path: Path, command: ServerCommand, live: LiveRank
) -> None:
    """A held rank needs no hold, a running rank no start, and a wrapper of an older release reads neither."""
    orders.write(command, live, RANK)
    assert written(tmp_path) is None


def test_an_order_for_a_rank_that_is_gone_is_removed(orders: RankOrders, tmp_path: Path) -> None:
    """Its container has ended; the next rank with this file name must not find the order."""
    orders.write(HOLD, RUNS, RANK)
    assert orders.has_news([RUNS]) and written(tmp_path) is not None
    assert not orders.has_news([]) and written(tmp_path) is None


def test_a_rank_that_is_held_or_started_is_news_once(orders: RankOrders) -> None:
    """The report of it is sent at once, because ECS reports neither."""
    started = LiveRank(RankIdentity("run-1", 2, 0, log=200), 200, 42, 5, holds=True)
    assert [orders.has_news([rank]) for rank in (RUNS, RUNS, HELD, HELD, started, started)] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    assert not orders.has_news([OLD])


def test_the_wrapper_finds_a_running_agent(orders: RankOrders, tmp_path: Path) -> None:
    """By the time of a file that the agent touches."""
    assert not has_agent(tmp_path)
    orders.touch_agent_file()
    assert has_agent(tmp_path) and (tmp_path / AGENT_FILE).exists()


def test_reports_are_frequent_while_a_rank_may_be_ordered(orders: RankOrders) -> None:
    """Each second at first, then less often: the API limits the reports of a token."""
    assert orders.pace_s([OLD], 0.0) is None
    assert orders.pace_s([RUNS], 0.0) == HOLDABLE_PACE_S
    assert orders.pace_s([HELD], 10.0) == HELD_PACE_S
    assert orders.pace_s([HELD], 10.0 + HELD_PACE_FOR_S) == HOLDABLE_PACE_S
    assert orders.pace_s([RUNS], 100.0) == HOLDABLE_PACE_S and orders.pace_s([HELD], 101.0) == HELD_PACE_S


def test_the_pace_shortens_the_wait_and_never_the_pause_after_a_failure() -> None:
    """An API that is overloaded gets its pause."""
    schedule = ReportSchedule(15.0, lambda: 0.5, 0.0)
    schedule.succeeded(100.0, None)
    assert schedule.due_at == 115.0
    schedule.pace(101.0, 3.0)
    assert schedule.due_at == 103.0
    schedule.pace(101.0, 1.0)
    schedule.urgent(100.1)
    assert schedule.due_at == 101.0
    schedule.failed(103.0, 60.0)
    schedule.pace(104.0, 1.0)
    assert schedule.due_at == 163.0


def test_the_variables_of_a_start_are_read_and_those_of_no_other_command() -> None:
    """A text that is no text is left out: the wrapper would refuse the whole order."""
    entry = {"id": "o", "job": "run-1", "attempt": 1, "grace_s": 0, "environment": {"ATTEMPT": "2", "RANK": 3}}
    body = json.dumps({"ok": True, "orders": [{**entry, "kind": "start"}, {**entry, "kind": "stop"}]})
    start, stop = read(200, body.encode(), None).commands
    assert (start.kind, dict(start.environment)) == ("start", {"ATTEMPT": "2"}) and dict(stop.environment) == {}
