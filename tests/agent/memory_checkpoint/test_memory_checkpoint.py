"""Memory checkpoints by several processes with folders of their own, as the ranks of a job on several instances."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint, MemoryCheckpointError, NoRoom, PickledStates, peers
from gpu_recovery_run.memory_checkpoint.folder import KEEP_OTHERS_S, MemoryFolder

from tests.agent.memory_checkpoint.gang import folder_of, run

THREE, FOUR = range(3), range(4)


def value(rank: int, step: int) -> dict[str, Any]:
    """The state of a rank after a step."""
    return {"step": step, "weights": [rank * 1000.0 + step] * 50}


def saving(*steps: int) -> Any:
    """A program that saves these steps and ends without success."""

    def program(memory: MemoryCheckpoint) -> int | None:
        for step in steps:
            memory.save(step, value(memory._group.rank, step))
        memory.wait()
        saved = memory.saved_step
        memory.close()
        return saved

    return program


def error_of_save(memory: MemoryCheckpoint, state: Any = None) -> str:
    """Save step 20, and return why the save has failed; "" if it has not."""
    memory.save(20, value(memory._group.rank, 20) if state is None else state)
    try:
        memory.wait()
    except MemoryCheckpointError as error:
        memory.close()
        return str(error)
    return ""


def loading(memory: MemoryCheckpoint, newer_than: int = -1) -> tuple[int | None, bool]:
    """Load, and return the step and whether the state is the one of this rank after that step."""
    state: dict[str, Any] = {}
    step = memory.load(state, newer_than)
    memory.close()
    return step, step is not None and state == value(memory._group.rank, step)


def shards(root: Path, instance: int) -> list[str]:
    """The shards in the memory of an instance: step and rank."""
    found = folder_of(root, instance).glob("job/*/rank-*")
    return sorted(f"{int(each.parent.name.split('-')[1])}/{each.name}" for each in found)


def file_of(root: Path, instance: int, rank: int) -> Path:
    (found,) = folder_of(root, instance).glob(f"job/*/rank-{rank}/state.pickle")
    return found


def corrupt(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def test_after_a_restart_in_place_each_rank_loads_its_own_state(tmp_path: Path) -> None:
    """The newest step counts, and each instance keeps one generation: its own shard and the copy of its neighbour."""
    assert run(tmp_path, saving(10, 20), THREE) == [20] * 3
    assert [shards(tmp_path, n) for n in THREE] == [
        ["20/rank-0", "20/rank-2"],
        ["20/rank-0", "20/rank-1"],
        ["20/rank-1", "20/rank-2"],
    ]
    assert run(tmp_path, loading, THREE) == [(20, True)] * 3


@pytest.mark.parametrize("lost", FOUR)
def test_after_the_loss_of_an_instance_its_shard_comes_from_the_next_instance(tmp_path: Path, lost: int) -> None:
    """A new instance with an empty memory takes the place."""
    run(tmp_path, saving(10), FOUR)
    shutil.rmtree(folder_of(tmp_path, lost))
    assert run(tmp_path, loading, FOUR) == [(10, True)] * 4


def test_the_ranks_may_be_on_other_instances_than_before(tmp_path: Path) -> None:
    """A swap may number the ranks anew. A shard belongs to its rank, wherever it was saved."""
    run(tmp_path, saving(10), FOUR)
    shutil.rmtree(folder_of(tmp_path, 1))
    assert run(tmp_path, loading, [2, 3, 0, 1]) == [(10, True)] * 4
    assert run(tmp_path, loading, [0, 1, 2, 3]) == [(10, True)] * 4


@pytest.mark.parametrize(("lost", "step"), [((0, 2), 10), ((1, 2), None), ((3, 0), None)])
def test_two_lost_instances_need_the_durable_checkpoint_if_they_are_neighbours(
    tmp_path: Path, lost: tuple[int, int], step: int | None
) -> None:
    """Half of the ring is enough if every second instance survives."""
    run(tmp_path, saving(10), FOUR)
    for instance in lost:
        shutil.rmtree(folder_of(tmp_path, instance))
    assert run(tmp_path, loading, FOUR) == [(step, step is not None)] * 4
    assert [bool(shards(tmp_path, n)) for n in FOUR] == [step is not None] * 4, "a useless generation takes no memory"


def test_processes_of_one_instance_have_their_copies_on_the_next_instance(tmp_path: Path) -> None:
    """The copy of a neighbour process would be lost with the instance."""
    placed = [0, 0, 1, 1]
    run(tmp_path, saving(10), placed)
    shutil.rmtree(folder_of(tmp_path, 0))
    assert run(tmp_path, loading, placed) == [(10, True)] * 4


def test_a_job_on_one_instance_restarts_in_place(tmp_path: Path) -> None:
    """There is no second instance for a copy."""
    assert run(tmp_path, saving(10), [0, 0]) == [10] * 2
    assert shards(tmp_path, 0) == ["10/rank-0", "10/rank-1"]
    assert run(tmp_path, loading, [0, 0]) == [(10, True)] * 2


def test_a_corrupt_shard_is_replaced_by_its_copy(tmp_path: Path) -> None:
    """Of a corrupt copy too, nothing is loaded."""
    run(tmp_path, saving(10), THREE)
    corrupt(file_of(tmp_path, 0, 0))
    assert run(tmp_path, loading, THREE) == [(10, True)] * 3
    corrupt(file_of(tmp_path, 0, 0))
    corrupt(file_of(tmp_path, 1, 0))
    assert run(tmp_path, loading, THREE) == [(None, False)] * 3


def test_a_truncated_shard_and_a_broken_manifest_are_corrupt(tmp_path: Path) -> None:
    """The copies of both are intact."""
    run(tmp_path, saving(10), THREE)
    os.truncate(file_of(tmp_path, 0, 0), 10)
    (file_of(tmp_path, 1, 1).parent / "manifest.json").write_text("{")
    assert run(tmp_path, loading, THREE) == [(10, True)] * 3


def test_a_generation_that_cannot_be_read_is_left_for_the_one_before(tmp_path: Path) -> None:
    """Both are there if the processes ended between the last shard and the removal of the older generation."""
    run(tmp_path, saving(10), THREE)
    kept = tmp_path / "kept"
    shutil.copytree(folder_of(tmp_path, 0), kept / "0")
    for instance in (1, 2):
        shutil.copytree(folder_of(tmp_path, instance), kept / str(instance))
    run(tmp_path, saving(20), THREE)
    for instance in THREE:
        shutil.copytree(kept / str(instance), folder_of(tmp_path, instance), dirs_exist_ok=True)
    for instance, rank in ((0, 0), (1, 0)):
        (path,) = folder_of(tmp_path, instance).glob(f"job/*-000000000020-*/rank-{rank}/state.pickle")
        corrupt(path)
    assert run(tmp_path, loading, THREE) == [(10, True)] * 3
    assert {each.split("/")[0] for each in shards(tmp_path, 1)} == {"10"}


@pytest.mark.parametrize(("durable", "step"), [(9, 10), (10, None), (30, None)])
def test_a_durable_checkpoint_that_is_as_new_is_preferred(tmp_path: Path, durable: int, step: int | None) -> None:
    """Its load costs more, but loses no step."""
    run(tmp_path, saving(10), THREE)
    assert run(tmp_path, partial(loading, newer_than=durable), THREE) == [(step, step is not None)] * 3


def test_with_another_number_of_processes_nothing_is_loaded(tmp_path: Path) -> None:
    """The durable checkpoint can be loaded by any number of processes."""
    run(tmp_path, saving(10), FOUR)
    assert run(tmp_path, loading, THREE) == [(None, False)] * 3


def test_a_later_run_is_newer_also_with_a_smaller_step(tmp_path: Path) -> None:
    """The second run went on from a durable checkpoint. Its instance 0 was away, and comes back with older data."""
    run(tmp_path, saving(50), THREE)
    away = tmp_path / "away"
    shutil.move(folder_of(tmp_path, 0), away)
    run(tmp_path, saving(30), THREE)
    for generation in (away / "job").glob("*-*"):
        shutil.copytree(generation, folder_of(tmp_path, 0) / "job" / generation.name)
    assert run(tmp_path, loading, THREE) == [(30, True)] * 3


def test_the_attempt_orders_runs_that_see_nothing_of_each_other(tmp_path: Path) -> None:
    """The attempts of a job are numbered, so the later one is newer also if it found an empty memory."""
    run(tmp_path, saving(50), [0, 1], environment={"ATTEMPT": "3"})
    run(tmp_path, saving(20), [2, 3], environment={"ATTEMPT": "4"})
    for instance, other in ((0, 2), (1, 3)):
        shutil.copytree(folder_of(tmp_path, other), folder_of(tmp_path, instance), dirs_exist_ok=True)
    assert run(tmp_path, loading, [0, 1], environment={"ATTEMPT": "5"}) == [(20, True)] * 2


def test_another_job_is_never_read(tmp_path: Path) -> None:
    """Its folder has the same shape, and the same instances."""
    run(tmp_path, saving(10), THREE)
    assert run(tmp_path, loading, THREE, environment={"JOB_ID": "other"}) == [(None, False)] * 3
    assert run(tmp_path, loading, THREE) == [(10, True)] * 3


@pytest.mark.parametrize("job", ["", "..", "a/b", "."])
def test_a_job_id_that_is_no_name_of_a_folder_is_refused(tmp_path: Path, job: str) -> None:
    """It could name a folder outside of the memory."""
    with pytest.raises(MemoryCheckpointError, match="cannot be the name of a folder"):
        MemoryFolder(tmp_path, job)


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """In /dev/shm everybody can create the folder first."""
    (tmp_path / "job").mkdir(mode=0o755)
    with pytest.raises(MemoryCheckpointError, match="mode 700"):
        MemoryFolder(tmp_path, "job")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MemoryCheckpointError, match="must be a folder"):
        MemoryFolder(tmp_path, "link")


def test_jobs_of_several_users_have_their_folders_side_by_side(tmp_path: Path) -> None:
    """A folder that exists is somebody else's, and stays as it is."""
    MemoryFolder(tmp_path / "new", "job")
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "new/job").stat().st_mode & 0o7777 == 0o700
    (tmp_path / "old").mkdir(mode=0o755)
    MemoryFolder(tmp_path / "old", "job")
    assert (tmp_path / "old").stat().st_mode & 0o7777 == 0o755


def test_a_successful_job_releases_the_memory(tmp_path: Path) -> None:
    """Nothing of it is left on any instance."""

    def program(memory: MemoryCheckpoint) -> None:
        memory.save(10, {})
        memory.close(finished=True)

    assert run(tmp_path, program, THREE) == [None] * 3
    assert [list(folder_of(tmp_path, n).iterdir()) for n in THREE] == [[]] * 3


def test_the_memory_of_an_abandoned_job_is_released_by_the_next_job(tmp_path: Path) -> None:
    """A job that failed cannot do it. A job that runs, and one that may still start again, keep their memory."""
    folders = [MemoryFolder(tmp_path, job) for job in ("failed", "running", "restarting")]
    folders[0].close()
    folders[2].close()
    long_ago = time.time() - KEEP_OTHERS_S - 60
    for job in ("failed", "running"):
        os.utime(tmp_path / job, (long_ago, long_ago))
    assert MemoryFolder(tmp_path, "job").remove_abandoned(time.time()) == ["failed"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job", "restarting", "running"]
    with (tmp_path / "running/.lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# -- a save that fails -------------------------------------------------------------------------------------------------


def test_without_room_every_process_refuses_and_the_last_generation_stays(tmp_path: Path) -> None:
    """One instance has room for its shard alone. The error names it, and a later save may find room again."""
    free = {10: 10**9, 20: 700, 30: 10**9}
    now = [0]

    def little() -> None:
        MemoryFolder.free_bytes = lambda self: free[now[0]]  # type: ignore[method-assign]

    def program(memory: MemoryCheckpoint) -> list[str]:
        said = []
        for step in free:
            now[0] = step
            try:
                memory.save(step, value(memory._group.rank, step))
            except NoRoom as error:
                said.append(f"{step}, {memory.saved_step} stays: {error}")
        memory.close()
        return said

    (first, *others) = run(tmp_path, program, THREE, before={1: little})
    assert len(first) == 1 and others == [first] * 2
    assert first[0].startswith("20, 10 stays: ") and "of instance 1 has 700 bytes free. A generation needs" in first[0]
    assert run(tmp_path, loading, THREE) == [(30, True)] * 3


def test_a_copy_that_cannot_be_written_fails_the_save_of_all(tmp_path: Path) -> None:
    """The memory filled up meanwhile. The error says where, nothing of the step is left, and the training goes on."""

    def full() -> None:
        def write(self: Any, block: memoryview) -> None:
            self._error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        peers._Writer.write = write  # type: ignore[method-assign]

    run(tmp_path, saving(10), THREE)
    said = run(tmp_path, partial(error_of_save, state={"weights": bytes(3_000_000)}), THREE, before={1: full})
    assert len(set(said)) == 1 and said[0].startswith("step 20 is not in memory: rank 0: ")
    assert "No space left on device" in said[0]
    assert {each.split("/")[0] for n in THREE for each in shards(tmp_path, n)} == {"10"}
    assert run(tmp_path, loading, THREE) == [(10, True)] * 3


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A memory of 2 MiB."""
    folder = tmp_path / "instance-1"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("error", ["NoRoom", "MemoryCheckpointError"], ids=["before", "meanwhile"])
def test_a_real_full_tmpfs_is_refused_before_or_while_it_is_written(tmp_path: Path, tmpfs: Path, error: str) -> None:
    """The refusal comes first if the size is known. The state may also be larger than expected."""
    if error != "NoRoom":
        before = {rank: lambda: setattr(PickledStates, "size", lambda self, state: 0) for rank in THREE}
    else:
        before = {}

    def program(memory: MemoryCheckpoint) -> list[str]:
        said = []
        for step, size in ((10, 300_000), (20, 900_000)):
            if step == 20 and memory._group.rank == 0:
                (tmpfs / "other").write_bytes(bytes(500_000))
            try:
                memory.save(step, {"weights": bytes(size)})
                memory.wait()
            except MemoryCheckpointError as refused:
                said.append(type(refused).__name__)
        memory.close()
        return said

    assert run(tmp_path, program, THREE, before=before) == [[error]] * 3
    assert shards(tmp_path, 1) == ["10/rank-0", "10/rank-1"]


def test_processes_that_save_different_steps_are_told(tmp_path: Path) -> None:
    """The program has a defect. A generation of several steps would be no state of the training."""

    def program(memory: MemoryCheckpoint) -> None:
        memory.save(10 + memory._group.rank, {})

    for error in run(tmp_path, program, THREE):
        assert isinstance(error, MemoryCheckpointError) and "different steps: [10, 11, 12]" in str(error)


def test_no_more_than_two_generations_are_in_memory(tmp_path: Path) -> None:
    """A save waits for the one before, so a fast training cannot fill the memory."""

    def program(memory: MemoryCheckpoint) -> int:
        most = 0
        for step in range(1, 9):
            memory.save(step, value(memory._group.rank, step))
            most = max(most, sum(each.is_dir() for each in memory._folder.path.iterdir()))
        memory.close()
        return most

    assert max(run(tmp_path, program, THREE)) <= 2


def test_a_state_that_one_process_cannot_copy_fails_the_save_of_all(tmp_path: Path) -> None:
    """The others have begun the save, and would wait for that process."""

    def full() -> None:
        def stage(self: Any, state: Any, folder: Path) -> Any:
            raise MemoryError("no memory for the copy")

        PickledStates.stage = stage  # type: ignore[method-assign]

    run(tmp_path, saving(10), THREE)
    said = run(tmp_path, error_of_save, THREE, before={1: full})
    assert said == ["step 20 is not in memory: rank 1: MemoryError: no memory for the copy"] * 3
    assert run(tmp_path, loading, THREE) == [(10, True)] * 3
