"""How a training's word gets to the agent: bounded, in a thread, and never to the harm of who speaks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis import reporter
from gpu_recovery_client.diagnosis import sender as sender_module
from gpu_recovery_client.diagnosis.reporter import ProcessIdentity, of_environment
from gpu_recovery_client.diagnosis.sender import LINE_BYTES_MAX, WAITING_MAX, WORK_MAX, Sender

from tests.client.training_process import JOB, Clock, Ear, listening

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ear(tmp_path: Path, clock: Clock) -> Iterator[Ear]:
    with listening(tmp_path, clock) as found:
        yield found


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return [one["n"] for one in lines]


def test_what_is_told_comes_in_order_with_its_age_and_an_id_of_its_own(ear: Ear, clock: Clock) -> None:
    """The age is reckoned when it is sent; job, attempt, rank and worker are those of the process."""
    ear.voice.send("progress", value=1.0)
    clock.at += 2.5
    ear.voice.send("progress", value=2.0)
    first, second = ear.lines()
    usual = {"type": "progress", "job": JOB, "attempt": 1, "rank": 3, "worker": "3.0", "worker_role": "train"}
    assert first == usual | {"id": "0a1b2c3d-1", "value": 1.0, "age_s": 2.5}
    assert second == usual | {"id": "0a1b2c3d-2", "value": 2.0, "age_s": 0.0}


def test_a_report_about_another_worker_is_not_of_this_rank(ear: Ear) -> None:
    """The instance that tells it is not the one that it is about."""
    ear.voice.send("call", worker="rollout-1", method="m", seconds=1.0)
    (line,) = ear.lines()
    assert (line["worker"], line["elsewhere"]) == ("rollout-1", True) and not {"rank", "worker_role"} & line.keys()


def test_the_end_of_the_process_waits_for_a_datagram_in_flight(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread dies with the process, and has already taken the datagram out of the queue."""
    sender, send = ear.voice.sender, ear.voice.sender._send
    in_flight, ended = threading.Event(), threading.Event()

    def slow(datagram: bytes) -> bool:
        in_flight.set()
        return not ended.wait(0.05) and send(datagram)  # nothing is sent by a thread that has ended

    monkeypatch.setattr(sender_module, "LATE_S", 30.0)
    monkeypatch.setattr(sender, "_send", slow)
    sender.put({"n": 1})
    thread = threading.Thread(target=sender.turn)
    thread.start()
    in_flight.wait()
    sender.finish()
    ended.set()
    thread.join()
    assert numbers(ear.lines()) == [1]


def test_where_nobody_listens_the_oldest_goes_and_is_counted(ear: Ear) -> None:
    """The agent is not there yet: the training goes on, and the newest is told once it is."""
    path = ear.path
    ear.path.rename(path.with_suffix(".gone"))
    for n in range(WAITING_MAX + 7):
        ear.voice.sender.put({"n": n})
    assert ear.lines() == [] and ear.voice.sender.lost == 7
    path.with_suffix(".gone").rename(path)
    lines = ear.lines()
    assert lines[0] == {"type": "lost", "count": 7}
    assert numbers(lines[1:] + ear.lines() + ear.lines()) == list(range(7, WAITING_MAX + 7))
    assert ear.voice.sender.lost == 0


def test_an_agent_that_does_not_read_makes_nobody_wait_and_loses_nothing(ear: Ear) -> None:
    """The socket is full: what is left waits here, in its order."""
    for n in range(1_000):
        ear.voice.sender.put({"n": n, "x": "y" * 3_000})
    ear.voice.sender.turn()
    assert ear.voice.sender._queue
    found: list[int] = []
    for _ in range(200):
        found += numbers(ear.lines())
    assert found == list(range(1_000))


def test_an_agent_that_began_anew_is_found_again(ear: Ear, clock: Clock, tmp_path: Path) -> None:
    """Its socket is another one at the same path; what it had not read is gone with it, and nothing else."""
    ear.voice.sender.put({"n": 1})
    assert numbers(ear.lines()) == [1]
    ear.socket.close()
    ear.path.unlink()
    ear.voice.sender.put({"n": 2})
    ear.voice.sender.turn()
    again = Ear(ear.path, clock)
    again.voice = ear.voice
    assert numbers(again.lines()) == [2]
    again.socket.close()


def test_a_report_that_is_too_long_is_dropped_and_a_text_is_cut(ear: Ear) -> None:
    """A stack trace in an error must not cost the report of it."""
    ear.voice.sender.put({"n": 1, "x": "y" * LINE_BYTES_MAX})
    ear.voice.send("nccl", line="z\n" * 10_000)
    (line,) = ear.lines()
    assert len(line["line"]) <= 1_000 and "\n" not in line["line"]
    ear.voice.sender.put({"n": 2})
    assert [(one.get("count"), one.get("n")) for one in ear.lines()] == [(1, None), (None, 2)]


def test_of_one_key_the_latest_is_told_and_seldom(ear: Ear, clock: Clock) -> None:
    """A step of 50 ms must not make twenty reports a second."""
    for n in range(100):
        ear.voice.sender.put_latest("k", {"n": n}, 5.0)
        clock.at += 0.051
        if n == 0:
            assert numbers(ear.lines()) == [0]
    assert numbers(ear.lines()) == [99]
    ear.voice.sender.put_latest("k", {"n": 100}, 5.0)
    assert ear.lines() == []
    clock.at += 5.0
    assert numbers(ear.lines()) == [100]


def test_what_is_urgent_brings_what_was_withheld_before_it(ear: Ear, clock: Clock) -> None:
    """The last clean check belongs to the error that follows it."""
    ear.voice.sender.put_latest("k", {"n": 1}, 5.0)
    ear.lines()
    ear.voice.sender.put_latest("k", {"n": 2}, 5.0)
    ear.voice.sender.put({"n": 3}, urgent=True)
    assert numbers(ear.lines()) == [2, 3]
    assert ear.voice.sender._wake.is_set()


def test_work_is_done_in_time_and_its_trouble_costs_one_report(ear: Ear, clock: Clock) -> None:
    """What raises is neither the end of the thread nor of the work of others."""
    done: list[str] = []

    def broken() -> None:
        done.append("broken")
        raise ZeroDivisionError

    stop = ear.voice.sender.every(10.0, broken)
    ear.voice.sender.every(10.0, lambda: done.append("sound"))
    ear.voice.sender.work(lambda: done.append("once"))
    for _ in range(3):
        ear.voice.sender.turn()
    assert done == ["broken", "sound", "once"]
    clock.at += 10.0
    ear.voice.sender.turn()
    stop()
    clock.at += 10.0
    ear.voice.sender.turn()
    assert done[3:] == ["broken", "sound", "sound"]


def test_work_that_waits_is_bounded(ear: Ear) -> None:
    """An NVML that hangs must not fill the memory of the training."""
    for _ in range(WORK_MAX + 5):
        ear.voice.sender.work(lambda: None)
    assert len(ear.voice.sender._once) == WORK_MAX and ear.voice.sender.lost == 5


def test_telling_costs_no_system_call_and_no_lock(ear: Ear) -> None:
    """All of it is the thread's: on the training's own thread there is a dictionary and an append."""
    called: Counter[str] = Counter()

    def note(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            owner = function.__self__
            called[owner.__name__ if isinstance(owner, ModuleType) else type(owner).__name__] += 1

    before = sys.getprofile()
    gc.disable()  # whoever is called back by it works in this thread, too
    sys.setprofile(note)
    try:
        for n in range(1_000):
            ear.voice.send("progress", value=float(n))
            diagnosis.progress(n)
    finally:
        sys.setprofile(before)
        gc.enable()
    assert called["deque"] >= 1_000
    assert called.keys() <= {"deque", "dict", "list", "builtins", "math", "sys"}


@pytest.mark.parametrize(
    ("environment", "teller"),
    [
        ({}, ProcessIdentity(path="H/.gputasker/running_tasks/.diagnosis.sock")),
        (
            {"JOB_ID": "j", "ATTEMPT": "02", "RANK": "3", "GPUTASKER_RUNNING_TASKS_DIR": "/r"},
            ProcessIdentity("j", 2, 3, path="/r/.diagnosis.sock"),
        ),
        (
            {"JOB_ID": "j", "RANK": "17", "NODE_RANK": "2", "LOCAL_RANK": "1", "GPU_RECOVERY_SOCKET": "/s"},
            ProcessIdentity("j", 0, 2, "2.1", path="/s"),
        ),
        (
            {"JOB_ID": "j", "GROUP_RANK": "1", "RANK": "9", "GPU_RECOVERY_WORKER": "w", "GPU_RECOVERY_SOCKET": "off"},
            ProcessIdentity("j", 0, 1, "w"),
        ),
        (
            {"JOB_ID": "j", "RANK": "x", "ATTEMPT": "-1", "LOCAL_RANK": "0", "GPU_RECOVERY_ROLE": "train"},
            ProcessIdentity("j", role="train", path="H/.gputasker/running_tasks/.diagnosis.sock"),
        ),
    ],
)
def test_who_tells_is_what_the_environment_says(
    environment: dict[str, str], teller: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance's number in the gang, under a launcher too; nothing in it is a reason to fail."""
    monkeypatch.setenv("HOME", "H")
    found = of_environment(environment)
    assert len(found.process) == 8
    assert found == ProcessIdentity(
        *(getattr(teller, name) for name in ("job", "attempt", "rank", "worker", "role")), found.process, teller.path
    )


def test_outside_of_a_job_nothing_is_told_and_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program runs on a laptop."""
    for name in ("JOB_ID", "NCCL_DEBUG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Sender, "_begin", lambda self: None)
    reporter.set_reporter(None)
    try:
        with diagnosis.stage("rollout", step=1), diagnosis.weight_sync_timing(1), diagnosis.rpc_timing("w", "m"):
            diagnosis.progress(1)
        diagnosis.health_reporter()()
        diagnosis.nccl_log_monitor()()
        reporter.reporter().sender.turn()
        assert not reporter.reporter().sender._queue
    finally:
        reporter.set_reporter(None)


def test_who_one_is_can_be_said(ear: Ear) -> None:
    """Where no environment says it: a Ray actor, for example."""
    diagnosis.configure(worker="rollout-7", role="rollout")
    found = reporter.reporter().identity
    assert (found.worker, found.role, found.rank, found.path) == ("rollout-7", "rollout", 3, str(ear.path))


# -- real processes ----------------------------------------------------------------------------------------------------


def program(ear: Ear, text: str) -> subprocess.CompletedProcess[str]:
    """A training to its end."""
    import gpu_recovery_client  # noqa: PLC0415

    package = Path(gpu_recovery_client.__file__).parent
    place = ear.path.parent / "place"
    place.mkdir(exist_ok=True)
    (place / "gpu_recovery_client").symlink_to(package.resolve())
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(place),
        "JOB_ID": JOB,
        "ATTEMPT": "1",
        "RANK": "0",
        "GPU_RECOVERY_SOCKET": str(ear.path),
    }
    head = "import os, sys, time\nfrom gpu_recovery_client import diagnosis\n"
    return subprocess.run(
        [sys.executable, "-S", "-c", head + text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_training_that_crashes_has_told_why(ear: Ear) -> None:
    """What it said in its last moment is sent before it ends; it needs nothing but Python."""
    done = program(ear, "with diagnosis.stage('rollout', step=4):\n    raise RuntimeError('CUDA error: ' + 'x' * 9)\n")
    assert done.returncode == 1 and "CUDA error" in done.stderr
    before, after = ear.reports()
    assert (before.stage, before.moment, before.step, before.error) == ("rollout", "before", 4, "")
    assert (after.moment, after.error) == ("after", "RuntimeError: CUDA error: xxxxxxxxx")


@pytest.mark.slow
def test_a_fork_is_another_process_with_a_thread_of_its_own(ear: Ear) -> None:
    """As the workers of a data loader are."""
    text = (
        "diagnosis.reporter.reporter().send('progress', value=1.0)\n"
        "child = os.fork()\n"
        "diagnosis.reporter.reporter().send('progress', value=2.0 if child else 3.0)\n"
        "os.wait() if child else None\n"
    )
    assert program(ear, text).returncode == 0
    lines = ear.lines()
    by_value = {one["value"]: one["id"].split("-")[0] for one in lines}
    assert len(lines) == 3 and by_value[1.0] == by_value[2.0] != by_value[3.0]


@pytest.mark.slow
def test_the_thread_sends_by_itself_and_keeps_no_process_alive(ear: Ear) -> None:
    """One thread, however much is told."""
    text = (
        "import threading\n"
        "for n in range(100): diagnosis.reporter.reporter().send('progress', value=float(n))\n"
        "while diagnosis.reporter.reporter().sender._queue: time.sleep(0.01)\n"
        "print(threading.active_count())\n"
    )
    before = threading.active_count()  # servers that other tests of this process share may have threads
    assert program(ear, text).stdout == "2\n"
    assert len(ear.reports()) == 100
    assert threading.active_count() < before + 20
