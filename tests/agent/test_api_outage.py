"""Two minutes without the API, by the agent's own clock: its loop, turn by turn, with every pause that it makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery_agent import clock
from gpu_recovery_agent.http_client import TIMEOUT_S
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.loop import Agent
from gpu_recovery_agent.responses import Response, no_response, read
from gpu_recovery_agent.settings import AgentSettings

from tests.agent.node import Node
from tests.agent.test_protocol import exits_of, leave_exit

BEGUN_S = 10_000.0
AWAY_S = 120.0
ADAPTIVE = PRESETS[Preset.ADAPTIVE]
XID = "NVRM: Xid (PCI:0000:10:00): 79, pid=7, GPU has fallen off the bus."


@dataclass
class Passing:
    """The agent's clocks and what it waits by; in place of its channel, an API that is away between two moments.

    at: what happens at a second of the agent's life.
    """

    ends_s: float
    is_away: Callable[[float], bool]
    refuses: Callable[[], Response] = lambda: no_response("the API does not answer: ConnectionRefusedError")
    next_s: float = 15
    luck: float = 0.5
    at: dict[float, Callable[[], Any]] = field(default_factory=dict)
    passed_s: float = 0.0
    told: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    refused: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def seconds(self) -> float:
        return BEGUN_S + self.passed_s

    # -- as `threading.Event`, which the loop waits by -----------------------------------------------------------------

    def is_set(self) -> bool:
        return self.passed_s >= self.ends_s

    def wait(self, seconds: float) -> None:
        self.passed_s += max(seconds, 0.001)
        for moment in [one for one in self.at if one <= self.passed_s]:
            self.at.pop(moment)()

    # -- as the channel ------------------------------------------------------------------------------------------------

    def post(self, content: bytes, headers: Any) -> Response:
        report = self.passed_s, json.loads(content)
        if self.is_away(self.passed_s):
            self.refused.append(report)
            return self.refuses()
        self.told.append(report)
        return read(200, json.dumps({"ok": True, "ts": 1, "next_s": self.next_s}).encode(), None)


@pytest.fixture
def life(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Passing], Passing]]:
    """Runs an agent of the node through some time."""

    def run(passing: Passing) -> Passing:
        for name in ("monotonic_s", "uptime_s", "kernel_log_s"):
            monkeypatch.setattr(clock, name, passing.seconds)
        monkeypatch.setattr("gpu_recovery_agent.loop.random.random", lambda: passing.luck)
        environment = node.environment | {"GPU_RECOVERY_NVML": "off", "GPU_RECOVERY_INTERVAL_MS": "15000"}
        environment["GPU_RECOVERY_LOOK_MS"] = "1000"
        environment["GPU_RECOVERY_REPAIR_LOG"] = "off"  # without the last report of an agent that ends
        agent = Agent(AgentSettings.from_environment(environment), environment, AgentLog())
        stands_in: Any = passing
        agent.stop = stands_in
        agent._reporter._endpoint = stands_in
        agent.run()
        return passing

    yield run


@pytest.mark.parametrize(
    "refuses",
    [
        lambda: no_response("the API does not answer: ConnectionRefusedError"),
        lambda: read(503, b"", None),
    ],
    ids=["no connection", "503"],
)
def test_two_minutes_of_refusals_keep_every_exit_and_fault_and_the_agent_resumes(
    node: Node, life: Callable[[Passing], Passing], refuses: Callable[[], Response]
) -> None:
    """What ends and is logged meanwhile is told by the first report after, once, and nobody is said to be there."""
    exits = {30.0: leave_exit(node, 1, code=3).name, 90.0: leave_exit(node, 2, signal=9).name}
    kept = {moment: (node.running / name).read_text() for moment, name in exits.items()}
    for name in exits.values():
        (node.running / name).unlink()
    passing = Passing(60 + AWAY_S + 40, lambda now: 20 <= now < 20 + AWAY_S, refuses)
    for moment, name in exits.items():
        passing.at[moment] = lambda moment=moment, name=name: (node.running / name).write_text(kept[moment])
    passing.at[60.0] = lambda: node.kernel_says(XID, at_s=BEGUN_S + 60)
    there: list[set[str]] = []
    passing.at[20 + AWAY_S - 1] = lambda: there.append(set(node.files()))
    life(passing)

    assert there == [set(exits.values())] and node.files() == []
    assert [round(at - passing.refused[0][0], 1) for at, _ in passing.refused] == [
        0,
        0.5,
        1.5,
        3.5,
        7.5,
        15.5,
        30.5,
        45.5,
        60.5,
        75.5,
        90.5,
        105.5,
    ]
    before = [report for at, report in passing.told if at < 20]
    after = [report for at, report in passing.told if at >= 20]
    assert before and len(after) >= 2
    assert exits_of(after[0]) == [1, 2] and [one["xid"] for one in after[0]["xids"]] == [79]
    assert after[0]["xids"][0]["age_s"] >= AWAY_S - 60 + 19
    assert not any("exits" in one or "xids" in one for one in (*before, *after[1:]))
    assert all(one["running"] == [] and "age_s" not in one for one in after)
    numbers = [one["sequence"] for one in (*before, *(report for _, report in passing.refused), *after)]
    assert numbers == sorted(numbers) and after[0]["sequence"] > before[-1]["sequence"]


def test_pauses_after_refusals_grow_to_half_a_minute_and_end_with_the_first_answer(
    life: Callable[[Passing], Passing],
) -> None:
    """With the worst luck: 1, 2, 4, 8, 16 and then 30 s apart; afterwards every 15 s within a tenth."""
    passing = life(Passing(300, lambda now: now < AWAY_S + 10, luck=1.0))
    pauses = [round(b - a) for (a, _), (b, _) in zip(passing.refused, passing.refused[1:], strict=False)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert passing.told[0][0] - passing.refused[-1][0] == pytest.approx(30, abs=1)
    gaps = [b - a for (a, _), (b, _) in zip(passing.told, passing.told[1:], strict=False)]
    assert gaps and all(gap == pytest.approx(16.5, abs=0.1) for gap in gaps)


@pytest.mark.parametrize("luck", [0.9, 1.0])
@pytest.mark.parametrize("begins", [22, 28, 34])
def test_nobody_is_silent_for_a_stale_period_where_the_api_was_away_for_two_minutes(
    life: Callable[[Passing], Passing], begins: int, luck: float
) -> None:
    """Wherever between two reports it went away, and however long the last pause: heard in time, nothing is LOST."""
    passing = life(Passing(begins + AWAY_S + 100, lambda now: begins <= now < begins + AWAY_S, luck=luck))
    silences = [b - a for (a, _), (b, _) in zip(passing.told, passing.told[1:], strict=False)]
    assert AWAY_S < max(silences) < ADAPTIVE.heartbeat_stale_s - TIMEOUT_S


def test_an_exit_is_told_at_once_though_the_next_report_is_wanted_in_five_minutes(
    node: Node, life: Callable[[Passing], Passing]
) -> None:
    """As a fault is: within a look, and not before."""
    path = leave_exit(node, 0, code=1)
    content = path.read_text()
    path.unlink()
    passing = Passing(200, lambda now: False, next_s=300)
    passing.at[100.0] = lambda: path.write_text(content)
    life(passing)
    (first, second) = passing.told
    assert (exits_of(first[1]), exits_of(second[1])) == ([], [0])
    assert 100 <= second[0] <= 101.1
