"""What operators have heard of one record's incidents, as a thread of messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.notifications.template import Phase

from tests.core.build import orders


@dataclass
class Thread:
    """What operators have heard of one record's incidents, as a reader of mails sees it."""

    open_id: str = ""
    over: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def hears(self, told: Iterable[NotifyOperator]) -> None:
        """Enter messages in the order in which they were ordered; what may not be is noted as wrong."""
        for one in told:
            match one.phase:
                case Phase.OPENED if self.open_id or one.incident_id in self.over:
                    self.wrong.append(f"opened again: {one.subject}")
                case Phase.OPENED:
                    self.open_id = one.incident_id
                case Phase.ESCALATED | Phase.RESOLVED if one.incident_id != self.open_id:
                    self.wrong.append(f"{one.phase} without being open: {one.subject}")
                case Phase.RESOLVED:
                    self.over.add(self.open_id)
                    self.open_id = ""


def own(decision: Any) -> list[NotifyOperator]:
    """The messages about the record itself; those about the breaker are a thread of their own."""
    return [one for one in orders(decision, NotifyOperator) if not one.incident_id.startswith("breaker/")]
