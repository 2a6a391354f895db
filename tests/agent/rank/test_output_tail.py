"""What a rank that failed has written last: passed on unchanged, and its end told to the agent of the node."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.diagnosis.observations import Written
from gpu_recovery_agent.rank.delivery import Delivery
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.rank.output_tail import (
    LINE_CHARACTERS_MAX,
    LINES_MAX,
    PART_LINES_MAX,
    PARTS_MAX,
    OutputTail,
    reports,
)
from gpu_recovery_agent.rank.paths import SOCKET
from gpu_recovery_agent.sensors.training_socket import TrainingSocket

from tests.agent.api import WITHIN_S
from tests.agent.node import Node, wait_until

NOW_S = 1_000.0
WRAPPER = [sys.executable, "-c", "from gpu_recovery_agent.rank.wrapper import main; main()", "--"]
RANK = RankIdentity("run-1", 1, 0, None, None)


def heard(ear: TrainingSocket) -> list[Written]:
    """What the API would read of what has come."""
    ear.poll(NOW_S)
    told = [one.to_json(NOW_S) for one in ear.batch()]
    found, left_out = observed("i-1", told)
    assert left_out == 0 and ear.lost == 0
    read: list[Any] = [one.report for one in found]
    return sorted(read, key=lambda one: one.part, reverse=True)


def lines(ear: TrainingSocket) -> list[str]:
    """Every line that was told, in its order."""
    return [line for one in heard(ear) for line in one.lines]


def told(ear: TrainingSocket, rank: Any) -> tuple[list[Written], bytes, bytes]:
    """What a rank has told at its end, and its outputs."""
    found: list[Written] = []
    with ThreadPoolExecutor(1) as pool:
        outputs = pool.submit(rank.communicate, timeout=WITHIN_S)

        def has_ended() -> bool:
            ended = outputs.done()
            found.extend(heard(ear))
            ear.acknowledge(ear.batch(), 0)
            return ended

        wait_until(has_ended)
    return found, *outputs.result()


@pytest.mark.slow
def test_the_last_lines_of_a_rank_that_failed_reach_the_agent(node: Node, ear: TrainingSocket, tmp_path: Path) -> None:
    """From both outputs, urgent, under the rank's name; and the log service has them as ever.

    The error comes after the output was forwarded: two pipes have no order of their own.
    """
    go = tmp_path / "go"
    waits = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    program = f"import os, time\nprint('epoch 1', flush=True)\n{waits}\nraise ValueError('no such column')"
    rank = node.rank(sys.executable, "-c", program, rank=3)
    assert rank.stdout is not None and rank.stdout.readline() == b"epoch 1\n"
    go.touch()
    (last,), out, error = told(ear, rank)
    assert (out, rank.returncode) == (b"", 1)
    assert error.endswith(b"ValueError: no such column\n")
    assert (last.rank, last.part) == (3, 0)
    assert "epoch 1" in last.lines and last.lines[-1] == "ValueError: no such column"


@pytest.mark.slow
def test_nothing_is_told_of_a_rank_that_ended_well_or_was_asked_to_leave(node: Node, ear: TrainingSocket) -> None:
    """Nor where it is switched off, nor of a rank that nobody is to hear of."""
    assert node.rank("sh", "-c", "echo done").wait(WITHIN_S) == 0
    ready = node.running.parent / "ready"
    leaves = node.rank("sh", "-c", f"echo working; touch {ready}; exec sleep 600")
    wait_until(ready.exists)
    leaves.terminate()
    assert leaves.wait(WITHIN_S) == 143
    assert node.rank("sh", "-c", "echo no; exit 1", GPU_RECOVERY_LAST_WORDS="off").wait(WITHIN_S) == 1
    assert node.rank("sh", "-c", "echo no; exit 1", GPU_RECOVERY_SOCKET="off").wait(WITHIN_S) == 1
    assert node.rank("sh", "-c", "echo no; exit 1", JOB_ID="").wait(WITHIN_S) == 1
    assert heard(ear) == []


@pytest.mark.slow
def test_without_an_agent_a_rank_ends_as_ever(node: Node) -> None:
    """There is nobody to hear it."""
    rank = node.rank("sh", "-c", "echo last; exit 4")
    assert rank.communicate(timeout=WITHIN_S)[0] == b"last\n" and rank.returncode == 4


@pytest.mark.slow
def test_every_byte_goes_where_it_went_before(node: Node) -> None:
    """More than any pipe holds, bytes that are no text, and no line end at the end."""
    program = "import os\nfor n in range(300): os.write(1, bytes(range(256)) * 16)\nos.write(1, b'the end')"
    rank = node.rank(sys.executable, "-c", program)
    assert rank.communicate(timeout=WITHIN_S)[0] == bytes(range(256)) * 16 * 300 + b"the end"


@pytest.mark.slow
def test_what_goes_to_one_file_stays_in_its_order(node: Node) -> None:
    """`2>&1` is one stream, and two pipes would shuffle it."""
    program = "import os\nfor n in range(2_000): os.write(1 + n % 2, b'%d\\n' % n)"
    environment = {**node.environment, "JOB_ID": "run-1", "ATTEMPT": "1", "RANK": "0"}
    found = subprocess.run(
        [*WRAPPER, sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        timeout=WITHIN_S,
    )
    assert found.stdout == b"".join(b"%d\n" % n for n in range(2_000))


@pytest.mark.slow
def test_a_terminal_stays_a_terminal(node: Node) -> None:
    """A program draws its progress there in another way."""
    ours, theirs = pty.openpty()
    program = "import os, sys; sys.exit(0 if os.isatty(1) else 9)"
    done = subprocess.run(
        [*WRAPPER, sys.executable, "-c", program], env=node.environment, stdout=theirs, check=False, timeout=WITHIN_S
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0


@pytest.mark.slow
def test_whoever_takes_the_output_no_more_is_told_to_the_command(node: Node) -> None:
    """By SIGPIPE, as without us; and a process that was left behind with the output keeps nobody waiting."""
    rank = node.rank("yes")
    assert rank.stdout is not None and rank.stderr is not None
    assert rank.stdout.readline() == b"y\n"
    rank.stdout.close()
    assert rank.wait(WITHIN_S) == 141
    rank.stdout = None
    left = node.rank("sh", "-c", "sleep 600 & echo last; exit 4", rank=1)
    assert left.communicate(timeout=WITHIN_S)[0] == b"last\n" and left.returncode == 4


@pytest.mark.slow
def test_an_output_that_takes_nothing_ends_no_training(node: Node) -> None:
    """A disk that is full loses what is written to it, as without us, and nothing else."""
    reached = node.running.parent / "reached"
    with Path("/dev/full").open("wb") as full:
        script = f"echo a; sleep 0.1; echo b; sleep 0.1; touch {reached}; exit 0"
        done = subprocess.run([*WRAPPER, "bash", "-c", script], env=node.environment, stdout=full, check=False)
    assert done.returncode == 0 and reached.exists()


@pytest.mark.slow
def test_an_output_that_is_busy_is_waited_for(node: Node) -> None:
    """A pipe that does not block says so when it is full: nothing is lost, and nobody is ended."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    program = "import os\nfor n in range(300): os.write(1, b'x' * 1_000)\nos.write(1, b'the end')"
    rank = subprocess.Popen([*WRAPPER, sys.executable, "-c", program], env=node.environment, stdout=write_end)
    os.close(write_end)
    wait_until(lambda: select.select([read_end], [], [], 0)[0])
    with os.fdopen(read_end, "rb") as reader:
        assert reader.read() == b"x" * 300_000 + b"the end"
    assert rank.wait(WITHIN_S) == 0


@pytest.mark.slow
def test_a_progress_bar_is_one_line_and_empty_ones_are_none(node: Node, ear: TrainingSocket) -> None:
    """Of what is overwritten at a terminal only the last state is kept; a line is cut in its middle."""
    long = f"'x' + 'y' * {LINE_CHARACTERS_MAX} + 'z'"
    program = f"print('\\r1%\\r2%\\r3%\\n\\n  \\n' + {long}); print('end', end=''); raise SystemExit(1)"
    ((first, cut, last),) = (one.lines for one in told(ear, node.rank(sys.executable, "-uc", program))[0])
    assert (first, last) == ("3%", "end")
    assert cut.startswith("xyyy") and cut.endswith("yz") and len(cut) == LINE_CHARACTERS_MAX


@pytest.mark.slow
def test_of_a_long_log_the_end_is_kept(node: Node, ear: TrainingSocket) -> None:
    """However it was cut into pieces on its way."""
    rank = node.rank("sh", "-c", "seq 100000; exit 1")
    parts, out, _ = told(ear, rank)
    assert out.endswith(b"\n100000\n") and rank.returncode == 1
    assert [line for one in parts for line in one.lines] == [str(n) for n in range(100_001 - LINES_MAX, 100_001)]


@pytest.mark.parametrize("length", [1, 40, 120, LINE_CHARACTERS_MAX])
def test_what_is_told_fits_into_what_is_taken(node: Node, ear: TrainingSocket, length: int) -> None:
    """The end of it, in as many reports as may be, however long its lines are, and whatever they hold."""
    written = [f"{n:03}" + 'ä\\"'[n % 3] * length for n in range(LINES_MAX)]
    Delivery(node.running / SOCKET).send(reports(written, RANK))
    assert ear.poll(NOW_S), "the agent reports at once"
    told = lines(ear)
    assert told == written[-len(told) :]
    assert len(told) == LINES_MAX or len(heard(ear)) == PARTS_MAX
    assert all(len(one.lines) <= PART_LINES_MAX for one in heard(ear))


def test_a_rank_that_wrote_nothing_tells_nothing(node: Node, ear: TrainingSocket) -> None:
    """An empty report would only stand for a log that there is not."""
    Delivery(node.running / SOCKET).send(reports([], RANK))
    assert heard(ear) == []


def test_who_holds_the_output_open_after_the_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come until then is passed on, and nothing of ours waits on."""
    read_end, write_end = os.pipe()
    monkeypatch.setattr("gpu_recovery_agent.rank.output_tail._outputs", lambda: [(write_end,)])
    before = threading.active_count()
    written = OutputTail({})
    left_behind = os.dup(written.ends[write_end])
    written.begin()
    os.write(left_behind, b"the last\n")
    assert written.end() == ["the last"]
    assert threading.active_count() == before
    assert os.read(read_end, 100) == b"the last\n"
    for one in (left_behind, read_end, write_end):
        os.close(one)
