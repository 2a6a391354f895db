"""Standby processes as real processes: which copy of the command trains, when, and with which variables."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent import clock
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank import hold, settings, standby, suspension_folder
from gpu_recovery_agent.rank.suspension_folder import SuspensionFolder
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.ranks import RankSensor
from gpu_recovery_client import training

from tests.agent.api import WITHIN_S
from tests.agent.node import Node, wait_until

PROC = Path("/proc")
PROGRAM = Path(__file__).with_name("standby_program.py")
START = {
    "kind": "start",
    "attempt": 1,
    "environment": {
        "ATTEMPT": "2",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "NODE_RANK": "3",
        "MASTER_ADDR": "10.0.0.9",
        "MASTER_PORT": "2223",
        "RUNNING_LOG_ID": "200",
        "EPOCH": "1",
    },
}
CONTAINER = {
    "GPU_RECOVERY_HOLD_S": "300",
    "GPU_RECOVERY_STANDBY": "1",
    "GPU_RECOVERY_STANDBY_AFTER_S": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
}


def alive(pid: int) -> bool:
    found = processes.read(PROC, pid)
    return found is not None and found.is_alive


class Rank:
    """A rank of a job that may restart in place, on a node whose agent runs."""

    def __init__(self, node: Node, behaviour: str, **more: str) -> None:
        self.node, self.folder = node, node.running.parent
        node.running.mkdir(parents=True, exist_ok=True)
        (node.running / hold.AGENT_FILE).write_text(json.dumps({"uptime_s": clock.uptime_s()}))
        self.log = (self.folder / "rank.log").open("w+b")
        variables = {**node.environment, "JOB_ID": "run-1", "ATTEMPT": "1", "RANK": "0", "RUNNING_LOG_ID": "100"}
        wrapper = [sys.executable, "-c", "from gpu_recovery_agent.rank.wrapper import main; main()", "--"]
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, str(PROGRAM), str(self.folder), behaviour],
            env={**variables, "SUSPEND_GRACE_S": "0", **CONTAINER, **more},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        node.processes.append(self.process)

    def said(self) -> str:
        """Everything that the wrapper and the copies of the command have written."""
        return (self.folder / "rank.log").read_text()

    def pids(self, name: str = "imported") -> list[int]:
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def trained(self, copies: int = 1) -> list[dict[str, Any]]:
        """The copies that have begun to train, once there are so many."""
        path = self.folder / "trains"
        wait_until(lambda: path.exists() and path.read_text().count("\n") >= copies, self.said())
        return [json.loads(line) for line in path.read_text().splitlines()]

    def stands_by(self) -> int:
        """The pid of the standby process, once it waits."""
        return int(wait_until(lambda: re.search(r"waits for the next attempt: process (\d+)", self.said()))[1])

    def fails(self, pid: int) -> None:
        """Let the running command fail, and wait until its container is held."""
        (self.folder / f"end-{pid}").touch()
        wait_until(self._is_held, self.said())

    def _is_held(self) -> bool:
        files = self.node.running.glob("*.json")
        return any('"held":true' in path.read_text() for path in files)

    def restarts(self, log: int = 100, **changes: Any) -> None:
        """Give the order to start the next attempt, as the agent does."""
        order = {**START, "attempt": 1, **changes}
        (self.node.running / f"{log}.order").write_text(json.dumps(order))


@pytest.mark.slow
def test_the_next_attempt_runs_in_the_process_that_waited(node: Node) -> None:
    """Its imports are done before the failure, and it has the variables of the next attempt. So has its rank file."""
    rank = Rank(node, "waits")
    waits = rank.stands_by()
    (first,) = rank.trained()
    assert rank.pids() == [first["pid"], waits] and waits != first["pid"]
    rank.fails(first["pid"])
    assert alive(waits), "the end of the command ends everything besides the standby process"
    rank.restarts()
    second = rank.trained(2)[1]
    assert second["pid"] == waits and rank.pids()[:2] == [first["pid"], waits]
    before, after = first["environment"], second["environment"]
    assert {name: after.get(name) for name in START["environment"]} == START["environment"]
    assert not after.keys() & {"MASTER_IP", "NNODES"} and after["JOB_ID"] == "run-1"
    assert after["GPU_RECOVERY_STANDBY"] == "1" and after["GPU_RECOVERY_NOTICE"] != before["GPU_RECOVERY_NOTICE"]
    same = before.keys() - {"GPU_RECOVERY_NOTICE", *hold.VARIABLES}
    assert {name: after.get(name) for name in same} == {name: before[name] for name in same}
    running = json.loads(wait_until((node.running / "200.json").read_text))
    assert (running["attempt"], running["rank"], running["remote_pgid"]) == (2, 3, waits)
    wait_until(lambda: "attempt 2 trains" in rank.said())


@pytest.mark.slow
def test_the_end_of_the_process_that_waited_is_reported_as_of_any_command(node: Node) -> None:
    """Its exit, its signals and its last lines are those of attempt 2. A further standby process stands by for 3."""
    rank = Rank(node, "waits")
    waits = rank.stands_by()
    rank.fails(rank.trained()[0]["pid"])
    rank.restarts()
    assert rank.trained(2)[1]["pid"] == waits
    wait_until(lambda: rank.said().count("a standby process waits") == 2, rank.said())
    third = rank.pids()[2]
    (rank.folder / f"end-{waits}").touch()
    ended = json.loads(
        wait_until(lambda: (node.running / "200.exit").exists() and (node.running / "200.exit").read_text())
    )
    assert (ended["code"], ended["attempt"], ended["rank"], ended["held"]) == (7, 2, 3, True)
    rank.restarts(200, attempt=2, environment={**START["environment"], "ATTEMPT": "3", "RUNNING_LOG_ID": "300"})
    assert rank.trained(3)[2]["pid"] == third
    os.kill(third, signal.SIGSEGV)
    ended = json.loads(
        wait_until(lambda: (node.running / "300.exit").exists() and (node.running / "300.exit").read_text())
    )
    assert (ended["signal"], ended["attempt"]) == (signal.SIGSEGV, 3)


@pytest.mark.slow
def test_a_standby_process_knows_no_rank_and_the_kernel_ends_it_first(node: Node) -> None:
    """A program that reads the variables of its rank too early fails instead of training."""
    rank = Rank(node, "waits", NNODES="2", NODE_RANK="0", MASTER_IP="10.0.0.1", MASTER_PORT="2222", EPOCH="0")
    waits = rank.stands_by()
    found = processes.environment(PROC, waits) or {}
    assert found["JOB_ID"] == "run-1" and not found.keys() & set(hold.VARIABLES)
    assert not {"ATTEMPT", "RANK", "NODE_RANK"} & found.keys()
    (first,) = rank.trained()
    score = PROC / str(waits) / "oom_score_adj"
    usual = (PROC / str(first["pid"]) / "oom_score_adj").read_text()
    assert score.read_text().strip() == "1000" != usual.strip()
    rank.fails(first["pid"])
    rank.restarts()
    rank.trained(2)
    assert score.read_text() == usual


@pytest.mark.slow
def test_the_agent_sees_one_rank(node: Node) -> None:
    """While the copy waits, and after it has become the command."""
    rank = Rank(node, "waits")
    waits, boot = rank.stands_by(), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (live,), exits = RankSensor(node.running, PROC, boot, AgentLog()).poll()
    assert (live.pid, live.rank.attempt, live.rank.rank, exits) == (rank.process.pid, 1, 0, [])
    rank.fails(rank.trained()[0]["pid"])
    rank.restarts()
    assert rank.trained(2)[1]["pid"] == waits
    sensor = RankSensor(node.running, PROC, boot, AgentLog())
    (live,) = wait_until(lambda: [one for one in sensor.poll()[0] if not one.held])
    assert (live.pid, live.rank.attempt, live.rank.rank) == (rank.process.pid, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "more"),
    [
        ("never", {}),
        ("waits", {"GPU_RECOVERY_STANDBY": "0"}),
        ("waits", {"GPU_RECOVERY_STANDBY": "waits"}),
        ("waits", {"GPU_RECOVERY_HOLD_S": "0"}),
        ("waits", {"LOCAL_RANK": "0"}),
    ],
)
def test_without_the_call_and_the_variable_there_is_no_standby_process(
    node: Node, behaviour: str, more: dict[str, str]
) -> None:
    """A program without the call would train twice. A process of a launcher has its variables from the launcher."""
    rank = Rank(node, behaviour, **more)
    (first,) = rank.trained()
    node.rank("sh", "-c", "sleep 1.5", rank=1).wait(WITHIN_S)  # several looks of the wrapper have passed
    (rank.folder / f"end-{first['pid']}").touch()
    if more.get("GPU_RECOVERY_HOLD_S") == "0":
        assert rank.process.wait(WITHIN_S) == 7
    else:
        rank.fails(first["pid"])
        rank.restarts()
        assert rank.trained(2)[1]["environment"]["ATTEMPT"] == "2"
    assert len(rank.pids()) == len(rank.trained()) and "standby process" not in rank.said()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "why"),
    [("dies", "it has ended with 9"), ("trains", "it trains before"), ("stuck", "it does not wait yet")],
)
def test_a_standby_process_that_does_not_wait_is_discarded(node: Node, behaviour: str, why: str) -> None:
    """The next attempt starts in the ordinary way. No second copy is tried in the same attempt."""
    rank = Rank(node, behaviour)
    (first,) = rank.trained()
    copy = wait_until(lambda: rank.pids()[1:])[0]
    if behaviour != "stuck":
        wait_until(lambda: why in rank.said(), rank.said())
        node.rank("sh", "-c", "sleep 1.5", rank=1).wait(WITHIN_S)  # several looks of the wrapper have passed
    rank.fails(first["pid"])
    assert len(rank.pids()) == 2
    rank.restarts()
    wait_until(lambda: rank.pids()[2:])
    assert why in rank.said() and not alive(copy), rank.said()
    assert len(rank.trained()) == 1


@pytest.mark.slow
def test_a_standby_process_that_is_killed_while_it_waits_is_not_used(node: Node) -> None:
    """As the kernel kills it without memory: the training goes on, and the next attempt starts anew."""
    rank = Rank(node, "waits")
    waits = rank.stands_by()
    os.kill(waits, signal.SIGKILL)
    wait_until(lambda: "it has ended with 137" in rank.said(), rank.said())
    (first,) = rank.trained()
    assert alive(first["pid"]) and rank.process.poll() is None
    rank.fails(first["pid"])
    rank.restarts()
    assert rank.trained(2)[1]["pid"] not in (first["pid"], waits)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL", "held"])
def test_a_standby_process_ends_with_its_container(node: Node, how: str) -> None:
    """So do its children: after SIGTERM of ECS, if the wrapper is killed, and if a held rank is not started again."""
    rank = Rank(node, "child", SUSPEND_GRACE_S="0")
    waits = rank.stands_by()
    (first,) = rank.trained()
    everybody = [*rank.pids(), *wait_until(lambda: rank.pids("children")[1:] and rank.pids("children"))]
    assert len(everybody) == 4 and all(map(alive, everybody))
    if how == "held":
        rank.fails(first["pid"])
        assert alive(waits) and alive(everybody[3]) and not alive(everybody[2])
    rank.process.send_signal(signal.SIGKILL if how == "SIGKILL" else signal.SIGTERM)
    rank.process.wait(WITHIN_S)
    wait_until(lambda: not any(map(alive, everybody)), rank.said())
    wait_until(lambda: not list(rank.folder.glob("gpu-recovery-*")), "a suspension folder is left")


@pytest.mark.slow
def test_sigterm_ends_the_standby_process_before_the_command_has_left(node: Node) -> None:
    """The command has its grace, and the GPUs and the memory are needed by others."""
    rank = Rank(node, "waits", SUSPEND_GRACE_S="80000", GPU_RECOVERY_STOP_TIMEOUT_S="86000")
    waits = rank.stands_by()
    (first,) = rank.trained()
    rank.process.terminate()
    wait_until(lambda: not alive(waits))
    assert alive(first["pid"]) and rank.process.poll() is None


@pytest.mark.slow
def test_the_preflight_of_a_restart_spares_the_standby_process(node: Node) -> None:
    """Its programs end everything that they left behind, and run before the standby process is started."""
    tools = node.running.parent / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\necho run >> {tools}/runs\nexit 9\n")
    (tools / "nvidia-smi").chmod(0o755)
    path = f"{tools}:{node.environment['PATH']}"
    rank = Rank(node, "waits", GPU_RECOVERY_PREFLIGHT="quick", PATH=path)
    waits = rank.stands_by()
    runs = (tools / "runs").read_text()
    rank.fails(rank.trained()[0]["pid"])
    rank.restarts()
    assert rank.trained(2)[1]["pid"] == waits
    assert len((tools / "runs").read_text()) > len(runs) > 0


@pytest.mark.slow
def test_a_warm_spare_has_a_standby_process_only_by_its_own_value(node: Node) -> None:
    """There no command runs that could have called `wait_for_start`, so the job must say it."""
    rank = Rank(node, "waits", GPU_RECOVERY_WARM="1", GPU_RECOVERY_STANDBY="spares")
    waits = rank.stands_by()
    assert not (rank.folder / "trains").exists()
    rank.restarts()
    (first,) = rank.trained()
    assert first["pid"] == waits and first["environment"]["ATTEMPT"] == "2"
    assert first["environment"]["GPU_RECOVERY_STANDBY"] == "spares" and "GPU_RECOVERY_WARM" not in first["environment"]


@pytest.mark.slow
def test_a_warm_spare_without_that_value_runs_nothing(node: Node) -> None:
    """A program that never calls `wait_for_start` would train there."""
    rank = Rank(node, "waits", GPU_RECOVERY_WARM="1")
    wait_until((node.running / "100.json").exists)
    node.rank("sh", "-c", "sleep 1.5", rank=1).wait(WITHIN_S)  # several looks of the wrapper have passed
    assert rank.pids() == [] and rank.process.poll() is None


def test_both_sides_name_the_files_and_the_variable_alike() -> None:
    """A program that trains has the one package, the wrapper the other."""
    assert (training.WAITS, training.START) == (suspension_folder.WAITS, suspension_folder.START)
    assert (training.STANDBY, training.WAITING) == (settings.STANDBY_VARIABLE, standby.WAITING)
    assert training.WAITING not in (settings.STANDBY_ON, settings.STANDBY_ON_SPARES)


@pytest.mark.parametrize("earlier", [training.receive_suspend_command, training.progress])
def test_a_call_after_another_function_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: Any
) -> None:
    """A copy would train before it waits."""
    monkeypatch.setenv(training.FOLDER, str(tmp_path))
    monkeypatch.setenv(training.STANDBY, "1")
    earlier()
    with pytest.warns(UserWarning, match="no standby process"):
        training.wait_for_start()
    assert not SuspensionFolder(tmp_path).has(training.WAITS)


def test_without_the_wrapper_the_call_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with the variable of a container. The variables of the process stay as they are."""
    monkeypatch.delenv(training.FOLDER, raising=False)
    monkeypatch.setenv(training.STANDBY, training.WAITING)
    before = dict(os.environ)
    training.wait_for_start()
    assert dict(os.environ) == before


def test_a_process_of_a_launcher_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would train with the RANK of the instance in place of its own."""
    monkeypatch.setenv(training.FOLDER, str(tmp_path))
    monkeypatch.setenv(training.STANDBY, training.WAITING)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit, match="LOCAL_RANK"):
        training.wait_for_start()


def test_a_copy_that_never_waits_is_ended_after_its_time(tmp_path: Path) -> None:
    """With a clock of the test."""
    at, said = [0.0], list[str]()
    found = standby.Standby(["sleep", "600"], 60.0, said.append, lambda: at[0])
    folder, environment = SuspensionFolder(tmp_path), {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        (tmp_path / training.WAITS).touch()
        for at[0] in (1.0, 60.9):
            found.look(folder, environment)
        assert not list(tmp_path.glob("gpu-recovery-*"))
        at[0] = 61.0
        found.look(folder, environment)
        assert list(tmp_path.glob("gpu-recovery-*"))
        at[0] = 61.0 + standby.WAITS_WITHIN_S
        found.look(folder, environment)
        assert len(said) == 1 and "has not called wait_for_start within 900 s" in said[0]
        at[0] += 1000
        found.look(folder, environment)
        assert not list(tmp_path.glob("gpu-recovery-*")) and len(said) == 1
    finally:
        found.end()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
