"""A rank whose command has ended waits in its container, and starts the next attempt that the agent orders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent import clock
from gpu_recovery_agent.rank import hold
from gpu_recovery_agent.rank.hold import Order, order_in, read_order, wait_for_start

from tests.agent.api import WITHIN_S
from tests.agent.node import Node, wait_until

START = {"kind": "start", "attempt": 1, "environment": {"ATTEMPT": "2", "RANK": "3", "RUNNING_LOG_ID": "200"}}
WRITES = 'echo "$ATTEMPT $RANK" >> {}; sleep 600 & wait $!; exit 7'


def order(node: Node, content: dict[str, Any], log: int = 100) -> None:
    """Write an order as the agent does."""
    (node.running / f"{log}.order").write_text(json.dumps(content))


def has_agent(node: Node, age_s: float = 0.0) -> None:
    """An agent has written its file so long ago."""
    (node.running / hold.AGENT_FILE).write_text(json.dumps({"uptime_s": clock.uptime_s() - age_s}))


def content(node: Node, name: str) -> dict[str, Any]:
    return json.loads((node.running / name).read_text())


def begins(node: Node, seconds: int = 300) -> tuple[subprocess.Popen[bytes], Path]:
    """A rank whose command runs, and the file to which each attempt writes its number and its rank."""
    node.running.mkdir(parents=True, exist_ok=True)
    has_agent(node)
    seen = node.running.parent / "seen"
    rank = node.rank("sh", "-c", WRITES.format(seen), GPU_RECOVERY_HOLD_S=str(seconds))
    wait_until(lambda: seen.exists() and seen.read_text().count("\n") == 1)
    return rank, seen


def holds(node: Node) -> subprocess.Popen[bytes]:
    """A rank that the agent has ended, and that waits."""
    rank, _ = begins(node)
    order(node, {"kind": "hold", "attempt": 1, "grace_s": 5})
    wait_until((node.running / "100.exit").exists)
    return rank


@pytest.mark.slow
def test_the_next_attempt_begins_in_the_same_container_with_its_own_numbers(node: Node) -> None:
    """The files of the next attempt have its names; the wrapper, and so the container, is the same process."""
    rank, seen = begins(node)
    assert content(node, "100.json")["holds"] is True and "held" not in content(node, "100.json")
    order(node, {"kind": "hold", "attempt": 1, "grace_s": 5})
    wait_until((node.running / "100.exit").exists)
    ended, waiting = content(node, "100.exit"), content(node, "100.json")
    assert (ended["held"], ended["asked"], ended["attempt"]) == (True, True, 1)
    assert waiting["held"] is True and waiting["remote_pid"] == rank.pid
    order(node, START)
    wait_until(lambda: seen.read_text() == "1 0\n2 3\n")
    assert content(node, "200.json")["attempt"] == 2 and content(node, "200.json")["remote_pid"] == rank.pid
    assert not (node.running / "100.json").exists() and not (node.running / "100.order").exists()
    assert rank.poll() is None


@pytest.mark.slow
def test_a_command_that_fails_is_held_without_an_order(node: Node) -> None:
    """Its exit says so at once, with its own code, and no process of it is left: it might hold GPUs."""
    node.running.mkdir(parents=True, exist_ok=True)
    has_agent(node)
    pid = node.running.parent / "pid"
    rank = node.rank("sh", "-c", f"sleep 600 & echo $! > {pid}; exit 7", GPU_RECOVERY_HOLD_S="300")
    wait_until((node.running / "100.exit").exists)
    assert content(node, "100.exit")["code"] == 7 and "asked" not in content(node, "100.exit")
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(WITHIN_S) == 7
    assert node.files() == ["100.exit"] or node.files() == [hold.AGENT_FILE, "100.exit"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "late",
    [
        {**START, "environment": {**START["environment"], "ATTEMPT": "1"}},
        {**START, "environment": {**START["environment"], "ATTEMPT": "0"}},
        {**START, "attempt": 2},
        {"kind": "hold", "attempt": 1, "grace_s": 0},
    ],
)
def test_an_order_for_an_older_or_equal_attempt_starts_nothing(node: Node, late: dict[str, Any]) -> None:
    """The order is delivered until the agent sees its effect, so it comes late and twice."""
    rank = holds(node)
    order(node, late)
    after = node.running.parent / "seen"
    node.rank("sh", "-c", "sleep 1", rank=1).wait(WITHIN_S)  # several looks of the wrapper have passed
    assert after.read_text() == "1 0\n" and rank.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("script", ["exit 0", "exit 75"])
def test_a_command_that_succeeds_or_asks_for_its_suspension_is_not_held(node: Node, script: str) -> None:
    """ECS reports these ends, as without holding."""
    node.running.mkdir(parents=True, exist_ok=True)
    has_agent(node)
    assert node.rank("sh", "-c", script, GPU_RECOVERY_HOLD_S="300").wait(WITHIN_S) == int(script[5:])
    assert "held" not in content(node, "100.exit")


@pytest.mark.slow
@pytest.mark.parametrize("age_s", [None, 2 * hold.AGENT_FRESH_S])
def test_without_an_agent_that_can_start_the_next_attempt_nothing_waits(node: Node, age_s: float | None) -> None:
    """An agent of an older release would report an end, and ECS would show a task that runs."""
    node.running.mkdir(parents=True, exist_ok=True)
    if age_s is not None:
        has_agent(node, age_s)
    assert node.rank("sh", "-c", "exit 7", GPU_RECOVERY_HOLD_S="300").wait(WITHIN_S) == 7
    assert "held" not in content(node, "100.exit")


@pytest.mark.slow
def test_a_container_that_ecs_stops_does_not_wait(node: Node) -> None:
    """ECS kills it soon, and its end is the end that ECS reports."""
    rank, _ = begins(node)
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(WITHIN_S) != 0
    assert "held" not in content(node, "100.exit")


@pytest.mark.slow
def test_without_a_start_the_container_ends_with_the_exit_code_of_its_command(node: Node) -> None:
    """After the seconds of its environment, which the test makes short."""
    node.running.mkdir(parents=True, exist_ok=True)
    has_agent(node)
    assert node.rank("sh", "-c", "exit 7", GPU_RECOVERY_HOLD_S="1").wait(WITHIN_S) == 7
    assert content(node, "100.exit")["held"] is True and not (node.running / "100.json").exists()


def test_an_order_that_comes_as_the_time_ends_is_carried_out() -> None:
    """The last look is after the time is over: an order that was written in time is never missed."""
    looks = iter([None, Order("start", 1, 0, {"ATTEMPT": "2"})])
    clock = iter([0.0, 0.0, 10.0])
    found = wait_for_start(lambda: next(looks), 1, 10.0, lambda: next(clock))
    assert found is not None and found.next_attempt == 2


@pytest.mark.parametrize(
    "environment",
    [
        {"ATTEMPT": "2", "LD_PRELOAD": "/tmp/evil.so"},
        {"ATTEMPT": "2", "PATH": "/tmp"},
        {"ATTEMPT": "2", "GPU_RECOVERY_HOLD_S": "0"},
    ],
)
def test_an_order_sets_no_variable_but_those_of_an_attempt(environment: dict[str, str]) -> None:
    """Any process that can write to the folder may have written it."""
    found = order_in({"kind": "start", "attempt": 1, "environment": environment})
    assert found is not None and set(found.environment) == {"ATTEMPT"}
    assert hold.next_environment({"PATH": "/bin", "ATTEMPT": "1"}, found) == {"PATH": "/bin", "ATTEMPT": "2"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"ATTEMPT": "2", "RANK": "0; reboot"},
        {"ATTEMPT": "2", "MASTER_ADDR": "$(reboot)"},
        {"ATTEMPT": "x"},
        {"RANK": "0"},
        {"ATTEMPT": "2", "MASTER_PORT": -1},
    ],
)
def test_a_value_that_is_no_number_or_address_makes_the_order_invalid(wrong: dict[str, Any]) -> None:
    """The wrapper would start an attempt with half of its variables."""
    assert order_in({"kind": "start", "attempt": 1, "environment": wrong}) is None


def test_an_order_of_another_user_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, the user of the wrapper and the owner of the folder may write orders, and nobody else."""
    folder = tmp_path / "running"
    folder.mkdir()
    (folder / "100.order").write_text(json.dumps(START))
    assert read_order(folder, "100") is not None
    mine = os.geteuid()
    stranger = type("Status", (), {"st_uid": max(mine, os.stat(folder).st_uid) + 1})()
    monkeypatch.setattr(hold, "read_object", lambda path, most: (START, stranger))
    assert read_order(folder, "100") is None


def waits_warm(node: Node) -> tuple[subprocess.Popen[bytes], Path]:
    """A warm spare that waits, and the file to which each attempt writes its number and its rank."""
    node.running.mkdir(parents=True, exist_ok=True)
    seen = node.running.parent / "seen"
    spare = node.rank("sh", "-c", WRITES.format(seen), GPU_RECOVERY_HOLD_S="1", GPU_RECOVERY_WARM="1")
    wait_until((node.running / "100.json").exists)
    return spare, seen


@pytest.mark.slow
def test_a_warm_spare_runs_its_command_for_the_first_time_when_a_rank_starts(node: Node) -> None:
    """It waits longer than a failed rank would. Afterwards it is a rank as every other."""
    spare, seen = waits_warm(node)
    assert content(node, "100.json")["held"] is True and content(node, "100.json")["holds"] is True
    assert not seen.exists() and not (node.running / "100.exit").exists()
    order(node, START)
    wait_until(lambda: seen.exists() and seen.read_text() == "2 3\n")
    wait_until((node.running / "200.json").exists)
    assert "held" not in content(node, "200.json") and not (node.running / "100.json").exists()
    spare.send_signal(signal.SIGTERM)
    spare.wait(WITHIN_S)


@pytest.mark.slow
def test_a_warm_spare_that_is_stopped_has_not_run_its_command(node: Node) -> None:
    """ECS stops it when the GPUs are needed."""
    spare, seen = waits_warm(node)
    spare.send_signal(signal.SIGTERM)
    assert spare.wait(WITHIN_S) == 0
    assert not seen.exists() and not (node.running / "100.json").exists()


def test_a_warm_spare_ends_a_minute_after_its_agent() -> None:
    """No agent would start a rank there. A restart of the agent within the minute ends nothing."""
    at, runs = [0.0], [True]
    watch = hold.AgentWatch(lambda: runs[0], lambda: at[0])
    told = []
    for second, has_one in ((30, True), (31, False), (89, False), (90, False), (95, True), (140, False), (155, False)):
        at[0], runs[0] = float(second), has_one
        told.append(watch.is_lost())
    assert told == [False, False, False, True, False, False, True]
    assert wait_for_start(lambda: None, 1, None, is_in_vain=lambda: True) is None


def test_only_a_wrapper_that_holds_ranks_is_a_warm_spare() -> None:
    """And the rank that starts there is none any more."""
    assert hold.is_warm({"GPU_RECOVERY_WARM": "1", "GPU_RECOVERY_HOLD_S": "9"})
    assert not hold.is_warm({"GPU_RECOVERY_WARM": "1"})
    found = order_in(START)
    assert found is not None
    assert "GPU_RECOVERY_WARM" not in hold.next_environment({"GPU_RECOVERY_WARM": "1"}, found)
