"""What a diagnostic said, in words that no longer depend on the release of DCGM that said it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Most releases print Fail for a warning, so a failure is as grave as its errors' severities, no more."""

    PASSED = "pass"
    FAILED = "fail"
    WARNED = "warn"
    SKIPPED = "skip"
    NOT_RUN = "not run"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DiagnosticError:
    """One warning of a result. `severity_number` is None where the release prints none (before 3.3)."""

    id: int | None
    severity_number: int | None
    message: str


@dataclass(frozen=True)
class DiagnosticResult:
    """One test on some GPUs. `gpus` is None when it speaks for the whole instance, () when for no GPU."""

    test: str
    category: str
    gpus: tuple[int, ...] | None
    status: Status
    errors: tuple[DiagnosticError, ...]
    info: str

    @property
    def failed(self) -> bool:
        return self.status in (Status.FAILED, Status.WARNED)

    @property
    def ran(self) -> bool:
        return self.failed or self.status is Status.PASSED

    @property
    def touches_hardware(self) -> bool:
        return self.category.casefold() != "deployment" and self.test.casefold() != "software"


@dataclass(frozen=True)
class DiagnosticReport:
    """What a diagnostic said. `gpu_count` is None when it does not tell how many GPUs it saw."""

    dcgm_version: str | None = None
    driver_version: str | None = None
    gpus: frozenset[int] = frozenset()
    gpu_count: int | None = None
    results: tuple[DiagnosticResult, ...] = ()
    runtime_error: str | None = None
    unreadable: str | None = None
