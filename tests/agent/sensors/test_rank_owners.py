"""Files of other users in the ranks' folder: whose process and whose exit they may name, and what a look costs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import processes, ranks
from gpu_recovery_agent.sensors.ranks import RankSensor

from tests.agent.fake_proc import BOOT, environment
from tests.agent.rank_place import TICKS, Place

STRANGER = 65_534
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_file_that_names_a_process_of_another_user_is_passed_over_and_said_once(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every user can read the pid and the start of a process, and write them to a file."""
    place.file()
    place.proc.add(42, TICKS, user=os.getuid() + 1)
    for _ in range(5):
        assert place.pids() == []
    assert capfd.readouterr().err.count("is ignored: user") == 1


def test_a_container_claim_finds_no_process_of_another_user(place: Place, tmp_path: Path) -> None:
    """The namespace, the pid in it and the start are those of a rank of somebody else."""
    inside = tmp_path / "inside"
    inside.touch()
    place.file(remote_pid=1, pid_namespace=inside.stat().st_ino)
    place.proc.add(900, TICKS, inner=(900, 1), namespace=inside, user=os.getuid() + 1)
    assert place.pids() == []
    place.proc.add(901, TICKS, inner=(901, 1), namespace=inside)
    assert place.pids() == [901]


@ROOT_ONLY
@pytest.mark.parametrize("name", ["100.exit", "other.exit"])
def test_an_exit_of_another_user_neither_hides_nor_ends_a_rank(
    place: Place, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is put aside, so that the rank can write its own exit under that name."""
    place.file()
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
    place.file(name, code=1)
    os.chown(place.folder / name, STRANGER, -1)
    for _ in range(3):
        live, exits = place.sensor.poll()
        assert ([one.pid for one in live], exits) == ([42], [])
    assert capfd.readouterr().err.count("it is moved aside") == 1
    place.file("100.exit", code=7)
    (place.folder / "100.json").unlink()
    _, exits = place.sensor.poll()
    assert [one.exit.code for one in exits] == [7]


@ROOT_ONLY
def test_an_exit_of_another_user_is_refused_also_after_the_end_of_the_rank(place: Place) -> None:
    """The user of the rank is remembered from its running file."""
    place.file()
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
    (place.folder / "100.json").unlink()
    place.file("100.exit", code=1)
    os.chown(place.folder / "100.exit", STRANGER, -1)
    assert place.sensor.poll() == ([], [])


@ROOT_ONLY
def test_a_claim_of_a_second_user_takes_no_rank_from_its_user(place: Place) -> None:
    """A process of his own is no proof against a rank that already runs."""
    place.file()
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
    place.file("0.json", remote_pid=50)
    os.chown(place.folder / "0.json", STRANGER, -1)
    place.proc.add(50, TICKS, user=STRANGER)
    assert sorted(place.pids()) == [42, 50]
    place.file("0.exit", code=1)
    os.chown(place.folder / "0.exit", STRANGER, -1)
    assert place.sensor.poll()[1] == []
    place.file("100.exit", code=0)
    (ended,) = place.sensor.poll()[1]
    assert ended.exit.code == 0


@ROOT_ONLY
def test_a_rank_that_another_user_starts_again_has_that_users_exit(place: Place) -> None:
    """A person may start a task again under another user, and it has attempt 0 again."""
    place.file(attempt=0)
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
    (place.folder / "100.json").unlink()
    place.proc.add(43, TICKS + 5, user=STRANGER)
    place.file("200.json", attempt=0, remote_pid=43, start_ticks=TICKS + 5)
    os.chown(place.folder / "200.json", STRANGER, -1)
    assert place.pids() == [43]
    place.file("200.exit", attempt=0, code=3)
    os.chown(place.folder / "200.exit", STRANGER, -1)
    (ended,) = place.sensor.poll()[1]
    assert ended.exit.code == 3


def test_all_claims_of_a_look_share_one_scan_of_proc(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 files, each changed before each look: one scan, 256 reads, and each process is read once for all of them."""
    scans, opened, views = [], [], []
    pids, read_file, namespace_pids = processes.pids, ranks.read_file, processes.namespace_pids
    inside = tmp_path / "inside"
    inside.touch()
    for pid in range(1_000, 1_050):
        place.proc.add(pid, TICKS, inner=(pid, 2), namespace=inside)
    monkeypatch.setattr(processes, "pids", lambda proc: scans.append(1) or pids(proc))
    monkeypatch.setattr(ranks, "read_file", lambda path, status: opened.append(path) or read_file(path, status))
    monkeypatch.setattr(processes, "namespace_pids", lambda proc, pid: views.append(pid) or namespace_pids(proc, pid))
    for look in range(1, 4):
        for number in range(300):
            place.file(f"{number}.json", remote_pid=1, pid_namespace=inside.stat().st_ino, timestamp=look)
        assert place.pids() == []
        assert (len(scans), len(opened), len(views)) == (look, 256 * look, 50 * look)


def test_of_equal_processes_the_environment_decides_and_is_read_once(place: Place) -> None:
    """Without CAP_SYS_PTRACE namespaces have no numbers: first processes of containers may have begun at one tick."""
    asked = []

    class Reader(processes.Direct):
        def environment(self, pid: int) -> dict[str, str] | None:
            asked.append(pid)
            return super().environment(pid)

    for pid, job in ((900, "other"), (901, "run-1"), (902, "run-2")):
        place.proc.add(pid, TICKS, inner=(pid, 1), environment=environment(job))
        (place.proc.folder / str(pid) / "ns" / "pid").unlink()
    for number, job in ((1, "run-1"), (2, "run-2")):
        place.file(f"{number}.json", job_id=job, remote_pid=1, pid_namespace=7)
    sensor = RankSensor(place.folder, place.proc.folder, BOOT, AgentLog(), Reader(place.proc.folder))
    assert [live.pid for live in sensor.poll()[0]] == [901, 902]
    assert sorted(asked) == [900, 901, 902]


def test_a_running_rank_stays_known_whatever_is_written_to_the_folder(place: Place) -> None:
    """Newer files of the same user leave it its place."""
    place.file()
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
    for number in range(300):
        place.file(f"0{number}.json", remote_pid=1)
    assert place.pids() == place.pids() == [42]


def test_an_exit_that_was_replaced_meanwhile_is_not_put_aside(place: Place) -> None:
    """The new file may be the exit of the rank itself."""
    place.file("100.exit", code=1)
    _, (refused,) = place.sensor.poll()
    place.file("new", code=0)
    (place.folder / "new").replace(place.folder / "100.exit")
    place.sensor.put_aside(refused)
    _, (ended,) = place.sensor.poll()
    assert ended.exit.code == 0


def test_a_file_that_changes_while_it_is_read_is_read_at_the_next_look(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may be another now; it may also be complete only now."""
    place.file()
    place.proc.add(42, TICKS)

    def replace_first(path: Path, expected: Any) -> dict[str, Any]:
        place.file("new")
        (place.folder / "new").replace(path)
        monkeypatch.undo()
        return ranks.read_file(path, expected)

    monkeypatch.setattr(ranks, "read_file", replace_first)
    assert place.pids() == []
    assert place.pids() == [42]


@ROOT_ONLY
def test_the_user_of_a_process_is_the_user_of_its_files(tmp_path: Path) -> None:
    """A process may act as another user than the user who started it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.seteuid(STRANGER)
        os.write(writes, b"x")
        signal.pause()
    try:
        os.read(reads, 1)
        assert processes.user(Path("/proc"), child) == STRANGER
        assert processes.user(Path("/proc"), os.getpid()) == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)
    assert processes.user(Path("/proc"), child) is None


def test_a_look_without_a_search_scans_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank in the namespace of the agent is found by its pid."""
    monkeypatch.delattr(processes, "pids")
    place.file()
    place.proc.add(42, TICKS)
    assert place.pids() == [42]
