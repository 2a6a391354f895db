"""Processes that do not let themselves be read: a child waits for them, and the heartbeat goes on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_agent.http_client import TIMEOUT_S
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.loop import Agent
from gpu_recovery_agent.sensors import process_reader
from gpu_recovery_agent.sensors.child.client import ChildProcess
from gpu_recovery_agent.sensors.ecs import RanksWithoutFile
from gpu_recovery_agent.sensors.process_reader import ProcessReader
from gpu_recovery_agent.settings import AgentSettings
from gpu_recovery_agent.systemd import READY, WATCHDOG, SystemdNotifier

from tests.agent.api import WITHIN_S, Api
from tests.agent.fake_proc import Proc, environment
from tests.agent.node import Node, wait_until
from tests.agent.test_packaging import unit

CONTAINER = "a" * 64


class Place:
    """A /proc, and a reader whose clock is the test's."""

    def __init__(self, node: Node, folder: Path, deadline_s: float = 60.0) -> None:
        self.proc, self.now = Proc(folder / "proc"), 0.0
        self.reader = ProcessReader(
            self.proc.folder, node.environment, AgentLog(), deadline_s=deadline_s, now=lambda: self.now
        )

    def sleeps_in_the_driver(self, pid: int) -> None:
        """Whoever reads its environment waits for ever, as for a pipe that nobody writes to."""
        self.proc.add(pid, 7)
        os.mkfifo(self.proc.folder / str(pid) / "environ")


@pytest.fixture
def place(node: Node, tmp_path: Path) -> Iterator[Place]:
    found = Place(node, tmp_path)
    yield found
    found.reader.close()


@pytest.mark.slow
def test_a_process_tells_its_rank_and_nothing_else_of_its_environment(place: Place) -> None:
    """Secrets of a job stay where they are."""
    place.proc.add(11, 7, environment=environment(SECRET="s3cret", NODE_RANK="3"))
    assert place.reader.environment(11) == {"JOB_ID": "run-1", "ATTEMPT": "1", "RANK": "0", "NODE_RANK": "3"}
    assert place.reader.environment(12) is None


@pytest.mark.slow
def test_a_process_is_asked_once_and_its_child_rests(place: Place) -> None:
    """It began with that environment; another process with its pid is another."""
    place.proc.add(11, 7, environment=environment())
    assert place.reader.environment(11) == place.reader.environment(11)
    assert place.reader.started == 1
    place.now += process_reader.RESTS_AFTER_S
    place.reader.rest()
    assert place.reader._child is None
    (place.proc.folder / "11" / "environ").unlink()
    assert (place.reader.environment(11) or {})["JOB_ID"] == "run-1"
    assert place.reader.started == 1
    place.proc.add(11, 8, environment=environment("run-2"))
    assert (place.reader.environment(11) or {})["JOB_ID"] == "run-2"
    assert place.reader.started == 2


@pytest.mark.slow
def test_a_process_that_is_no_rank_is_not_asked_at_every_look(place: Place) -> None:
    """It is asked again now and then, for it may become one."""
    place.proc.add(11, 7, environment={"HOME": "/"})
    assert [place.reader.environment(11) for _ in range(process_reader.ASKED_AT_ONCE)] == [{}] * 5
    place.proc.add(11, 7, environment=environment())
    seen = [bool(place.reader.environment(11)) for _ in range(process_reader.ASKED_EVERY)]
    assert not seen[0] and seen[-1]


@pytest.mark.slow
def test_one_that_sleeps_in_the_driver_costs_one_deadline_and_is_told(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is left alone for a minute; for a moment nobody is asked, and then the others are again."""
    place = Place(node, tmp_path, deadline_s=0.05)
    place.sleeps_in_the_driver(11)
    place.proc.add(12, 7, environment=environment())
    real = ChildProcess.wait

    def waited(child: ChildProcess, seconds: float) -> None:
        real(child, seconds)
        place.now += seconds

    monkeypatch.setattr(ChildProcess, "wait", waited)
    assert place.reader.environment(11) is None
    assert place.reader.unread == "process 11 cannot be read: no answer of the kernel"
    assert place.reader.started == 1
    wait_until(lambda: place.reader._gone() or place.reader._child is None)
    assert place.reader.environment(12) is None and place.reader.started == 1, "nobody is asked for a moment"
    place.now += process_reader.PAUSE_S + 1
    assert place.reader.environment(11) is None
    assert place.reader.started == 1, "it is not asked again yet"
    place.reader._deadline_s = 60.0
    assert (place.reader.environment(12) or {})["JOB_ID"] == "run-1"
    place.now += process_reader.RETRY_STUCK_AFTER_S
    assert place.reader.unread == ""
    place.reader.close()
    assert capfd.readouterr().err.count("process 11 cannot be read") == 1


@pytest.mark.slow
def test_while_the_kernel_keeps_the_child_no_other_is_started(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not even die of SIGKILL is left behind, once."""
    place.proc.add(11, 7, environment=environment())
    assert place.reader.environment(11)
    child = place.reader._child
    assert child is not None
    with monkeypatch.context() as kept:
        kept.setattr(child, "poll", lambda: None)
        place.reader._give_up("process 12")
        place.proc.add(13, 7, environment=environment())
        place.now += process_reader.RETRY_STUCK_AFTER_S + 1
        assert [place.reader.environment(13) for _ in range(3)] == [None] * 3
        assert place.reader.started == 1
    wait_until(lambda: child.poll() is not None)
    assert place.reader.environment(13)
    assert place.reader.started == 2


@pytest.mark.slow
def test_a_container_is_searched_for_once_and_through_the_child(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control groups have a lock of the whole machine."""
    place.proc.add(20, 1, inner=(20, 1), cgroup=f"0::/ecs/task/{CONTAINER}", environment=environment())
    sensor = RanksWithoutFile("http://127.0.0.1:51678", place.proc.folder, AgentLog(), place.reader)
    monkeypatch.setattr(sensor, "_containers", lambda: {CONTAINER})
    asked = []
    real = place.reader.first_processes
    monkeypatch.setattr(place.reader, "first_processes", lambda found: asked.append(found) or real(found))
    assert [[live.pid for live in sensor.poll([], [])] for _ in range(3)] == [[20]] * 3
    assert asked == [[CONTAINER]]


@pytest.mark.slow
def test_an_agent_whose_gpu_process_cannot_be_read_reports_on_and_says_so(api: Api, node: Node, tmp_path: Path) -> None:
    """The deadline of the heartbeat stands above every file of /proc."""
    place = Place(node, tmp_path)
    place.sleeps_in_the_driver(11)
    node.set_nvml(gpus=[{"processes": [11]}])
    node.agent(HOST_PROC=str(place.proc.folder), GPU_RECOVERY_NVML_DEADLINE_MS="1000")
    api.next(lambda report: "process 11 cannot be read" in report["health"].get("sentence", ""))
    begin = len(api.heard)
    later = api.count(begin + 3)[begin:]
    assert all("process 11 cannot be read" in one["health"]["sentence"] for one in later)


def test_every_sensor_of_the_agent_reads_processes_through_the_child(node: Node) -> None:
    """One that is forgotten would block where no test looks."""
    agent = Agent(AgentSettings.from_environment(node.environment), node.environment, AgentLog())
    assert isinstance(agent._reader, ProcessReader)
    assert agent._running._reader is agent._fileless_ranks._reader is agent._commands._reader is agent._reader


# -- systemd -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_the_agent_says_that_it_is_ready_and_at_each_turn_that_it_turns(
    api: Api, node: Node, tmp_path: Path, kind: str
) -> None:
    """systemd names its socket by a path, or in the abstract by an @."""
    name = f"{tmp_path}/notify" if kind == "file" else f"@gpu-recovery-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + name[1:] if kind == "abstract" else name)
        listening.settimeout(WITHIN_S)
        node.agent(NOTIFY_SOCKET=name)
        assert [listening.recv(100) for _ in range(4)] == [READY.encode(), *[WATCHDOG.encode()] * 3]
    api.count(len(api.heard) + 2)  # and goes on when nobody listens any more


def test_without_systemd_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is spoken to without a socket; one that is gone stops nothing."""
    gone = str(tmp_path / "gone")
    SystemdNotifier({"NOTIFY_SOCKET": gone}).notify(READY)
    said: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(socket.socket, "sendto", lambda _, word, to: said.append((word, to)))
    SystemdNotifier({"NOTIFY_SOCKET": gone}).notify(READY)
    assert said == [(READY.encode(), gone.encode())]
    SystemdNotifier({}).notify(READY)
    SystemdNotifier({"NOTIFY_SOCKET": ""}).notify(READY)
    assert len(said) == 1


def test_the_unit_is_watched_and_waits_longer_than_the_agent_ever_does() -> None:
    """A turn waits for the API at most five times, each within twice its time-out, and once for a process."""
    found = unit()
    assert (found["Type"], found["NotifyAccess"]) == ("notify", "main")
    assert int(found["WatchdogSec"]) > 5 * 2 * TIMEOUT_S + process_reader.DEADLINE_S
    assert "AF_UNIX" in found["RestrictAddressFamilies"]
