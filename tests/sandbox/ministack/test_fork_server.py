"""The fork server: its processes behave as new interpreters do, and share nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.ministack.fork_server import LOST, ForkServer, _at_start
from tests.sandbox.patience import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")]
SHOWS = """
import json, os, sys
print(json.dumps({
    "pid": os.getpid(), "ppid": os.getppid(), "cwd": os.getcwd(), "argv": sys.argv, "environment": dict(os.environ),
    "path": sys.path, "modules": sorted(sys.modules), "name": __name__, "files": sorted(os.listdir("/proc/self/fd")),
}), flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
    print("told", line.strip(), file=sys.stderr, flush=True)
    if line.startswith("exit"):
        sys.exit(int(line.split()[1]))
    if line.startswith("raise"):
        raise RuntimeError(line.strip())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A server of this process."""
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that shows what it is, and does what it is told."""
    path = tmp_path / "_worker.py"
    path.write_text(SHOWS)
    return path


def started(server: ForkServer, script: Path, **variables: str) -> Any:
    """A process of the server, as MiniStack asks for it."""
    return server.popen(
        [sys.executable, str(script)],
        cwd=str(script.parent),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**_at_start(os.environ), **variables},
    )


def said(process: Any, line: str) -> str:
    """What the process prints when it is told a line."""
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return str(process.stdout.readline()).strip()


def test_a_process_has_the_environment_folder_and_path_that_it_is_given(server: ForkServer, script: Path) -> None:
    """And boto3, but no module of this repository and no file of another process."""
    processes = [started(server, script, OWN=str(number), AWS_REGION="eu-west-1") for number in range(2)]
    shown = [json.loads(process.stdout.readline()) for process in processes]
    for number, one in enumerate(shown):
        own = {"OWN": str(number), "AWS_REGION": "eu-west-1"}
        assert one["environment"] == {**_at_start(os.environ), **own}
        assert (one["cwd"], one["argv"], one["name"]) == (str(script.parent), [str(script)], "__main__")
        assert one["path"][0] == str(script.parent) and str(Path(__file__).parents[3] / "sandbox/ministack") not in str(
            one["path"]
        )
        assert one["pid"] == processes[number].pid and len(one["files"]) == 4  # the last is the list itself
        assert "boto3.session" in one["modules"]
        assert not {"sandbox", "gpu_recovery", "pydantic", "aws_lambda_powertools"} & set(one["modules"])
    for process in processes:
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_it_has_pipes_of_its_own_and_an_exit_code(server: ForkServer, script: Path) -> None:
    """An end, an exception and a signal are told as `subprocess` tells them, while another process goes on."""
    other = started(server, script)
    other.stdout.readline()
    ends = {}
    for line in ("exit 3", "raise", "wait"):
        process = started(server, script)
        process.stdout.readline()
        assert process.poll() is None
        assert said(process, line) == f"heard {line}"
        assert process.stderr.readline() == f"told {line}\n"
        if line == "wait":
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            process.terminate()
        ends[line] = process.wait(PATIENCE_S), "RuntimeError: raise" in process.stderr.read()
        assert process.poll() == ends[line][0]
        process.kill()  # of a process that is gone: nothing
    assert ends == {"exit 3": (3, False), "raise": (1, True), "wait": (-signal.SIGTERM, False)}
    assert said(other, "still") == "heard still"
    other.kill()
    assert other.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_server_that_ends_is_told_as_the_end_of_its_processes(script: Path) -> None:
    """Nobody waits for them for ever. They end with their standard input. The next process has a new server."""
    server = ForkServer()
    process = started(server, script)
    process.stdout.readline()
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == LOST
    process.stdin.close()
    wait_until(lambda: process.stdout.read() == "")
    server.process.wait(PATIENCE_S)
    after = started(server, script)
    assert json.loads(after.stdout.readline())["ppid"] == server.process.pid
    after.stdin.close()
    assert after.wait(PATIENCE_S) == 0
    server.close()


def test_what_cannot_be_forked_is_a_new_interpreter(server: ForkServer, script: Path) -> None:
    """An interpreter that reads other variables at its start, and a request that is too large for a packet."""
    for variables in ({"PYTHONSAFEPATH": "1"}, {"LC_ALL": "C"}, {"A": "a" * 110_000, "B": "b" * 110_000}):
        process = started(server, script, **variables)
        shown = json.loads(process.stdout.readline())
        assert isinstance(process, subprocess.Popen) and shown["ppid"] == os.getpid()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
        process.stdout.close()
        process.stderr.close()
