"""What programs write last, and what is made of it: the truth, nothing, what nobody may read, or what is not so.

Each rank of a job that writes has a log once its process has ended by itself or by a signal. The log of one that was
cut off with its machine holds nothing to go by.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from sandbox.cluster.model.records import Task
from simulator.cloud.workloads import HIDDEN, environment

if TYPE_CHECKING:
    from simulator.cloud.workloads import Training

TRUTH = "truth"
"""What a job writes that always says what is so."""
UNREADABLE_BECAUSE = "nobody may read its log"


class LogStory(StrEnum):
    """What the end of a log speaks of."""

    GPU = "gpu"  # a GPU that is lost
    ECC = "ecc"  # its memory
    CUDA = "cuda"  # an error of CUDA, which may be anybody's
    PROGRAM = "program"  # the program's own mistake
    CRASH = "crash"
    KILLED = "killed"
    NETWORK = "network"  # another rank that is gone
    RDMA = "rdma"  # the network itself
    STORAGE = "storage"
    SERVICE = "service"  # somebody else's, which is away
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
    LogStory.NETWORK: ("torch.distributed.DistBackendError: NCCL error: remote process exited",),
    LogStory.RDMA: ("NCCL WARN NET/IB: Got completion from peer with status=12 opcode=0 len=0 vendor err 129",),
    LogStory.STORAGE: ("OSError: [Errno 28] No space left on device",),
    LogStory.SERVICE: ("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://models",),
    LogStory.NOTHING: (),
}
STEPS = ("step 1: loss 11.02", "step 2: loss 10.87")
_OF_FAULT = {"ecc": LogStory.ECC, HIDDEN: LogStory.CUDA}
_OF_EXIT = {1: LogStory.PROGRAM, 134: LogStory.CRASH, 137: LogStory.KILLED, 139: LogStory.CRASH}


class LogOutput:
    """The logs of one world. `habits`: what each job writes that writes at all, `TRUTH` or a `LogStory`."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.habits: dict[str, str] = {}
        self.next: dict[str, LogStory] = {}
        """What the next rank that ends on an instance writes, whatever its job's habit."""

    def ends(self, task: Task, code: int | None) -> None:
        """The process is about to end with `code`: it writes."""
        given = environment(task)
        habit = self.habits.get(given.get("JOB_ID", ""), "")
        if "CHECK_ID" in given or not (habit or task.instance_id in self.next):
            return
        says = LogStory.NOTHING if code == 0 else self._said(task, code, habit)
        lines = (*STEPS, *LINES[says]) if says in LINES else UNREADABLE_BECAUSE
        self.training.written[task.task_id] = lines

    def _said(self, task: Task, code: int | None, habit: str) -> LogStory:
        scripted = self.next.pop(task.instance_id, None)
        if scripted is not None:
            return scripted
        return self._truth(task, code) if habit == TRUTH else LogStory(habit)

    def _truth(self, task: Task, code: int | None) -> LogStory:
        faults = self.training.fleet.cluster.instance_of(task).faults
        for gpu in task.gpu_ids:
            if gpu in faults:
                return _OF_FAULT.get(faults[gpu].kind, LogStory.GPU)
        if code in _OF_EXIT:
            return _OF_EXIT[code]
        return LogStory.NOTHING if self.training.is_whole(task) else LogStory.NETWORK
