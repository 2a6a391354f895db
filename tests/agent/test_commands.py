"""Orders reach the process that is certainly meant, once, and nobody else."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.commands import CommandRunner
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.responses import ServerCommand
from gpu_recovery_agent.sensors.processes import ProcessInfo
from gpu_recovery_agent.sensors.ranks import LiveRank
from gpu_recovery_agent.state import AgentState

from tests.agent.fake_proc import BOOT, Proc, environment

TICKS = 5_000
LIVE = LiveRank(RankIdentity("run-1", 1, 0), None, 42, TICKS)
TERM, KILL = signal.SIGTERM, signal.SIGKILL


class Recorder:
    """Signals that are written down. With `refuses` none may be sent."""

    def __init__(self, sent: list[tuple[str, int, int]], refuses: bool = False) -> None:
        self.sent, self.refuses = sent, refuses

    def to_process(self, pid: int, ticks: int, number: int) -> None:
        assert ticks
        self._send("process", pid, number)

    def to_group(self, member: ProcessInfo, number: int) -> None:
        self._send("group", member.group, number)

    def _send(self, kind: str, number: int, signal_number: int) -> None:
        if self.refuses:
            raise PermissionError(1, "Operation not permitted")
        self.sent.append((kind, number, signal_number))


class Place:
    """Orders whose signals are written down, and whose clock is the test's."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.folder, self.now = Proc(folder / "proc"), folder, 100.0
        self.sent: list[tuple[str, int, int]] = []
        self.proc.add(42, TICKS, environment=environment())
        self.begin()

    def begin(self) -> None:
        """An agent that starts with the state that the one before it left."""
        self.state = AgentState(self.folder / "state", BOOT, AgentLog())
        self.state.open()
        self.orders = CommandRunner(
            self.proc.folder,
            self.state,
            AgentLog(),
            now=lambda: self.now,
            signals=Recorder(self.sent),
        )

    def give(self, order_id: str = "o-1", kind: str = "stop", **more: Any) -> None:
        order = ServerCommand(
            order_id, kind, more.get("job", "run-1"), more.get("attempt", 1), more.get("grace_s", 30.0)
        )
        self.orders.add([order], [more.get("live", LIVE)])
        self.orders.run_due()

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.orders.run_due()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_suspend_is_one_sigterm_and_nothing_follows(place: Place) -> None:
    """What the rank makes of it is its own affair."""
    for _ in range(3):
        place.give(kind="suspend")
    place.later(10_000)
    assert place.sent == [("process", 42, TERM)]
    place.give("o-2", kind="suspend")
    assert place.sent == [("process", 42, TERM)] * 2


def test_a_stop_kills_the_commands_group_and_leaves_the_wrapper_to_write_it_down(place: Place) -> None:
    """Only a wrapper that does not end then is killed itself."""
    place.proc.add(43, TICKS + 1, parent=42, group=43)
    place.proc.add(44, TICKS + 2, parent=43, group=43)
    place.proc.add(50, TICKS + 3, parent=1, group=50)
    place.give()
    place.later(29.9)
    assert place.sent == [("process", 42, TERM), ("group", 43, TERM)]
    place.later(0.1)
    assert place.sent[2:] == [("group", 43, KILL)]
    place.later(9.9)
    assert len(place.sent) == 3
    place.later(0.2)
    assert place.sent[3:] == [("process", 42, KILL)]


def test_a_command_is_stopped_without_the_grace_of_a_suspension(place: Place) -> None:
    """To the wrapper of rank 0 SIGTERM is a notice, which a suspend gives and a stop does not wait for."""
    place.proc.add(43, TICKS + 1, parent=42, group=43)
    place.proc.add(45, TICKS + 1, parent=42, group=42)
    place.give(kind="suspend")
    assert place.sent == [("process", 42, TERM)]
    place.give("o-2", kind="stop")
    assert place.sent[1:] == [("process", 42, TERM), ("group", 43, TERM)]
    place.give("o-2", kind="stop")
    assert len(place.sent) == 3


def test_a_rank_that_ended_in_time_is_not_killed(place: Place) -> None:
    """Nor is whoever got its pid since."""
    place.give()
    place.proc.remove(42)
    place.proc.add(42, TICKS + 9, environment=environment())
    place.later(100)
    assert place.sent == [("process", 42, TERM)]


def test_an_order_that_is_repeated_does_not_begin_anew(place: Place) -> None:
    """It comes with every answer until the rank is gone: its grace is counted from the first."""
    place.give()
    for _ in range(3):
        place.later(9)
        place.give()
    place.later(3)
    assert place.sent == [("process", 42, TERM), ("group", 42, KILL)]


def test_an_order_is_remembered_by_the_next_agent(place: Place) -> None:
    """A second SIGTERM may end what saves its checkpoint; the time that has passed counts."""
    place.give()
    place.state.close()
    place.begin()
    place.now += 29
    place.give()
    assert place.sent == [("process", 42, TERM)]
    place.later(1)
    assert place.sent[1:] == [("group", 42, KILL)]


@pytest.mark.parametrize("other", [{"attempt": 2}, {"job": "run-2"}, {"live": LiveRank(None, 7, 42, TICKS)}])
def test_an_order_about_somebody_else_does_nothing(place: Place, other: dict[str, Any]) -> None:
    """Another attempt, another job, a rank of which only a number is known."""
    place.give(**other)
    place.later(100)
    assert place.sent == []


@pytest.mark.parametrize(
    "found",
    [
        {"ticks": TICKS + 1, "environment": environment()},
        {"ticks": TICKS, "environment": environment("run-2")},
        {"ticks": TICKS, "environment": environment(attempt=2)},
        {"ticks": TICKS, "environment": {"HOME": "/root"}},
        {"ticks": TICKS, "environment": None},
        {"ticks": TICKS, "environment": environment(), "state": "Z"},
    ],
)
def test_a_process_that_does_not_bear_witness_is_left_alone(tmp_path: Path, found: dict[str, Any]) -> None:
    """A file may name any process of the machine: it must have begun at that tick, with that job and attempt."""
    place = Place(tmp_path)
    (place.proc.folder / "42" / "environ").unlink()
    place.proc.add(42, **found)
    place.give()
    place.later(1_000)
    assert place.sent == []


def test_a_process_of_another_user_is_said_and_does_not_end_the_agent(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """CAP_KILL is missing: a person has to know."""
    place.orders = CommandRunner(
        place.proc.folder, place.state, AgentLog(), now=lambda: place.now, signals=Recorder([], refuses=True)
    )
    place.give()
    place.later(31)
    assert capfd.readouterr().err.count("may not be signalled") >= 1


def test_what_was_obeyed_is_kept_within_bounds(place: Place) -> None:
    """The oldest are forgotten first: their ranks are gone."""
    for number in range(200):
        place.give(f"o-{number}", kind="suspend")
    assert len(place.state.executed) == 64 and "o-199 42 5000" in place.state.executed
