"""`gpu-recovery-run [--] command...`: the first process of a rank.

Before the command starts, a file says who runs; when it has ended, another says how, and the first is removed. The exit
is on the disk before anybody is told: it survives the agent. Where the files cannot be written the rank runs all the
same, with one warning: a full disk must not stop a training.

Environment: JOB_ID, ATTEMPT, RANK, and where they are given EPOCH and RUNNING_LOG_ID. Exit status: the command's,
128+n for signal n; 127 or 126 where it cannot be started, 125 where there is none.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.command import Command, Ended
from gpu_recovery_agent.files import sync_folder, write_whole
from gpu_recovery_agent.metadata import EXIT_SUFFIX, Rank, rank_fields, rank_of, whole
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.boot import BootUnknown, boot_id
from gpu_recovery_agent.settings import SettingsError, running_folder

MISUSED = 125
PROC = Path("/proc")


def main() -> None:
    """The entry point of `gpu-recovery-run`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments:
        sys.stderr.write("usage: gpu-recovery-run [--] command [argument...]\n")
        sys.exit(MISUSED)
    sys.exit(run(arguments, os.environ))


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the command to its end; its status as a shell gives it."""
    command = Command(arguments)
    files = RankFiles(environment)
    files.begin(command.pid)
    try:
        command.go()
        ended = command.wait()
        files.end(ended)
    finally:
        files.remove()
    command.end_the_rest()
    return ended.status


class RankFiles:
    """The two files of this rank. The first of them that cannot be written is said, and no other."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._warned = False
        self._rank = rank_of(environment, environment.get("RANK"))
        self._log = whole(environment.get("RUNNING_LOG_ID"))
        self._stem = _stem(self._rank, self._log)
        if self._stem is None:
            self._warn("JOB_ID, ATTEMPT and RANK are not set, nor is RUNNING_LOG_ID: nobody will hear of this rank")
        try:
            self._folder = running_folder(environment)
        except SettingsError as error:
            self._warn(str(error))
            self._stem = None

    def begin(self, command_pid: int) -> None:
        """Writes who runs: this process, and the group of its command."""
        if self._stem is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{self._stem}{EXIT_SUFFIX}").unlink(missing_ok=True)  # of an earlier run of the same rank
            write_whole(self._folder / f"{self._stem}.json", self._running(command_pid))
        except (OSError, BootUnknown) as error:
            self._warn(f"the file of this rank cannot be written to {self._folder}: {error}")

    def end(self, ended: Ended) -> None:
        """Writes how it ended. A rank without a job cannot be told, and a file of it would stay for ever."""
        if self._stem is None or self._rank is None:
            return
        how = {"code": ended.code} if ended.code is not None else {"signal": ended.signal}
        try:
            content = {
                **rank_fields(self._rank),
                **how,
                "uptime_s": round(clock.uptime_s(), 3),
                "boot_id": boot_id(PROC),
            }
            write_whole(self._folder / f"{self._stem}{EXIT_SUFFIX}", content)
        except (OSError, BootUnknown) as error:
            self._warn(f"the exit of this rank cannot be written to {self._folder}: {error}")

    def remove(self) -> None:
        """Removes the running file: the trap of seed 000."""
        if self._stem is None:
            return
        try:
            (self._folder / f"{self._stem}.json").unlink(missing_ok=True)
            sync_folder(self._folder)
        except OSError as error:
            self._warn(f"the file of this rank cannot be removed from {self._folder}: {error}")

    def _running(self, command_pid: int) -> dict[str, Any]:
        own = processes.read(PROC, os.getpid())
        content: dict[str, Any] = rank_fields(self._rank) if self._rank else {}
        if self._log is not None:
            content["running_log_id"] = self._log
        content |= {"remote_pid": os.getpid(), "remote_pgid": command_pid, "timestamp": int(time.time())}
        content |= {"boot_id": boot_id(PROC), "pid_namespace": processes.pid_namespace(PROC, "self")}
        return content | ({"start_ticks": own.ticks} if own else {})

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            sys.stderr.write(f"gpu-recovery-run: warning: {text}\n")
            sys.stderr.flush()


def _stem(rank: Rank | None, log: int | None) -> str | None:
    """The files' name: the running log's number, or without one a number made of the rank, so that two never meet."""
    if log is not None:
        return str(log)
    return hashlib.sha256(repr(rank.key).encode()).hexdigest()[:16] if rank else None
