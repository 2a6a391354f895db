"""What operators hear about agents: that two speak for one instance, that idle ones are silent, and are heard again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .form import Part, Phase, Severity, clock, message, typed

if TYPE_CHECKING:
    from ..commands import NotifyOperator
    from ..heartbeat import Beat


def doubled(known: Beat, run: str) -> NotifyOperator:
    """Two agents speak for the instance of `known`; the one of `run`, which is not the newest, was refused."""
    name = known.instance_id
    parts = {
        Part.WHAT: [f"Two agents speak for instance {name}."],
        Part.EVIDENCE: [
            f"a report of agent {run} came after agent {known.run} had taken its place, in boot {known.boot_id}"
        ],
        Part.DONE: [
            f"Agent {run} is refused and ends; agent {known.run} is heard. Nothing is done to the instance or its jobs."
        ],
        Part.NEXT: ["You hear of it again in a day at the soonest."],
        Part.YOU: [
            "See who runs the agent there twice: systemd's unit and a daemon of ECS, or one token on two machines.",
            typed(f"instances {name}", "what it reports"),
        ],
        Part.IDS: [f"instance {name}", f"last heard of at {clock(known.seen_at)}"],
    }
    subject = f"{name}: two agents speak for it"
    return message(f"agents/{name}/{run}", Severity.SEV3, Phase.NOTED, subject, parts, instance_id=name)
