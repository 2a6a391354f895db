"""Operators in the runs of the product: they act on the e-mails of the product, as operators of a deployment do.

An operator acts on an e-mail about a failed job or an instance that needs an operator: repairs the cause and
continues. An operator also acts when a failure has returned often enough.
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
    """The operators of one run.

    mails:  e-mails that the product sent
    called: how often an operator had to act
    """

    world: World
    trace: FailureTrace
    trainer: Trainer = field(init=False)
    mails: int = 0
    called: int = 0
    _asked: set[int] = field(default_factory=set)

    def on_message(self, message: NotifyOperator) -> None:
        """Receive a notification. Only e-mails about failed jobs and quarantined instances need an operator."""
        if message.channel is not Channel.MAIL:
            return
        self.mails += 1
        if "FAILED on attempt" in message.subject:
            self._respond_after(self._response_s(), self._submit)
        elif "quarantined, needs an operator" in message.subject:
            self._respond_after(self._response_s(), self._release, message.instance_id)

    def came_back(self, failure: Failure, times: int) -> None:
        """Note that `failure` interrupted the training for the `times`th time.

        After `REPEATS_MAX` returns an operator looks for the cause.
        """
        if times > REPEATS_MAX and failure.number not in self._asked:
            self._asked.add(failure.number)
            self._respond_after(failure.human_s, self._repair_cause, failure.number)

    def _response_s(self) -> float:
        """Seconds that an operator needs for the present interruption."""
        interruption = self.trainer.broken
        return interruption.failure.human_s if interruption is not None else self.trace.conditions.human_s

    def _respond_after(self, seconds: float, action: Any, *arguments: Any) -> None:
        self.called += 1
        self.world.timeline.after(seconds, action, *arguments)

    def _repair_cause(self, number: int) -> None:
        self._asked.discard(number)
        self.trainer.mend(self.trace.failures[number])

    def _release(self, instance_id: str) -> None:
        instance = self.world.cluster.instances[instance_id]
        self.trainer.faults.mend_instance(instance)
        self.world.release(instance)

    def _submit(self) -> None:
        if (interruption := self.trainer.broken) is not None:
            interruption.by_person = True
            self.trainer.mend(interruption.failure)
        self.world.submit(self.trace.profile.instances, self.trace.profile.gpus)
