"""What a training program says and asks: each function by itself.

With the wrapper: tests/agent/rank/test_suspension_processes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_client import training

ROOT = Path(__file__).parents[2]
VARIABLES = (
    "GPU_RECOVERY_NOTICE",
    "GPU_RECOVERY_SIMULATE",
    "GPU_RECOVERY_SIMULATED_AT",
    "CHECKPOINT_DIR",
    "JOB_ID",
    "RANK",
    "WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GPUS_PER_NODE",
)
WITHIN_S = 60


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the machine's own, and nothing that a function left there."""
    before = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    monkeypatch.setattr(training, "_asked", set())
    yield
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wrapper's folder."""
    found = tmp_path / "notice-folder"
    found.mkdir()
    monkeypatch.setenv(training.FOLDER, str(found))
    return found


def program(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program that imports `training` to its end."""
    path = folder / "program.py"
    path.write_text(f"import os, sys, time\nfrom gpu_recovery_client import training\n{text}")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    command = [sys.executable, str(path)]
    return subprocess.run(
        command, env=kept | variables, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


def test_it_works_where_nothing_but_python_is_installed(tmp_path: Path) -> None:
    """A training's image has neither our HTTP library nor our command line, and must not wait for them."""
    text = "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    found = set(program(text, tmp_path).stdout.split())
    assert {"gpu_recovery_client", "__main__"} <= found and not found & {"httpx", "typer", "rich", "gpu_recovery"}
    modules = program("print('socket' in sys.modules, 'asyncio' in sys.modules)", tmp_path)
    assert modules.stdout == "False False\n"


def test_the_package_still_gives_its_client_and_nothing_that_it_has_not() -> None:
    """It is imported by whoever asks for it."""
    import gpu_recovery_client  # noqa: PLC0415
    from gpu_recovery_client.api import RecoveryClient  # noqa: PLC0415

    assert gpu_recovery_client.RecoveryClient is RecoveryClient
    with pytest.raises(AttributeError, match="no attribute 'Recovery'"):
        _ = gpu_recovery_client.Recovery  # type: ignore[attr-defined]


def test_the_notice_is_a_file_that_is_looked_for_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training asks after every step: one stat, after the first question has said that somebody asks."""
    assert not training.receive_suspend_command()
    assert [path.name for path in folder.iterdir()] == [training.ASKED]
    calls: list[str] = []

    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("only the first question writes")

    stat = os.stat
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        patch.setattr(os, "stat", lambda path, **more: calls.append(str(path)) or stat(path, **more))
        for _ in range(3):
            assert not training.receive_suspend_command()
    assert calls == [str(folder / training.NOTICE)] * 3
    (folder / training.NOTICE).touch()
    assert training.receive_suspend_command() and training.receive_suspend_command()


def test_without_the_wrapper_nobody_is_suspended_and_a_job_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """At home it is nothing; in a job it is a mistake, since the job will be ended unasked."""
    assert training.receive_suspend_command() is False
    monkeypatch.setenv("JOB_ID", "run-1")
    with pytest.warns(UserWarning, match="not run by gpu-recovery-run"):
        assert training.receive_suspend_command() is False


def test_a_wrapper_that_is_gone_gives_no_notice(folder: Path) -> None:
    """Its folder goes with it, and its command is being ended."""
    folder.rmdir()
    assert training.receive_suspend_command() is False


@pytest.mark.parametrize(
    "how", ["training.go_suspend()", "import threading as t; t.Thread(target=training.go_suspend).start()"]
)
def test_go_suspend_without_the_wrapper_ends_the_program_with_75(tmp_path: Path, how: str) -> None:
    """It never returns, nobody can catch it, and what was printed before is not lost."""
    text = (
        f"try:\n    print('saved')\n    {how}\n    time.sleep(600)\n    print('went on')\nfinally:\n    print('caught')"
    )
    done = program(text, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (training.SUSPENDED, "saved\n", "")


def test_go_suspend_ends_by_itself_where_nobody_ends_it(tmp_path: Path) -> None:
    """The mark is left for the wrapper, which is not there; with a folder that is gone it says so."""
    text = "training.ENDED_WITHIN_S = 0.1\ntraining.go_suspend()\nprint('went on')"
    assert (done := program(text, tmp_path, GPU_RECOVERY_NOTICE=str(tmp_path))).returncode == training.SUSPENDED
    assert (tmp_path / training.SUSPEND).exists() and not done.stdout
    lost = program(text, tmp_path, GPU_RECOVERY_NOTICE=str(tmp_path / "gone"))
    assert lost.returncode == training.SUSPENDED and "No such file" in lost.stderr


def test_the_whole_life_state_is_kept_for_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 until somebody sets it; each job its own, also of jobs whose names look alike as files."""
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path / "new" / "folder"))
    assert training.get_whole_life_state() == 0
    for number, job in enumerate(("", "a/b", "a%2Fb", "a"), start=1):
        monkeypatch.setenv("JOB_ID", job)
        assert training.get_whole_life_state() == 0
        training.set_whole_life_state(-1)
        training.set_whole_life_state(number * 10**30)
    for number, job in enumerate(("", "a/b", "a%2Fb", "a"), start=1):
        monkeypatch.setenv("JOB_ID", job)
        assert training.get_whole_life_state() == number * 10**30
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 4


def test_a_state_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or an end in the midst of it: the number before is there, whole, and nothing else."""
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path))
    training.set_whole_life_state(17)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        training.set_whole_life_state(18)
    assert training.get_whole_life_state() == 17 and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("checkpoint_dir", [None, "", "s3://bucket/key"])
def test_without_a_folder_for_checkpoints_there_is_no_state(
    monkeypatch: pytest.MonkeyPatch, checkpoint_dir: str | None
) -> None:
    """Anything else would be forgotten with the container, and nobody would know."""
    if checkpoint_dir is not None:
        monkeypatch.setenv("CHECKPOINT_DIR", checkpoint_dir)
    with pytest.raises(training.CheckpointFolderMissing, match="CHECKPOINT_DIR"):
        training.set_whole_life_state(1)
    with pytest.raises(training.CheckpointFolderMissing, match="CHECKPOINT_DIR"):
        training.get_whole_life_state()


@pytest.mark.parametrize("state", [True, 1.0, "1", None])
def test_a_state_is_a_whole_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: object) -> None:
    """What was kept is what comes back, or it is refused."""
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path))
    with pytest.raises(TypeError):
        training.set_whole_life_state(state)  # type: ignore[arg-type]
    (tmp_path / "whole-life-state").write_text("seventeen")
    with pytest.raises(ValueError, match="whole-life-state"):
        training.get_whole_life_state()


def test_the_watchdog_and_the_progress_are_left_for_the_wrapper(folder: Path) -> None:
    """Every mark of progress is another than the one before."""
    training.set_watchdog_time(1.5)
    assert json.loads((folder / training.WATCHDOG).read_text()) == {"seconds": 1.5}
    training.progress()
    os.utime(folder / training.PROGRESS, ns=(5, 5))
    training.progress()
    assert (folder / training.PROGRESS).stat().st_mtime_ns != 5
    assert {path.name for path in folder.iterdir()} == {training.WATCHDOG, training.PROGRESS}


def test_without_the_wrapper_the_watchdog_does_nothing(tmp_path: Path) -> None:
    """The same program runs at home."""
    training.set_watchdog_time(1)
    training.progress()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True])
def test_a_watchdogs_time_that_is_none_is_refused(folder: Path, seconds: float) -> None:
    """Before anybody relies on it."""
    with pytest.raises(ValueError, match="watchdog"):
        training.set_watchdog_time(seconds)
    assert list(folder.iterdir()) == []


RANKS = [
    ({}, (0, 1, 0, 1, 0, 1)),
    ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4, 0, 1, 3, 4)),
    ({"NODE_RANK": "1", "NNODES": "2", "GPUS_PER_NODE": "8", "RANK": "1", "WORLD_SIZE": "2"}, (1, 2, 0, 8, 8, 16)),
    (  # a worker of torchrun, whose RANK and WORLD_SIZE count processes
        {
            "NODE_RANK": "1",
            "NNODES": "2",
            "GPUS_PER_NODE": "8",
            "GROUP_RANK": "1",
            "RANK": "13",
            "WORLD_SIZE": "16",
            "LOCAL_RANK": "5",
            "LOCAL_WORLD_SIZE": "8",
        },
        (1, 2, 5, 8, 13, 16),
    ),
    (
        {
            "GROUP_RANK": "1",
            "GROUP_WORLD_SIZE": "2",
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
        },
        (1, 2, 1, 2, 3, 4),
    ),
]


@pytest.mark.parametrize(("environment", "expected"), RANKS)
def test_ranks_count_instances_and_say_when_they_count_processes(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: tuple[int, ...]
) -> None:
    """Seed 003's rank is an instance, torchrun's a process: each has a name, under each launcher."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = (training.rank(), training.world_size(), training.local_rank(), training.local_world_size())
    assert (*found, training.global_rank(), training.global_world_size()) == expected


def test_a_rank_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 for everybody would have all of them write one checkpoint."""
    monkeypatch.setenv("NODE_RANK", "one")
    with pytest.raises(ValueError, match="NODE_RANK"):
        training.rank()


@pytest.mark.slow
def test_a_rehearsal_needs_no_wrapper(tmp_path: Path) -> None:
    """GPU_RECOVERY_SIMULATE=1 on any laptop: the notice after a second, and the program once more."""
    text = """
done = os.path.join(os.environ["CHECKPOINT_DIR"], "step")
first = int(open(done).read()) if os.path.exists(done) else 0
print("from", first, sys.argv[1:])
began = time.monotonic()
for step in range(first + 1, 100_000):
    time.sleep(0.01)
    if first:
        sys.exit(4)
    if training.receive_suspend_command():
        assert time.monotonic() - began >= 1
        open(done, "w").write(str(step))
        training.go_suspend()
"""
    done = program(text, tmp_path, GPU_RECOVERY_SIMULATE="1", CHECKPOINT_DIR=str(tmp_path))
    saved = (tmp_path / "step").read_text()
    assert (done.returncode, done.stdout) == (4, f"from 0 []\nfrom {saved} []\n")
    assert "rehearsal: suspended" in done.stderr


def test_a_rehearsal_is_for_rank_0_and_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others hear nothing, as in a real one."""
    monkeypatch.setenv(training.SIMULATE, "yes")
    with pytest.raises(ValueError, match="GPU_RECOVERY_SIMULATE"):
        training.receive_suspend_command()
    monkeypatch.setenv(training.SIMULATE, "0.000001")
    monkeypatch.setenv("RANK", "1")
    assert not any(training.receive_suspend_command() for _ in range(1_000))
    monkeypatch.setenv("RANK", "0")
    while not training.receive_suspend_command():
        pass


def test_a_process_of_a_launcher_ends_and_does_not_begin_the_program_again(tmp_path: Path) -> None:
    """Two of them would train side by side on one checkpoint."""
    text = """
import multiprocessing
def leave():
    while not training.receive_suspend_command():
        pass
    training.go_suspend()
if __name__ == "__main__":
    print("begins", flush=True)
    child = multiprocessing.get_context("fork").Process(target=leave)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
    done = program(text, tmp_path, GPU_RECOVERY_SIMULATE="0.01")
    assert (done.returncode, done.stdout) == (training.SUSPENDED, "begins\n")
