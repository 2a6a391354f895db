"""The tables: DCGM's errors, severities and exit codes, what cures each, and the outcome that follows.

A finding has a remedy, a remedy has an outcome, and the worst outcome decides. Per-error remedies are data,
in `dcgm_errors.csv` (ids, names, severities and categories of DCGM 4.6.0, 133 rows); a row without a remedy
follows its severity. Whether a second reboot is worth trying is not decided here: the control plane knows the
history.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    """DCGM's judgement of an error, numbered from 0 as in DCGM >= 3.3; JSON of older releases prints none."""

    NONE = "NONE"
    MONITOR = "MONITOR"
    ISOLATE = "ISOLATE"
    UNKNOWN = "UNKNOWN"
    TRIAGE = "TRIAGE"
    CONFIG = "CONFIG"
    RESET = "RESET"


SEVERITY_BY_NUMBER = dict(enumerate(Severity))


class Remedy(StrEnum):
    """What cures a finding. RESTART_APP: something other than the GPU stood in the way; end it, check again.
    RUN_DIAGNOSTIC: a suspicion, that only a diagnostic of the hardware can confirm or end."""

    IGNORE = "IGNORE"
    RUN_DIAGNOSTIC = "RUN_DIAGNOSTIC"
    RESTART_APP = "RESTART_APP"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    FIX_CONFIGURATION = "FIX_CONFIGURATION"
    REBOOT_INSTANCE = "REBOOT_INSTANCE"
    REPLACE_INSTANCE = "REPLACE_INSTANCE"


class Outcome(StrEnum):
    """The verdict on the instance, from best to worst: the order of the members is the order of gravity."""

    HEALTHY = "HEALTHY"
    INCONCLUSIVE = "INCONCLUSIVE"
    CONFIGURATION = "CONFIGURATION"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]

    @property
    def gravity(self) -> int:
        return GRAVITY[self]


GRAVITY = {outcome: rank for rank, outcome in enumerate(Outcome)}

# What the container exits with. 1 is the code for a reboot, and also what Python exits with when it fails:
# see `__main__.py` for how the two are kept apart.
EXIT_CODES = {
    Outcome.HEALTHY: 0,
    Outcome.REBOOT: 1,
    Outcome.REPLACE: 42,
    Outcome.CONFIGURATION: 43,
    Outcome.INCONCLUSIVE: 44,
}

OUTCOME_OF = {
    Remedy.IGNORE: Outcome.HEALTHY,
    Remedy.RUN_DIAGNOSTIC: Outcome.INCONCLUSIVE,
    Remedy.RESTART_APP: Outcome.INCONCLUSIVE,
    Remedy.CONTACT_SUPPORT: Outcome.INCONCLUSIVE,
    Remedy.FIX_CONFIGURATION: Outcome.CONFIGURATION,
    Remedy.REBOOT_INSTANCE: Outcome.REBOOT,
    Remedy.REPLACE_INSTANCE: Outcome.REPLACE,
}

# A container instance has no GPU reset, so RESET folds up to the reboot.
BY_SEVERITY = {
    Severity.NONE: Remedy.IGNORE,
    Severity.MONITOR: Remedy.IGNORE,
    Severity.ISOLATE: Remedy.REBOOT_INSTANCE,
    Severity.UNKNOWN: Remedy.CONTACT_SUPPORT,
    Severity.TRIAGE: Remedy.CONTACT_SUPPORT,
    Severity.CONFIG: Remedy.FIX_CONFIGURATION,
    Severity.RESET: Remedy.REBOOT_INSTANCE,
}

# TRIAGE leaves the cause open. Where DCGM files the error under hardware or performance a reboot is the first
# thing worth trying (links are trained again, clocks return); under software or its own internals nothing is
# known.
TRIAGE_WORTH_A_REBOOT = ("HARDWARE_", "PERF_")


@dataclass(frozen=True)
class KnownError:
    """One row of `dcgm_errors.csv`. `remedy` is None when the severity decides."""

    name: str
    severity: Severity
    category: str
    remedy: Remedy | None


def _read_errors(path: Path) -> dict[int, KnownError]:
    with path.open(newline="", encoding="utf-8") as file:
        return {
            int(row["id"]): KnownError(
                row["name"],
                Severity(row["severity"]),
                row["category"],
                Remedy(row["remedy"]) if row["remedy"] else None,
            )
            for row in csv.DictReader(file)
        }


ERRORS: Mapping[int, KnownError] = _read_errors(Path(__file__).with_name("dcgm_errors.csv"))
MEMORY_ALLOC = 56


def severity_of(error_id: int | None, number: int | None) -> Severity:
    """The severity that the output states, or else the one of the error's row, or else UNKNOWN.

    A stated 0 (NONE) on an error is no statement: the row is asked.
    """
    if number and number in SEVERITY_BY_NUMBER:
        return SEVERITY_BY_NUMBER[number]
    known = ERRORS.get(error_id) if error_id is not None else None
    return known.severity if known else Severity.UNKNOWN


def remedy_of(error_id: int | None, severity: Severity) -> Remedy:
    """The remedy of the error's row, or else the one of its severity."""
    known = ERRORS.get(error_id) if error_id is not None else None
    if known and known.remedy:
        return known.remedy
    if severity is Severity.TRIAGE and known and known.category.startswith(TRIAGE_WORTH_A_REBOOT):
        return Remedy.REBOOT_INSTANCE
    return BY_SEVERITY[severity]


# --- exit codes of `dcgmi diag`: a negative dcgmReturn_t cut to eight bits, or the shell's own ---

NVVS_ERROR = 226
NVVS_ISOLATE_ERROR = 205
DIAG_TIMEOUT = 245
ALREADY_RUNNING = 217
CONNECTION_NOT_VALID = 235
NOT_EXECUTABLE = 126
NOT_INSTALLED = 127
DEADLINE_PASSED = 124
KILLED = 137
SIGNALLED = range(129, 193)


@dataclass(frozen=True)
class KnownExit:
    """What an exit code says by itself, when no test result says it better."""

    name: str
    remedy: Remedy
    meaning: str


EXITS: Mapping[int, KnownExit] = {
    NVVS_ERROR: KnownExit(
        "DCGM_ST_NVVS_ERROR", Remedy.CONTACT_SUPPORT, "a test failed, and the output does not say which"
    ),
    NVVS_ISOLATE_ERROR: KnownExit(
        "DCGM_ST_NVVS_ISOLATE_ERROR", Remedy.REBOOT_INSTANCE, "DCGM found an error of severity ISOLATE"
    ),
    203: KnownExit("DCGM_ST_NVVS_KILLED", Remedy.RESTART_APP, "the diagnostic was killed"),
    DIAG_TIMEOUT: KnownExit("DCGM_ST_TIMEOUT", Remedy.RESTART_APP, "the diagnostic timed out inside DCGM"),
    CONNECTION_NOT_VALID: KnownExit(
        "DCGM_ST_CONNECTION_NOT_VALID", Remedy.FIX_CONFIGURATION, "no connection to a DCGM host engine"
    ),
    ALREADY_RUNNING: KnownExit("DCGM_ST_DIAG_ALREADY_RUNNING", Remedy.RESTART_APP, "another diagnostic held the GPUs"),
    215: KnownExit("DCGM_ST_DIAG_BAD_LAUNCH", Remedy.FIX_CONFIGURATION, "the diagnostic was not launched"),
    198: KnownExit("DCGM_ST_NO_AVAILABLE_TEST", Remedy.CONTACT_SUPPORT, "DCGM has no test for this GPU"),
    190: KnownExit("DCGM_ST_DIAG_STOPPED", Remedy.RESTART_APP, "the diagnostic was stopped"),
    DEADLINE_PASSED: KnownExit(
        "DIAGNOSTIC_HUNG", Remedy.REBOOT_INSTANCE, "the diagnostic did not end before its deadline"
    ),
    # What `run.py` kills itself ends with DEADLINE_PASSED. This kill is somebody else's, and says nothing of a GPU.
    KILLED: KnownExit(
        "DIAGNOSTIC_KILLED",
        Remedy.RESTART_APP,
        "somebody else killed the diagnostic, most likely the host because it was out of memory",
    ),
    NOT_EXECUTABLE: KnownExit("DCGMI_NOT_EXECUTABLE", Remedy.FIX_CONFIGURATION, "dcgmi cannot be executed"),
    NOT_INSTALLED: KnownExit("DCGMI_NOT_INSTALLED", Remedy.FIX_CONFIGURATION, "dcgmi is not installed"),
}

# After these nothing was diagnosed, whatever else the output claims. A lost connection never costs a machine.
NEVER_STARTED = frozenset({CONNECTION_NOT_VALID, NOT_EXECUTABLE, NOT_INSTALLED})


def exit_meaning(exit_code: int) -> KnownExit:
    """What a non-zero exit code of dcgmi says; a signal or an unknown code could not tell."""
    if exit_code in EXITS:
        return EXITS[exit_code]
    if exit_code in SIGNALLED:
        return KnownExit("DIAGNOSTIC_SIGNALLED", Remedy.RESTART_APP, f"signal {exit_code - 128} ended it")
    return KnownExit("UNKNOWN_EXIT_CODE", Remedy.CONTACT_SUPPORT, "dcgmi ended in a way it has no name for")
