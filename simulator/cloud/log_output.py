"""Log output of programs: the last lines that a rank writes, which may be true, empty, unreadable or false.

A rank of a job with a log story has a log after its process ended by itself or by a signal. A rank that ended with its
instance has no such log.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from sandbox.cluster.model.records import Task
from simulator.cloud.held_ranks import PREFLIGHT_EXIT
from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import HIDDEN

if TYPE_CHECKING:
    from simulator.cloud.workloads import Training

TRUTH = "truth"
"""Log story of a job with logs that always name the true cause."""
UNREADABLE_BECAUSE = "nobody may read its log"
"""Sentence that stands for the lines of an unreadable log."""


class LogStory(StrEnum):
    """Cause that the last lines of a log name."""

    GPU = "gpu"  # a lost GPU
    ECC = "ecc"  # the memory of a GPU
    CUDA = "cuda"  # a CUDA error, which program or GPU may have caused
    PROGRAM = "program"  # the program's own mistake
    CRASH = "crash"
    KILLED = "killed"
    HOST_MEMORY = "host_memory"  # Ray ends the program because the host has too little memory
    NETWORK = "network"  # another rank has ended
    RDMA = "rdma"  # the network itself
    STORAGE = "storage"
    CHECKPOINT = "checkpoint"  # the storage of checkpoints is full
    EXCEPTION = "exception"  # an exception of the program that no signature explains
    SERVICE = "service"  # an external service is unavailable
    NOTHING = "nothing"
    UNREADABLE = "unreadable"


LINES: Mapping[LogStory, tuple[str, ...]] = {
    LogStory.GPU: ("Unable to determine the device handle for GPU0: 0000:10:00.0: GPU is lost.",),
    LogStory.ECC: ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",),
    LogStory.CUDA: ("RuntimeError: CUDA error: unspecified launch failure",),
    LogStory.PROGRAM: (
        "Traceback (most recent call last):",
        '  File "train.py", line 88, in step',
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4096 and 8192x1024)",
    ),
    LogStory.CRASH: ("Segmentation fault (core dumped)",),
    LogStory.KILLED: ("Killed",),
    LogStory.HOST_MEMORY: ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",),
    LogStory.NETWORK: ("torch.distributed.DistBackendError: NCCL error: remote process exited",),
    LogStory.RDMA: ("NCCL WARN NET/IB: Got completion from peer with status=12 opcode=0 len=0 vendor err 129",),
    LogStory.STORAGE: ("OSError: [Errno 28] No space left on device",),
    LogStory.CHECKPOINT: ("OSError: [Errno 28] No space left on device: '/data/checkpoints/step-40.pt'",),
    LogStory.EXCEPTION: (
        "Traceback (most recent call last):",
        '  File "train.py", line 31, in load',
        "KeyError: 'learning_rate'",
    ),
    LogStory.SERVICE: ("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://models",),
    LogStory.NOTHING: (),
}
"""Last lines of a log, by story. An unreadable log has no lines."""
STEPS = ("step 1: loss 11.02", "step 2: loss 10.87")
"""First lines of every readable log."""
_OF_FAULT = {"ecc": LogStory.ECC, HIDDEN: LogStory.CUDA}
_OF_EXIT = {1: LogStory.PROGRAM, 134: LogStory.CRASH, 137: LogStory.KILLED, 139: LogStory.CRASH}


class LogOutput:
    """Log output of the ranks of a world.

    Attributes:
        habits: `TRUTH` or a `LogStory`, by job id. A job without a habit writes no log.
        next: story of the next rank that ends on an instance, by instance id. It overrides the habit of the job.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.habits: dict[str, str] = {}
        self.next: dict[str, LogStory] = {}

    def ends(self, task: Task, code: int | None) -> None:
        """Write the log of the task. Called just before its process ends with `code`."""
        variables = environment(task)
        habit = self.habits.get(variables.get("JOB_ID", ""), "")
        if "CHECK_ID" in variables or not (habit or task.instance_id in self.next):
            return
        story = LogStory.NOTHING if code in (0, PREFLIGHT_EXIT) else self._story(task, code, habit)
        lines = (*STEPS, *LINES[story]) if story in LINES else UNREADABLE_BECAUSE
        self.training.written[task.task_id] = lines

    def _story(self, task: Task, code: int | None, habit: str) -> LogStory:
        scripted = self.next.pop(task.instance_id, None)
        if scripted is not None:
            return scripted
        return self._true_story(task, code) if habit == TRUTH else LogStory(habit)

    def _true_story(self, task: Task, code: int | None) -> LogStory:
        faults = self.training.fleet.cluster.instance_of(task).faults
        for gpu in task.gpu_ids:
            if gpu in faults:
                return _OF_FAULT.get(faults[gpu].kind, LogStory.GPU)
        if code in _OF_EXIT:
            return _OF_EXIT[code]
        return LogStory.NOTHING if self.training.is_whole(task) else LogStory.NETWORK
