"""The report of a diagnostic, in terms that do not depend on the release of DCGM."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The status of a test.

    Most releases print Fail for a warning, so the severities of its errors alone decide how severe a failure is.
    """

    PASSED = "pass"
    FAILED = "fail"
    WARNED = "warn"
    SKIPPED = "skip"
    NOT_RUN = "not run"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DiagnosticError:
    """One warning of a result. `severity_number` is None if the release prints none (before 3.3)."""

    id: int | None
    severity_number: int | None
    message: str


@dataclass(frozen=True)
class DiagnosticResult:
    """One test on some GPUs. `gpus` is None for a result of the whole instance, () for a result of no GPU."""

    test: str
    category: str
    gpus: tuple[int, ...] | None
    status: Status
    errors: tuple[DiagnosticError, ...]
    info: str

    @property
    def failed(self) -> bool:
        """Return whether the test failed or warned."""
        return self.status in (Status.FAILED, Status.WARNED)

    @property
    def ran(self) -> bool:
        """Return whether the test ran."""
        return self.failed or self.status is Status.PASSED

    @property
    def touches_hardware(self) -> bool:
        """Return whether the test examines hardware."""
        return self.category.casefold() != "deployment" and self.test.casefold() != "software"


@dataclass(frozen=True)
class DiagnosticReport:
    """What a diagnostic reported. `gpu_count` is None if it does not say how many GPUs it saw."""

    dcgm_version: str | None = None
    driver_version: str | None = None
    gpus: frozenset[int] = frozenset()
    gpu_count: int | None = None
    results: tuple[DiagnosticResult, ...] = ()
    runtime_error: str | None = None
    unreadable: str | None = None

    @property
    def lost_connection(self) -> bool:
        """Return whether the error is a lost host engine. DCGM 4 reports that as a sentence without a number."""
        words = (self.runtime_error or "").casefold().replace("-", "").replace(" ", "")
        return "connect" in words or "hostengine" in words
