"""What a training process tells: an agent's socket of the test's own, a clock that stands still, NVML and torch."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery_client.diagnosis import gpu_state, reporter, stages
from gpu_recovery_client.diagnosis.sender import Sender

JOB, INSTANCE = "sft-20261121-090000-0a1b", "i-0aaaaaaaaaaaaaaaa"


@dataclass
class Clock:
    """Seconds, which pass when a test or a sleeper says so. `slept` are the pauses that were made."""

    at: float = 1_000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


class Quiet(Sender):
    """A sender whose thread is the test: `turn` is called by whoever wants to hear."""

    def _begin(self) -> None:
        return


class Ear:
    """Listens where an agent would, and reads what comes as the server does."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path, self.clock = path, clock
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))
        self.voice = reporter.ObservationReporter(
            reporter.ProcessIdentity(JOB, 1, 3, "3.0", "train", "0a1b2c3d", str(path)), Quiet(str(path), clock.now)
        )

    def lines(self) -> list[dict[str, Any]]:
        """Everything that was sent since the last time, after a turn of the thread."""
        self.voice.sender.turn()
        found: list[dict[str, Any]] = []
        while True:
            try:
                datagram = self.socket.recv(65_536)
            except BlockingIOError:
                return found
            assert len(datagram) <= 32_768
            found += [json.loads(line) for line in datagram.split(b"\n")]

    def reports(self) -> list[Any]:
        """The same as the reports that they are. Not one of them may be one that the server leaves out."""
        found: list[Observation] = []
        for line in self.lines():
            read, left_out = observed(INSTANCE, [line])
            assert left_out == 0, line
            assert (read[0].job_id, read[0].attempt) == (JOB, 1)
            found.append(read[0].report)
        return found


@contextmanager
def listening(folder: Path, clock: Clock) -> Iterator[Ear]:
    """An ear, as long as the context, and this process speaking to it."""
    ear = Ear(folder / "agent.sock", clock)
    reporter.set_reporter(ear.voice)
    try:
        yield ear
    finally:
        reporter.set_reporter(None)
        ear.socket.close()


class NVMLError(Exception):
    """As the binding's own."""


class FakeNvml:
    """A driver with these GPUs: uuid -> what it says. A value that is an exception is raised."""

    def __init__(self, **gpus: dict[str, Any]) -> None:
        self.gpus, self.asked = gpus, 0
        self.init: BaseException | None = None

    def nvmlInit(self) -> None:
        if self.init is not None:
            raise self.init

    def nvmlDeviceGetCount(self) -> int:
        self.asked += 1
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return list(self.gpus)[index]

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return f"GPU-{handle}".encode()

    def _said(self, handle: str, name: str) -> Any:
        value = self.gpus[handle].get(name, NVMLError("not supported"))
        if isinstance(value, BaseException):
            raise value
        return value

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        assert counter == 0  # since the driver was loaded
        return self._said(handle, ("corrected", "uncorrected")[kind])

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        used, free = self._said(handle, "memory")
        return SimpleNamespace(used=used, free=free)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self._said(handle, "processes")]


def with_nvml(ear: Ear, nvml: Any, **how: Any) -> gpu_state.Nvml:
    """This process looks at these GPUs."""

    def load() -> Any:
        if nvml is None:
            raise ImportError("no module named pynvml")
        return nvml

    made = gpu_state.Nvml(load, **how)
    stages._stages[:] = [stages.Stages(ear.voice, made)]
    return made


class Matrix:
    """Stands for a matrix: the sum of its product is `known`, or what a GPU makes of it."""

    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch

    def sum(self, *_: int) -> Matrix:
        return self

    def __mul__(self, other: Matrix) -> Matrix:
        return self

    def float(self) -> Matrix:
        return self

    def to(self, device: str) -> Matrix:
        return OnGpu(self.torch)

    def item(self) -> int:
        return self.torch.known


class OnGpu(Matrix):
    """One on the GPU: its work only fails where somebody waits for it."""

    def __matmul__(self, other: Matrix) -> OnGpu:
        self.torch.calls.append("matmul")
        return self

    def double(self) -> OnGpu:
        return self

    def item(self) -> int:
        return self.torch.known + self.torch.wrong_by


class OutOfMemoryError(RuntimeError):
    """As torch's own."""


class FakeTorch(ModuleType):
    """As much of torch as is used. `fails`: what waiting for the GPU raises; `calls`: what was asked of it."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__("torch")
        self.known, self.wrong_by, self.calls = 42, 0, []
        self.fails: BaseException | None = None
        self.costs_s, self.clock, self.capturing, self.initialized = 0.0, clock, False, True
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.initialized,
            is_available=lambda: True,
            current_device=lambda: 0,
            is_current_stream_capturing=lambda: self.capturing,
            synchronize=self._synchronize,
            memory_allocated=lambda: 40e9,
            memory_reserved=lambda: 41e9,
            get_device_properties=lambda device: SimpleNamespace(uuid="a", total_memory=80e9),
        )
        self.no_grad = nullcontext
        self.Generator = lambda: SimpleNamespace(manual_seed=lambda seed: None)

    def autocast(self, kind: str, *, enabled: bool) -> Any:
        assert (kind, enabled) == ("cuda", False)
        return nullcontext()

    def randint(self, *_: Any, generator: Any) -> Matrix:
        return Matrix(self)

    def _synchronize(self) -> None:
        self.calls.append("synchronize")
        if self.clock is not None:
            self.clock.at += self.costs_s
        if self.fails is not None:
            raise self.fails


def with_torch(monkeypatch: pytest.MonkeyPatch, torch: Any) -> Any:
    """The program has imported it."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
