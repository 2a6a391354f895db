"""Record what agents report about held ranks: the end of their process, and the start of the next attempt.

ECS reports neither, because the container lives on.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from gpu_recovery.core import events
from gpu_recovery.core.attempt import running_event, stopped_event
from gpu_recovery.core.heartbeat import AgentCommandKind, Heartbeat, RankExit, RunningRank
from gpu_recovery.core.task import RankFailure, ending_of_process
from gpu_recovery.ports.errors import NotificationFailed
from gpu_recovery.recovery import Recovery


@dataclass
class HeldRanks:
    """Adds the facts about held ranks to the progress of their attempt, and delivers the events that follow."""

    recovery: Recovery

    def record(self, instance_id: str, exited: RankExit) -> None:
        """Record the end of the process of a held rank, and deliver the event that follows.

        An agent repeats an exit until it is answered. The function before may have died after it wrote the fact, so a
        known fact delivers what the progress holds.
        """
        now = self.recovery.clock()
        ending = ending_of_process(exited.code, exited.signal, exited.asked)
        failure = RankFailure(exited.rank, instance_id, now, ending)
        store = self.recovery.store
        update = store.add_held(exited.job_id, exited.attempt, exited.rank, failure)
        if update is not None:
            self._deliver(exited.job_id, stopped_event(update.progress, update.first_failure, now))
            return
        progress = store.load_progress(exited.job_id, exited.attempt)
        self._deliver(exited.job_id, stopped_event(progress, True, now) if progress is not None else None)

    def confirm_starts(self, before: Heartbeat | None, ranks: Iterable[RunningRank]) -> None:
        """Record the ranks that were started in a container of the attempt before, and withdraw their commands.

        Args:
            before: the heartbeat before the report, with the commands for the agent; None if there was none.
            ranks: the reported ranks that are known on the instance.
        """
        orders = before.orders.values() if before is not None else ()
        starts = [command for command in orders if command.kind is AgentCommandKind.START]
        if before is None or not starts:
            return
        running = {(rank.job_id, rank.attempt): rank for rank in ranks if not rank.held}
        confirmed = [start for start in starts if (start.job_id, start.next_attempt) in running]
        now = self.recovery.clock()
        for start in confirmed:
            rank = running[start.job_id, start.next_attempt]
            update = self.recovery.store.add_running(rank.job_id, rank.attempt, rank.rank)
            self._deliver(rank.job_id, running_event(update.progress, now) if update is not None else None)
        if confirmed:
            self.recovery.store.remove_agent_commands(before.instance_id, [start.order_id for start in confirmed])

    def _deliver(self, job_id: str, event: events.JobEvent | None) -> None:
        if event is not None:
            with suppress(NotificationFailed):  # it stays in the record, and the reconciler raises it
                self.recovery.handle(job_id, event)
