"""The Ray driver of a job: its status as Ray reports it, and what its end means.

A Ray job is a single process for this system, its driver. Ray alone manages what the driver starts in the cluster. The
states and error types are those of `ray.job_submission` of Ray 2.60. Ray has no queue for GPUs, and verl does not wait
for them either: it counts the free GPUs at its start and gives up at once if they are too few.
That single failure puts the job back into the queue and is no error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.redaction import masked
from gpu_recovery.core.task import Ending, EndingKind

TOO_FEW_GPUS = ("Total available GPUs", "less than total desired")
"""Two texts. A message or a log that has both shows that verl found too few free GPUs. Source: seed 004, section 6.3;
verl writes them in `ResourcePoolManager._check_resource_available`."""
_COUNTED_GPUS = re.compile(
    r"Total available GPUs\s+(\d+(?:\.\d+)?)\s+is less than total desired GPUs\s+(\d+(?:\.\d+)?)"
)
"""Pattern of that sentence with its two numbers. verl prints floats as well as whole numbers."""
RAYS_OWN_OUTPUT = re.compile(
    r"^Running entrypoint for job |^Job entrypoint command failed with exit code |job_manager\.py:"
)
"""Pattern of the lines that Ray itself writes into a message and a log. They may follow the output of a driver that
ended quickly."""
SENTENCE_CHARACTERS_MAX = 300
"""Upper bound of the characters of an error line in a sentence."""
SHELL_COULD_NOT_START = (126, 127)
"""Exit codes by which a shell reports that a command cannot be run or does not exist (POSIX, 2.8.2)."""


class DriverState(StrEnum):
    """The values of Ray's `JobStatus`, and GONE for a submission that Ray does not know or no longer knows."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    GONE = "GONE"


class DriverError(StrEnum):
    """The values of Ray's `JobErrorType` that show the cause: the description of the job, or its program."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_SUPERVISOR_ACTOR_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """A submission as Ray reports it; `error_type` as Ray spells it, "" for none; `exit_code` None if it has none."""

    state: DriverState
    message: str = ""
    exit_code: int | None = None
    error_type: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether no process of the driver runs any more."""
        return self.state not in (DriverState.PENDING, DriverState.RUNNING)

    @property
    def needs_its_log(self) -> bool:
        """Whether only the log can show why the driver failed.

        Ray repeats the last 10 lines of a log in the message, at most 20,000 characters. The output after an error in a
        driver, for example while its cluster shuts down, is easily longer than that.
        """
        if self.error_type != DriverError.JOB_ENTRYPOINT_COMMAND_ERROR or self.exit_code in SHELL_COULD_NOT_START:
            return False
        return not _says_too_few_gpus(self.message)


def ending_of(
    status: DriverStatus, log: str, gpus_in_all: float | None, gpus_asked: int, was_stable: bool = False
) -> Ending:
    """Return what the end of a driver means for its job.

    verl counts the GPUs at its start. So the two texts in the output of a driver that ran for long come from an earlier
    try of its program, and explain nothing.

    Args:
        log: the part of its log that was read, "" for none.
        gpus_in_all: number of GPUs of the whole cluster, used or free; None if it is unknown.
        gpus_asked: number of GPUs that the specification of the job asks for.
        was_stable: the driver ran for `stable_run_s` or longer.
    """
    match status.state:
        case DriverState.SUCCEEDED:
            return Ending(EndingKind.SUCCEEDED, 0, "exited with code 0")
        case DriverState.STOPPED:
            return Ending(EndingKind.STOPPED_BY_PERSON, status.exit_code, "was stopped in the Ray cluster")
        case DriverState.GONE:
            return Ending(EndingKind.CRASHED, None, "is no longer known to the Ray cluster")
    for text in () if was_stable else (status.message, log):
        if _says_too_few_gpus(text):
            return _short_of_gpus(text, status.exit_code, gpus_in_all, gpus_asked)
    return _failed(status)


def _says_too_few_gpus(text: str) -> bool:
    return all(part in text for part in TOO_FEW_GPUS)


def _short_of_gpus(text: str, exit_code: int | None, gpus_in_all: float | None, gpus_asked: int) -> Ending:
    """Return the ending of a driver that found too few GPUs.

    It is final if the program wants more GPUs than its job asks for and than the whole cluster has. A job that wants
    what it asks for waits: a node may have left since its admission, and may come back.
    """
    counted = _COUNTED_GPUS.search(text)
    if counted is None:
        return Ending(EndingKind.SHORT_OF_RESOURCES, exit_code, "found fewer free GPUs than it needs")
    found, wanted = float(counted[1]), float(counted[2])
    if gpus_in_all is not None and wanted > max(gpus_in_all, gpus_asked):
        sentence = f"wants {wanted:g} GPUs, and the Ray cluster has {gpus_in_all:g} in all, used or free"
        return Ending(EndingKind.NEVER_STARTED, exit_code, sentence)
    return Ending(
        EndingKind.SHORT_OF_RESOURCES, exit_code, f"found {found:g} free GPUs of the {wanted:g} that it needs"
    )


def _failed(status: DriverStatus) -> Ending:
    """Return the ending of a driver that failed, by Ray's error type and exit code."""
    code, last_line = status.exit_code, _last_line(status.message)
    if status.error_type == DriverError.RUNTIME_ENV_SETUP_FAILURE:
        return Ending(
            EndingKind.NEVER_STARTED, code, f"never started: its runtime_env could not be set up ({last_line})"
        )
    if status.error_type == DriverError.JOB_SUPERVISOR_ACTOR_START_FAILURE:
        return Ending(EndingKind.NEVER_STARTED, code, f"never started: Ray refused what it asks for ({last_line})")
    if status.error_type == DriverError.JOB_ENTRYPOINT_COMMAND_START_ERROR or code in SHELL_COULD_NOT_START:
        return Ending(EndingKind.NEVER_STARTED, code, f"never started: its entrypoint cannot be run ({last_line})")
    if status.error_type == DriverError.JOB_ENTRYPOINT_COMMAND_ERROR:
        return Ending(EndingKind.FAILED, code, f"exited with code {code} ({last_line})")
    return Ending(
        EndingKind.CRASHED, code, f"was lost by the Ray cluster: {status.error_type or 'no type'} ({last_line})"
    )


def _last_line(message: str) -> str:
    """Return the last line of the driver's own output, without secrets.

    At the end of a traceback it names the error.
    """
    lines = [line.strip() for line in masked(message).splitlines()]
    own_lines = [line for line in lines if line and not RAYS_OWN_OUTPUT.search(line)]
    return own_lines[-1][:SENTENCE_CHARACTERS_MAX] if own_lines else "without a message"
