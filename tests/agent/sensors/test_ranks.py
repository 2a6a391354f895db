"""Whose process is it: files of ranks against /proc, with pids that were given away since."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import ranks
from gpu_recovery_agent.sensors.boot import BootUnknown, boot_id, uptime_s
from gpu_recovery_agent.sensors.ecs import RanksWithoutFile, containers_in
from gpu_recovery_agent.sensors.ranks import RankSensor

from tests.agent.fake_proc import BOOT, environment
from tests.agent.rank_place import TICKS, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_rank_runs_while_its_process_lives(place: Place) -> None:
    """A zombie has ended: only its parent does not know yet."""
    place.file()
    place.proc.add(42, TICKS)
    (live,) = place.sensor.poll()[0]
    assert (live.rank.job, live.rank.attempt, live.rank.rank, live.log) == ("run-1", 1, 0, 100)
    assert (live.pid, live.ticks) == (42, TICKS)
    place.proc.add(42, TICKS, state="Z")
    assert place.pids() == []
    place.proc.remove(42)
    assert place.pids() == []


def test_a_pid_that_was_given_to_somebody_else_is_nobody_of_ours(place: Place) -> None:
    """Its start ticks are another's; `kill -0` would have found it alive."""
    place.file()
    place.proc.add(42, TICKS + 1)
    assert place.pids() == []


def test_a_file_of_another_boot_names_nobody(place: Place) -> None:
    """After a reboot the pids are counted again, and the ticks as well."""
    place.file(boot_id="0" * 36)
    place.proc.add(42, TICKS)
    assert place.pids() == []


@pytest.mark.parametrize("how", ["seen", "never seen", "of another boot"])
def test_the_file_of_a_wrapper_that_was_killed_is_removed(place: Place, how: str) -> None:
    """Nobody else would remove it, and the folder would fill with such files."""
    other_boot = {"boot_id": "0" * 36} if how == "of another boot" else {}
    place.file(**{"pid_namespace": place.proc.own.stat().st_ino, **other_boot})
    if how == "seen":
        place.proc.add(42, TICKS)
        assert place.pids() == [42]
        place.proc.add(42, TICKS + 1)
    assert place.pids() == [] and list(place.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "user"),
    [({"start_ticks": ...}, None), ({"boot_id": ...}, None), ({"pid_namespace": 77}, None), ({}, 12_345)],
    ids=["without a start", "without a boot", "of a container", "of another user"],
)
def test_a_file_whose_process_may_still_run_stays(place: Place, fields: dict[str, Any], user: int | None) -> None:
    """It may be the file of a rank that this look did not find."""
    place.file(**{"pid_namespace": place.proc.own.stat().st_ino, **fields})
    if user is not None:
        place.proc.add(42, TICKS, user=user)
    assert place.pids() == [] and [path.name for path in place.folder.iterdir()] == ["100.json"]


def test_a_file_of_gputasker_is_reported_with_what_it_has(place: Place) -> None:
    """Its numbers are texts, and its process is held to the start that it had when it was first seen."""
    content = {"running_log_id": 123, "remote_pid": "42", "remote_pgid": "42", "timestamp": "1734220000"}
    (place.folder / "123.json").write_text(json.dumps(content))
    place.proc.add(42, TICKS)
    (live,) = place.sensor.poll()[0]
    assert (live.rank, live.log, live.pid, live.ticks) == (None, 123, 42, TICKS)
    place.proc.add(42, TICKS + 7)
    assert place.pids() == []


@pytest.mark.parametrize("numbers", [{"attempt": "1", "rank": "0", "start_ticks": str(TICKS), "remote_pid": "42"}])
def test_numbers_may_be_texts(place: Place, numbers: dict[str, str]) -> None:
    """As seed 000 has them."""
    place.file(**numbers)
    place.proc.add(42, TICKS)
    assert place.pids() == [42]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1]",
        b'{"remote_pid": 42}',
        b'{"running_log_id": 1}',
        b'{"running_log_id": 1, "remote_pid": true}',
        b'{"running_log_id": -1, "remote_pid": 42}',
        b"\xff\xfe",
        b"[" * 60_000,
        b" " * 70_000,
        b'{"running_log_id": 1, "remote_pid": "4_2"}',
        b'{"running_log_id": 9007199254740992, "remote_pid": 42}',
        b'{"job_id": "j", "attempt": 1, "rank": 1000001, "remote_pid": 42}',
        b'{"job_id": "no job", "attempt": 1, "rank": 0, "remote_pid": 42}',
    ],
)
def test_a_broken_file_is_passed_over_and_said_once(
    place: Place, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others count, and the journal is not filled with it every second."""
    (place.folder / "1.json").write_bytes(raw)
    place.file()
    place.proc.add(42, TICKS)
    for _ in range(5):
        assert place.pids() == [42]
    assert capfd.readouterr().err.count("is ignored") == 1


def test_a_broken_file_that_is_mended_counts(place: Place) -> None:
    """A shell writes its file in two steps, and the agent may look between them."""
    place.proc.add(42, TICKS)
    (place.folder / "100.json").write_text("{")
    assert place.pids() == []
    place.file()
    assert place.pids() == [42]


def test_a_link_or_a_pipe_in_a_files_place_is_not_followed(place: Place, tmp_path: Path) -> None:
    """Whoever may write to the folder could have the agent read, or wait for, anything."""
    place.proc.add(42, TICKS)
    place.file("real.txt")
    (place.folder / "1.json").symlink_to(place.folder / "real.txt")
    os.mkfifo(place.folder / "2.json")
    assert place.pids() == []


def test_a_rank_that_has_an_exit_runs_no_more(place: Place) -> None:
    """The wrapper writes how it ended before it removes who ran."""
    place.file()
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
    place.file("100.exit", code=0, uptime_s=5.0)
    live, exits = place.sensor.poll()
    assert live == [] and [(one.exit.rank.rank, one.exit.code) for one in exits] == [(0, 0)]


def test_an_exit_that_was_told_is_removed_unless_it_is_another_one(place: Place) -> None:
    """The same rank may have ended again between the telling and the answer."""
    place.file("100.exit", code=0, uptime_s=5.0)
    _, (first,) = place.sensor.poll()
    place.file("100.exit", code=1, uptime_s=9.25)
    place.sensor.remove(first)
    _, (second,) = place.sensor.poll()
    assert second.exit.code == 1
    place.sensor.remove(second)
    assert place.sensor.poll()[1] == []


def test_an_exit_that_an_earlier_wrapper_wrote_is_told_and_removed(place: Place) -> None:
    """Its name ends with `.exit.json`. The image of a job may be older than the agent of the instance."""
    place.file()
    place.proc.add(42, TICKS)
    place.file("100.exit.json", code=3, uptime_s=5.0)
    place.file("200.exit.json", rank=1, signal=9)
    live, exits = place.sensor.poll()
    assert live == [] and [(one.exit.rank.rank, one.exit.code, one.exit.signal) for one in exits] == [
        (0, 3, None),
        (1, None, 9),
    ]
    place.sensor.remove(exits[0])
    place.sensor.put_aside(exits[1])
    assert sorted(path.name for path in place.folder.iterdir()) == ["100.json", "200.exit.refused"]


@pytest.mark.parametrize(
    "fields", [{}, {"code": 1, "signal": 9}, {"code": 256}, {"signal": 0}, {"code": 1, "job_id": 7}]
)
def test_an_exit_that_says_nothing_is_not_told(place: Place, fields: dict[str, Any]) -> None:
    """It stays where it is, for a person."""
    place.file("100.exit", **fields)
    assert place.sensor.poll()[1] == []
    assert (place.folder / "100.exit").exists()


def test_a_rank_in_a_container_is_found_by_its_own_pid_and_start(place: Place, tmp_path: Path) -> None:
    """Neither the pid nor the start alone is enough: every container has a process 1, and ticks are hundredths."""
    other, inside = tmp_path / "other", tmp_path / "inside"
    other.touch()
    inside.touch()
    place.file(remote_pid=1, pid_namespace=inside.stat().st_ino)
    place.proc.add(1, 1)
    place.proc.add(900, TICKS, inner=(900, 1), namespace=other)
    place.proc.add(901, TICKS + 1, inner=(901, 1), namespace=inside)
    place.proc.add(902, TICKS, inner=(902, 7), namespace=inside)
    place.proc.add(903, TICKS)
    assert place.pids() == []
    place.proc.add(904, TICKS, inner=(904, 1), namespace=inside)
    assert place.pids() == [904]
    place.proc.add(904, TICKS, inner=(904, 1), namespace=inside, state="Z")
    assert place.pids() == []


def test_a_process_that_is_not_found_is_not_searched_for_at_every_look(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search reads all of /proc; the file of a container that was killed stays for ever."""
    searches = []
    monkeypatch.setattr(ranks.processes, "pids", lambda proc: searches.append(1) or iter(()))
    place.file(remote_pid=1, pid_namespace=7)
    for _ in range(300):
        place.pids()
    assert len(searches) == 5 + 10


def test_a_folder_that_is_not_there_has_no_ranks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No rank has run here yet, and there is nothing to say about it."""
    sensor = RankSensor(tmp_path / "nowhere", tmp_path, BOOT, AgentLog())
    assert sensor.poll() == ([], [])
    assert capfd.readouterr().err == ""


# -- ranks without a file ----------------------------------------------------------------------------------------------


def test_a_gpus_process_tells_its_rank_by_its_environment(place: Place) -> None:
    """Workers of torchrun have a RANK of their own; the node's is in NODE_RANK, and the oldest of them speaks."""
    for pid in (11, 12):
        place.proc.add(pid, TICKS + pid, environment=environment(RANK=str(pid), NODE_RANK="3", RUNNING_LOG_ID="9"))
    place.proc.add(13, TICKS, environment={"HOME": "/"})
    place.proc.add(14, TICKS)
    (live,) = RanksWithoutFile(None, place.proc.folder, AgentLog()).poll([11, 12, 13, 14, 15], [])
    assert (live.rank.job, live.rank.rank, live.log, live.pid) == ("run-1", 3, 9, 11)


def test_a_task_that_a_person_started_has_no_attempt(place: Place) -> None:
    """Seed 001 gives it JOB_ID, RANK and WORLD_SIZE; which attempt it is, the server knows."""
    place.proc.add(11, TICKS, environment={"JOB_ID": "run-17", "RANK": "1", "WORLD_SIZE": "2"})
    (live,) = RanksWithoutFile(None, place.proc.folder, AgentLog()).poll([11], [])
    assert (live.rank.job, live.rank.attempt, live.rank.rank) == ("run-17", 0, 1)
    assert ranks.carries(place.proc.folder, 11, live.rank)


def test_a_rank_that_has_a_file_is_not_told_twice(place: Place) -> None:
    """Its wrapper is the one who knows."""
    place.file(epoch=...)
    place.proc.add(42, TICKS)
    place.proc.add(11, TICKS, environment=environment(RUNNING_LOG_ID="100"))
    known = place.sensor.poll()[0]
    assert RanksWithoutFile(None, place.proc.folder, AgentLog()).poll([11], known) == []


def test_a_container_of_ecs_tells_its_rank_by_its_first_process(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not use a GPU yet: it loads its data, and trains all the same."""
    ours, other = "a" * 64, "b" * 64
    place.proc.add(20, 1, inner=(20, 1), cgroup=f"0::/ecs/task/{ours}", environment=environment())
    place.proc.add(21, 2, inner=(21, 7), cgroup=f"0::/ecs/task/{ours}", environment=environment(RANK="5"))
    place.proc.add(22, 3, inner=(22, 1), cgroup=f"0::/x/docker-{other}.scope", environment=environment(RANK="6"))
    sensor = RanksWithoutFile("http://127.0.0.1:51678", place.proc.folder, AgentLog())
    monkeypatch.setattr(sensor, "_containers", lambda: {ours})
    assert [live.pid for live in sensor.poll([], [])] == [20]


def test_the_introspection_of_ecs_names_the_containers_of_running_tasks() -> None:
    """The shape of `/v1/tasks`; anything else names none."""
    tasks = [
        {"Arn": "a", "KnownStatus": "RUNNING", "Containers": [{"DockerId": "d1", "Name": "trainer"}, {}]},
        {"Arn": "b", "KnownStatus": "STOPPED", "Containers": [{"DockerId": "d2"}]},
        "x",
    ]
    assert containers_in({"Tasks": tasks}) == {"d1"}
    for strange in (None, [], {}, {"Tasks": 3}, {"Tasks": [{"KnownStatus": "RUNNING", "Containers": "x"}]}):
        assert containers_in(strange) == set()


class EcsAgent(BaseHTTPRequestHandler):
    """The introspection of an ECS agent on the loopback: it answers with `answers`, one each time."""

    answers: ClassVar[list[tuple[int, bytes]]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def ecs() -> Iterator[str]:
    """Its address."""
    EcsAgent.answers[:], EcsAgent.asked[:] = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), EcsAgent) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_a_rank_in_a_container_of_ecs_is_found_through_the_introspection(place: Place, ecs: str) -> None:
    """Over HTTP, as the ECS agent answers: the rank of a running task is told, that of a stopped one is not."""
    ours, over = "a" * 64, "b" * 64
    place.proc.add(20, 1, inner=(20, 1), cgroup=f"0::/ecs/task/{ours}", environment=environment())
    place.proc.add(22, 3, inner=(22, 1), cgroup=f"0::/ecs/task/{over}", environment=environment(RANK="6"))
    tasks = [
        {
            "Arn": "arn:t1",
            "DesiredStatus": "RUNNING",
            "KnownStatus": "RUNNING",
            "Family": "gpu-training",
            "Version": "3",
            "Containers": [{"DockerId": ours, "DockerName": "ecs-main", "Name": "main"}],
        },
        {"Arn": "arn:t2", "DesiredStatus": "STOPPED", "KnownStatus": "STOPPED", "Containers": [{"DockerId": over}]},
    ]
    EcsAgent.answers.append((200, json.dumps({"Tasks": tasks}).encode()))
    (live,) = RanksWithoutFile(ecs, place.proc.folder, AgentLog()).poll([], [])
    assert (live.rank.job, live.rank.rank, live.pid) == ("run-1", 0, 20)
    assert EcsAgent.asked == ["/v1/tasks"]


def test_an_ecs_agent_that_answers_anything_else_names_nobody(
    place: Place, ecs: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error, another shape, no JSON at all, one cut short: said where nothing was understood, and asked again."""
    place.proc.add(20, 1, inner=(20, 1), cgroup=f"0::/ecs/task/{'a' * 64}", environment=environment())
    whole = json.dumps({"Tasks": [{"KnownStatus": "RUNNING", "Containers": [{"DockerId": "a" * 64}]}]}).encode()
    EcsAgent.answers += [(503, whole), (200, b"[]"), (200, b"<html>"), (200, whole[:-9]), (200, whole)]
    sensor = RanksWithoutFile(ecs, place.proc.folder, AgentLog())
    assert [len(sensor.poll([], [])) for _ in range(5)] == [0, 0, 0, 0, 1]
    said = capfd.readouterr().err
    assert said.count("no ECS agent answers") == 1 and f"the ECS agent answers at {ecs}" in said


def test_a_node_without_an_ecs_agent_is_said_once(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """It is one way among several to run a rank."""
    sensor = RanksWithoutFile("http://127.0.0.1:9", place.proc.folder, AgentLog())
    assert sensor.poll([], []) == sensor.poll([], []) == []
    assert capfd.readouterr().err.count("no ECS agent answers") == 1


# -- the boot ----------------------------------------------------------------------------------------------------------


def test_a_boot_is_known_by_its_id(place: Place, tmp_path: Path) -> None:
    """Without it no report can be told from one of another boot."""
    assert boot_id(place.proc.folder) == BOOT and uptime_s() > 0
    (place.proc.folder / "sys/kernel/random/boot_id").write_text("nothing")
    for folder in (place.proc.folder, tmp_path / "nowhere"):
        with pytest.raises(BootUnknown):
            boot_id(folder)
