"""Tables: DCGM's errors, severities and exit codes, their remedies, and the outcomes.

A finding has a remedy, a remedy has an outcome, and the worst outcome decides. Remedies per error are data, in
`dcgm_errors.csv` (ids, names, severities and categories of DCGM 4.6.0, 133 rows). A row without a remedy has the
remedy of its severity. Exception: severity TRIAGE with a category in `TRIAGE_WORTH_A_REBOOT` gives REBOOT_INSTANCE. The
control plane, which knows the history, decides whether a second reboot is useful.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ErrorSeverity(StrEnum):
    """DCGM's severity of an error, numbered from 0 as in DCGM >= 3.3; the JSON of older releases has none."""

    NONE = "NONE"
    MONITOR = "MONITOR"
    ISOLATE = "ISOLATE"
    UNKNOWN = "UNKNOWN"
    TRIAGE = "TRIAGE"
    CONFIG = "CONFIG"
    RESET = "RESET"


SEVERITY_BY_NUMBER = dict(enumerate(ErrorSeverity))


class FindingRemedy(StrEnum):
    """What cures a finding.

    RESTART_APP: something other than the GPU prevented the test; end it and check again. RUN_DIAGNOSTIC: a suspicion
    that only a diagnostic of the hardware can confirm or remove.
    """

    IGNORE = "IGNORE"
    RUN_DIAGNOSTIC = "RUN_DIAGNOSTIC"
    RESTART_APP = "RESTART_APP"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    FIX_CONFIGURATION = "FIX_CONFIGURATION"
    REBOOT_INSTANCE = "REBOOT_INSTANCE"
    REPLACE_INSTANCE = "REPLACE_INSTANCE"


class HealthOutcome(StrEnum):
    """The verdict on the instance, from best to worst: the members are in the order of gravity."""

    HEALTHY = "HEALTHY"
    INCONCLUSIVE = "INCONCLUSIVE"
    CONFIGURATION = "CONFIGURATION"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"

    @property
    def exit_code(self) -> int:
        """Return the exit code of the container."""
        return EXIT_CODES[self]

    @property
    def gravity(self) -> int:
        """Return the place in the order of gravity, from 0."""
        return GRAVITY[self]


GRAVITY = {outcome: rank for rank, outcome in enumerate(HealthOutcome)}

# Exit codes of the container. 1 means a reboot, and Python also exits with 1 after an error:
# `__main__.py` keeps the two apart.
EXIT_CODES = {
    HealthOutcome.HEALTHY: 0,
    HealthOutcome.REBOOT: 1,
    HealthOutcome.REPLACE: 42,
    HealthOutcome.CONFIGURATION: 43,
    HealthOutcome.INCONCLUSIVE: 44,
}

OUTCOME_OF = {
    FindingRemedy.IGNORE: HealthOutcome.HEALTHY,
    FindingRemedy.RUN_DIAGNOSTIC: HealthOutcome.INCONCLUSIVE,
    FindingRemedy.RESTART_APP: HealthOutcome.INCONCLUSIVE,
    FindingRemedy.CONTACT_SUPPORT: HealthOutcome.INCONCLUSIVE,
    FindingRemedy.FIX_CONFIGURATION: HealthOutcome.CONFIGURATION,
    FindingRemedy.REBOOT_INSTANCE: HealthOutcome.REBOOT,
    FindingRemedy.REPLACE_INSTANCE: HealthOutcome.REPLACE,
}

# A container cannot reset a GPU, so RESET becomes a reboot.
BY_SEVERITY = {
    ErrorSeverity.NONE: FindingRemedy.IGNORE,
    ErrorSeverity.MONITOR: FindingRemedy.IGNORE,
    ErrorSeverity.ISOLATE: FindingRemedy.REBOOT_INSTANCE,
    ErrorSeverity.UNKNOWN: FindingRemedy.CONTACT_SUPPORT,
    ErrorSeverity.TRIAGE: FindingRemedy.CONTACT_SUPPORT,
    ErrorSeverity.CONFIG: FindingRemedy.FIX_CONFIGURATION,
    ErrorSeverity.RESET: FindingRemedy.REBOOT_INSTANCE,
}

# TRIAGE leaves the cause open. For an error of category hardware or performance a reboot is the first attempt
# (links are trained again, clocks return). For software and internals of DCGM the cause stays unknown.
TRIAGE_WORTH_A_REBOOT = ("HARDWARE_", "PERF_")


@dataclass(frozen=True)
class KnownError:
    """One row of `dcgm_errors.csv`. `remedy` is None if the severity decides."""

    name: str
    severity: ErrorSeverity
    category: str
    remedy: FindingRemedy | None


def _read_errors(path: Path) -> dict[int, KnownError]:
    with path.open(newline="", encoding="utf-8") as file:
        return {
            int(row["id"]): KnownError(
                row["name"],
                ErrorSeverity(row["severity"]),
                row["category"],
                FindingRemedy(row["remedy"]) if row["remedy"] else None,
            )
            for row in csv.DictReader(file)
        }


ERRORS: Mapping[int, KnownError] = _read_errors(Path(__file__).with_name("dcgm_errors.csv"))
MEMORY_ALLOC = 56


def severity_of(error_id: int | None, number: int | None) -> ErrorSeverity:
    """Return the severity in the output, otherwise that of the error's row, otherwise UNKNOWN.

    A stated 0 (NONE) on an error is no statement, and the row is used.
    """
    if number and number in SEVERITY_BY_NUMBER:
        return SEVERITY_BY_NUMBER[number]
    known = ERRORS.get(error_id) if error_id is not None else None
    return known.severity if known else ErrorSeverity.UNKNOWN


def remedy_of(error_id: int | None, severity: ErrorSeverity) -> FindingRemedy:
    """Return the remedy of the error's row, otherwise that of its severity.

    Severity TRIAGE with a category in `TRIAGE_WORTH_A_REBOOT` gives REBOOT_INSTANCE.
    """
    known = ERRORS.get(error_id) if error_id is not None else None
    if known and known.remedy:
        return known.remedy
    if severity is ErrorSeverity.TRIAGE and known and known.category.startswith(TRIAGE_WORTH_A_REBOOT):
        return FindingRemedy.REBOOT_INSTANCE
    return BY_SEVERITY[severity]


# --- exit codes of `dcgmi diag`: a negative dcgmReturn_t cut to eight bits, or the shell's own ---

NVVS_ERROR = 226
NVVS_ISOLATE_ERROR = 205
DIAG_TIMEOUT = 245
ALREADY_RUNNING = 217
CONNECTION_NOT_VALID = 235
NOT_EXECUTABLE = 126
NOT_INSTALLED = 127
HOST_SHORT = 122  # ours, as the next; no codes of dcgmi or of the shell
HUNG_BESIDE_HOST_ENGINE = 123
DEADLINE_PASSED = 124
KILLED = 137
SIGNALLED = range(129, 193)


@dataclass(frozen=True)
class KnownExit:
    """The meaning of an exit code, used if no test result says more."""

    name: str
    remedy: FindingRemedy
    meaning: str


EXITS: Mapping[int, KnownExit] = {
    NVVS_ERROR: KnownExit(
        "DCGM_ST_NVVS_ERROR", FindingRemedy.CONTACT_SUPPORT, "a test failed, and the output does not say which"
    ),
    NVVS_ISOLATE_ERROR: KnownExit(
        "DCGM_ST_NVVS_ISOLATE_ERROR", FindingRemedy.REBOOT_INSTANCE, "DCGM found an error of severity ISOLATE"
    ),
    203: KnownExit("DCGM_ST_NVVS_KILLED", FindingRemedy.RESTART_APP, "the diagnostic was killed"),
    DIAG_TIMEOUT: KnownExit("DCGM_ST_TIMEOUT", FindingRemedy.RESTART_APP, "the diagnostic timed out inside DCGM"),
    CONNECTION_NOT_VALID: KnownExit(
        "DCGM_ST_CONNECTION_NOT_VALID", FindingRemedy.FIX_CONFIGURATION, "no connection to a DCGM host engine"
    ),
    ALREADY_RUNNING: KnownExit(
        "DCGM_ST_DIAG_ALREADY_RUNNING", FindingRemedy.RESTART_APP, "another diagnostic held the GPUs"
    ),
    215: KnownExit("DCGM_ST_DIAG_BAD_LAUNCH", FindingRemedy.FIX_CONFIGURATION, "the diagnostic was not launched"),
    198: KnownExit("DCGM_ST_NO_AVAILABLE_TEST", FindingRemedy.CONTACT_SUPPORT, "DCGM has no test for this GPU"),
    190: KnownExit("DCGM_ST_DIAG_STOPPED", FindingRemedy.RESTART_APP, "the diagnostic was stopped"),
    DEADLINE_PASSED: KnownExit(
        "DIAGNOSTIC_HUNG", FindingRemedy.REBOOT_INSTANCE, "the diagnostic did not end before its deadline"
    ),
    HOST_SHORT: KnownExit(
        "HOST_SHORT_OF_RESOURCES",
        FindingRemedy.RESTART_APP,
        "the host was short of processes, memory or open files and could not start the diagnostic",
    ),
    HUNG_BESIDE_HOST_ENGINE: KnownExit(
        "OTHER_HOST_ENGINE",
        FindingRemedy.RESTART_APP,
        "the diagnostic did not end before its deadline; the driver answers, and another DCGM host engine runs on the "
        "instance, so the two engines may have blocked each other",
    ),
    # A kill by `run.py` ends with DEADLINE_PASSED. This kill came from outside, and says nothing about a GPU.
    KILLED: KnownExit(
        "DIAGNOSTIC_KILLED",
        FindingRemedy.RESTART_APP,
        "another process killed the diagnostic, most likely the kernel because the host was out of memory",
    ),
    NOT_EXECUTABLE: KnownExit("DCGMI_NOT_EXECUTABLE", FindingRemedy.FIX_CONFIGURATION, "dcgmi cannot be executed"),
    NOT_INSTALLED: KnownExit("DCGMI_NOT_INSTALLED", FindingRemedy.FIX_CONFIGURATION, "dcgmi is not installed"),
}

CUT_SHORT = KnownExit(
    "DIAGNOSTIC_CUT_SHORT",
    FindingRemedy.RESTART_APP,
    "less than half of the time was left when the diagnostic began, so a missed deadline is no evidence about a GPU",
)
"""The meaning of DEADLINE_PASSED if the diagnostic began late."""

# After these no diagnostic ran, even if the output says so. A lost connection never costs an instance.
NEVER_STARTED = frozenset({CONNECTION_NOT_VALID, NOT_EXECUTABLE, NOT_INSTALLED})


def exit_meaning(exit_code: int, *, late: bool = False) -> KnownExit:
    """Return the meaning of a non-zero exit code of dcgmi; a signal or an unknown code is inconclusive.

    `late` says that the diagnostic began late, so that its deadline is no sign of a GPU that hangs.
    """
    if late and exit_code == DEADLINE_PASSED:
        return CUT_SHORT
    if exit_code in EXITS:
        return EXITS[exit_code]
    if exit_code in SIGNALLED:
        return KnownExit("DIAGNOSTIC_SIGNALLED", FindingRemedy.RESTART_APP, f"signal {exit_code - 128} ended it")
    return KnownExit("UNKNOWN_EXIT_CODE", FindingRemedy.CONTACT_SUPPORT, "dcgmi ended with an unknown exit code")
