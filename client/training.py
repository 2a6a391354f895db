"""What a training program says and asks under `gpu-recovery-run`: suspension, its own state, progress, ranks.

    from gpu_recovery_client import training

    if training.receive_suspend_command():      # in rank 0, after every step
        save(step + 1)
        training.go_suspend()                   # never returns; the next attempt begins at the beginning of the program

Only the standard library, no network, no token: everything is a file in the folder that GPU_RECOVERY_NOTICE names,
which every child process inherits, or in CHECKPOINT_DIR. docs/training.md tells the whole story.
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
    "world_size",
]
SUSPENDED = 75
"""The exit status of a rank that asks to be suspended: "try again later" (EX_TEMPFAIL)."""
FOLDER, SIMULATE, SIMULATED_AT = "GPU_RECOVERY_NOTICE", "GPU_RECOVERY_SIMULATE", "GPU_RECOVERY_SIMULATED_AT"
NOTICE, ASKED, SUSPEND, WATCHDOG, PROGRESS = "notice", "asked", "suspend", "watchdog", "progress"
ENDED_WITHIN_S = 30.0
"""So long `go_suspend` waits for the wrapper to end it, before it ends by itself."""
_asked: set[str] = set()


class CheckpointFolderMissing(RuntimeError):
    """CHECKPOINT_DIR is not set, or is no folder: nothing that this attempt writes would be found by the next."""


def receive_suspend_command() -> bool:
    """Whether this job is to be suspended: true from the notice on, in every process of rank 0; elsewhere never.

    One `stat` of a file in memory: cheap enough for every step. After it has become true there are SUSPEND_GRACE_S
    seconds (5 by default) to save and to call `go_suspend`.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return _simulated()
    if folder not in _asked:
        _asked.add(folder)
        with contextlib.suppress(FileNotFoundError):  # the wrapper has ended, and ends us
            _mark(folder, ASKED)
    return os.path.exists(os.path.join(folder, NOTICE))


def go_suspend() -> NoReturn:
    """Says that this rank has saved what it needs and may be ended. Never returns; any process of any rank may call it.

    All processes of the rank are ended, with SIGTERM and then SIGKILL: let those that still save finish before (a
    barrier). The rank's exit status is SUSPENDED, the job is suspended, and goes on with its next attempt.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed, or there is none
                stream.flush()
        folder = os.environ.get(FOLDER)
        if folder:
            with contextlib.suppress(ValueError):  # not the main thread: a handler may run meanwhile, and cannot return
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
    """From now on the rank is ended (exit status 124) when `progress` is not called for `seconds`; 0: never.

    Without the wrapper nobody watches. Raises ValueError for a time that is none.
    """
    if isinstance(seconds, bool) or not 0 <= seconds < 1e9:
        raise ValueError(f"the watchdog's time is {seconds!r}; it must be 0 or more seconds")
    if folder := os.environ.get(FOLDER):
        _write_whole(os.path.join(folder, WATCHDOG), json.dumps({"seconds": seconds}))


def progress() -> None:
    """Says that the training goes on. Any process of the rank may say it for all of them; one system call or two."""
    if folder := os.environ.get(FOLDER):
        path = os.path.join(folder, PROGRESS)
        try:
            os.utime(path)
        except FileNotFoundError:
            with suppress(OSError):  # a mark that cannot be made must not end a training
                _mark(folder, PROGRESS)
        except OSError:
            return


def set_whole_life_state(state: int) -> None:
    """Keeps a whole number for the attempts that follow, in CHECKPOINT_DIR: the only place that outlives this one and
    is there wherever the next one runs. Whoever writes last is right: let one process of the job do it.

    Raises CheckpointFolderMissing, OSError, or TypeError for anything but an int.
    """
    if isinstance(state, bool) or not isinstance(state, int):
        raise TypeError(f"the state is {state!r}; it must be an int")
    path = _state_file()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _write_whole(path, f"{state}\n")


def get_whole_life_state() -> int:
    """The number that an earlier attempt, or this one, kept; 0 if none did. Raises CheckpointFolderMissing, OSError."""
    path = _state_file()
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return 0
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path} holds no whole number") from None


def rank() -> int:
    """The number of this instance in the gang, from 0: seed 003's rank, also under torchrun, whose RANK counts GPUs."""
    return _number(("NODE_RANK", "GROUP_RANK", "RANK"), 0)


def world_size() -> int:
    """How many instances the gang has."""
    return _number(("NNODES", "GROUP_WORLD_SIZE", "WORLD_SIZE"), 1)


def local_rank() -> int:
    """The number of this process on its instance, as torchrun gives it; 0 without."""
    return _number(("LOCAL_RANK",), 0)


def local_world_size() -> int:
    """How many processes train on this instance: as torchrun gives it, else one for each GPU of the task."""
    return _number(("LOCAL_WORLD_SIZE", "GPUS_PER_NODE"), 1)


def global_rank() -> int:
    """The number of this process among all of the gang: what torchrun and torch.distributed call the rank."""
    return rank() * local_world_size() + local_rank()


def global_world_size() -> int:
    """How many processes the gang has, every instance having as many as this one."""
    return world_size() * local_world_size()


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
    """Replaces a file in one step, whoever else writes it at that moment on another instance."""
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
    """Without the wrapper: whether the seconds of GPU_RECOVERY_SIMULATE are over, from the first question on."""
    text = os.environ.get(SIMULATE) or "0"
    if text == "0":
        if os.environ.get("JOB_ID"):
            warnings.warn(
                "this job is not run by gpu-recovery-run: it will never hear that it is suspended", stacklevel=3
            )
        return False
    try:
        after_s = float(text)
    except ValueError:
        raise ValueError(f"{SIMULATE} is {text!r}; it must be the seconds until the notice, such as 10") from None
    if rank() != 0:
        return False
    began = float(os.environ.setdefault(SIMULATED_AT, repr(time.monotonic())))  # the same for every child from now on
    return time.monotonic() - began >= after_s


def _begin_again() -> None:
    """The end of a rehearsal without the wrapper: the program once more, if we are all of it."""
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
            sys.stderr.write("rehearsal: the program begins again, and should go on where it was\n")
            sys.stderr.flush()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
