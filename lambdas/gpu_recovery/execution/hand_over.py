"""Hand-over of commands: a function that answers the internet leaves commands for the cluster to an internal function.

The two API functions may not run, stop or describe tasks, and answer within seconds. They leave such commands, and the
release of a large gang, in the record, due at once, and wake the command executor. If the wake-up is lost, the
reconciler finds the commands due.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from gpu_recovery.core import commands
from gpu_recovery.core.commands import BACKEND_COMMANDS
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

CLUSTER_COMMANDS = (
    commands.LaunchAttempt,
    commands.StartSpare,
    commands.StopAttempt,
    commands.SuspendAttempt,
    commands.EndUnconfirmed,
    commands.ObserveAttempt,
    commands.GatherEvidence,
    commands.CheckInstances,
    commands.RunCheck,
    commands.StopCheck,
    commands.ObserveCheck,
    commands.ObserveInstance,
    commands.DrainInstance,
    commands.ActivateInstance,
    commands.ResetGpus,
    commands.RebootInstance,
    commands.ReplaceInstance,
    commands.StartInstance,
    commands.DeregisterInstance,
)
"""Commands that call ECS or EC2, or read the logs of ranks.

`CheckInstances` and `EndUnconfirmed` lead to such a command on each instance.
"""
INSTANCES_MAX = 8
"""Instances of a job above which an API function leaves the release of its instances, which is a write for each."""
CLOCK_SKEW = timedelta(seconds=1)
"""Time by which the clocks of two functions may differ. A command that is left is due this much earlier."""


@frozen_dataclass()
class HandOver:
    """The commands that a function leaves to the command executor.

    commands: types of the commands.
    wake:     wakes the command executor for the record. May raise: nothing depends on the wake-up.
    """

    commands: tuple[type, ...]
    wake: Callable[[Job | Instance], object]

    def includes(self, record: Job | Instance, command: Any) -> bool:
        """Return whether the function leaves this command. Commands for a Ray cluster have a hand-over of their own.

        So the answer to a user needs the same number of calls for a gang of any size.
        """
        if isinstance(command, BACKEND_COMMANDS) and isinstance(record, Job) and record.spec.backend is Backend.RAY:
            return False
        if isinstance(command, commands.ReleaseInstances):
            asks_ecs = isinstance(record, Job) and (record.held_attempt > 0 or bool(record.spares))
            return asks_ecs or len(command.instances) > INSTANCES_MAX
        return isinstance(command, self.commands)
