"""`gpu-recovery-run [--simulate SECONDS] [--] command...`: PID 1 of the training container.

The wrapper is no part of the agent daemon. It starts the user's command, forwards signals, suspends the command, and
records its exit in a file that the agent reads.

Before the command starts, a file names the process. After the command has ended, a second file says how, and the first
file is removed. The exit is on the disk before it is reported, so it survives the agent. If the files cannot be
written, the rank runs nevertheless, after one warning: a full disk must not stop a training. Meanwhile the command can
be suspended (`suspension`).

The output of the command goes to its usual place. If the command fails, the agent gets the output tail
(`output_tail`) and the records of PyTorch's flight recorder (`flight_dumps`). The wrapper ends once the server has both
(`delivery`).

Rank 0 tells the agent the timeouts in its environment that the server knows (`timeout_variables`), and no other value.

With GPU_RECOVERY_PREFLIGHT the container is tested before the command starts (`preflight`).

With GPU_RECOVERY_HOLD_S a failed command is held (`hold`): the agent may start the next attempt in this container. With
GPU_RECOVERY_WARM the container is a warm spare: it waits for the start of a rank before it runs the command. With
GPU_RECOVERY_STANDBY a second process of the command waits for the next attempt (`standby`).

Environment: JOB_ID, ATTEMPT, RANK, and if present EPOCH, RUNNING_LOG_ID, SUSPEND_GRACE_S and GPU_RECOVERY_HOLD_S.

Exit status: the command's status, 128+n for signal n; 75 if it asked to be suspended, 76 if the preflight failed,
124 if it made no progress; 127 or 126 if it cannot be started, 125 if the command line is wrong.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import VERSION, clock
from ..files import sync_folder, write_whole
from ..sensors import processes
from ..sensors.boot import BootUnknown, boot_id
from . import output_tail
from .background import Background
from .delivery import DELIVERED_WITHIN_S, Delivery
from .exit_files import remove_old_exits
from .files import EXIT_SUFFIX, EXIT_SUFFIXES, RankIdentity, rank_fields, rank_of, stem_of, whole
from .flight_dumps import HOLD_S, DumpsFirst, FlightDumps
from .hold import (
    AgentWatch,
    EndedByOrder,
    Order,
    attempt_of,
    has_agent,
    hold_s,
    is_warm,
    next_environment,
    read_order,
    remove_order,
    wait_for_start,
)
from .paths import AgentSettingsError, output_path, running_folder, socket_path
from .preflight import is_wanted
from .preflight_exit import status_before_start
from .process import FORWARDED, Ended
from .rank_process import RankProcess
from .settings import (
    STANDBY_ON_SPARES,
    STANDBY_VARIABLE,
    rank_timeouts,
    rehearsal_and_command,
    standby_after_s,
    standby_mode,
)
from .standby import Standby, StandbyPolicy
from .suspension import SUSPENDED, SuspensionHandler
from .timeouts_report import report_timeouts

MISUSED = 125
"""Exit status of a wrong command line: without a command, or with invalid seconds of a rehearsal."""
PROC = Path("/proc")
USAGE = "usage: gpu-recovery-run [--simulate SECONDS] [--] command [argument...]"
HELP = f"""{USAGE}

Start a rank of a training job: run the command, write its exit for the node agent, and suspend it on request.

  --simulate SECONDS   rehearse a suspension: send the notice this long after the command has asked for it
  --version            print the version
  --help               print this text

The environment names the rank: JOB_ID, ATTEMPT, RANK; GPUTASKER_RUNNING_TASKS_DIR names the folder that the rank
shares with the agent. Exit status: that of the command, 128+n for signal n; 75 suspended, 76 preflight failed,
124 no progress, 125 wrong command line, 126 or 127 the command cannot be started.
"""
NO_LINE = (0.0, 0.0)
"""Access and modification time of the file of the output before the first line."""
ECS_VARIABLES = ("ECS_CONTAINER_METADATA_URI_V4", "ECS_CONTAINER_METADATA_URI")
"""Variables that the agent of ECS sets in every container."""


def main() -> None:
    """Entry point of `gpu-recovery-run`."""
    if sys.argv[1:2] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return
    if sys.argv[1:2] == ["--version"]:
        sys.stdout.write(f"gpu-recovery-run {VERSION}\n")
        return
    environment = dict(os.environ)
    if environment.get("JOB_ID") and environment.pop("GPU_RECOVERY_SIMULATE", ""):
        print_line("warning: GPU_RECOVERY_SIMULATE is not for the ranks of a job, and is ignored")
    try:
        simulate_s, command = rehearsal_and_command(sys.argv[1:], environment)
    except AgentSettingsError as error:
        print_line(f"{error}\n{USAGE}")
        sys.exit(MISUSED)
    sys.exit(run(command, environment) if simulate_s is None else rehearse(command, environment, simulate_s))


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end and return its status as a shell reports it.

    If the environment says so, a failed command is held: the next attempt may start in the same container. The status
    is 75 if the rank was suspended, 124 if it made no progress.
    """
    mode = standby_mode(environment, print_line) if hold_s(environment) else ""
    if not mode:
        plain = {name: value for name, value in environment.items() if name != STANDBY_VARIABLE}
        return _run_attempts(arguments, plain, None)
    standby = Standby(arguments, standby_after_s(environment, print_line), print_line)
    try:
        if is_warm(environment) and mode == STANDBY_ON_SPARES:
            standby.start(environment)
        return _run_attempts(arguments, environment, standby)
    finally:
        standby.end()


def _run_attempts(arguments: Sequence[str], environment: Mapping[str, str], standby: Standby | None) -> int:
    """Run the command of each attempt in this container and return the status of the last one."""
    for_s = hold_s(environment)
    is_first = not is_warm(environment)
    if not is_first:
        first = _first_order(environment, standby)
        if first is None:
            return 0
        environment = next_environment(environment, first)
    while True:
        files = RankFiles(environment)
        if is_wanted(environment) and (status := status_before_start(environment, files, is_first, print_line)):
            return status
        is_first = False
        ended = _once(arguments, environment, files, standby=standby)
        if not ended.held:
            return ended.status
        attempt = attempt_of(files.rank)
        print_line(
            f"attempt {attempt} has ended with {ended.status}; the container waits {for_s} s for the next attempt"
        )
        order = wait_for_start(files.order, attempt, for_s)
        files.remove()
        if order is None:
            print_line("no next attempt was started in this container")
            return ended.status
        print_line(f"attempt {order.next_attempt} starts in this container")
        environment = next_environment(environment, order)


def _first_order(environment: Mapping[str, str], standby: Standby | None) -> Order | None:
    """Wait as a warm spare for the start of a rank. Return the order; None if the container is to end."""
    files = RankFiles(environment)
    print_line("warm spare: the container waits for a rank")
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    files.wait_warm()
    agent = AgentWatch(files.can_be_held)

    def look() -> Order | None:
        if standby is not None:
            standby.check()
        return files.order()

    order = wait_for_start(look, attempt_of(files.rank), None, is_in_vain=agent.is_lost)
    files.remove()
    if order is not None:
        print_line(f"attempt {order.next_attempt} starts in this container")
    return order


def rehearse(arguments: Sequence[str], environment: Mapping[str, str], after_s: float) -> int:
    """Suspend the command after `after_s` seconds and run it once more, as the next attempt would.

    Writes no rank files.
    """
    first = _once(arguments, environment, None, after_s)
    if not first.suspension.noticed:
        print_line(f"rehearsal: the command ended with {first.status} before there was a notice")
        return first.status
    how = "was killed, and unsaved work is lost" if first.suspension.forced else "exited by itself"
    print_line(
        f"rehearsal: the command {how}; status {first.status}. It starts again, and should continue from its checkpoint"
    )
    return _once(arguments, environment, None).status


@dataclass(frozen=True)
class _Run:
    """A run of a command that has ended."""

    suspension: SuspensionHandler
    status: int
    held: bool = False


def _once(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: RankFiles | None,
    rehearse_s: float | None = None,
    standby: Standby | None = None,
) -> _Run:
    leads = whole(environment.get("RANK")) in (0, None)
    timeouts = rank_timeouts(environment, print_line)
    dumps = FlightDumps(environment, print_line)
    on_line = files.touch_output if files else _no_file
    process = standby.take(environment) if standby else None
    if process is None:
        process = RankProcess(arguments, environment, print_line, on_line)
    else:
        print_line("the standby process runs the attempt")
    process.output.on_line = on_line
    command = process.command
    with closing(process):
        suspension = SuspensionHandler(timeouts, process.folder, leads=leads, say=print_line, rehearse_s=rehearse_s)
        try:
            if files:
                files.begin(command.pid)
            process.go()
            if files and leads:
                Background().begin(partial(report_timeouts, files.rank, files.socket(), environment, arguments))
            # SIGTERM must still come before SIGKILL. Rank 0 gets it after its grace.
            rest_s = timeouts.kill_s - timeouts.term_s if leads else timeouts.kill_s
            delay_s = 0.0 if timeouts.forwards else min(HOLD_S, rest_s / 2)
            order = files.order if files else _no_order
            by_order = EndedByOrder(suspension, order, attempt_of(files.rank) if files else 0, print_line)
            dumps_first = DumpsFirst(by_order, dumps, delay_s)
            policy = StandbyPolicy(dumps_first, standby, process.folder, environment) if standby else dumps_first
            ended = command.wait(policy, dumps_first.poll_s)
            status = suspension.status(ended)
            is_held = files is not None and _is_held(files, suspension, status, by_order.is_ordered)
            if files and not is_held:
                files.end(ended, suspension.facts())
        except BaseException:
            if files:
                files.remove()
            raise
        if files and not is_held:
            files.remove()
        process.guard.dismiss()
        if standby and not is_held:
            standby.end()
        command.end_the_rest()
        lines = process.output.end()
        if files and is_held:
            facts = {**suspension.facts(), "held": True, **({"asked": True} if by_order.is_ordered else {})}
            _deliver_evidence(files, suspension, lines, dumps, lambda: files.hold(ended, facts))
        elif files and ended.status:
            _deliver_evidence(files, suspension, lines, dumps)
        return _Run(suspension, status, is_held)


def _no_file() -> None:
    """Do nothing about a line of a rehearsal, which no agent reads."""


def _no_order() -> Order | None:
    return None


def _is_held(files: RankFiles, suspension: SuspensionHandler, status: int, is_ordered: bool) -> bool:
    """Return whether the container waits for the next attempt: its command failed, or was ended for that.

    After a SIGTERM the container ends soon. A command that asks for its suspension waits in the queue.
    """
    if suspension.noticed or suspension.suspended or not files.can_be_held():
        return False
    return is_ordered or status not in (0, SUSPENDED)


def _deliver_evidence(
    files: RankFiles,
    suspension: SuspensionHandler,
    lines: Sequence[str],
    dumps: FlightDumps,
    sent: Callable[[], object] | None = None,
) -> None:
    """Send the evidence of a failed command to the agent, and wait until the server has it.

    The container must not be killed meanwhile: ECS would report another exit code. `sent` is called between the two:
    the exit of a held rank goes to the server with its evidence.
    """
    rank, path = files.rank, files.socket()
    if rank is None or path is None:
        if sent is not None:
            sent()
        return
    delivery = Delivery(path)
    if not suspension.noticed:
        delivery.send(output_tail.reports(lines, rank))
    if not suspension.suspended:
        delivery.send(dumps.reports(rank))
    if sent is not None:
        sent()
    within_s = min(DELIVERED_WITHIN_S, suspension.left_s)
    if not delivery.end(within_s):
        print_line(f"warning: the agent has not passed on the evidence of this rank within {within_s:.0f} s")


def print_line(text: str) -> None:
    """Write one line to standard error at once."""
    sys.stderr.write(f"gpu-recovery-run: {text}\n")
    sys.stderr.flush()


class RankFiles:
    """The two files of this rank. Only the first write error is reported."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._has_warned, self._environment = False, environment
        self.rank = rank_of(environment, environment.get("RANK"))
        self._log = whole(environment.get("RUNNING_LOG_ID"))
        self._stem = _stem(self.rank, self._log)
        if self._stem is None:
            self._warn("JOB_ID, ATTEMPT and RANK are not set, nor is RUNNING_LOG_ID: no agent will report this rank")
        try:
            self._folder = running_folder(environment)
        except AgentSettingsError as error:
            self._warn(str(error))
            self._stem = None

    def begin(self, command_pid: int, held: bool = False) -> None:
        """Write which processes run: this process, and the process group of its command.

        First remove the exit that an earlier run of the same rank may have left. An exit file of another user cannot
        be removed; the agent ignores that file, so the running file is written nevertheless.

        Args:
            command_pid: the process group of the command.
            held: whether the rank is held, and no command runs.
        """
        if self._stem is None:
            return
        for leftover in (self._folder / f"{self._stem}{suffix}" for suffix in EXIT_SUFFIXES):
            try:
                leftover.unlink(missing_ok=True)
            except NotADirectoryError:
                pass  # the write below fails for the same reason, and its warning says so
            except OSError as error:
                self._warn(f"the earlier exit {leftover} cannot be removed: {error.strerror}")
        remove_old_exits(self._folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if _is_inside_the_container(self._folder, self._environment):
                print_line(
                    f"warning: {self._folder} is not mounted into this container: the agent of the instance does not "
                    "see the files of this rank, and will not report its exit"
                )
            running = self._running(command_pid)
            self._set_line_time(os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, NO_LINE)
            write_whole(self._folder / f"{self._stem}.json", {**running, "held": True} if held else running)
        except (OSError, BootUnknown) as error:
            self._warn(f"the file of this rank cannot be written to {self._folder}: {error}")

    def can_be_held(self) -> bool:
        """Return whether the agent of this instance can start the next attempt of this rank in this container."""
        return self._stem is not None and hold_s(self._environment) > 0 and has_agent(self._folder)

    def order(self) -> Order | None:
        """Return the agent's order for this rank; None if there is none."""
        return read_order(self._folder, self._stem) if self._stem is not None else None

    def wait_warm(self) -> None:
        """Write that this rank is held, although no command of it has run."""
        if self._stem is None:
            return
        remove_order(self._folder, self._stem)
        self.begin(os.getpid(), held=True)

    def hold(self, ended: Ended, more: Mapping[str, bool]) -> None:
        """Write that the rank is held, and how its command ended. An order that was carried out is removed."""
        if self._stem is None:
            return
        remove_order(self._folder, self._stem)
        try:
            write_whole(self._folder / f"{self._stem}.json", {**self._running(os.getpid()), "held": True})
        except (OSError, BootUnknown) as error:
            self._warn(f"the file of this rank cannot be written to {self._folder}: {error}")
        self.end(ended, more)

    def end(self, ended: Ended, more: Mapping[str, bool]) -> None:
        """Write how the command ended, by its own code even if the wrapper's differs, and `more` about the reason.

        A rank without a job cannot be reported, and its file would stay for ever, so no file is written.
        """
        if self._stem is None or self.rank is None:
            return
        result = {"code": ended.code} if ended.code is not None else {"signal": ended.signal}
        try:
            content = {
                **rank_fields(self.rank),
                **result,
                **more,
                "uptime_s": round(clock.uptime_s(), 3),
                "boot_id": boot_id(PROC),
            }
            write_whole(self._folder / f"{self._stem}{EXIT_SUFFIX}", content)
        except (OSError, BootUnknown) as error:
            self._warn(f"the exit of this rank cannot be written to {self._folder}: {error}")

    def socket(self) -> Path | None:
        """Return the path of the agent's socket; None if no socket is configured."""
        if self._stem is not None:
            with suppress(AgentSettingsError):
                return socket_path(self._environment)
        return None

    def touch_output(self) -> None:
        """Tell the agent that the command has written a line, by the modification time of an empty file.

        The file is not made here: at the end of the rank it is removed, and its last lines come after that.
        """
        if self._stem is not None:
            with suppress(FileNotFoundError):
                self._set_line_time(os.O_WRONLY | os.O_NOFOLLOW, None)

    def _set_line_time(self, flags: int, times: tuple[float, float] | None) -> None:
        """Set the time of the last line: now, or before the first line that of the epoch. Warn of errors."""
        try:
            descriptor = os.open(output_path(self._folder, self._stem or ""), flags | os.O_CLOEXEC, 0o644)
            try:
                os.utime(descriptor, times)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._warn(f"the time of the last line cannot be written to {self._folder}: {error}")

    def remove(self) -> None:
        """Remove the running file. A file that stays would show an ended rank as running (the trap of seed 000)."""
        if self._stem is None:
            return
        try:
            (self._folder / f"{self._stem}.json").unlink(missing_ok=True)
            output_path(self._folder, self._stem).unlink(missing_ok=True)
            remove_order(self._folder, self._stem)
            sync_folder(self._folder)
        except OSError as error:
            self._warn(f"the file of this rank cannot be removed from {self._folder}: {error}")

    def _running(self, command_pid: int) -> dict[str, Any]:
        own = processes.read(PROC, os.getpid())
        content: dict[str, Any] = rank_fields(self.rank) if self.rank else {}
        if self._log is not None:
            content["running_log_id"] = self._log
        content |= {"remote_pid": os.getpid(), "remote_pgid": command_pid, "timestamp": int(time.time())}
        content |= {"boot_id": boot_id(PROC), "pid_namespace": processes.pid_namespace(PROC, "self")}
        content |= {"holds": True} if hold_s(self._environment) else {}
        return content | ({"start_ticks": own.ticks} if own else {})

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            print_line(f"warning: {text}")


def _is_inside_the_container(folder: Path, environment: Mapping[str, str]) -> bool:
    """Return whether this is a container of ECS, and `folder` is part of its own file system instead of a mount."""
    if not any(environment.get(name) for name in ECS_VARIABLES):
        return False
    return os.stat(folder).st_dev == os.stat("/").st_dev


def _stem(rank: RankIdentity | None, log: int | None) -> str | None:
    """Return the base name of the files: the number of the running log, or without it a unique hash of the rank."""
    if log is not None:
        return str(log)
    return stem_of(rank) if rank else None
