"""Stages of a training: the GPU before and after each stage.

Rows 1-6 and 51 of the fault catalogue, docs/diagnosis.md.

Only the probe runs on the training's own thread, and only while all probes together take less than a hundredth of the
time. The background thread calls NVML.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import GPUHealthError
from .gpu_probe import ComputeProbe, Probed, memory_of_torch, uuid_of_torch
from .gpu_state import EccWatch, Gpu, Nvml, boot_id, own
from .reporter import ObservationReporter, reporter, sentence
from .sender import log

SHARE, ALLOWANCE_S = 0.01, 0.5
"""Share of the time since the first stage that checks may take, and seconds they may take at the beginning, when the
libraries of CUDA are loaded.
"""
GAP_S = 5.0
"""Seconds in which a stage sends at most one observation before and one after it, as long as there is no error."""


class Budget:
    """Limits the cost of checks to a share of the time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._began, self.spent_s = now, now(), 0.0

    def allows(self) -> bool:
        """Return whether one more check is within the budget."""
        return self.spent_s <= ALLOWANCE_S + SHARE * (self._now() - self._began)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of the block."""
        began = self._now()
        try:
            yield
        finally:
            self.spent_s += self._now() - began


class Stages:
    """The stages of one process."""

    def __init__(
        self,
        process_reporter: ObservationReporter,
        nvml: Nvml,
        probe: ComputeProbe | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.reporter, self._nvml, self._probe, self._now = (
            process_reporter,
            nvml,
            probe or ComputeProbe(),
            now or process_reporter.sender.now,
        )
        self._ecc = EccWatch()
        self._budget: Budget | None = None
        self._asking: Budget | None = None
        self._boot_id = boot_id()

    @contextmanager
    def stage(self, name: str, step: int | None, probe: bool | None) -> Iterator[None]:
        """Run a stage. See the function `stage`."""
        self._before(name, step, probe)
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception):
                # It is unknown whether the failed call had waited for the GPU: assume that it had not.
                self._report(name, "after", step, error=sentence(error), urgent=True)
            raise
        self._report(name, "after", step)

    def operation(self, name: str, stage: str, step: int | None) -> None:
        """Report an operation. See the function `operation`."""
        memory = memory_of_torch()
        if memory is not None:
            log.info(
                "[GPU_OP] stage=%s, operation=%s, cuda_memory_allocated=%.2fGB, cuda_memory_reserved=%.2fGB",
                stage,
                name,
                *memory,
            )
            self.reporter.send_latest("stage", GAP_S, (stage, name), operation=name, **_of_stage(stage, "during", step))

    def _before(self, name: str, step: int | None, probe: bool | None) -> None:
        self._budget = self._budget or Budget(self._now)
        probed: Probed | None = None
        if probe or (probe is None and self._budget.allows()):
            with self._budget.spending():
                probed = self._probe.run()
        if probed is None:
            self._report(name, "before", step)
        elif probed.passed:
            log.info("[%s] GPU health check passed", name)
            self._report(name, "before", step, probed=probed)
        else:
            log.error("[%s] GPU health check failed: %s", name, probed.error)
            self._report(name, "before", step, probed=probed, error=probed.error, urgent=True)
            raise GPUHealthError(name)

    def _report(
        self,
        name: str,
        moment: str,
        step: int | None,
        *,
        probed: Probed | None = None,
        error: str = "",
        urgent: bool = False,
    ) -> None:
        fields = _of_stage(name, moment, step) | {"boot_id": self._boot_id, "error": error}
        if probed is not None:
            fields |= {
                "probe": "passed" if probed.passed else "failed",
                "synchronised": True,
                "matches": probed.matches,
                "is_synchronising": True if error else None,
            }
        uuid = uuid_of_torch()
        if urgent:
            # Send at once, without NVML: the process may end now, and NVML may hang.
            self.reporter.send("stage", urgent=True, gpu=uuid, **fields)
            fields = {key: fields[key] for key in ("stage", "moment", "step", "boot_id")}
        else:
            self.reporter.send_latest("stage", GAP_S, (name, moment, uuid), gpu=uuid, **fields)
        if self._nvml.is_there:
            at = self._now()
            self.reporter.sender.work(lambda: self._with_nvml(at, uuid, fields))

    def _with_nvml(self, at: float, uuid: str, fields: dict[str, Any]) -> None:
        """In the background thread: send the same observation with the data of NVML, for each GPU of this process."""
        self._asking = self._asking or Budget(self._now)
        gpus: tuple[Gpu, ...] | None = None
        if self._asking.allows():
            with self._asking.spending():
                gpus = self._nvml.read()
        name, moment = fields["stage"], fields["moment"]
        for number, gpu in enumerate(own(gpus, uuid) if gpus else ()):
            rose = self._ecc.increased(gpu)
            for kind, before, now in rose:
                of_kind = "" if kind == "corrected" else f" ({kind})"
                log.warning("[%s] GPU ECC errors increased: %s -> %s%s", name, before, now, of_kind)
            seen = {**fields, "gpu": gpu.uuid, "corrected": gpu.corrected, "uncorrected": gpu.uncorrected}
            if gpu.processes is not None:
                total = sum(memory for _, memory in gpu.processes)
                log.info("[%s] GPU occupied by %s processes, total memory: %.0f MB", name, len(gpu.processes), total)
                seen["occupants"] = [self._occupant(pid, memory) for pid, memory in gpu.processes]
            key = (name, moment, uuid if number == 0 else gpu.uuid)
            self.reporter.send_latest("stage", 0.0 if rose else GAP_S, key, at=at, **seen)

    def _occupant(self, pid: int, memory_mb: float) -> dict[str, Any]:
        owner = self.reporter.identity.role if pid == os.getpid() else ""
        return {"pid": pid, "memory_mb": memory_mb} | ({"owner": owner} if owner else {})


def _of_stage(stage: str, moment: str, step: int | None) -> dict[str, Any]:
    memory = memory_of_torch()
    fields: dict[str, Any] = {"stage": stage, "moment": moment, "step": step}
    if memory is not None:
        fields |= {"allocated_gb": round(memory[0], 3), "reserved_gb": round(memory[1], 3)}
    return fields


_stages: list[Stages] = []


def _of_this_process() -> Stages:
    current = reporter()
    if not _stages or _stages[0].reporter is not current:
        _stages[:] = [Stages(current, Nvml())]
    return _stages[0]


@contextmanager
def stage(name: str, step: int | None = None, *, probe: bool | None = None) -> Iterator[None]:
    """Check the GPU before and after a stage of the training, and report what the stage raises.

    Args:
        name: the name of the stage.
        step: the step of the training.
        probe: whether the GPU must compute a known result before the stage begins. None probes as long as that costs
            less than a hundredth of the time.

    Raises:
        GPUHealthError: the probe failed.
    """
    with _of_this_process().stage(name, step, probe):
        yield


def operation(name: str, stage: str, step: int | None = None) -> None:
    """Report the GPU memory of this process at one operation of a stage (row 6)."""
    _of_this_process().operation(name, stage, step)
