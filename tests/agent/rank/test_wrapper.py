"""`gpu-recovery-run` as a process: the files of a rank, its signals, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank import wrapper
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.ranks import RankSensor, carries

from tests.agent.api import WITHIN_S
from tests.agent.node import Node, wait_until

pytestmark = pytest.mark.slow
PROC = Path("/proc")


def content(node: Node, name: str) -> dict:
    return json.loads((node.running / name).read_text())


def alive(pid: int) -> bool:
    found = processes.read(PROC, pid)
    return found is not None and found.is_alive


def test_the_file_is_there_before_the_command_begins_and_gone_after_it(node: Node) -> None:
    """What the command itself sees of it: seed 000's fields, ours, and its own group."""
    seen = node.running.parent / "seen"
    rank = node.rank("sh", "-c", f"cat {node.running}/100.json > {seen}; ps -o pgid= $$ >> {seen}", EPOCH="4")
    assert rank.wait() == 0
    text, group = seen.read_text().rsplit("}", 1)
    found = json.loads(text + "}")
    assert found["remote_pid"] == rank.pid and found["remote_pgid"] == int(group) != rank.pid
    assert (found["job_id"], found["attempt"], found["rank"], found["epoch"]) == ("run-1", 1, 0, 4)
    assert found["running_log_id"] == 100 and found["start_ticks"] > 0 and found["timestamp"] > 0
    assert found["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found["pid_namespace"] == processes.pid_namespace(PROC, "self")
    assert node.files() == ["100.exit"]


@pytest.mark.parametrize(
    ("script", "status", "how"),
    [
        ("exit 0", 0, {"code": 0}),
        ("exit 7", 7, {"code": 7}),
        ("kill -KILL $$", 137, {"signal": 9}),
        ("kill -SEGV $$", 139, {"signal": 11}),
    ],
)
def test_the_exit_is_the_commands_and_is_written_down(node: Node, script: str, status: int, how: dict) -> None:
    """A signal is not a code: 137 may be either, and the file says which."""
    assert node.rank("sh", "-c", script).wait() == status
    found = content(node, "100.exit")
    assert {key: found.get(key) for key in ("code", "signal") if key in found} == how
    assert found["uptime_s"] > 0 and found["job_id"] == "run-1"


def test_a_command_that_cannot_be_started_has_an_exit_as_well(node: Node) -> None:
    """127 and 126, as a shell has them; the rank has ended, and somebody should hear of it."""
    assert node.rank("no-such-command-here").wait() == 127
    assert content(node, "100.exit")["code"] == 127
    assert node.rank("/etc/passwd", rank=1).wait() == 126
    misused = subprocess.run(
        [*node.processes[0].args[:3], "--"], env=node.environment, capture_output=True, check=False
    )
    assert misused.returncode == 125 and b"usage" in misused.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signals_reach_the_command_and_all_of_its_group(node: Node, name: str) -> None:
    """A shell in between would keep them for itself, and the training would never hear of its suspension."""
    ready, got = node.running.parent / "ready", node.running.parent / "got"
    program = (
        f"import os,signal,time\n"  # no SystemExit: raised in a finalizer it would be swallowed
        f"signal.signal(signal.{name}, lambda *_: (open({str(got)!r},'w').close(), os._exit(5)))\n"
        f"open({str(ready)!r},'w')\ntime.sleep(600)"
    )
    (node.running.parent / "p.py").write_text(program)
    rank = node.rank("sh", "-c", f"trap '' {name[3:]}; (trap - {name[3:]}; python3 {node.running.parent}/p.py); exit 9")
    wait_until(ready.exists)
    rank.send_signal(signal.Signals[name])
    assert rank.wait(WITHIN_S) == 9
    assert got.exists()


def test_the_command_begins_with_the_signals_that_it_would_have_without_us(node: Node) -> None:
    """A mask or a disposition that is inherited breaks pipelines and debuggers in places far away."""
    rank = node.rank("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")  # a shell would clear its mask
    found = {line.split()[0]: int(line.split()[1], 16) for line in rank.communicate()[0].decode().splitlines()}
    ours = {
        line.split()[0]: line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "Sig" in line
    }
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1, signal.SIGHUP):
        bit = 1 << (number - 1)
        inherited = int(ours["SigIgn:"], 16) & bit and number is signal.SIGHUP  # the tests may run under nohup
        assert not found["SigBlk:"] & bit and (inherited or not found["SigIgn:"] & bit), number


def test_orphans_are_reaped_while_the_command_runs(node: Node) -> None:
    """The first process of a container is everybody's parent in the end."""
    flag = node.running.parent / "flag"
    rank = node.rank("sh", "-c", f"for i in 1 2 3 4 5; do (sh -c 'exit 0' &) ; done; touch {flag}; sleep 600")
    wait_until(flag.exists)

    def children() -> list[processes.ProcessInfo]:
        found = (processes.read(PROC, pid) for pid in processes.pids(PROC))
        return [one for one in found if one and one.parent == rank.pid]

    wait_until(lambda: len(children()) == 2)  # the command, and the guard
    assert all(child.is_alive for child in children())
    rank.terminate()
    assert rank.wait(WITHIN_S) == 143


def test_what_the_command_leaves_behind_ends_with_it(node: Node) -> None:
    """It may hold GPUs: also what went to the background, and what left the group."""
    pids = node.running.parent / "pids"
    script = f"sleep 600 & echo $! > {pids}; setsid sleep 600 & echo $! >> {pids}; sleep 0.2; exit 3"
    assert node.rank("sh", "-c", script).wait(WITHIN_S) == 3
    for pid in map(int, pids.read_text().split()):
        process = processes.read(PROC, pid)
        assert process is None or not process.is_alive
    assert content(node, "100.exit")["code"] == 3


def test_a_command_does_not_outlive_its_wrapper(node: Node) -> None:
    """It would train on, known to nobody, on GPUs that are given to others."""
    rank = node.rank("sleep", "600")
    wait_until(node.files)
    command = content(node, "100.json")["remote_pgid"]
    wait_until(lambda: (PROC / str(command) / "comm").read_text().strip() == "sleep")
    rank.kill()
    rank.wait()
    wait_until(lambda: not ((found := processes.read(PROC, command)) and found.is_alive))
    assert node.files() == ["100.json"]


@pytest.mark.parametrize("launcher", ["", "setsid"])
def test_nothing_of_a_rank_outlives_its_wrapper(node: Node, launcher: str) -> None:
    """Workers of torchrun have sessions of their own, and would hold their GPUs for ever."""
    pids = node.running.parent / "pids"
    rank = node.rank("sh", "-c", f"{launcher} sleep 600 & echo $! > {pids}; wait")
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    worker = int(pids.read_text())
    notices = [path for path in node.running.parent.iterdir() if path.name.startswith("gpu-recovery-")]
    assert alive(worker) and notices
    rank.kill()
    rank.wait()
    wait_until(lambda: not alive(worker), "the worker lives on")
    wait_until(lambda: not any(path.exists() for path in notices), "the folder of the notice stays")


def test_a_worker_without_the_environment_of_its_rank_ends_with_it(node: Node) -> None:
    """Workers of Ray write their title over their environment (setproctitle). Their parent has not."""
    pids = node.running.parent / "pids"
    parent = f"(env -i setsid sleep 600 & echo $! > {pids}.new; mv {pids}.new {pids}; wait)"
    rank = node.rank("sh", "-c", f'setsid sh -c "{parent.replace("$", chr(92) + "$")}" & wait')
    wait_until(pids.exists)
    worker = int(pids.read_text())
    wait_until(lambda: (PROC / str(worker) / "comm").read_text().strip() == "sleep")
    rank.kill()
    rank.wait()
    wait_until(lambda: not alive(worker), "the worker lives on")


def test_a_guard_ends_no_other_rank_and_nothing_else_of_the_instance(node: Node) -> None:
    """Another rank of the same user, and a process beside both, in the group of the test."""
    beside = node.rank("sleep", "600", rank=1)
    rank = node.rank("sleep", "600")
    wait_until(lambda: node.files() == ["100.json", "101.json"])
    first, other = (content(node, f"10{number}.json")["remote_pgid"] for number in (0, 1))
    rank.kill()
    rank.wait()
    wait_until(lambda: not alive(first))
    notices = [path for path in node.running.parent.iterdir() if path.name.startswith("gpu-recovery-")]
    wait_until(lambda: sum(path.exists() for path in notices) == 1, "the guard has not finished")
    assert alive(other) and beside.poll() is None


def test_the_guard_of_a_wrapper_without_a_command_finds_no_process() -> None:
    """It knows no group yet. Kernel threads are in group 0, and the first process of a container may be."""
    program = (
        "from gpu_recovery_agent.rank.guard import processes_of; import os; print(os.getpgid(1), processes_of(0, None))"
    )
    command = ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", f"{sys.executable} -c '{program}'; exit"]
    environment = {**os.environ, "PYTHONPATH": "agent"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no PID namespace can be made here: {done.stderr}")
    assert done.stdout == "0 set()\n"


def test_the_guard_of_a_rank_holds_no_output_open_and_ends_with_it(node: Node) -> None:
    """A reader of the output would wait for its end for ever."""
    rank = node.rank("sh", "-c", "ps -o pid= --ppid $PPID")
    output, _ = rank.communicate(timeout=WITHIN_S)
    assert rank.returncode == 0
    found = list(map(int, output.split()))
    assert len(found) >= 2, "the command and the guard"
    assert not any(map(alive, found))


@pytest.mark.parametrize("folder", ["/proc/nowhere/running", "/dev/null/running", "file"])
def test_a_rank_runs_where_its_file_cannot_be_written(node: Node, folder: str) -> None:
    """A read-only or full disk costs the report, not the training; it is said once."""
    if folder == "file":
        node.running.write_text("not a folder")
        folder = str(node.running)
    rank = node.rank("sh", "-c", "echo trained; exit 4", GPUTASKER_RUNNING_TASKS_DIR=folder)
    out, err = rank.communicate(timeout=WITHIN_S)
    assert (rank.returncode, out) == (4, b"trained\n")
    assert err.count(b"warning") == 1 and b"cannot be written" in err


@pytest.mark.parametrize(
    "missing", [{"JOB_ID": "", "RUNNING_LOG_ID": ""}, {"HOME": "", "JOB_ID": "", "RUNNING_LOG_ID": ""}]
)
def test_a_rank_of_nobody_runs_and_says_so(node: Node, missing: dict[str, str]) -> None:
    """Without a job there is nothing to tell."""
    rank = node.rank("true", **missing)
    _, err = rank.communicate(timeout=WITHIN_S)
    assert rank.returncode == 0 and err.count(b"warning") == 1
    assert node.files() == []


def test_a_rank_without_a_running_log_has_a_name_of_its_own(node: Node) -> None:
    """Two ranks of two jobs on one node never share a file."""
    for job in ("run-1", "run-2"):
        assert node.rank("true", job=job, RUNNING_LOG_ID="").wait() == 0
    assert len(node.files()) == 2
    assert {content(node, name)["job_id"] for name in node.files()} == {"run-1", "run-2"}


def test_a_new_run_of_the_same_rank_forgets_the_exit_of_the_one_before(node: Node) -> None:
    """Otherwise it would be over before it began."""
    assert node.rank("sh", "-c", "exit 1").wait() == 1
    rank = node.rank("sleep", "600")
    wait_until(lambda: node.files() == ["100.json"])
    rank.terminate()
    assert rank.wait(WITHIN_S) == 143
    assert content(node, "100.exit")["signal"] == 15


def test_an_exit_file_that_cannot_be_removed_does_not_hide_the_rank(node: Node) -> None:
    """Any user of the folder may create that name first, also as a directory: the running file is written."""
    (node.running / "100.exit").mkdir(parents=True)
    rank = node.rank("sleep", "600")
    wait_until(lambda: "100.json" in node.files())
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (live,) = RankSensor(node.running, PROC, boot, AgentLog()).poll()[0]
    assert live.pid == rank.pid
    rank.terminate()
    assert rank.wait(WITHIN_S) == 143
    assert rank.stderr.read().count(b"cannot be removed: Is a directory") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="a pid namespace needs root")
def test_as_first_process_of_a_container_it_is_found_by_the_agent_outside(node: Node) -> None:
    """It knows itself as 1 there; its start is the same in every namespace."""
    probe = subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("no namespaces here")
    wrapped = node.rank("true")
    wrapped.wait()
    (node.running / "100.exit").unlink()
    command = ["unshare", "-p", "-f", "--mount-proc", *wrapped.args[:3], "--", "sleep", "600"]
    variables = {"JOB_ID": "run-1", "ATTEMPT": "1", "RANK": "0", "RUNNING_LOG_ID": "100"}
    outer = subprocess.Popen(command, env={**node.environment, **variables}, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: "100.json" in node.files())
        assert content(node, "100.json")["remote_pid"] == 1
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        live, _ = RankSensor(node.running, PROC, boot, AgentLog()).poll()
        inner = processes.read(PROC, live[0].pid)
        assert inner is not None and inner.parent == outer.pid and carries(PROC, inner.pid, live[0].rank)
        os.kill(inner.pid, signal.SIGTERM)
        assert outer.wait(WITHIN_S) == 143
        assert node.files() == ["100.exit"]
    finally:
        outer.kill()
        outer.wait()


def test_gap_9_a_command_is_words_and_no_shell_reads_it(node: Node) -> None:
    """Seed 000's server builds a line for a shell, and escapes two characters of it."""
    trap, said = node.running.parent / "trap", node.running.parent / "said"
    words = [f"$(touch {trap})", f"`touch {trap}`", f"; touch {trap}", '"', "'", "a b", "*"]
    program = f"import json,sys; json.dump(sys.argv[1:], open({str(said)!r}, 'w'))"
    assert node.rank("python3", "-c", program, *words).wait(WITHIN_S) == 0
    assert json.loads(said.read_text()) == words and not trap.exists()


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_text_and_no_command(node: Node, option: str) -> None:
    """The exit status is 0 and nothing is started. After `--` the same word is a command."""
    command = [*node.rank("true").args[:3]]
    told = subprocess.run([*command, option], env=node.environment, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "") and told.stdout.startswith("usage: gpu-recovery-run")
    assert all(word in told.stdout for word in ("JOB_ID", "--simulate", "75", "124", "125"))
    run = subprocess.run([*command, "--", option], env=node.environment, capture_output=True, text=True, check=False)
    assert run.returncode == 127 and f"{option}: No such file or directory" in run.stderr


def test_an_unknown_option_is_refused_and_no_command(node: Node) -> None:
    """A mistyped option would otherwise be a program that does not exist."""
    command = [*node.rank("true").args[:3], "--simulat", "5", "true"]
    told = subprocess.run(command, env=node.environment, capture_output=True, text=True, check=False)
    assert told.returncode == 125 and "there is no option --simulat" in told.stderr


@pytest.mark.parametrize(
    ("folder", "ecs", "is_warned"),
    [("/ranks-of-no-mount", True, True), ("/ranks-of-no-mount", False, False), ("/dev/shm", True, False)],
)
def test_a_container_without_the_folder_of_the_ranks_is_warned_of(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    folder: str,
    ecs: bool,
    is_warned: bool,
) -> None:
    """The files of the rank would lie in the container, where no agent reads them."""
    root = os.stat("/")
    real = os.stat

    def stat(path: object, **more: object) -> os.stat_result:
        return root if path == Path("/ranks-of-no-mount") else real(path, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "stat", stat)
    environment = {"GPUTASKER_RUNNING_TASKS_DIR": folder, "JOB_ID": "j", "RANK": "0", "ATTEMPT": "1"}
    environment |= {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/x"} if ecs else {}
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    monkeypatch.setattr(wrapper, "write_whole", lambda *_: None)
    wrapper.RankFiles(environment).begin(1)
    assert ("is not mounted into this container" in capfd.readouterr().err) is is_warned
