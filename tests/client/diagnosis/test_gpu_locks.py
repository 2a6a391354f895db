"""The lock of a GPU between processes of one instance, rows 47-50: who has it, who waits, and what a crash leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gpu_recovery_client
import pytest
from gpu_recovery.core.diagnosis.observations import LockState
from gpu_recovery_client.diagnosis import GpuLock, gpu_locks

from tests.client.training_process import Clock, Ear

HOLDER = """
import sys
from gpu_recovery_client.diagnosis import GpuLock
GpuLock(sys.argv[1], folder=sys.argv[2]).acquire(0)
print("has it", flush=True)
sys.stdin.read()
"""


def lock(owner: str, ear: Ear, gpu: int = 0) -> GpuLock:
    """A lock of that owner in the test's folder."""
    folder = ear.path.parent / "locks"
    folder.mkdir(exist_ok=True)
    return GpuLock(owner, gpu, folder=str(folder), now=ear.clock.now, sleep=ear.clock.sleep)


def test_row_47_one_owner_has_it_at_a_time_and_is_known(ear: Ear, caplog: pytest.LogCaptureFixture) -> None:
    """Free, train, free, rollout; each GPU by itself."""
    train, rollout = lock("train", ear), lock("rollout", ear)
    assert train.holder() is rollout.holder() is None
    assert train.acquire() and (train.holder(), rollout.holder()) == ("train", "train")
    assert lock("rollout", ear, gpu=1).acquire(0)
    assert train.release() and rollout.holder() is None
    with rollout:
        assert train.holder() == "rollout"
    assert train.holder() is None
    assert caplog.messages.count("GPU locked by train") == 1 and "GPU released by train" in caplog.messages


def test_row_47_who_waits_is_told_for_whom_and_gives_up_after_a_minute(
    ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten looks a second; the sentences of the seed, and the one who has it in the report."""
    lock("train", ear).acquire()
    held = ear.reports()
    with pytest.raises(TimeoutError, match=r"^Failed to acquire GPU for rollout$"):
        lock("rollout", ear).acquire()
    assert clock.at - 1_000 == pytest.approx(60.0, abs=0.11) and set(clock.slept) == {0.1}
    assert caplog.messages.count("GPU locked by train, waiting...") == 1
    waiting, gave_up = ear.reports()
    assert [(one.state, one.lock, one.owner, one.holder) for one in (*held, waiting, gave_up)] == [
        (LockState.HELD, "gpu_0_lock", "train", "train"),
        (LockState.WAITING, "gpu_0_lock", "rollout", "train"),
        (LockState.TIMED_OUT, "gpu_0_lock", "rollout", "train"),
    ]
    assert gave_up.waited_s >= 60.0


def test_row_47_it_is_had_again_by_who_has_it(ear: Ear) -> None:
    """By the same lock, and by another process or lock of the same owner; given back by the last of them."""
    one, other, rollout = lock("train", ear), lock("train", ear), lock("rollout", ear)
    assert one.acquire(0) and one.acquire(0) and other.acquire(0)
    assert one.release() and one.release() and rollout.holder() == "train"
    with pytest.raises(TimeoutError):
        rollout.acquire(0)
    assert other.release() and rollout.acquire(0)


def test_row_48_nobody_gives_back_what_is_anothers(ear: Ear, caplog: pytest.LogCaptureFixture) -> None:
    """Said in the words of the seed, told, and nothing changes."""
    train, rollout = lock("train", ear), lock("rollout", ear)
    train.acquire()
    ear.reports()
    assert not rollout.release()
    assert "GPU owned by train, cannot release" in caplog.messages
    (refused,) = ear.reports()
    assert (refused.state, refused.owner, refused.holder) == (LockState.REFUSED, "rollout", "train")
    assert rollout.holder() == "train"
    train.release()
    assert not train.release() and "GPU owned by None, cannot release" in caplog.messages


def test_it_waits_until_the_holder_is_done(ear: Ear, clock: Clock) -> None:
    """And then has it at the next look."""
    train, rollout = lock("train", ear), lock("rollout", ear)
    train.acquire()
    pauses = 0

    def sleep(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        clock.sleep(seconds)
        if pauses == 5:
            train.release()

    rollout._sleep = sleep
    assert rollout.acquire() and pauses == 5


def test_an_owner_is_a_plain_word(ear: Ear) -> None:
    """It is the name of a file."""
    for owner in ("", "../x", "a b", "x" * 33, "a.mutex"):
        with pytest.raises(ValueError, match="not a valid owner"):
            GpuLock(owner)


def test_every_user_may_take_it(ear: Ear) -> None:
    """Train and rollout may run as different users: whoever is first must not shut the other out."""
    before = os.umask(0o077)
    try:
        lock("train", ear).acquire(0)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (ear.path.parent / "locks").iterdir()}
    assert modes == {".gpu_0_lock.mutex": 0o666, ".gpu_0_lock.train": 0o666}


def test_one_that_looks_at_the_moment_of_taking_is_waited_for(ear: Ear, clock: Clock) -> None:
    """Two that take it at once do not both get it, and neither is shut out."""
    train = lock("train", ear)
    mutex = train._open(f"{train.name}.mutex")
    assert gpu_locks._locked(mutex, gpu_locks.fcntl.LOCK_EX)
    with pytest.raises(TimeoutError):
        train.acquire(0.05)
    os.close(mutex)
    assert train.acquire(0)


def test_processes_of_an_instance_meet_in_the_folder_of_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers share it; where there is none, those of one container still meet."""
    monkeypatch.setenv("GPUTASKER_RUNNING_TASKS_DIR", str(tmp_path))
    assert gpu_locks.shared_folder() == str(tmp_path)
    monkeypatch.setenv("GPUTASKER_RUNNING_TASKS_DIR", str(tmp_path / "none"))
    assert os.path.isdir(gpu_locks.shared_folder())


def holder(ear: Ear, owner: str) -> subprocess.Popen[str]:
    """Another process that has it."""
    place = ear.path.parent / "place"
    place.mkdir(exist_ok=True)
    (place / "gpu_recovery_client").symlink_to(Path(gpu_recovery_client.__file__).parent.resolve())
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place)}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDER, owner, str(ear.path.parent / "locks")],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == "has it\n"
    return process


@pytest.mark.slow
def test_row_50_a_holder_that_is_killed_gives_it_back(ear: Ear) -> None:
    """The known hole of a semaphore: a crash kept it for ever. One that hangs keeps it, and is named."""
    rollout = lock("rollout", ear)
    process = holder(ear, "train")
    try:
        assert rollout.holder() == "train"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            rollout.acquire(1.0)
        assert ear.reports()[-1].holder == "train"
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert rollout.acquire(0)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_child_of_the_holder_does_not_keep_it(ear: Ear) -> None:
    """A worker of a data loader lives on when its parent has crashed."""
    train, rollout = lock("train", ear), lock("rollout", ear)
    train.acquire()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reads, 1)
        os._exit(0)
    try:
        train.release()
        assert rollout.acquire(0)
    finally:
        os.write(writes, b"x")
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)
