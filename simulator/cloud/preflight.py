"""The preflight of ranks under virtual time: the wrapper tests its container before the training starts.

The results are what `gpu-recovery-run` would report about the GPUs of the rank. A rank with a failed step ends before
its training, once its agent has passed the results on.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_recovery.core.diagnosis.observations import PreflightReport, PreflightStep, StepResult
from gpu_recovery.core.task import PREFLIGHT, PREFLIGHT_FAILED

from sandbox.cluster.model.records import Task
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.held_ranks import is_running

MISSING, ASKS_REBOOT = "missing", "asks_reboot"
"""Kinds of fault that a preflight finds and the kernel log does not show: a GPU that the driver does not list, and a
recovery action without an XID. Without a preflight the gang hangs until its collectives time out."""
QUIET = frozenset({MISSING, ASKS_REBOOT})
LOST = "xid79"
QUICK_S, CHEAP_S = 20.0, 2.0
"""Virtual seconds of the whole preflight, and of its cheap steps alone in a container that waited."""
DELIVERED_WITHIN_S = 10.0
"""Virtual seconds for which a rank that does not start waits for its agent."""


class Preflights:
    """The preflights of a fleet.

    Attributes:
        unclear: instances on which the all-reduce does not end in time.
        failed: number of ranks that a preflight has ended.
        deliver: passes results to the agent of the rank. Returns the seconds until the server has them.
    """

    def __init__(self, fleet: VirtualFleet) -> None:
        self._fleet = fleet
        self.unclear: set[str] = set()
        self.failed = 0
        self.deliver: Callable[[Task, PreflightReport], float] = lambda task, report: DELIVERED_WITHIN_S

    def begin(self, task: Task, then: Callable[[Task], None]) -> None:
        """Run the preflight of a rank if its launch asks for one, and then its training.

        Args:
            task: the task of the rank.
            then: begins the training.
        """
        if not self._fleet.ranks.wrapped or PREFLIGHT not in self._fleet.ranks.environment(task):
            then(task)
            return
        is_first = task.task_id not in self._fleet.ranks.present
        attempt = self._fleet.ranks.attempt(task)
        self._fleet.timeline.after(QUICK_S if is_first else CHEAP_S, self._end, task, attempt, is_first, then)

    def _end(self, task: Task, attempt: int, is_first: bool, then: Callable[[Task], None]) -> None:
        if not self._runs(task, attempt):
            return
        report = self._report(task, attempt, is_first)
        delivered_s = min(self.deliver(task, report), DELIVERED_WITHIN_S)
        if any(step.result is StepResult.FAILED for step in report.steps):
            self.failed += 1
            self._fleet.timeline.after(delivered_s, self._ends_rank, task, attempt)
        else:
            then(task)

    def _ends_rank(self, task: Task, attempt: int) -> None:
        if self._runs(task, attempt):
            self._fleet.end(task, PREFLIGHT_FAILED)

    def _runs(self, task: Task, attempt: int) -> bool:
        """Return whether the process of this attempt runs, on an instance that does not hang."""
        is_there = is_running(task, self._fleet.ranks) and self._fleet.ranks.attempt(task) == attempt
        return is_there and task.instance_id not in self._fleet.hung

    def _report(self, task: Task, attempt: int, is_first: bool) -> PreflightReport:
        """Return the results as the state of the GPUs gives them. A GPU that is lost is not listed either."""
        faults = self._fleet.cluster.instance_of(task).faults
        kinds = {faults[gpu].kind for gpu in task.gpu_ids if gpu in faults}
        gone, asks = bool(kinds & {MISSING, LOST}), bool(kinds & {ASKS_REBOOT, "xid119", "ecc"})
        loopback = StepResult.PASSED if is_first and not (gone or asks) else StepResult.NOT_RUN
        if loopback is StepResult.PASSED and task.instance_id in self.unclear:
            loopback = StepResult.INCONCLUSIVE
        number = len(task.gpu_ids) - gone
        results = (
            ("gpu_count", gone, f"the driver shows {number} of {len(task.gpu_ids)} GPUs"),
            ("recovery_action", asks, "the driver asks for an action"),
        )
        steps = [
            PreflightStep(name, StepResult.FAILED if fails else StepResult.PASSED, sentence=sentence)
            for name, fails, sentence in results
        ]
        rank = self._fleet.ranks.environment(task)["RANK"]
        return PreflightReport(
            report_id=f"{task.instance_id}/preflight-{rank}-{attempt}",
            at_s=0.0,
            instance_id=task.instance_id,
            rank=int(rank),
            steps=(*steps, PreflightStep("nccl_loopback", loopback, sentence="all-reduce")),
        )
