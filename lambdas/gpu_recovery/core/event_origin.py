"""Event origin: source, account and region of an EventBridge event, and which origins this deployment accepts.

A principal of the account cannot send events with a source of AWS. But another account or region may forward its events
to our bus, and a dead letter holds what its sender wrote. So the rules name account and region, and the functions and
the redrive compare them again.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

SOURCES = frozenset({"aws.cloudwatch", "aws.ec2", "aws.ecs", "aws.events", "aws.health"})
"""Sources of the rules and schedules. The names are exact: a partner may send events as `aws.partner/...`."""
OWN_SOURCE = "gpu.recovery"
"""Source of our own events on the bus."""
RECORDED_SOURCES = frozenset({OWN_SOURCE})
"""Sources of the events that the event recorder takes. No other function takes our own events."""


@frozen_dataclass()
class EventOrigin:
    """Account and region of the deployment. Its rules deliver events of this origin only."""

    account: str
    region: str

    def refusal_of(self, source: Any, account: Any, region: Any, sources: frozenset[str] = SOURCES) -> str:
        """Return why an event with these fields does not come from a rule of the deployment; "" if it may.

        Such an event never becomes acceptable, so a retry is useless.

        Args:
            source: source of the event.
            account: account of the event.
            region: region of the event.
            sources: sources of the rules that invoke the function.
        """
        if not isinstance(source, str) or source not in sources:
            return f"its source {_shown(source)} is not {', '.join(sorted(sources))}"
        if account != self.account:
            return f"it is of account {_shown(account)}, not {self.account}"
        if region != self.region:
            return f"it is of region {_shown(region)}, not {self.region}"
        return ""


def _shown(value: Any) -> str:
    return repr(value)[:80]
