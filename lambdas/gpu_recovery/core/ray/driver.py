"""What Ray says of a driver, and what a driver's end means.

A Ray job is one process for us, its driver; what the driver starts in the cluster is Ray's business. Source of the
states and error types: `ray.job_submission` of Ray 2.60. Ray keeps no count of who waits, and verl does not wait
either: it counts the free GPUs when it starts and gives up at once if they are too few (seed 004, section 1). That
one failure is a place in line, not an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.task import Ending, EndingKind

TOO_FEW_GPUS = re.compile(r"Total available GPUs\s+([\d.]+)\s+is less than total desired GPUs\s+([\d.]+)")
"""verl's own words, from `ResourcePoolManager._check_resource_available`; it prints floats as well as whole numbers."""
RAYS_OWN_QUEUE = re.compile(
    r"^Running entrypoint for job |^Job entrypoint command failed with exit code |job_manager\.py:"
)
"""What Ray itself writes into a message and a log; it may stand behind the words of a driver that ended quickly."""
SENTENCE_CHARACTERS_MAX = 300
SHELL_COULD_NOT_START = (126, 127)
"""Exit codes by which a shell says that the command cannot be run, or is not there (POSIX, 2.8.2)."""


class DriverState(StrEnum):
    """Ray's `JobStatus`, and GONE for a submission that Ray does not know (any more)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    GONE = "GONE"


class DriverError(StrEnum):
    """The values of Ray's `JobErrorType` that say who is to blame: the description of the job, or its program."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_SUPERVISOR_ACTOR_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """One submission as Ray states it; `error_type` as Ray spells it, "" for none, `exit_code` None if it has none."""

    state: DriverState
    message: str = ""
    exit_code: int | None = None
    error_type: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the driver runs any more."""
        return self.state not in (DriverState.PENDING, DriverState.RUNNING)

    @property
    def needs_its_log(self) -> bool:
        """Whether only its log can tell why it failed.

        Ray repeats the last 10 lines of a log in the message, 20,000 characters at most, and what follows an error in
        a driver (its cluster being taken down, say) is easily longer than that.
        """
        if self.error_type != DriverError.JOB_ENTRYPOINT_COMMAND_ERROR or self.exit_code in SHELL_COULD_NOT_START:
            return False
        return TOO_FEW_GPUS.search(self.message) is None


def ending_of(status: DriverStatus, log: str, gpus_in_all: float | None) -> Ending:
    """What the end of a driver means for its job.

    log:         as much of its log as was read, "" for none.
    gpus_in_all: the GPUs of the whole cluster, used or free; None if nobody could be asked.
    """
    match status.state:
        case DriverState.SUCCEEDED:
            return Ending(EndingKind.SUCCEEDED, 0, "exited with code 0")
        case DriverState.STOPPED:
            return Ending(EndingKind.STOPPED_BY_PERSON, status.exit_code, "was stopped in the Ray cluster")
        case DriverState.GONE:
            return Ending(EndingKind.CRASHED, None, "is not known to the Ray cluster any more")
    asked = TOO_FEW_GPUS.search(status.message) or TOO_FEW_GPUS.search(log)
    if asked is not None:
        return _short_of_gpus(float(asked[1].rstrip(".")), float(asked[2].rstrip(".")), status, gpus_in_all)
    return _failed(status)


def _short_of_gpus(found: float, wanted: float, status: DriverStatus, gpus_in_all: float | None) -> Ending:
    if gpus_in_all is not None and wanted > gpus_in_all:
        sentence = f"wants {wanted:g} GPUs, and the Ray cluster has {gpus_in_all:g} in all, used or free"
        return Ending(EndingKind.NEVER_STARTED, status.exit_code, sentence)
    return Ending(
        EndingKind.SHORT_OF_RESOURCES, status.exit_code, f"found {found:g} free GPUs of the {wanted:g} that it wants"
    )


def _failed(status: DriverStatus) -> Ending:
    code, said = status.exit_code, _last_line(status.message)
    if status.error_type == DriverError.RUNTIME_ENV_SETUP_FAILURE:
        return Ending(EndingKind.NEVER_STARTED, code, f"never started: its runtime_env could not be set up ({said})")
    if status.error_type == DriverError.JOB_SUPERVISOR_ACTOR_START_FAILURE:
        return Ending(EndingKind.NEVER_STARTED, code, f"never started: Ray refused what it asks for ({said})")
    if status.error_type == DriverError.JOB_ENTRYPOINT_COMMAND_START_ERROR or code in SHELL_COULD_NOT_START:
        return Ending(EndingKind.NEVER_STARTED, code, f"never started: its entrypoint cannot be run ({said})")
    if status.error_type == DriverError.JOB_ENTRYPOINT_COMMAND_ERROR:
        return Ending(EndingKind.FAILED, code, f"exited with code {code} ({said})")
    return Ending(EndingKind.CRASHED, code, f"was lost by the Ray cluster: {status.error_type or 'no type'} ({said})")


def _last_line(message: str) -> str:
    """The last line that says anything: where a traceback ends, it names the error."""
    lines = [line.strip() for line in message.splitlines()]
    told = [line for line in lines if line and not RAYS_OWN_QUEUE.search(line)]
    return told[-1][:SENTENCE_CHARACTERS_MAX] if told else "without a word"
