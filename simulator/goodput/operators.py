"""People in the product's own runs, who take part as they do: they read the mails.

Who gets one that says that a job has failed, or that an instance needs a person, comes, puts right what is wrong and
goes on; so they do when a failure has come back often enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.commands import Channel, NotifyOperator

from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import REPEATS_MAX
from simulator.goodput.trainer import Trainer
from simulator.world import World


@dataclass
class Operators:
    """Those who read the mails of one run."""

    world: World
    course: FailureTrace
    trainer: Trainer = field(init=False)
    mails: int = 0
    called: int = 0
    _asked: set[int] = field(default_factory=set)

    def on_message(self, message: NotifyOperator) -> None:
        """A message went out."""
        if message.channel is not Channel.MAIL:
            return
        self.mails += 1
        if "FAILED on attempt" in message.subject:
            self._come(self._takes(), self._submit)
        elif "quarantined, needs a person" in message.subject:
            self._come(self._takes(), self._release, message.instance_id)

    def came_back(self, failure: Failure, times: int) -> None:
        """The same failure for the `times`th time: at last somebody looks into it."""
        if times > REPEATS_MAX and failure.number not in self._asked:
            self._asked.add(failure.number)
            self._come(failure.human_s, self._mend, failure.number)

    def _takes(self) -> float:
        broken = self.trainer.broken
        return broken.failure.human_s if broken is not None else self.course.conditions.human_s

    def _come(self, seconds: float, do: Any, *given: Any) -> None:
        self.called += 1
        self.world.timeline.after(seconds, do, *given)

    def _mend(self, number: int) -> None:
        self._asked.discard(number)
        self.trainer.mend(self.course.failures[number])

    def _release(self, instance_id: str) -> None:
        machine = self.world.cluster.instances[instance_id]
        self.trainer.mend_machine(machine)
        self.world.release(machine)

    def _submit(self) -> None:
        if (broken := self.trainer.broken) is not None:
            broken.by_person = True
            self.trainer.mend(broken.failure)
        self.world.submit(self.course.profile.instances, self.course.profile.gpus)
