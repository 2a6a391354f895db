"""ECS task of a rank: facts from ECS, and the ending by exit code, stop code and reason.

Source of the stop codes and reason texts: the ECS API model (`stopCode`) and the container error names of the ECS
agent. The rules are ordered, and each rule handles a recorded event that a simpler rule gets wrong. Exit code 0 after
a user's stop is not success, exit code 137 after a scale-in is not a fault, and an exit code may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

LAUNCH_SIGNATURE = "GPU_RECOVERY_LAUNCH_SIGNATURE"
"""Environment variable with the launch signature of a task; see `core.launch_signature`."""
VERDICT_KEY = "VERDICT_KEY"
"""Environment variable with the S3 key of a health check's verdict document."""
RANK = re.compile(r"[0-9]{1,9}")
"""Pattern of a rank in the environment of a task."""
OUR_STOP = "gpu-recovery: "
"""Beginning of the reason of each StopTask call that we make. ECS returns the reason as `stoppedReason`."""

PREFLIGHT, PREFLIGHT_FAILED = "GPU_RECOVERY_PREFLIGHT", 76
"""Environment variable of a task whose wrapper runs a preflight, and the exit code of a rank whose preflight failed.

Any program may exit with that code, so the code proves no fault."""
PREFLIGHT_ENDED = "ended as after a failed preflight, before its training"
"""Beginning of the sentence about such a rank."""
STOPPED_BY_SERVICE = "stopped by its ECS service"
"""Beginning of the sentence about a rank that its ECS service has stopped."""
DEREGISTERED = "Container instance deregistration forced"
"""Beginning of the reason of a task that ECS ended because its container instance was deregistered by force (ECS
developer guide, stopped tasks). The containers run on (API reference, DeregisterContainerInstance)."""


class LastStatus(StrEnum):
    """The two values of a task's `lastStatus` that lead to events."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


class StopCode(StrEnum):
    """ECS `stopCode`. A value outside this list counts as a fault of the infrastructure."""

    TASK_FAILED_TO_START = "TaskFailedToStart"
    ESSENTIAL_CONTAINER_EXITED = "EssentialContainerExited"
    USER_INITIATED = "UserInitiated"
    SERVICE_SCHEDULER_INITIATED = "ServiceSchedulerInitiated"
    SPOT_INTERRUPTION = "SpotInterruption"
    TERMINATION_NOTICE = "TerminationNotice"


class EndingKind(StrEnum):
    """What the end of a rank means for its job."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"  # non-zero exit of the program itself
    CRASHED = "CRASHED"  # ended by a signal or without an exit code, as real GPU faults do
    NEVER_STARTED = "NEVER_STARTED"
    SHORT_OF_RESOURCES = "SHORT_OF_RESOURCES"
    HOST_FAULT = "HOST_FAULT"
    INTERRUPTED = "INTERRUPTED"  # Spot, retirement, termination: the capacity went away
    STOPPED_BY_PERSON = "STOPPED_BY_PERSON"
    STOPPED_BY_US = "STOPPED_BY_US"


class FailureKind(StrEnum):
    """Why an attempt failed: `failure_kind` of the job API, and further kinds for faulty instances."""

    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"  # fewer GPUs than the job needs: tried again
    USER_ERROR = "USER_ERROR"  # the specification cannot start
    RUNTIME_ERROR = "RUNTIME_ERROR"  # the program started and ended with an error
    UNKNOWN = "UNKNOWN"
    HOST_FAULT = "HOST_FAULT"  # ended by the infrastructure
    HARDWARE = "HARDWARE"  # a check or a preflight finds an instance faulty
    INTERRUPTED = "INTERRUPTED"  # the capacity was taken away
    REPAIR = "REPAIR"  # an instance of the attempt was repaired because of another job
    INCONCLUSIVE = "INCONCLUSIVE"  # the checks gave no clear result


@frozen_dataclass()
class ContainerFact:
    """One container of a task as ECS reports it. `exit_code` is None if ECS gives none."""

    name: str
    exit_code: int | None = None
    reason: str = ""


@frozen_dataclass()
class TaskFact:
    """One task as an ECS event or DescribeTasks reports it.

    environment:    environment of the overrides, all containers together.
    main_container: name of the container with JOB_ID or CHECK_ID in its override. Its end is the end of the task.
    gpus:           GPUs that the containers hold, 0 if ECS gives none.
    ended_at:       end of the containers by the clock of their instance, None if ECS gives none.
    desired_status: STOPPED from the moment at which ECS is asked to stop the task.
    """

    task_id: str
    last_status: str
    at: datetime
    task_definition: str = ""
    container_instance_id: str = ""
    started_by: str = ""
    group: str = ""
    version: int = 0
    containers: tuple[ContainerFact, ...] = ()
    environment: Mapping[str, str] | None = None
    command: tuple[str, ...] = ()
    main_container: str = ""
    gpus: int = 0
    stop_code: str = ""
    stopped_reason: str = ""
    created_at: datetime | None = None
    ended_at: datetime | None = None
    desired_status: str = ""

    @property
    def launch_signature(self) -> str:
        """The launch signature in the task's environment; "" if there is none."""
        return (self.environment or {}).get(LAUNCH_SIGNATURE, "")

    @property
    def verdict_key(self) -> str:
        """The S3 key of the verdict document, as the start of the check chose it; "" if the task has none."""
        return (self.environment or {}).get(VERDICT_KEY, "")

    @property
    def is_orphaned(self) -> bool:
        """Whether ECS ended the task only because its instance was deregistered by force: its process may run on."""
        return self.last_status == LastStatus.STOPPED and self.stopped_reason.startswith(DEREGISTERED)

    @property
    def rank(self) -> int | None:
        """The rank of the task, from its environment. None if the environment has no number."""
        text = (self.environment or {}).get("RANK", "")
        return int(text) if RANK.fullmatch(text) else None

    def container(self, name: str) -> ContainerFact | None:
        """Return the container `name`, or the only container of the task, or None."""
        for container in self.containers:
            if container.name == name:
                return container
        return self.containers[0] if len(self.containers) == 1 else None


@frozen_dataclass()
class Ending:
    """How a rank ended: its kind, the exit code of the main container (None if ECS gave none), and one sentence."""

    kind: EndingKind
    exit_code: int | None
    sentence: str

    @property
    def is_by_service(self) -> bool:
        """Whether the ECS service of the rank stopped it, for example because a person made the service smaller."""
        return self.sentence.startswith(STOPPED_BY_SERVICE)

    @property
    def is_preflight(self) -> bool:
        """Whether the rank has a preflight and ended with the exit code of a failed one."""
        return self.sentence.startswith(PREFLIGHT_ENDED)

    @property
    def is_own(self) -> bool:
        """Whether the rank or its host failed, so that neither a stop nor an interruption ended the rank."""
        return self.kind in (EndingKind.FAILED, EndingKind.CRASHED, EndingKind.HOST_FAULT, EndingKind.NEVER_STARTED)


@frozen_dataclass()
class RankFailure:
    """The first rank of an attempt that did not succeed."""

    rank: int
    instance_id: str
    at: datetime
    ending: Ending


_KIND_OF_ENDING = {
    EndingKind.SHORT_OF_RESOURCES: FailureKind.INSUFFICIENT_RESOURCES,
    EndingKind.NEVER_STARTED: FailureKind.USER_ERROR,
    EndingKind.FAILED: FailureKind.RUNTIME_ERROR,
    EndingKind.HOST_FAULT: FailureKind.HOST_FAULT,
    EndingKind.INTERRUPTED: FailureKind.INTERRUPTED,
}


def ending(task: TaskFact, main_container: str) -> Ending:
    """Return how the STOPPED `task` ended, from its stop code, the reasons and the exit code of `main_container`."""
    main = task.container(main_container)
    code = main.exit_code if main else None
    reason = (main.reason if main else "") or task.stopped_reason
    stop = task.stop_code

    if task.is_orphaned:
        return Ending(EndingKind.INTERRUPTED, code, "lost its registration: its instance was deregistered by force")
    if stop == StopCode.USER_INITIATED:
        if task.stopped_reason.startswith(OUR_STOP):
            return Ending(EndingKind.STOPPED_BY_US, code, "stopped by gpu-recovery")
        return Ending(EndingKind.STOPPED_BY_PERSON, code, f"stopped by a user ({_quoted(task.stopped_reason)})")
    if stop == StopCode.SERVICE_SCHEDULER_INITIATED:
        return Ending(EndingKind.STOPPED_BY_PERSON, code, f"{STOPPED_BY_SERVICE} ({_quoted(task.stopped_reason)})")
    if stop in (StopCode.SPOT_INTERRUPTION, StopCode.TERMINATION_NOTICE):
        return Ending(
            EndingKind.INTERRUPTED, code, f"its instance was reclaimed ({stop}: {_quoted(task.stopped_reason)})"
        )
    if code == 0:
        return Ending(EndingKind.SUCCEEDED, 0, "exited with code 0")
    if stop == StopCode.TASK_FAILED_TO_START and code is None:
        return _never_started(task, reason)
    known = stop in ("", StopCode.ESSENTIAL_CONTAINER_EXITED, StopCode.TASK_FAILED_TO_START)
    if not known:
        return Ending(
            EndingKind.HOST_FAULT, code, f"ended by the infrastructure ({stop}: {_quoted(task.stopped_reason)})"
        )
    if code is None:
        return Ending(EndingKind.CRASHED, None, f"ended without an exit code ({_quoted(reason)})")
    if reason.startswith("OutOfMemoryError"):
        return Ending(EndingKind.FAILED, code, f"ran out of host memory (exit code {code})")
    if code > 128:
        return Ending(EndingKind.CRASHED, code, f"was ended by signal {code - 128} (exit code {code})")
    if code == PREFLIGHT_FAILED and (task.environment or {}).get(PREFLIGHT):
        return Ending(EndingKind.FAILED, code, f"{PREFLIGHT_ENDED} (exit code {code})")
    return Ending(EndingKind.FAILED, code, f"exited with code {code}")


def ending_of_process(code: int | None, number: int | None, is_asked: bool) -> Ending:
    """Return how the process of a held rank ended, as its node agent reports it.

    Args:
        code: the exit code; None if a signal ended the process.
        number: the signal; None if the process exited.
        is_asked: whether we have ended the process.
    """
    status = code if code is not None else 128 + (number or 0)
    if is_asked:
        return Ending(EndingKind.STOPPED_BY_US, status, "stopped by gpu-recovery")
    if number is not None or status > 128:
        return Ending(EndingKind.CRASHED, status, f"was ended by signal {status - 128} (exit code {status})")
    return Ending(EndingKind.FAILED, status, f"exited with code {status}")


def _never_started(task: TaskFact, reason: str) -> Ending:
    text = f"{task.stopped_reason} {reason}"
    short = ("RESOURCE:", "NO ACTIVE INSTANCES", "EMPTY CAPACITY PROVIDER", "placement constraint", ": AGENT")
    kind = EndingKind.SHORT_OF_RESOURCES if any(part in text for part in short) else EndingKind.NEVER_STARTED
    return Ending(kind, None, f"never started ({_quoted(reason)})")


def _quoted(text: str) -> str:
    return text.strip() or "no reason given"


def failure_kind_of(ending: Ending) -> FailureKind:
    """Return the failure kind that the end of a rank or Ray driver shows before any instance is checked."""
    if ending.is_preflight:
        return FailureKind.HARDWARE
    if ending.kind is EndingKind.CRASHED and ending.exit_code is not None:
        return FailureKind.RUNTIME_ERROR
    return _KIND_OF_ENDING.get(ending.kind, FailureKind.UNKNOWN)


def failure_of(fact: TaskFact, rank: int, instance_id: str) -> RankFailure | None:
    """Return the failure of a rank from its STOPPED task, None if the rank succeeded."""
    end = ending(fact, fact.main_container)
    return None if end.kind is EndingKind.SUCCEEDED else RankFailure(rank, instance_id, fact.at, end)
