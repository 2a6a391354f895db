"""Checkpoints in the memory of the instances of a job, with a copy of each shard on another instance.

    from gpu_recovery_run.memory_checkpoint import MemoryCheckpoint, MemoryCheckpointError

    memory = MemoryCheckpoint()                                 # after init_process_group
    step = memory.load(state, newer_than=durable_step)          # None: load the durable checkpoint
    memory.save(step, state)                                    # often; the rest runs in the background
    memory.close(finished=True)                                 # the job has succeeded: the memory is released

docs/training.md is the guide. It needs only the standard library, and PyTorch where the program has it.
"""

from .checkpoint import Group, MemoryCheckpoint
from .errors import MemoryCheckpointError, NoRoom
from .states import PickledStates, States

__all__ = ["Group", "MemoryCheckpoint", "MemoryCheckpointError", "NoRoom", "PickledStates", "States"]
