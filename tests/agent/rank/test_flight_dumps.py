"""Dumps of the flight recorder under the wrapper: asked for before the end, and told to the agent of the node."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import BYTES_MAX, observed
from gpu_recovery.core.diagnosis.observations import FlightReport
from gpu_recovery_agent.flight_recorder.dump_files import dump_files
from gpu_recovery_agent.rank import flight_dumps, process
from gpu_recovery_agent.rank.delivery import Delivery
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.rank.flight_dumps import HELD_POLL_S, HOLD_S, REPORTS_MAX, WATCH_S, DumpsFirst, FlightDumps
from gpu_recovery_agent.rank.paths import SOCKET
from gpu_recovery_agent.sensors.training_socket import TrainingSocket

from tests.agent.api import WITHIN_S, Api, ok
from tests.agent.flight_recorder.dumps import CREATED_NS, dump, entry, hung, pickled, trace, write
from tests.agent.node import Node, wait_until

NOW_S = 1_000.0
FIRST, SECOND = RankIdentity("run-1", 1, 0), RankIdentity("run-1", 1, 1)
HANGS = Path(__file__).parent / "hanging_program.py"


def heard(ear: TrainingSocket) -> list[FlightReport]:
    """What the API would store of what has come, in as many heartbeats as it takes."""
    ear.poll(NOW_S)
    reports: list[Any] = []
    while batch := ear.batch():
        found, left_out = observed("i-1", [one.to_json(NOW_S) for one in batch])
        assert left_out == 0 and ear.lost == 0
        assert sum(one.size for one in batch) <= BYTES_MAX
        reports += [one.report for one in found]
        ear.acknowledge(batch, 0)
    return [one for one in reports if isinstance(one, FlightReport)]


def told(ear: TrainingSocket, rank: Any, status: int) -> list[FlightReport]:
    """What the API would store of a rank that ends with this status."""
    found: list[FlightReport] = []

    def has_ended() -> bool:
        ended = rank.poll() is not None
        found.extend(heard(ear))
        return ended

    wait_until(has_ended)
    assert rank.wait(0) == status
    return found


def dumps_of(folder: Path, said: list[str] | None = None, **more: str) -> FlightDumps:
    """The dumps with a prefix in this folder, before any is written."""
    environment = {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_", "NNODES": "2", **more}
    return FlightDumps(environment, (said if said is not None else []).append)


# -- which dumps are told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_the_dumps_are_at_the_prefix_of_either_name(tmp_path: Path, variable: str) -> None:
    """Of both the newer counts, as PyTorch has it."""
    dumps = FlightDumps({variable: f"{tmp_path}/rank_", "NNODES": "1"}, print)
    write(tmp_path, hung(2, (1,)), "rank_")
    write(tmp_path, hung(8, (1,)), "other_")
    assert {one["rank"] for one in dumps.reports(FIRST)} == {0, 1}


def test_without_a_variable_they_are_in_the_folder_of_caches(tmp_path: Path) -> None:
    """Where newer releases write them."""
    folder = tmp_path / "torch"
    folder.mkdir()
    dumps = FlightDumps({"XDG_CACHE_HOME": str(tmp_path), "NNODES": "1"}, print)
    write(folder, hung(2, (1,)), "comm_lib_trace_rank_")
    assert {one["rank"] for one in dumps.reports(FIRST)} >= {0, 1}


def test_a_dump_of_an_earlier_run_is_not_told(tmp_path: Path) -> None:
    """A folder that outlives the container has them. One that is written again is new."""
    write(tmp_path, hung(4, (1,)), "rank_")
    dumps = dumps_of(tmp_path)
    assert dumps.reports(FIRST) == []
    before = (tmp_path / "rank_1").stat()
    os.utime(tmp_path / "rank_1", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert {one["rank"] for one in dumps.reports(FIRST)} == {1}


def test_the_age_of_a_dump_is_counted_from_the_look_that_found_it(tmp_path: Path) -> None:
    """By a clock that nobody sets; one that is written again is as old as its last content."""
    now = [0.0]
    dumps = FlightDumps({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_", "NNODES": "1"}, print, lambda: now[0])
    write(tmp_path, hung(1, ()), "rank_")
    now[0] = WATCH_S - 1
    dumps.watch()
    assert dumps.settle(WITHIN_S)
    now[0] = WATCH_S
    dumps.watch()
    assert dumps.settle(WITHIN_S)
    now[0] = 100.0
    assert [one["age_s"] for one in dumps.reports(FIRST)] == []
    write(tmp_path, hung(2, (1,)), "rank_")
    assert {(one["rank"], one["age_s"]) for one in dumps.reports(FIRST)} == {(0, 0.0), (1, 0.0)}
    now[0] = 160.0
    assert {one["age_s"] for one in dumps.reports(FIRST)} == {60.0}


@pytest.mark.parametrize("skew_s", [-3_600, 0, 3_600])
def test_the_clock_of_a_file_server_does_not_count(tmp_path: Path, skew_s: int) -> None:
    """The wait of a collective is the time from its call to the dump, both by the clock of the instance."""
    dumps = FlightDumps(
        {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_", "NNODES": "1"},
        print,
        lambda: 0.0,
        lambda: CREATED_NS + 10 + 60 * 1_000_000_000,
    )
    write(tmp_path, hung(2, (1,)), "rank_")
    os.utime(tmp_path / "rank_0", (0, CREATED_NS / 1e9 + 60 + skew_s))
    assert {one.get("waits_s") for one in dumps.reports(FIRST)} == {60.0, None}


def test_a_command_that_must_get_each_signal_at_once_gets_it() -> None:
    """Its dumps are asked for all the same."""
    dumps = Dumps(True)
    assert DumpsFirst(Signals(), dumps, 0.0).on_signal(signal.SIGTERM) == signal.SIGTERM
    assert dumps.asked == 1


def test_of_a_folder_that_all_instances_share_each_tells_its_own(tmp_path: Path) -> None:
    """Else every instance would be the place of every rank. The dump itself says how many ranks an instance has."""
    dumps = dumps_of(tmp_path)
    write(tmp_path, hung(16, (12,)), "rank_")
    assert {one["rank"] for one in dumps.reports(FIRST)} == set(range(8))
    second = dumps.reports(SECOND)
    assert {one["rank"] for one in second} == set(range(8, 16))
    assert {one["local_world"] for one in second} == {8}


def test_of_a_folder_of_the_instance_every_dump_is_its_own(tmp_path: Path) -> None:
    """A launcher may count the instances in another order than the plan."""
    dumps = dumps_of(tmp_path)
    write(tmp_path, {rank: content for rank, content in hung(16, (12,)).items() if rank >= 8}, "rank_")
    assert {one["rank"] for one in dumps.reports(FIRST)} == set(range(8, 16))


def test_a_dump_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    """With a line in the log of the rank."""
    said: list[str] = []
    dumps = dumps_of(tmp_path, said, NNODES="1")
    write(tmp_path, hung(2, (1,)), "rank_")
    (tmp_path / "rank_1").write_bytes(b"\x80\x02cos\nsystem\n.")
    assert {one["rank"] for one in dumps.reports(FIRST)} == {0}
    assert len(said) == 1 and "rank_1 is not read: it holds more than plain values" in said[0]


def test_the_number_of_dumps_and_their_size_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each warning is one line."""
    said: list[str] = []
    dumps = dumps_of(tmp_path, said, NNODES="1")
    write(tmp_path, hung(4, (1,)), "rank_")
    monkeypatch.setattr(flight_dumps, "DUMPS_MAX", 2)
    assert {one["rank"] for one in dumps.reports(FIRST)} == {0, 1}
    monkeypatch.setattr(flight_dumps, "DUMP_BYTES_MAX", 10)
    assert dumps.reports(FIRST) == []
    reasons = [line.rpartition(": ")[2] for line in said]
    assert reasons == ["the others are not read", *["it is larger than 10 bytes"] * 4]


@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_2nd"])
def test_the_reports_of_a_full_instance_are_bounded_and_those_that_decide_come_first(
    tmp_path: Path, ear: TrainingSocket, name: str
) -> None:
    """Sixteen processes with eleven groups each: what waits, and every group of a process that waits nowhere."""
    dumps = dumps_of(tmp_path, NNODES="1")
    write(tmp_path, trace(name), "rank_")
    made = dumps.reports(FIRST)
    assert len(made) == REPORTS_MAX < 16 * 11
    Delivery(ear._path or Path()).send(made)
    found = heard(ear)
    assert len(found) == REPORTS_MAX
    idle = [rank for rank, content in trace(name).items() if not content["entries"]]
    for rank in idle:
        assert sum(one.rank == rank for one in found) >= 10


# -- asking for a dump -------------------------------------------------------------------------------------------------


class Signals:
    """Decides what it is given, in order."""

    def __init__(self, *due: int) -> None:
        self.next = list(due)

    def on_signal(self, number: int) -> int:
        return number

    def due(self) -> int:
        return self.next.pop(0) if self.next else 0


class Dumps:
    """Stands in for the dumps of a command: whether it names a pipe, and whether the requested dumps are there."""

    def __init__(self, names_a_pipe: bool) -> None:
        self.names_a_pipe, self.there, self.asked = names_a_pipe, False, 0

    def request(self) -> bool:
        self.asked += 1
        return self.names_a_pipe

    def answered(self) -> bool:
        return self.there

    def watch(self) -> None:
        return


def policy(inner: Signals, dumps: Any, clock: list[float]) -> DumpsFirst:
    return DumpsFirst(inner, dumps, now=lambda: clock[0])


def test_sigterm_waits_for_the_dumps_it_asked_for() -> None:
    """It is asked once; the signal goes out when all are there."""
    dumps, clock = Dumps(True), [0.0]
    found = policy(Signals(), dumps, clock)
    assert found.on_signal(signal.SIGTERM) == 0
    assert found.due() == 0
    dumps.there = True
    assert (found.due(), found.due(), dumps.asked) == (signal.SIGTERM, 0, 1)


def test_while_sigterm_waits_the_dumps_are_looked_for_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump counts at the third look: on a real GPU the looks of half a second cost more than the dump itself."""
    dumps, waited, sent = Dumps(True), [], []
    found = policy(Signals(signal.SIGTERM), dumps, [0.0])

    def passes(_: Any, seconds: float) -> None:
        waited.append(seconds)
        dumps.there = len(waited) == 3

    monkeypatch.setattr(process.signal, "sigtimedwait", passes)
    ended = process.Ended(signal=signal.SIGTERM)
    command: Any = SimpleNamespace(_reaped=lambda: ended if len(waited) == 4 else None, _signal=sent.append)
    assert process.Command.wait(command, found, found.poll_s) is ended
    assert waited == [process.POLL_S, HELD_POLL_S, HELD_POLL_S, process.POLL_S]
    assert sent == [0, 0, signal.SIGTERM, 0]


def test_sigterm_does_not_wait_for_ever() -> None:
    """Nor at all without a pipe."""
    dumps, clock = Dumps(True), [0.0]
    found = policy(Signals(signal.SIGTERM), dumps, clock)
    assert found.due() == 0
    clock[0] = HOLD_S
    assert found.due() == signal.SIGTERM
    assert policy(Signals(), Dumps(False), [0.0]).on_signal(signal.SIGTERM) == signal.SIGTERM


@pytest.mark.parametrize("second", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_signal_goes_through_at_once(second: int) -> None:
    """And takes the place of the first."""
    found = policy(Signals(), Dumps(True), [0.0])
    assert found.on_signal(signal.SIGTERM) == 0
    assert found.on_signal(second) == second
    assert found.due() == 0


def test_other_signals_ask_for_nothing() -> None:
    """A program uses SIGUSR1 for itself."""
    dumps = Dumps(True)
    assert policy(Signals(), dumps, [0.0]).on_signal(signal.SIGUSR1) == signal.SIGUSR1
    assert dumps.asked == 0


def answer(dumps: FlightDumps) -> bool:
    """Whether the requested dumps are there by the last look. The next look has ended, too."""
    found = dumps.answered()
    assert dumps.settle(WITHIN_S)
    return found


def test_only_pipes_with_a_listener_are_asked(tmp_path: Path) -> None:
    """A pipe that a dead process left behind, a file and another name are none."""
    for name in ("fr_0.pipe", "fr_1.pipe", "fr_x.pipe"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "fr_2.pipe").touch()
    reader = os.open(tmp_path / "fr_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        dumps = dumps_of(tmp_path, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/fr_")
        assert not answer(dumps), "nobody has been asked"
        assert dumps.request() and not answer(dumps) and not answer(dumps)
        assert os.read(reader, 8)
        assert not dumps_of(tmp_path).request()
    finally:
        os.close(reader)
    dumps = dumps_of(tmp_path, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/fr_")
    assert dumps.request() and dumps.settle(WITHIN_S) and answer(dumps), "without a listener no dump is awaited"
    assert (tmp_path / "fr_2.pipe").read_bytes() == b""


def test_only_a_whole_dump_of_a_requested_process_answers(tmp_path: Path) -> None:
    """SIGTERM at once would cut the dump that is being written. Another instance writes into the same folder."""
    write(tmp_path, hung(1, ()), "rank_")
    dumps = dumps_of(tmp_path, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/fr_")
    write(tmp_path, {1: hung(2, ())[1]}, "rank_")
    os.mkfifo(tmp_path / "fr_1.pipe")
    reader = os.open(tmp_path / "fr_1.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert dumps.request() and dumps.settle(WITHIN_S)
    finally:
        os.close(reader)
    write(tmp_path, {0: hung(9, ())[0], 8: hung(9, ())[8]}, "rank_")
    assert not any(answer(dumps) for _ in range(4)), "an older dump, and dumps of others"
    (tmp_path / "rank_1").write_bytes(b"")
    assert not any(answer(dumps) for _ in range(4)), "an empty file"
    for part in (b"\x80", b"\x80\x02", b"\x80\x02N"):
        (tmp_path / "rank_1").write_bytes(part)
        assert not answer(dumps), "it grows"
    assert [answer(dumps) for _ in range(2)] == [False, True]


# -- a folder that hangs -----------------------------------------------------------------------------------------------


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The folder of the dumps hangs from now on, until the event is set. The begin does not wait."""
    answers = Event()

    def blocked(folder: Path, prefix: str = "") -> dict[int, list[Path]]:
        answers.wait()
        return dump_files(folder, prefix)

    monkeypatch.setattr(flight_dumps, "dump_files", blocked)
    monkeypatch.setattr(flight_dumps, "BEGIN_WITHIN_S", 0.0)
    yield answers
    answers.set()


@pytest.mark.parametrize("later", [False, True])
def test_signals_do_not_wait_for_a_folder_that_hangs(
    tmp_path: Path, hangs: Event, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """SIGTERM goes out at the end of its delay, SIGKILL at once. No dump is reported, and the log says so."""
    monkeypatch.setattr(flight_dumps, "END_WITHIN_S", 0.0)
    said: list[str] = []
    clock = [0.0]
    if later:
        monkeypatch.setattr(flight_dumps, "BEGIN_WITHIN_S", WITHIN_S)
        hangs.set()
    names = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/fr_"}
    dumps = FlightDumps(names, said.append, lambda: clock[0])
    hangs.clear()
    clock[0] = WATCH_S
    found = policy(Signals(0, 0, 0, signal.SIGKILL), dumps, clock)
    assert found.due() == 0
    assert (found.on_signal(signal.SIGTERM), found.due()) == (0, 0)
    clock[0] += HOLD_S
    assert found.due() == signal.SIGTERM
    assert found.due() == signal.SIGKILL
    assert dumps.reports(FIRST) == []
    assert [line.rpartition(": ")[2] for line in said] == [
        *([] if later else ["the folder of the flight recorder's dumps does not answer"]),
        "none is read",
    ]


def test_a_folder_that_hangs_for_a_while_is_read_later(tmp_path: Path, hangs: Event) -> None:
    """One look is under way at a time, however often the loop asks."""
    now = [0.0]
    dumps = FlightDumps({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_", "NNODES": "1"}, print, lambda: now[0])
    for _ in range(3):
        now[0] += WATCH_S
        dumps.watch()
        assert not dumps.answered()
    hangs.set()
    assert dumps.settle(WITHIN_S)
    write(tmp_path, hung(2, (1,)), "rank_")
    dumps.watch()
    assert dumps.settle(WITHIN_S)
    now[0] += 60.0
    assert {one["age_s"] for one in dumps.reports(FIRST)} == {60.0}


@pytest.mark.slow
def test_the_agent_reports_all_records_at_once_though_one_report_cannot_hold_them(node: Node, api: Api) -> None:
    """The evidence is collected when the last rank has ended; the next regular report comes in five minutes."""
    api.lasting = ok(next_s=300)
    node.running.mkdir()
    node.agent()
    path = node.running / SOCKET
    wait_until(path.exists)
    records = [
        {"type": "flight", "id": f"f-{n}", "job": "run-1", "attempt": 1, "rank": n, "group": "0", "urgent": True}
        for n in range(REPORTS_MAX)
    ]
    Delivery(path).send(records)

    def ids() -> list[str]:
        return [one["id"] for heard in api.heard for one in heard.report.get("diagnosis", ())]

    wait_until(lambda: len(ids()) == REPORTS_MAX)
    assert sum(bool(heard.report.get("diagnosis")) for heard in api.heard) == 2


# -- under the wrapper -------------------------------------------------------------------------------------------------


def hanging(node: Node, folder: Path, *ranks: int, **more: str) -> Any:
    """A rank whose processes hang, and dump once they are asked to, as PyTorch does."""
    names = {"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/fr_"}
    started = node.rank(sys.executable, str(HANGS), *map(str, ranks), NNODES="2", **names, **more)
    assert started.stdout is not None and started.stdout.readline() == b"hangs\n"
    return started


@pytest.mark.slow
def test_a_rank_that_hangs_is_asked_for_its_dumps_before_it_is_ended(
    node: Node, ear: TrainingSocket, tmp_path: Path
) -> None:
    """The gang is stopped: SIGTERM. Nobody has dumped before."""
    prepared = write(tmp_path / "dumps", hung(16, (12,)), "to_come_")
    started = hanging(node, prepared, 8, 12, rank=1)
    started.terminate()
    found = told(ear, started, 143)
    assert {(one.rank, one.last_enqueued, one.last_completed) for one in found} == {(8, 10, 9), (12, 9, 9)}
    assert {one.local_world for one in found} == {8}


@pytest.mark.slow
def test_a_short_stop_timeout_leaves_sigterm_its_time(node: Node, ear: TrainingSocket, tmp_path: Path) -> None:
    """SIGKILL comes after 2 s there. The dump of a process that never writes it is awaited for half of that."""
    (tmp_path / "dumps").mkdir()
    started = hanging(node, tmp_path / "dumps", 12, DUMPS="no", GPU_RECOVERY_STOP_TIMEOUT_S="4")
    started.terminate()
    assert told(ear, started, 143) == []


@pytest.mark.slow
def test_rank_0_gets_sigterm_before_sigkill_after_a_grace_that_fills_the_stop_timeout(
    node: Node, ear: TrainingSocket, tmp_path: Path
) -> None:
    """SIGTERM at 1 s, SIGKILL at 2 s. The dump is awaited for half of the second between them."""
    (tmp_path / "dumps").mkdir()
    more = {"DUMPS": "no", "SUSPEND_GRACE_S": "1", "GPU_RECOVERY_STOP_TIMEOUT_S": "4"}
    started = hanging(node, tmp_path / "dumps", 0, **more)
    started.terminate()
    assert started.wait(WITHIN_S) == 143


@pytest.mark.slow
def test_a_command_without_progress_is_asked_before_it_is_ended(
    node: Node, ear: TrainingSocket, tmp_path: Path
) -> None:
    """Its own watchdog ends it."""
    prepared = write(tmp_path / "dumps", hung(16, (12,)), "to_come_")
    started = hanging(node, prepared, 12, WATCHDOG_S="0.1")
    assert {one.rank for one in told(ear, started, 124)} == {12}


@pytest.mark.slow
def test_a_rank_that_died_tells_what_it_dumped_by_itself(node: Node, ear: TrainingSocket, tmp_path: Path) -> None:
    """PyTorch has dumped at its time-out and ended the process. A rank that ends well tells nothing."""
    (tmp_path / "dump").write_bytes(pickled(dump({"0": range(2)}, [entry("0", 3, state="scheduled")])))
    folder = tmp_path / "dumps"
    folder.mkdir()
    for status in (0, 1):
        command = f"cp {tmp_path}/dump {folder}/rank_{status}; exit {status}"
        names = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/rank_", "NNODES": "2"}
        found = told(ear, node.rank("sh", "-c", command, **names), status)
        assert [one.rank for one in found] == ([1] if status else [])
