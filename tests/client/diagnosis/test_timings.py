"""Calls, weight synchronisations, progress, health, NCCL's log: rows 7, 10, 12, 13, 15, 29, 36 and 38."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observations import RequestState, RpcStage
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis import nccl_log, worker_health
from gpu_recovery_client.diagnosis.gpu_state import Nvml
from gpu_recovery_client.diagnosis.step_times import RECENT_MAX, WARM_UP, StepTimes

from tests.client.training_process import Clock, Ear, FakeNvml, FakeTorch, with_torch

# -- rows 15 and 29: calls ---------------------------------------------------------------------------------------------


def test_row_15_a_call_is_timed_and_said(ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The line of the seed, and a report about the worker, wherever it is."""
    with diagnosis.rpc_timing("rollout-1", "generate", stage=2, now=clock.now):
        clock.at += 12.25
    (report,) = ear.reports()
    assert (report.worker, report.method, report.seconds, report.stage) == ("rollout-1", "generate", 12.25, 2)
    assert (report.instance_id, report.rank) == ("", None)
    assert "Worker rollout-1 generate took 12.25s" in caplog.messages


def test_many_calls_are_told_seldom_each_worker_by_itself(ear: Ear, clock: Clock) -> None:
    """A thousand calls a second must not push out everything else."""
    for _ in range(50):
        for worker in ("a", "b"):
            with diagnosis.rpc_timing(worker, "m", now=clock.now):
                clock.at += 0.01
        ear.voice.sender.turn()
    assert sorted(one.worker for one in ear.reports()) == ["a", "b"]


def test_row_29_the_stages_of_a_call_are_told(ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The object of the seed: four times, and where it failed."""
    with diagnosis.rpc_timing("w", "m", request_id="r-1", now=clock.now) as call:
        for seconds, name in enumerate(("connect", "send", "response_header", "response_data"), 1):
            with call.phase(name):
                clock.at += seconds
        call.answered(200)
    rpc = next(one for one in ear.reports() if type(one).__name__ == "RpcReport")
    assert (rpc.connect_s, rpc.send_s, rpc.header_s, rpc.body_s) == (1.0, 2.0, 3.0, 4.0)
    assert (rpc.failed_at, rpc.status, rpc.request_id) == (None, 200, "r-1")
    assert any(one.startswith("RPC diagnosis for w: {") for one in caplog.messages)


class ReadTimeout(Exception):
    """As a library of HTTP calls its own."""


@pytest.mark.parametrize(
    ("error", "timed_out", "broke"),
    [
        (TimeoutError("60 s"), True, False),
        (ReadTimeout(), True, False),
        (ConnectionResetError(), False, True),
        (ValueError("x"), False, False),
    ],
)
def test_a_call_that_fails_is_told_at_once_and_goes_on_failing(
    ear: Ear, clock: Clock, error: Exception, timed_out: bool, broke: bool
) -> None:
    """With the stage that it failed in, and whether it was a time of ours that was over."""
    with (
        pytest.raises(type(error)),
        diagnosis.rpc_timing("w", "m", now=clock.now) as call,
        call.phase("response_header"),
    ):
        clock.at += 60
        raise error
    (rpc,) = ear.reports()
    assert (rpc.failed_at, rpc.header_s, rpc.timed_out, rpc.connection_error) == (
        RpcStage.HEADER,
        60.0,
        timed_out,
        broke,
    )
    assert rpc.error.startswith(type(error).__name__)


def test_a_stage_that_there_is_not_is_the_callers_mistake(ear: Ear) -> None:
    """Said at once, to whoever writes the program."""
    with pytest.raises(ValueError, match="not a phase"), diagnosis.rpc_timing("w", "m") as call, call.phase("dial"):
        pass
    with pytest.raises(ValueError, match="not a part"), diagnosis.weight_sync_timing() as sync, sync.part("zip"):
        pass


# -- row 7: weight synchronisation -------------------------------------------------------------------------------------


def test_row_7_a_weight_synchronisation_is_told_by_its_parts(
    ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that fails half-way: how far it had come says which side is slow."""
    with pytest.raises(OSError), diagnosis.weight_sync_timing(7, now=clock.now) as sync:
        with sync.part("serialize"):
            clock.at += 1.5
        with sync.part("upload"):
            clock.at += 61
            raise OSError
    (report,) = ear.reports()
    assert (report.step, report.serialize_s, report.upload_s, report.download_s) == (7, 1.5, 61.0, None)
    assert "Weight sync profile: {'serialize': 1.5, 'upload': 61.0}" in caplog.messages


# -- rows 12 and 13: progress ------------------------------------------------------------------------------------------


def test_rows_12_and_13_progress_is_told_whether_there_is_any_or_not(ear: Ear, clock: Clock) -> None:
    """A heartbeat every ten seconds, with how long nothing has changed: a stall is told by it, and so is a fall."""
    diagnosis.progress(1)
    found = ear.reports()
    for passed, value in ((9.9, 2), (0.2, 3), (10.0, None), (10.0, None), (10.0, 2)):
        clock.at += passed
        if value is not None:
            diagnosis.progress(value)
        found += ear.reports()
    assert [one.value for one in found] == [1.0, 3.0, 3.0, 3.0, 2.0]
    assert [one.unchanged_s >= least for one, least in zip(found, (0, 0, 10, 20, 0), strict=True)] == [True] * 5


def test_the_step_times_are_told_without_the_first_steps_and_without_marked_phases(ear: Ear, clock: Clock) -> None:
    """Compilation is no step, and neither is an evaluation that the program marks."""
    for step, passed in enumerate((90.0, 60.0, 3.0, 3.0, 3.0, 3.0, *[2.0] * 30, 7.0)):
        diagnosis.progress(step)
        clock.at += passed
    diagnosis.progress(100)
    with diagnosis.pause("evaluation"):
        clock.at += 200.0
        paused = ear.reports()[-1]
        clock.at += 100.0
    clock.at += 11.0
    after = ear.reports()[-1]
    diagnosis.progress(101)
    clock.at += 4.0
    diagnosis.progress(102)
    clock.at += 10.0
    last = ear.reports()[-1]
    assert (paused.paused, paused.unchanged_s) == ("evaluation", 200.0)
    assert (after.paused, after.unchanged_s, after.value) == ("", 11.0, 100.0)
    assert (after.steps, after.step_s, after.slowest_s) == (32, 2.0, 7.0)
    assert (last.steps, last.step_s, last.slowest_s) == (33, 2.0, 7.0)


def test_step_times_take_the_same_memory_after_any_number_of_steps() -> None:
    """The median follows the newest steps, and the longest is kept."""
    times = StepTimes()
    for seconds in (*[0.1] * WARM_UP, 9.0, *[1.0] * 100, *[4.0] * RECENT_MAX):
        times.add(seconds)
    assert times.fields() == {"steps": 101 + RECENT_MAX, "step_s": 4.0, "slowest_s": 9.0}
    assert len(times._recent) == RECENT_MAX


# -- rows 36 and 38: the worker ----------------------------------------------------------------------------------------


def test_row_36_a_request_is_told_when_it_begins_and_how_it_ends(ear: Ear, clock: Clock) -> None:
    """Start seen means that it is not the network."""
    with diagnosis.processing("r-1", now=clock.now):
        clock.at += 2
    with pytest.raises(ZeroDivisionError), diagnosis.processing("r-2", now=clock.now):
        _ = 1 // 0
    found = ear.reports()
    assert [(one.request_id, one.state) for one in found] == [
        ("r-1", RequestState.START),
        ("r-1", RequestState.DONE),
        ("r-2", RequestState.START),
        ("r-2", RequestState.ERROR),
    ]
    assert (found[1].duration_s, found[3].error_type) == (2.0, "ZeroDivisionError")


def proc(folder: Path, busy: int, idle: int, sent: int) -> Path:
    """A machine whose CPUs were so busy, and that has sent so much."""
    (folder / "net").mkdir(exist_ok=True)
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    numbers = " ".join(["7", *["0"] * 7, str(sent), *["0"] * 7])
    head = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes\n"
    (folder / "net" / "dev").write_text(f"{head}    lo: {'9 ' * 16}\n  eth0: {numbers}\n  eth1:{numbers}\n")
    return folder


def test_row_38_a_worker_tells_how_it_is(ear: Ear, tmp_path: Path) -> None:
    """GPU memory by NVML, the machine's CPU since the last look, bytes over every interface but the loopback."""
    nvml = FakeNvml(a={"memory": (70e9, 9.5e9)}, b={"memory": (10e9, 69.5e9)})
    worker = worker_health.WorkerHealthMonitor(ear.voice, Nvml(lambda: nvml), lambda: 4, proc(tmp_path, 100, 100, 10))
    worker.report_once()
    proc(tmp_path, 195, 105, 20)
    worker.report_once()
    first, second = ear.reports()
    assert (first.cpu_percent, second.cpu_percent) == (None, 95.0)
    assert (second.memory_used_gb, second.memory_free_gb) == (70.0, 9.5)
    assert (second.network_sent, second.network_received, second.active_requests) == (40, 14, 4)


def test_without_nvml_the_memory_is_that_of_the_process(
    ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seed 002 reckons it: the total less what torch has allocated. Without torch it is left out."""
    worker = worker_health.WorkerHealthMonitor(
        ear.voice, Nvml(lambda: (_ for _ in ()).throw(ImportError)), None, tmp_path
    )
    worker.report_once()
    with_torch(monkeypatch, FakeTorch())
    worker.report_once()
    bare, of_torch = ear.reports()
    assert (bare.memory_free_gb, bare.cpu_percent, bare.network_sent) == (None, None, None)
    assert (of_torch.memory_used_gb, of_torch.memory_free_gb) == (40.0, 40.0)


def test_a_worker_tells_every_ten_seconds_until_it_is_ended(ear: Ear, clock: Clock) -> None:
    """How many requests are active is counted, unless somebody says it; what goes wrong there costs one report."""
    stop = diagnosis.health_reporter(active_requests=lambda: 2)
    for passed in (0.0, 5.0, 5.0, 10.0):
        clock.at += passed
        ear.voice.sender.turn()
    assert [one.active_requests for one in ear.reports()] == [2, 2, 2]
    stop()
    clock.at += 60
    assert ear.reports() == []
    with diagnosis.processing("r"):
        stop = diagnosis.health_reporter()
        found = [one for one in ear.reports() if hasattr(one, "active_requests")]
    assert [one.active_requests for one in found] == [1]
    stop()
    diagnosis.health_reporter(active_requests=lambda: SimpleNamespace().nothing)
    assert not [one for one in ear.lines() if one["type"] == "health"]


# -- row 10: NCCL ------------------------------------------------------------------------------------------------------

TIMED_OUT = "ip-10-0-0-1:77:99 [0] NCCL INFO [Service thread] Timeout waiting for peer 3"
NO_LINK = "ip-10-0-0-1:77:99 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2 with status=12"
BENIGN = "ip-10-0-0-1:77:99 [0] NCCL INFO Channel 00/02 : 0 1"


def test_row_10_the_lines_of_nccl_that_may_say_why_are_told_once(
    ear: Ear, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every ten seconds the last hundred; the defect is that of the words, so more lines are told than are said."""
    path = tmp_path / "nccl.log"
    path.write_text("\n".join([BENIGN, TIMED_OUT, NO_LINK]) + "\n")
    stop = diagnosis.nccl_log_monitor(str(path))
    assert [one.line for one in ear.reports()] == [TIMED_OUT, NO_LINK]
    assert caplog.messages == [f"NCCL timeout detected: {TIMED_OUT}"]
    with path.open("a") as file:
        file.write("NET/IB: failed to open mlx5_0: error 5\n")
    clock.at += 9.0
    assert ear.reports() == []
    clock.at += 1.0
    assert [one.line for one in ear.reports()] == ["NET/IB: failed to open mlx5_0: error 5"]
    assert [one.split(":")[0] for one in caplog.messages[1:]] == ["NCCL error detected", "RDMA failure detected"]
    stop()


def test_of_a_long_log_the_end_is_read(ear: Ear, tmp_path: Path) -> None:
    """A hundred lines, and no more than 64 KiB of them, whatever bytes they hold; sixteen are told at a time."""
    path = tmp_path / "nccl.log"
    path.write_bytes(b"".join(b"error %d \xff\n" % n for n in range(20_000)))
    diagnosis.nccl_log_monitor(str(path))
    found = [one.line for one in ear.reports()]
    assert len(found) == nccl_log.REPORTED_MAX and found[-1].startswith("error 19999")


def test_a_log_that_is_not_there_is_waited_for(
    ear: Ear, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL makes it when it begins, under the name that its variable gives for the host and the process."""
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(tmp_path / "nccl.%h.%p"))
    diagnosis.nccl_log_monitor()
    assert ear.reports() == []
    (tmp_path / f"nccl.{socket.gethostname()}.{os.getpid()}").write_text("timeout\n")
    clock.at += 10
    assert [one.line for one in ear.reports()] == ["timeout"]


def test_lines_that_may_say_why_are_chosen_widely() -> None:
    """The rules of the diagnosis know which are benign; what is not told cannot be judged."""
    lines: Any = {
        TIMED_OUT: True,
        NO_LINK: True,
        BENIGN: False,
        "Got async event : port error": True,
        "NCCL INFO comm 0x1 rank 0 nranks 8 - Abort COMPLETE": True,
        "NCCL INFO NET/OFI Using libfabric": False,
    }
    assert {line: bool(nccl_log.REPORTED_LINES.search(line)) for line in lines} == lines
