"""A rank that is suspended, as the processes it really is: who hears of it, what is saved, who ends, and how."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.commands import CommandRunner
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank import suspension, suspension_folder
from gpu_recovery_agent.responses import ServerCommand
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.ranks import RankSensor
from gpu_recovery_agent.state import AgentState
from gpu_recovery_client import training

from tests.agent.api import WITHIN_S
from tests.agent.node import Node, wait_until

pytestmark = pytest.mark.slow
PROC = Path("/proc")
LONG = {"SUSPEND_GRACE_S": "80000", "GPU_RECOVERY_STOP_TIMEOUT_S": "86000"}
"""A grace that no test outlives: what ends under it ends for another reason."""
BEGIN = """
import multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
from gpu_recovery_client import training

def until(condition):
    while not condition():
        time.sleep(0.01)

"""


class Place:
    """A node, and programs whose working folder is this test's."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder

    def start(self, program: str, **variables: str) -> Any:
        """A rank that runs a Python program, which is a file, as multiprocessing wants it."""
        path = self.folder / "program.py"
        path.write_text(BEGIN + program)
        runtime = self.folder / "memory"
        runtime.mkdir(exist_ok=True)
        variables = {"XDG_RUNTIME_DIR": str(runtime), **variables}
        return self.node.rank(sys.executable, "-u", str(path), str(self.folder), **variables)

    def has(self, *names: str) -> bool:
        return all((self.folder / name).exists() for name in names)

    def given(self) -> list[Path]:
        """The notices that lie in memory."""
        return list((self.folder / "memory").glob("*/notice"))

    def exit(self, number: int = 100) -> dict[str, Any]:
        """How the rank ended, without when and who."""
        found = json.loads((self.node.running / f"{number}.exit").read_text())
        return {key: found[key] for key in ("code", "signal", "notice", "suspended", "timed_out") if key in found}

    def pid(self, name: str) -> int:
        return int(wait_until((self.folder / name).read_text))

    def ended(self, rank: Any) -> tuple[int, bytes, bytes]:
        out, err = rank.communicate(timeout=WITHIN_S)
        return rank.returncode, out, err


@pytest.fixture
def place(node: Node, tmp_path: Path) -> Place:
    return Place(node, tmp_path)


def lives(pid: int) -> bool:
    found = processes.read(PROC, pid)
    return found is not None and found.is_alive


def test_both_sides_name_the_files_and_the_status_alike() -> None:
    """A program that trains has the one package, the wrapper the other: they meet in these names only."""
    assert training.FOLDER == suspension_folder.VARIABLE
    for name in ("NOTICE", "ASKED", "SUSPEND", "WATCHDOG", "PROGRESS"):
        assert getattr(training, name) == getattr(suspension_folder, name)
    assert training.SUSPENDED == suspension.SUSPENDED


FAMILY = """
def wait(name):
    Path(sys.argv[1], name + ".asks").touch()
    until(training.receive_suspend_command)
    Path(sys.argv[1], name + ".told").touch()

if __name__ == "__main__":
    if len(sys.argv) > 2:
        wait(sys.argv[2])
        sys.exit()
    subprocess.Popen([sys.executable, __file__, sys.argv[1], "grandchild"], start_new_session=True)
    forked = multiprocessing.get_context("fork").Process(target=wait, args=("forked",))
    spawned = multiprocessing.get_context("spawn").Process(target=wait, args=("spawned",))
    forked.start(), spawned.start()
    wait("itself")
    until(lambda: all(Path(sys.argv[1], name + ".told").exists() for name in ("forked", "spawned", "grandchild")))
"""
EVERYBODY = ("itself", "forked", "spawned", "grandchild")


def test_every_process_of_rank_0_hears_the_notice(place: Place) -> None:
    """Forked, spawned, or started in a session of its own: all of them, and none before."""
    rank = place.start(FAMILY, **LONG)
    wait_until(lambda: place.has(*(f"{name}.asks" for name in EVERYBODY)))
    assert not place.has("itself.told") and not place.given()
    rank.terminate()
    status, _, err = place.ended(rank)
    assert status == 0 and place.has(*(f"{name}.told" for name in EVERYBODY))
    assert place.exit() == {"code": 0, "notice": True}
    assert b"is to be suspended" in err and list((place.folder / "memory").iterdir()) == []


def test_another_rank_hears_no_notice_and_gets_sigterm(place: Place) -> None:
    """Seed 003: only the first receives the command. The others are ended when it has left."""
    program = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(3 + 10 * training.receive_suspend_command()))
training.receive_suspend_command()
Path(sys.argv[1], "asks").touch()
time.sleep(600)
"""
    rank = place.start(program, RANK="1", RUNNING_LOG_ID="101", **LONG)
    wait_until(lambda: place.has("asks"))
    rank.terminate()
    assert place.ended(rank)[0] == 3
    assert place.exit(101) == {"code": 3, "notice": True}


SAVES = """
Path(sys.argv[1], "pid").write_text(str(os.getpid()))
training.receive_suspend_command()
Path(sys.argv[1], "asks").touch()
until(training.receive_suspend_command)
with open(Path(sys.argv[1], "checkpoint"), "w") as file:
    for part in range(50):
        file.write(f"{part}\\n")
        file.flush()
        time.sleep(0.01)
print("saved")
training.go_suspend()
print("went on")
"""


def test_a_command_that_heeds_the_notice_saves_everything_and_leaves(place: Place) -> None:
    """Nobody disturbs it meanwhile; the exit status says that it may go on later, the exit file how it ended."""
    rank = place.start(SAVES, **LONG)
    wait_until(lambda: place.has("asks"))
    rank.terminate()
    status, out, _ = place.ended(rank)
    assert (status, out) == (75, b"saved\n")
    assert (place.folder / "checkpoint").read_text().split() == [str(part) for part in range(50)]
    assert place.exit() == {"signal": signal.SIGTERM, "notice": True, "suspended": True}
    assert place.node.files() == ["100.exit"] and not lives(place.pid("pid"))


@pytest.mark.parametrize(("handler", "status"), [("SIG_IGN", 137), ("SIG_DFL", 143)])
def test_a_command_that_ignores_the_notice_is_ended_after_the_grace(place: Place, handler: str, status: int) -> None:
    """With SIGTERM, and if it is deaf to that too with SIGKILL; the notice is told with the signal."""
    program = f"""
signal.signal(signal.SIGTERM, signal.{handler})
Path(sys.argv[1], "began").touch()
time.sleep(600)
"""
    rank = place.start(program, SUSPEND_GRACE_S="1")
    wait_until(lambda: place.has("began"))
    rank.terminate()
    found, _, err = place.ended(rank)
    assert found == status
    assert place.exit() == {"signal": status - 128, "notice": True}
    assert b"the grace period is over" in err and (b"SIGKILL" in err) == (handler == "SIG_IGN")


@pytest.mark.parametrize("rank_number", ["0", "1"])
def test_go_suspend_from_any_process_of_any_rank_ends_all_of_it(place: Place, rank_number: str) -> None:
    """Nobody gave a notice. A launcher that waits, a sibling that is deaf, a stray in its own session: all end."""
    program = """
def deaf(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(sys.argv[1], name).write_text(str(os.getpid()))
    time.sleep(600)

def leave():
    until(lambda: all(Path(sys.argv[1], name).exists() for name in ("sibling", "stray")))
    training.go_suspend()

if __name__ == "__main__":
    if len(sys.argv) > 2:
        deaf("stray")
    context = multiprocessing.get_context("fork")
    subprocess.Popen([sys.executable, __file__, sys.argv[1], "stray"], start_new_session=True)
    context.Process(target=deaf, args=("sibling",)).start()
    leaver = context.Process(target=leave)
    leaver.start()
    leaver.join()
    print("outlived", leaver.exitcode)
    time.sleep(600)
"""
    rank = place.start(program, RANK=rank_number, RUNNING_LOG_ID="100", **LONG)
    status, _, _ = place.ended(rank)
    assert status == 75
    assert place.exit() in ({"signal": 15, "suspended": True}, {"signal": 9, "suspended": True})
    assert not lives(place.pid("sibling")) and not lives(place.pid("stray"))


def test_go_suspend_counts_also_if_the_launcher_ends_by_itself_with_an_error(place: Place) -> None:
    """torchrun exits with 1 whatever its workers did: the mark outlives them all."""
    program = """
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    leaver = multiprocessing.get_context("fork").Process(target=training.go_suspend)
    leaver.start()
    until(lambda: Path(os.environ["GPU_RECOVERY_NOTICE"], "suspend").exists())
    leaver.kill()
    sys.exit(1)
"""
    assert place.ended(place.start(program, **LONG))[0] == 75
    assert place.exit() == {"code": 1, "suspended": True}


def test_a_second_sigterm_ends_the_grace(place: Place) -> None:
    """Its holder wants it gone now."""
    program = 'Path(sys.argv[1], "began").touch()\ntime.sleep(600)\n'
    rank = place.start(program, **LONG)
    wait_until(lambda: place.has("began"))
    rank.terminate()
    wait_until(place.given)
    assert rank.poll() is None
    rank.terminate()
    assert place.ended(rank)[0] == 143
    assert place.exit() == {"signal": 15, "notice": True}


@pytest.mark.parametrize(
    ("crash", "how"), [("sys.exit(7)", {"code": 7}), ("os.kill(os.getpid(), signal.SIGSEGV)", {"signal": 11})]
)
def test_a_crash_under_notice_keeps_its_real_code(place: Place, crash: str, how: dict[str, int]) -> None:
    """It may be the GPU's fault all the same: nobody makes a suspension of it here."""
    program = "training.receive_suspend_command()\nPath(sys.argv[1], 'asks').touch()\n"
    program += f"until(training.receive_suspend_command)\n{crash}\n"
    rank = place.start(program, **LONG)
    wait_until(lambda: place.has("asks"))
    rank.terminate()
    assert place.ended(rank)[0] == how.get("code", 128 + how.get("signal", 0))
    assert place.exit() == {**how, "notice": True}


def test_a_rank_that_makes_no_progress_is_ended(place: Place) -> None:
    """124, and its own end in the file: it would hang there with all its GPUs."""
    program = """
training.progress()
print("goes on")
training.set_watchdog_time(1)
time.sleep(600)
"""
    status, out, err = place.ended(place.start(program, **LONG))
    assert (status, out) == (124, b"goes on\n") and b"no progress for 1 s" in err
    assert place.exit() == {"signal": 15, "timed_out": True}


def test_a_command_that_handles_sigterm_itself_can_have_it_at_once(place: Place) -> None:
    """GPU_RECOVERY_FORWARD_SIGTERM=1: no notice, no grace, nobody kills it."""
    trap = "trap 'echo heard; exit 3' TERM; touch began; while :; do sleep 0.05; done"
    rank = place.node.rank("sh", "-c", f"cd {place.folder}; {trap}", GPU_RECOVERY_FORWARD_SIGTERM="1", **LONG)
    wait_until(lambda: place.has("began"))
    rank.terminate()
    status, out, err = place.ended(rank)
    assert (status, out) == (3, b"heard\n") and b"gpu-recovery-run" not in err


def test_a_program_in_another_language_finds_the_notice_too(place: Place) -> None:
    """It is a file in a folder that the environment names, and 75 is an exit status like any other."""
    wait = 'touch began; until [ -e "$GPU_RECOVERY_NOTICE/notice" ]; do sleep 0.05; done; exit 75'
    rank = place.node.rank("sh", "-c", f"cd {place.folder}; {wait}", **LONG)
    wait_until(lambda: place.has("began"))
    rank.terminate()
    assert place.ended(rank)[0] == 75
    assert place.exit() == {"code": 75, "notice": True}


@pytest.mark.skipif(os.getuid() != 0, reason="a pid namespace needs root")
def test_as_first_process_it_reaps_orphans_under_notice_and_leaves_nobody(place: Place) -> None:
    """Everybody's parent in the end, also while it waits for one of them to save."""
    probe = subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("no namespaces here")
    program = """
training.receive_suspend_command()
subprocess.Popen(["sleep", "600"], start_new_session=True)
Path(sys.argv[1], "asks").touch()
until(training.receive_suspend_command)
subprocess.run(["sh", "-c", "for i in 1 2 3; do (true &); done"])
def stat(process):
    try:
        return (process / "stat").read_text().split()
    except OSError:  # it has ended since it was listed
        return []
def mine():
    return [p for p in Path("/proc").glob("[0-9]*") if stat(p)[2:4] == ["Z", "1"]]
until(lambda: not mine())
Path(sys.argv[1], "first").write_text(Path("/proc/1/cmdline").read_text())
training.go_suspend()
"""
    path = place.folder / "program.py"
    path.write_text(BEGIN + program)
    wrapper = [sys.executable, "-c", "from gpu_recovery_agent.rank.wrapper import main; main()", "--"]
    command = ["unshare", "-p", "-f", "--mount-proc", *wrapper, sys.executable, str(path), str(place.folder)]
    variables = {"JOB_ID": "run-1", "ATTEMPT": "1", "RANK": "0", "RUNNING_LOG_ID": "100", **LONG}
    outer = subprocess.Popen(command, env={**place.node.environment, **variables}, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: place.has("asks"))
        (inner,) = (
            found.pid
            for pid in processes.pids(PROC)
            if (found := processes.read(PROC, pid)) and found.parent == outer.pid
        )
        os.kill(inner, signal.SIGTERM)
        assert outer.wait(WITHIN_S) == 75
        assert "gpu_recovery_agent.rank.wrapper" in (place.folder / "first").read_text()
        assert place.exit() == {"signal": 15, "notice": True, "suspended": True}
    finally:
        outer.kill()
        outer.wait()


def test_the_agents_orders_are_a_notice_and_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspend is the same notice that ECS gives; stop waits for no grace; neither goes to a process by its number."""
    program = 'training.receive_suspend_command()\nPath(sys.argv[1], "asks").touch()\ntime.sleep(600)\n'
    rank = place.start(program, **LONG)
    wait_until(lambda: place.has("asks"))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    live, _ = RankSensor(place.node.running, PROC, boot, AgentLog()).poll()
    state = AgentState(place.folder / "state", boot, AgentLog())
    state.open()
    orders = CommandRunner(PROC, state, AgentLog())
    with monkeypatch.context() as without_numbers:
        without_numbers.delattr(os, "kill")
        orders.add([ServerCommand("o-1", "suspend", "run-1", 1, 5.0)], live)
        wait_until(place.given)
        assert rank.poll() is None
        orders.add([ServerCommand("o-2", "stop", "run-1", 1, 80_000.0)], live)
        assert place.ended(rank)[0] == 143
    assert place.exit() == {"signal": 15, "notice": True}
    state.close()


TWICE = """
done = Path(sys.argv[1], "checkpoint")
first = int(done.read_text()) if done.exists() else 0
print("from", first)
assert "GPU_RECOVERY_SIMULATE" not in os.environ
for step in range(first + 1, first + 100_000):
    time.sleep(0.01)
    if first:
        sys.exit(4)
    if training.receive_suspend_command():
        done.write_text(str(step))
        training.go_suspend()
"""


@pytest.mark.parametrize("how", ["variable", "option"])
def test_a_rehearsal_suspends_the_command_and_begins_it_again(place: Place, how: str) -> None:
    """On a laptop, without a job: notice, grace, status 75, and the second run is the end."""
    path = place.folder / "program.py"
    path.write_text(BEGIN + TWICE)
    words = [sys.executable, "-u", str(path), str(place.folder)]
    variables = {"JOB_ID": "", "RANK": "", "RUNNING_LOG_ID": "", "SUSPEND_GRACE_S": "5"}
    if how == "variable":
        rank = place.node.rank(*words, GPU_RECOVERY_SIMULATE="0.2", **variables)
    else:
        wrapper = [sys.executable, "-c", "from gpu_recovery_agent.rank.wrapper import main; main()"]
        rank = subprocess.Popen(
            [*wrapper, "--simulate", "0.2", "--", *words],
            env={**place.node.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        place.node.processes.append(rank)
    status, out, err = place.ended(rank)
    saved = (place.folder / "checkpoint").read_text()
    assert (status, out.decode().split("\n")) == (4, ["from 0", f"from {saved}", ""])
    assert b"the command exited by itself; status 75" in err and b"no agent will report this rank" not in err
    assert place.node.files() == []


def test_a_rehearsal_shows_what_a_command_loses_that_does_not_ask(place: Place) -> None:
    """It is ended by force, and begins at the beginning."""
    marks = f"echo run >> {place.folder}/runs; [ $(wc -l < {place.folder}/runs) = 2 ] && exit 6; "
    marks += 'touch "$GPU_RECOVERY_NOTICE/asked"; sleep 600'
    rank = place.node.rank("sh", "-c", marks, GPU_RECOVERY_SIMULATE="0.1", SUSPEND_GRACE_S="1", JOB_ID="")
    status, _, err = place.ended(rank)
    assert status == 6 and b"the command was killed, and unsaved work is lost" in err
    short = place.node.rank("sh", "-c", "exit 5", GPU_RECOVERY_SIMULATE="600", JOB_ID="")
    status, _, err = place.ended(short)
    assert status == 5 and b"before there was a notice" in err


def test_a_rank_of_a_job_is_not_rehearsed(place: Place) -> None:
    """Whoever may set a variable of a task must not make it restart its command without end."""
    rank = place.node.rank("sh", "-c", f"echo run >> {place.folder}/runs; exit 6", GPU_RECOVERY_SIMULATE="0.1")
    status, _, err = place.ended(rank)
    assert status == 6 and b"GPU_RECOVERY_SIMULATE is not for the ranks of a job" in err
    assert (place.folder / "runs").read_text() == "run\n"
