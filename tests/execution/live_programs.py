"""What programs do with the SDK, well or badly, in a live gang: stages, calls, requests, progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis.call_heartbeat import CallHeartbeat
from gpu_recovery_client.diagnosis.gpu_state import Nvml
from gpu_recovery_client.diagnosis.worker_health import WorkerHealthMonitor

from tests.client.training_process import FakeNvml, FakeTorch, with_torch
from tests.execution.live_gang import LiveGang

Act = Callable[[LiveGang], None]
PROMISED = "notify_rollout_start_event succeeded"


class Cut(BaseException):
    """The process stands still from here on, as far as anybody can see."""


class Peer:
    """A worker that answers the event tracker with these answers; an exception is raised, the last lasts."""

    def __init__(self, *answers: Any, posted: Any = (200, {})) -> None:
        self.answers, self.posted = list(answers), posted

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Any:
        return self._said(self.posted)

    def get(self, path: str, timeout_s: float) -> Any:
        return self._said(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    @staticmethod
    def _said(answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- what happens ------------------------------------------------------------------------------------------------------


def stage(name: str, error: str = "") -> Act:
    """One stage of a process, which may raise."""

    def act(gang: LiveGang) -> None:
        with gang.process(1), suppress(RuntimeError, diagnosis.GPUHealthError), diagnosis.stage(name, step=7):
            if error:
                raise RuntimeError(error)
        gang.passes(1)

    return act


def with_gpu(*acts: Act, torch: FakeTorch | None = None, **nvml: Any) -> Act:
    """What happens where there is torch and one GPU with this state."""

    def act(gang: LiveGang) -> None:
        with_torch(gang.patch, torch or FakeTorch())
        if nvml:
            gang.nvml(FakeNvml(a=nvml))
        for one in acts:
            one(gang)

    return act


def after(seconds: float, *acts: Act) -> Act:
    """What happens, and this time after it."""

    def act(gang: LiveGang) -> None:
        for one in acts:
            one(gang)
        gang.passes(seconds)

    return act


def ecc_grows(kind: str) -> Act:
    def act(gang: LiveGang) -> None:
        nvml = gang.nvml(FakeNvml(a={"corrected": 0, "uncorrected": 0, "processes": []}))
        for count in (0, 7):
            nvml.gpus["a"][kind] = count
            stage("rollout")(gang)
            gang.passes(10)

    return act


def fails_in_torch(error: str) -> FakeTorch:
    torch = FakeTorch()
    torch.fails = RuntimeError(error)
    return torch


def lies() -> FakeTorch:
    torch = FakeTorch()
    torch.wrong_by = 1
    return torch


def dies(gang: LiveGang) -> None:
    """An error spoils the context of the GPU, and so the next stage fails, too."""
    torch = with_torch(gang.patch, FakeTorch())
    stage("rollout", "CUDA error: an illegal memory access was encountered")(gang)
    torch.fails = RuntimeError("CUDA error: an illegal memory access was encountered")
    stage("save")(gang)


def operation(gang: LiveGang) -> None:
    with gang.process(1):
        diagnosis.operation("before_upload_weights", "weights_update", 7)
    gang.passes(1)


def weights(**parts: float) -> Act:
    """A weight synchronisation whose parts take these seconds."""

    def act(gang: LiveGang) -> None:
        with gang.process(1), diagnosis.weight_sync_timing(7, now=gang.clock.now) as sync:
            for part, seconds in parts.items():
                with sync.part(part):
                    gang.clock.at += seconds
        gang.passes(1)

    return act


def nccl(line: str) -> Act:
    def act(gang: LiveGang) -> None:
        log = gang.folder / "nccl.log"
        log.write_text(line + "\n")
        with gang.process(1):
            diagnosis.nccl_log_monitor(str(log))
        gang.passes(1)

    return act


def progressing(*values: float, rank: int = 1, every_s: float = 10.0) -> Act:
    def act(gang: LiveGang) -> None:
        for value in values:
            with gang.process(rank):
                diagnosis.progress(value)
            gang.passes(every_s)

    return act


def workers(*, of: int = 1, but: tuple[str, ...] = ()) -> Act:
    """Every worker of every rank says that it is there."""

    def act(gang: LiveGang) -> None:
        for rank in range(len(gang.agents)):
            for local in range(of):
                if f"{rank}.{local}" not in but:
                    with gang.process(rank, local):
                        diagnosis.progress(1)
        gang.passes(1)

    return act


def controller(gang: LiveGang) -> Any:
    """The process that calls the workers: on rank 0, beside them."""
    return gang.process(0, None, worker="controller")


def call(worker: str, phase: str = "", error: Exception | None = None, status: int | None = None, **how: Any) -> Act:
    """A call of a worker, which fails in a phase, is answered with a status, or returns."""
    seconds, server_phase = how.pop("seconds", {}), how.pop("server_phase", "")

    def act(gang: LiveGang) -> None:
        timed = partial(diagnosis.rpc_timing, worker, "generate", now=gang.clock.now, **how)
        with controller(gang), suppress(Exception), timed() as rpc:
            for name in ("connect", "send", "response_header", "response_data"):
                with rpc.phase(name):
                    gang.clock.at += seconds.get(name, 0.1)
                    if name == phase and error is not None:
                        raise error
                if name == "response_header" and status is not None:
                    rpc.answered(status, server_phase)
                    if error is not None and not phase:
                        raise error

    return act


def calls(failed: tuple[str, ...], every: tuple[str, ...], error: Exception | None = None) -> Act:
    """Every worker is called; these do not answer."""

    def act(gang: LiveGang) -> None:
        for worker in every:
            late = error or TimeoutError("timed out")
            call(worker, *(("connect", late) if worker in failed else ()))(gang)
        gang.passes(15)

    return act


def names(nodes: int, of: int) -> tuple[str, ...]:
    return tuple(f"{rank}.{local}" for rank in range(nodes) for local in range(of))


def pattern(failed: tuple[str, ...], nodes: int, of: int) -> Act:
    return then(workers(of=of), beside_them, calls(failed, names(nodes, of)))


def beside_them(gang: LiveGang) -> None:
    """The controller and a rank that nobody calls report as well, so both are registered."""
    with controller(gang):
        diagnosis.progress(1)
    with gang.process(len(gang.agents) - 1, None, worker="evaluator"):
        diagnosis.progress(1)
    gang.passes(1)


def then(*acts: Act) -> Act:
    def act(gang: LiveGang) -> None:
        for one in acts:
            one(gang)

    return act


LATE = TimeoutError("timed out")


def late(phase: str) -> Act:
    return then(workers(), call("1.0", phase, LATE), after(1))


def slow(phase: str, seconds: float, **more: float) -> Act:
    return then(workers(), call("1.0", status=200, seconds={phase: seconds, **more}), after(1))


def answered(status: int, error: Exception | None = None, server_phase: str = "") -> Act:
    raised = error or RuntimeError("HTTP error")
    return then(workers(), call("1.0", error=raised, status=status, server_phase=server_phase), after(1))


def durations(*seconds: float) -> Act:
    """Each worker takes so long for its call."""

    def act(gang: LiveGang) -> None:
        for rank, took in enumerate(seconds):
            with controller(gang), diagnosis.rpc_timing(f"{rank}.0", "generate", now=gang.clock.now):
                gang.clock.at += took
        gang.passes(1)

    return then(workers(), act)


def request(*, fails: bool = False, stuck: bool = False, then_call: bool = True, known: bool = True) -> Act:
    """A request of worker 1.0, whose caller gets no answer."""

    def act(gang: LiveGang) -> None:
        with gang.process(1), suppress(ValueError, Cut), diagnosis.processing("q-1" if known else "q-0"):
            if fails:
                raise ValueError("no such tensor")
            if stuck:
                raise Cut
        if then_call:
            call("1.0", "response_header", LATE, request_id="q-1")(gang)
        gang.passes(1)

    return then(workers(), act)


def healthy(rank: int = 1, free: float = 40e9, busy: int = 10, passes: float = 21.0) -> Act:
    """A worker reports its health twice: so much memory is free, and its CPUs are that busy, in percent."""

    def act(gang: LiveGang) -> None:
        gang.nvml(FakeNvml(a={"memory": (80e9 - free, free), "processes": []}))
        proc = gang.folder / "proc"
        proc.mkdir(exist_ok=True)
        with gang.process(rank) as voice:
            monitor = WorkerHealthMonitor(voice, Nvml(), None, proc)
            for ticks in (0, 100):
                (proc / "stat").write_text(f"cpu {ticks * busy} 0 0 {ticks * (100 - busy)} 0 0 0 0\n")
                monitor.report_once()
        gang.passes(passes)

    return act


def all_stand_still(gang: LiveGang) -> None:
    for _ in range(9):
        for rank in range(2):
            with gang.process(rank):
                diagnosis.progress(4)
        gang.passes(10)


def slow_stage(gang: LiveGang) -> None:
    """The workers of the last pipeline stage, on two instances, take three times as long as the others."""
    workers(of=2)(gang)
    for worker in names(4, 2):
        last = worker.endswith(".1") and worker < "2"
        with controller(gang), diagnosis.rpc_timing(worker, "forward", stage=int(last), now=gang.clock.now):
            gang.clock.at += 3.0 if last else 1.0
    gang.passes(1)


def heartbeat_fails(gang: LiveGang) -> None:
    """The worker answers no heartbeat while a call to it is open."""
    workers()(gang)
    with controller(gang):
        CallHeartbeat(Peer((503, {})), "1.0").poll()
    gang.passes(1)


def below_an_aggregator(*failed: str) -> Act:
    """Each instance has an aggregator, through which its workers are called."""

    def act(gang: LiveGang) -> None:
        for rank in range(2):
            with gang.process(rank, None, role="aggregator", worker=f"aggregator-{rank}"):
                diagnosis.progress(1)
        workers(of=2)(gang)
        calls(failed, ("aggregator-0", "aggregator-1", *names(2, 2)))(gang)

    return act


def most_in_time(gang: LiveGang) -> None:
    """Four workers are called, and two have no result when the time is up."""
    workers()(gang)
    waiting: dict[str, Future[int]] = {f"{rank}.0": Future() for rank in range(4)}
    for rank in range(2):
        waiting[f"{rank}.0"].set_result(rank)
    with controller(gang), suppress(TimeoutError):
        diagnosis.most_results(waiting, "generate", timeout_s=0.0)
    assert waiting["3.0"].cancelled()
    gang.passes(11)


def one_after_another(*failed: str) -> Act:
    """A caller that times no phase: these workers do not answer, the others return."""

    def act(gang: LiveGang) -> None:
        workers()(gang)
        for worker in (f"{rank}.0" for rank in range(len(gang.agents))):
            with controller(gang), suppress(TimeoutError), diagnosis.rpc_timing(worker, "generate"):
                if worker in failed:
                    raise TimeoutError
        gang.passes(11)

    return act


def answers_again(gang: LiveGang) -> None:
    """Every worker is late once, and returns the next time."""
    one_after_another(*names(4, 1))(gang)
    one_after_another()(gang)
