"""The socket on which trainings tell: what is taken, what is dropped, and that nothing sent to it does any harm."""

from __future__ import annotations

import itertools
import json
import math
import os
import socket
import stat
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.wire.json_body import read_json
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.paths import SOCKET
from gpu_recovery_agent.report import ReportContent, body, encoded
from gpu_recovery_agent.sensors.training_message import LINE_BYTES_MAX, read
from gpu_recovery_agent.sensors.training_socket import (
    BATCH_BYTES_MAX,
    BATCH_MAX,
    DATAGRAM_BYTES_MAX,
    DATAGRAMS_AT_ONCE,
    QUEUE_MAX,
    TrainingSocket,
)
from gpu_recovery_agent.settings import AgentSettings
from gpu_recovery_client.diagnosis.sender import Sender
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.api import Api, ok, refusal
from tests.agent.fake_proc import BOOT
from tests.agent.node import Node, wait_until
from tests.tiers import examples

PROGRESS = {"type": "progress", "id": "p-1", "job": "run-1", "attempt": 1, "value": 3}
NOW_S = 1_000.0
OWN = {"pid": os.getpid()}
"""What the agent adds to a report of this process."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the socket is to be."""
    return tmp_path / SOCKET


@pytest.fixture
def ear(path: Path) -> Iterator[TrainingSocket]:
    """A socket that is bound."""
    found = TrainingSocket(path, AgentLog())
    found.poll(NOW_S)
    yield found
    found.close()


def send(path: Path, *reports: Any, raw: bytes | None = None) -> None:
    """One datagram, of someone who does not wait."""
    lines = raw if raw is not None else b"\n".join(json.dumps(one).encode() for one in reports)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        sender.sendto(lines, str(path))


def numbered(number: int, kind: str = "progress", **more: Any) -> dict[str, Any]:
    """A report with an id of its own."""
    return PROGRESS | {"type": kind, "id": f"{kind}-{number}"} | more


def ids(ear: TrainingSocket) -> list[str]:
    """What the next report takes along."""
    return [one.values["id"] for one in ear.batch()]


# -- what is taken -----------------------------------------------------------------------------------------------------


def test_what_is_told_waits_until_it_was_heard(ear: TrainingSocket, path: Path) -> None:
    """An answer that is lost loses nothing; the age is counted on by the clock of the boot."""
    send(path, numbered(1, age_s=2.5), numbered(2))
    ear.poll(NOW_S)
    first = ear.batch()
    assert [one.to_json(NOW_S + 10) for one in first] == [
        numbered(1) | OWN | {"age_s": 12.5},
        numbered(2) | OWN | {"age_s": 10.0},
    ]
    send(path, numbered(3))
    ear.poll(NOW_S + 1)
    assert ids(ear) == ["progress-1", "progress-2", "progress-3"]
    ear.acknowledge(first, 0)
    assert ids(ear) == ["progress-3"]


def test_the_kernel_says_which_process_has_told(ear: TrainingSocket, path: Path) -> None:
    """A process of another number; what it says of itself does not count, and of somebody elsewhere nothing is said."""
    lies, elsewhere = numbered(1, pid=1), numbered(2, pid=1, elsewhere=True, worker="1.0")
    program = "import socket, sys; socket.socket(1, 2).sendto(sys.argv[2].encode(), sys.argv[1])"
    lines = "\n".join(map(json.dumps, (lies, elsewhere)))
    child = subprocess.Popen([sys.executable, "-Sc", program, str(path), lines])
    assert child.wait(20) == 0 and child.pid != os.getpid()
    ear.poll(NOW_S)
    assert [one.values.get("pid") for one in ear.batch()] == [child.pid, None]


def test_a_process_whose_number_the_kernel_cannot_tell_has_none(
    ear: TrainingSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is outside of the agent's namespace of processes: the kernel says 0."""
    line, credentials = json.dumps(numbered(1, pid=7)).encode(), struct.pack("3i", 0, 0, 0)
    answers = iter([(line, [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)], 0, None)])

    class Once:
        def recvmsg(self, *_: int) -> Any:
            try:
                return next(answers)
            except StopIteration:
                raise BlockingIOError from None

        def close(self) -> None:
            return

    monkeypatch.setattr(ear, "_socket", Once())
    ear.poll(NOW_S)
    assert [one.values.get("pid") for one in ear.batch()] == [None]


def test_a_report_takes_along_as_much_as_the_protocol_admits(ear: TrainingSocket, path: Path) -> None:
    """In number and in bytes, the oldest first; the rest comes with the next."""
    for begin in range(0, 100, 20):
        send(path, *(numbered(n) for n in range(begin, begin + 20)))
    ear.poll(NOW_S)
    assert ids(ear) == [f"progress-{n}" for n in range(BATCH_MAX)]
    ear.acknowledge(ear.batch(), 0)
    assert ids(ear) == [f"progress-{n}" for n in range(BATCH_MAX, 100)]
    ear.acknowledge(ear.batch(), 0)
    for n in range(16):
        send(path, numbered(n, "nccl", line="x" * 3_000))
        ear.poll(NOW_S)
    told = [one.to_json(NOW_S + 1e6) for one in ear.batch()]
    size = len(json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode())
    assert 3 < len(told) < 16 and BATCH_BYTES_MAX - 3_200 < size <= BATCH_BYTES_MAX + len(told)


def test_it_is_part_of_the_report_and_of_what_the_report_tells(ear: TrainingSocket, path: Path) -> None:
    """A report with more in it is another report; one with nothing has no such field."""
    empty = ReportContent(BOOT)
    send(path, numbered(1))
    ear.poll(NOW_S)
    facts = ReportContent(BOOT, diagnosis=ear.batch(), diagnosis_lost=2)
    found = json.loads(encoded(body(facts, sequence=1, uptime_s=NOW_S + 3, kernel_log_s=0, interval_s=15.0)))
    assert (found["diagnosis"], found["diagnosis_lost"]) == ([numbered(1) | OWN | {"age_s": 3.0}], 2)
    assert facts.mark != empty.mark
    bare = body(empty, sequence=1, uptime_s=1.0, kernel_log_s=0, interval_s=15.0)
    assert not {"diagnosis", "diagnosis_lost"} & bare.keys()


# -- what is dropped ---------------------------------------------------------------------------------------------------

GARBAGE = [
    b"\xff\xfe",
    b"{",
    b"[]",
    b"7",
    b'"x"',
    b"null",
    b"{}",
    b'{"type":7}',
    b'{"type":"a","x":NaN}',
    b'{"type":"a","x":1e999}',
    b'{"type":"a","x":' + b"9" * 4_000 + b"}",
    b'{"type":"a","x":{"y":1}}',
    b'{"type":"a","x":[[1]]}',
    b'{"type":"a","x":[{"y":[1]}]}',
    b"[" * 4_000,
    b'{"type":"a","x":' + b"[" * 4_000,
    b'{"type":"a","x":"' + b"y" * LINE_BYTES_MAX + b'"}',
    b'{"type":"a","' + b"k" * 65 + b'":1}',
    b'{"type":"a","x":' + str(2**53).encode() + b"}",
    b'{"type":"a","x":[' + b"1," * 64 + b"1]}",
    b"\x00" * 100,
    b'{"type":"a","\\ud800":1,"\\ud801":1}',
    b'{"type":"a","x":{"\\udfff":1}}',
    b'{"type":"a","x":[{"\\ud800":1}]}',
]


@pytest.mark.parametrize("line", GARBAGE)
def test_garbage_is_dropped_and_counted_and_its_neighbours_count(ear: TrainingSocket, path: Path, line: bytes) -> None:
    """Whatever a process of anybody sends."""
    send(path, raw=b"\n".join([json.dumps(numbered(1)).encode(), line, json.dumps(numbered(2)).encode()]))
    ear.poll(NOW_S)
    assert (ids(ear), ear.lost) == (["progress-1", "progress-2"], 1)


WORDS = st.text(max_size=5) | st.sampled_from(["x", "\ud800", "\udfff"])
ODD = st.sampled_from([math.nan, math.inf, -math.inf, 2**53, 10**400])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS | ODD
FLAT = st.dictionaries(WORDS, PLAIN, max_size=3)
LINES = st.dictionaries(WORDS, PLAIN | st.lists(PLAIN, max_size=3) | st.lists(FLAT, max_size=2) | FLAT, max_size=3).map(
    lambda found: json.dumps({**found, "type": "a"}).encode()
)


def test_what_is_passed_on_never_spoils_a_report() -> None:
    """The API reads it: JSON of finite numbers, in UTF-8, no key given twice."""
    passed: Counter[bool] = Counter()

    @examples(3)
    @given(LINES | st.binary(max_size=200))
    def each(line: bytes) -> None:
        found = read(line)
        passed[found is not None] += 1
        if found is not None:
            read_json(encoded({"diagnosis": [found]}).decode("utf-8"))

    each()
    assert min(passed[True], passed[False]) > passed.total() / 18, passed


def test_a_datagram_that_is_too_long_is_dropped_whole(ear: TrainingSocket, path: Path) -> None:
    """It would come cut, and what is cut says something else."""
    send(path, raw=b'{"type":"a"}\n' + b" " * DATAGRAM_BYTES_MAX)
    send(path, numbered(1))
    ear.poll(NOW_S)
    assert (ids(ear), ear.lost) == (["progress-1"], 1)


def test_what_a_process_had_to_drop_is_counted(ear: TrainingSocket, path: Path) -> None:
    """Once it was heard it is forgotten; what came meanwhile is not."""
    send(path, {"type": "lost", "count": 7}, {"type": "lost", "count": -3}, {"type": "lost", "count": 10**9})
    ear.poll(NOW_S)
    assert ids(ear) == [] and ear.lost == 9
    ear.acknowledge((), 7)
    assert ear.lost == 2


def test_of_too_much_the_rare_stays(ear: TrainingSocket, path: Path) -> None:
    """While the API is away an event is kept and old progress goes; everything that went is counted."""
    send(path, numbered(0, "event"))
    ear.poll(NOW_S)
    for begin in range(0, 400, 40):
        send(path, *(numbered(n) for n in range(begin, begin + 40)))
        ear.poll(NOW_S)
    assert ids(ear)[:2] == ["event-0", f"progress-{400 - QUEUE_MAX + 1}"]
    assert ear.lost == 401 - QUEUE_MAX


def test_what_waits_is_bounded_in_bytes(ear: TrainingSocket, path: Path) -> None:
    """Whatever its number."""
    for n in range(100):
        send(path, numbered(n, "nccl", line="x" * 3_000))
        ear.poll(NOW_S)
    assert ear.lost >= 78 and ids(ear)[-1] != "nccl-0"


def test_a_report_that_is_refused_is_not_sent_again(ear: TrainingSocket, path: Path) -> None:
    """What no server reads must not come with every heartbeat for ever; it is counted as lost."""
    send(path, numbered(1))
    ear.poll(NOW_S)
    ear.reject(ear.batch())
    assert (ear.batch(), ear.lost) == ((), 1)


# -- the socket --------------------------------------------------------------------------------------------------------


def test_everybody_may_write_to_it_whatever_the_agents_umask(path: Path) -> None:
    """A rank is another user; the unit's umask is 0077."""
    before = os.umask(0o077)
    try:
        ear = TrainingSocket(path, AgentLog())
        ear.poll(NOW_S)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    ear.close()
    assert not path.exists()


def test_it_is_made_once_the_folder_is_there(tmp_path: Path) -> None:
    """A rank makes the folder with its own rights: the agent must not be first."""
    path = tmp_path / "later" / SOCKET
    ear = TrainingSocket(path, AgentLog())
    ear.poll(NOW_S)
    assert not path.parent.exists() and ear.batch() == ()
    path.parent.mkdir()
    ear.poll(NOW_S)
    send(path, numbered(1))
    ear.poll(NOW_S)
    assert ids(ear) == ["progress-1"]
    ear.close()


@pytest.mark.parametrize("instead", ["nothing", "a file", "another socket", "a link"])
def test_one_that_is_taken_away_is_made_again(ear: TrainingSocket, path: Path, instead: str) -> None:
    """Whoever may write to the folder may do this; the next look mends it."""
    path.unlink()
    if instead == "a file":
        path.write_text("x")
    elif instead == "another socket":
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(str(path))
    elif instead == "a link":
        path.symlink_to("/etc/hostname")
    ear.poll(NOW_S)
    send(path, numbered(1))
    ear.poll(NOW_S)
    assert ids(ear) == ["progress-1"]


def test_a_folder_may_lie_deeper_than_an_address_of_a_socket_is_long(tmp_path: Path) -> None:
    """Both ends find each other all the same."""
    path = tmp_path / ("d" * 60) / ("e" * 60) / SOCKET
    path.parent.mkdir(parents=True)
    ear = TrainingSocket(path, AgentLog())
    ear.poll(NOW_S)
    sender = Sender(str(path))
    sender.put({"type": "progress", "id": "p-1", "job": "run-1", "attempt": 1, "value": 3}, urgent=True)
    sender.finish()
    assert ear.poll(NOW_S) is True
    assert ids(ear) == ["p-1"]
    ear.close()


def test_what_cannot_be_made_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path is too long for a socket, a folder lies there: the heartbeat goes on."""
    for path in (tmp_path / ("x" * 120), tmp_path / "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        ear = TrainingSocket(path, AgentLog())
        for _ in range(3):
            ear.poll(NOW_S)
        assert capsys.readouterr().err.count("reports of trainings are not received") == 1


def test_none_is_made_where_it_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    """By its variable; otherwise it lies beside the files of the ranks."""
    of = {"GPU_RECOVERY_API_URL": "https://h", "GPU_RECOVERY_TOKEN": "t", "GPUTASKER_RUNNING_TASKS_DIR": "/r"}
    assert AgentSettings.from_environment(of).socket == Path("/r") / SOCKET
    assert AgentSettings.from_environment(of | {"GPU_RECOVERY_SOCKET": "/s"}).socket == Path("/s")
    assert AgentSettings.from_environment(of | {"GPU_RECOVERY_SOCKET": "off"}).socket is None
    ear = TrainingSocket(None, AgentLog())
    ear.poll(NOW_S)
    assert (ear.batch(), ear.lost, capsys.readouterr().err) == ((), 0, "")


def test_a_look_ends_whatever_comes(ear: TrainingSocket, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that sends without end must not keep the heartbeat waiting."""
    endless = b"\n".join(json.dumps(numbered(n)).encode() for n in range(3))

    class Endless:
        calls = 0

        def recvmsg(self, size: int, *_: int) -> tuple[bytes, list[Any], int, None]:
            self.calls += 1
            assert size > DATAGRAM_BYTES_MAX
            return endless, [], 0, None

        def close(self) -> None:
            return

    source = Endless()
    monkeypatch.setattr(ear, "_socket", source)
    ear.poll(NOW_S)
    assert source.calls == DATAGRAMS_AT_ONCE and len(ear.batch()) <= QUEUE_MAX


# -- with a real agent -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_agent_hears_a_training_and_survives_garbage(api: Api, node: Node) -> None:
    """It tells what is good, with the losses; of an answer that is lost nothing is lost and nothing told after 200."""
    node.running.mkdir()
    socket_path = node.running / SOCKET
    api.lasting = refusal(503, "busy")
    agent = node.agent(GPU_RECOVERY_LOOK_MS="5")
    wait_until(socket_path.exists)
    for line in GARBAGE:
        wait_until(lambda line=line: _sent(socket_path, line))
    wait_until(lambda: _sent(socket_path, json.dumps(numbered(1)).encode()))
    told = api.next(lambda report: bool(report.get("diagnosis")) and report.get("diagnosis_lost") == len(GARBAGE))
    assert [one["id"] for one in told["diagnosis"]] == ["progress-1"] and told["diagnosis"][0]["age_s"] >= 0
    # Once nothing else changes, what is repeated is the same report.
    api.until(
        lambda found: any(
            one["sequence"] == other["sequence"] and one.get("diagnosis") and other.get("diagnosis")
            for one, other in itertools.pairwise(found)
        )
    )
    api.lasting = ok(left_out=1)
    api.next(lambda report: "diagnosis" not in report)
    assert agent.poll() is None
    assert node.said().count("1 reports of trainings were not kept") == 1
    agent.terminate()
    assert agent.wait(60) == 0 and not socket_path.exists()


@pytest.mark.slow
def test_the_last_word_of_a_rank_is_told_no_later_than_its_end(api: Api, node: Node) -> None:
    """From the program through the wrapper, the socket and the agent: what failed, with the exit that follows it."""
    node.running.mkdir()
    node.agent()
    wait_until((node.running / SOCKET).exists)
    program = (
        "from gpu_recovery_client import diagnosis\n"
        "with diagnosis.stage('rollout', step=3):\n    raise RuntimeError('CUDA error: uncorrectable ECC error')\n"
    )
    assert node.rank(sys.executable, "-c", program).wait(60) == 1
    reports = api.until(lambda found: any(one.get("exits") for one in found))
    ended = next(n for n, one in enumerate(reports) if one.get("exits"))
    every = [entry for one in reports[: ended + 1] for entry in one.get("diagnosis", [])]
    told = [one for one in every if one["type"] != "written"]  # the wrapper's own word may follow the end
    assert [(one["type"], one["moment"], one["step"]) for one in told] == [
        ("stage", "before", 3),
        ("stage", "after", 3),
    ]
    assert told[1]["error"] == "RuntimeError: CUDA error: uncorrectable ECC error"
    assert {(one["job"], one["attempt"], one["rank"]) for one in told} == {("run-1", 1, 0)}


def _sent(path: Path, line: bytes) -> bool:
    try:
        send(path, raw=line)
    except BlockingIOError:
        return False
    return True
