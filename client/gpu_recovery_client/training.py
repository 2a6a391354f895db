"""Functions for a training program: suspension, its own state, progress, ranks, the start of a standby process.

They work under `gpu-recovery-run`:

    from gpu_recovery_client import training

    if training.receive_suspend_command():      # in rank 0, after every step
        save(step + 1)
        training.go_suspend()                   # never returns; the next attempt starts the program from its beginning

It needs only the standard library, no network and no token. It works through files: in the folder that
GPU_RECOVERY_NOTICE names, which every child process inherits, or in CHECKPOINT_DIR. docs/training.md is the guide.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import warnings
from contextlib import suppress
from typing import NoReturn

__all__ = [
    "SUSPENDED",
    "CheckpointFolderMissing",
    "get_whole_life_state",
    "global_rank",
    "global_world_size",
    "go_suspend",
    "local_rank",
    "local_world_size",
    "progress",
    "rank",
    "receive_suspend_command",
    "set_watchdog_time",
    "set_whole_life_state",
    "wait_for_start",
    "world_size",
]
SUSPENDED = 75
"""Exit status of a rank that asks to be suspended: "try again later" (EX_TEMPFAIL)."""
FOLDER, SIMULATE, SIMULATED_AT = "GPU_RECOVERY_NOTICE", "GPU_RECOVERY_SIMULATE", "GPU_RECOVERY_SIMULATED_AT"
NOTICE, ASKED, SUSPEND, WATCHDOG, PROGRESS = "notice", "asked", "suspend", "watchdog", "progress"
WAITS, START = "waits", "start"
STANDBY, WAITING = "GPU_RECOVERY_STANDBY", "waits"
"""Variable that switches standby processes on, and its value in a standby process that has not started."""
OF_A_LAUNCHER = ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables of a process that a launcher started. The launcher has read its own variables before."""
START_POLL_S = 0.05
"""Seconds between two looks of a standby process for its start."""
ENDED_WITHIN_S = 30.0
"""Seconds that `go_suspend` waits for the wrapper to end the rank. Then it ends the process itself."""
_asked: set[str] = set()


class CheckpointFolderMissing(RuntimeError):
    """CHECKPOINT_DIR is missing or is no folder, so the next attempt could not find what this attempt writes."""


def receive_suspend_command() -> bool:
    """Return whether this job is to be suspended: true in every process of rank 0 after the notice, otherwise false.

    It costs one `stat` of a file in memory, cheap enough for every step. After the notice there are SUSPEND_GRACE_S
    seconds (5 by default) to save and to call `go_suspend`.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return _simulated()
    if folder not in _asked:
        _asked.add(folder)
        with contextlib.suppress(FileNotFoundError):  # the wrapper has ended, and this process is ended too
            _mark(folder, ASKED)
    return os.path.exists(os.path.join(folder, NOTICE))


def go_suspend() -> NoReturn:
    """Declare that this rank has saved its state and may be ended. Never returns. Any process of any rank may call it.

    All processes of the rank are ended with SIGTERM, then SIGKILL. So wait until the processes that still save have
    finished, with a barrier. The exit status of the rank is SUSPENDED. The job is suspended and continues with its
    next attempt.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # the stream is closed or missing
                stream.flush()
        folder = os.environ.get(FOLDER)
        if folder:
            # In another thread the signal stays: a handler may run meanwhile, and `go_suspend` never returns.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _mark(folder, SUSPEND)
            time.sleep(ENDED_WITHIN_S)
        else:
            _begin_again()
    except OSError as error:
        sys.stderr.write(f"go_suspend: {error}\n")
    finally:
        os._exit(SUSPENDED)


def set_watchdog_time(seconds: float) -> None:
    """From now on, end the rank (exit status 124) if `progress` is not called for `seconds`; 0 means never.

    Without the wrapper it has no effect. Raises ValueError for an invalid time.
    """
    if isinstance(seconds, bool) or not 0 <= seconds < 1e9:
        raise ValueError(f"the watchdog's time is {seconds!r}; it must be 0 or more seconds")
    if folder := os.environ.get(FOLDER):
        _write_whole(os.path.join(folder, WATCHDOG), json.dumps({"seconds": seconds}))


def progress() -> None:
    """Report that the training makes progress, for all processes of the rank. Costs one or two system calls."""
    if folder := os.environ.get(FOLDER):
        path = os.path.join(folder, PROGRESS)
        try:
            os.utime(path)
        except FileNotFoundError:
            with suppress(OSError):  # a failed write must not end a training
                _mark(folder, PROGRESS)
        except OSError:
            return


def wait_for_start() -> None:
    """Wait here in a standby process until it becomes the next attempt. In every other process return at once.

    Call it after the imports, and before the program reads the variables of its rank, uses a GPU, or calls another
    function of this module. It updates `os.environ`. With GPU_RECOVERY_STANDBY the call also tells the wrapper that
    this program may have a standby process. A process of a launcher such as torchrun has none.
    """
    folder, mode = os.environ.get(FOLDER), os.environ.get(STANDBY)
    if not folder or not mode:
        return
    launcher = next((name for name in OF_A_LAUNCHER if os.environ.get(name)), "")
    if mode == WAITING:
        if launcher:
            sys.exit(f"wait_for_start: {launcher} is set: a process of a launcher cannot stand by")
        _wait_for_start(folder)
    elif any(os.path.exists(os.path.join(folder, name)) for name in (ASKED, PROGRESS, WATCHDOG)):
        warnings.warn(
            "wait_for_start was called after another function of this module: there is no standby process",
            stacklevel=2,
        )
    elif not launcher:
        with suppress(OSError):  # without the mark there is no standby process
            _mark(folder, WAITS)


def set_whole_life_state(state: int) -> None:
    """Store an integer for later attempts, in CHECKPOINT_DIR.

    That folder alone outlives an attempt and exists wherever the next attempt runs. The last write wins, so let only
    one process of the job write.

    Raises:
        CheckpointFolderMissing: CHECKPOINT_DIR is missing.
        OSError: the file cannot be written.
        TypeError: `state` is not an int.
    """
    if isinstance(state, bool) or not isinstance(state, int):
        raise TypeError(f"the state is {state!r}; it must be an int")
    path = _state_file()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _write_whole(path, f"{state}\n")


def get_whole_life_state() -> int:
    """Return the integer that this or an earlier attempt stored; 0 if there is none.

    Raises:
        CheckpointFolderMissing: CHECKPOINT_DIR is missing.
        OSError: the file cannot be read.
        ValueError: the file holds no integer.
    """
    path = _state_file()
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return 0
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path} does not contain a whole number") from None


def rank() -> int:
    """Return the number of this instance in the gang, from 0: the node rank.

    It is the same under torchrun, although torchrun's RANK counts GPUs.
    """
    return _number(("NODE_RANK", "GROUP_RANK", "RANK"), 0)


def world_size() -> int:
    """Return the number of instances of the gang."""
    return _number(("NNODES", "GROUP_WORLD_SIZE", "WORLD_SIZE"), 1)


def local_rank() -> int:
    """Return the number of this process on its instance, as torchrun sets it; 0 without torchrun."""
    return _number(("LOCAL_RANK",), 0)


def local_world_size() -> int:
    """Return the number of training processes on this instance: torchrun's, otherwise one per GPU of the task."""
    return _number(("LOCAL_WORLD_SIZE", "GPUS_PER_NODE"), 1)


def global_rank() -> int:
    """Return the number of this process among all processes of the gang. torch.distributed calls it the rank."""
    return rank() * local_world_size() + local_rank()


def global_world_size() -> int:
    """Return the number of processes of the gang. Every instance has as many as this instance."""
    return world_size() * local_world_size()


def _wait_for_start(folder: str) -> None:
    """Wait in a standby process, and then take the variables of the attempt."""
    path = os.path.join(folder, START)
    _mark(folder, WAITS)
    while not os.path.exists(path):
        if not os.path.isdir(folder):
            os._exit(SUSPENDED)  # the wrapper has ended, and so has the container
        time.sleep(START_POLL_S)
    with open(path, encoding="ascii") as file:
        change = json.load(file)
    os.environ.update(change["set"])


def _number(names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = os.environ.get(name)
        if text:
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{name} is {text!r}; it must be a whole number") from None
    return default


def _state_file() -> str:
    folder = os.environ.get("CHECKPOINT_DIR", "")
    if not folder or "://" in folder:
        raise CheckpointFolderMissing(
            f"CHECKPOINT_DIR is {folder!r}: give the job a folder that every instance of it can write to"
        )
    job = os.environ.get("JOB_ID", "").replace("%", "%25").replace("/", "%2F")
    return os.path.join(folder, f"whole-life-state-{job}" if job else "whole-life-state")


def _mark(folder: str, name: str) -> None:
    os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))


def _write_whole(path: str, text: str) -> None:
    """Replace a file in one step, also if another instance writes it at the same time."""
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
    try:
        with open(temporary, "x", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _simulated() -> bool:
    """Without the wrapper: return whether GPU_RECOVERY_SIMULATE seconds have passed since the first call."""
    text = os.environ.get(SIMULATE) or "0"
    if text == "0":
        if os.environ.get("JOB_ID"):
            warnings.warn(
                "this job is not run by gpu-recovery-run: it will receive no notice of a suspension", stacklevel=3
            )
        return False
    try:
        after_s = float(text)
    except ValueError:
        raise ValueError(
            f"{SIMULATE} is {text!r}; it must be the number of seconds until the notice, such as 10"
        ) from None
    if rank() != 0:
        return False
    began = float(os.environ.setdefault(SIMULATED_AT, repr(time.monotonic())))  # later children inherit the time
    return time.monotonic() - began >= after_s


def _begin_again() -> None:
    """End a rehearsal without the wrapper: start the program once more, unless a launcher started this process."""
    began, simulated = os.environ.pop(SIMULATED_AT, None), os.environ.pop(SIMULATE, None)
    if simulated and began:
        took_s = time.monotonic() - float(began) - float(simulated)
        sys.stderr.write(f"rehearsal: suspended, {took_s:.1f} s after the notice\n")
        of_a_launcher = "LOCAL_RANK" in os.environ
        if "multiprocessing" in sys.modules:
            import multiprocessing  # noqa: PLC0415

            of_a_launcher = of_a_launcher or multiprocessing.parent_process() is not None
            for child in multiprocessing.active_children():
                child.kill()
        if not of_a_launcher:
            sys.stderr.write("rehearsal: the program starts again, and should continue from its checkpoint\n")
            sys.stderr.flush()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
