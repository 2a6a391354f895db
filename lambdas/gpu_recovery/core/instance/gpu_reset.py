"""Reset of the GPUs: the repair level below a reboot. The node agent resets them, and a check proves the reset.

The driver asks for a reset after some faults, and a reset takes seconds where a reboot takes minutes. An agent that is
set up for it resets the GPUs once no process uses them. Then the instance must pass a health check: it reads the
driver's recovery action again, and examines the GPUs. In every other case a reboot follows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpu_recovery.core import events
from gpu_recovery.core.instance.effects import verify
from gpu_recovery.core.instance.escalation import escalate
from gpu_recovery.core.instance.liveness import booted
from gpu_recovery.core.instance.record import Instance, RepairLevel
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step

_NO_RESET = Ignore("no reset is under way")
CLOCKS_DIFFER_BY = timedelta(seconds=5)
"""A check counts errors as current up to this time before its period (`health_check/kernel_evidence.py`)."""


def reset_ended(instance: Instance, event: events.ResetEnded, context: DecisionContext) -> Step | Ignore:
    """Check the instance after its reset, or reboot the instance if the reset has failed.

    The kernel log keeps the errors that led to the reset. So the check counts the errors after it, and examines the
    GPUs because of the errors before it.
    """
    if event.done:
        since = event.at + CLOCKS_DIFFER_BY
        return verify(instance, f"{event.sentence}: looking for proof of the repair", False, since=since)
    return reboot_instead(instance, f"its GPUs could not be reset: {event.sentence}", context)


def reset_overdue(instance: Instance, event: events.InstanceDeadlineReached, context: DecisionContext) -> Step | Ignore:
    """Reboot the instance, because its agent has reported no end of the reset in time."""
    limit = context.policy.reset_timeout_s
    return reboot_instead(instance, f"its agent reported no reset of the GPUs within {limit} s", context)


def booted_while_resetting(instance: Instance, event: events.InstanceBooted, context: DecisionContext) -> Step | Ignore:
    """Check an instance that has booted since the reset was ordered, because a boot resets the GPUs too."""
    step, reset = booted(instance, event, context), instance.reboot
    if isinstance(step, Ignore) or reset is None or event.booted_at <= reset.asked_at:
        return step
    why = f"it has booted, at {event.booted_at:%H:%M:%S} UTC, before its GPUs were reset: checking it"
    back = verify(instance, why, False, dict(step.changes))
    return replace(back, commands=(*step.commands, *back.commands))


def reboot_instead(instance: Instance, why: str, context: DecisionContext) -> Step | Ignore:
    """Return the step that escalates the reset to a reboot."""
    if instance.need is None:
        return _NO_RESET
    evidence = f"{instance.need.evidence}; {why}"
    need = replace(instance.need, rung=RepairLevel.REBOOT, evidence=evidence, seen_at=context.now)
    return escalate(instance, need, context)
