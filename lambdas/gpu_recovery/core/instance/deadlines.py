"""Deadlines of the instance statuses: when a status gives up, and when ECS is polled next."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core.instance.idle_check import STOP_LOOK, is_stopped
from gpu_recovery.core.instance.interruptions import next_wake_at
from gpu_recovery.core.instance.record import CheckRun, Instance, InstanceStatus
from gpu_recovery.core.policy import CHECK_MARGIN_S, CHECK_S_BY_LEVEL, duration
from gpu_recovery.core.state_machine import DecisionContext

DRAINED_CHECK_S = 60
"""Seconds for which a check waits for an instance that others have drained. ECS starts no task on such an instance."""
DRAINED_VERIFY_S = 300
"""The same for the check after a repair or a release. It is longer because the instance then goes to an operator, and
ECS may show the drain of the repair for a moment after its end."""


def check_limit_s(run: CheckRun | None, usual_s: int) -> int:
    """Return the seconds that a check may take: `usual_s`, and more if the check has a level of its own."""
    if run is None or not run.level:
        return usual_s
    return max(usual_s, CHECK_S_BY_LEVEL[run.level] + CHECK_MARGIN_S)


def deadlines(instance: Instance, context: DecisionContext) -> tuple[datetime | None, datetime | None]:
    """Return when the instance's status gives up and when ECS is polled next; None stands for never."""
    policy, poll_at = context.policy, context.now + duration(context.policy.poll_interval_s)
    check_poll_at = context.now + duration(policy.check_poll_interval_s)
    match instance.status:
        case InstanceStatus.AVAILABLE:
            return next_wake_at(instance, context.now, context), None
        case InstanceStatus.CHECKING:
            limit_s = (
                DRAINED_CHECK_S if instance.drained_by_others else check_limit_s(instance.check, policy.check_timeout_s)
            )
            look_at = context.now + STOP_LOOK if is_stopped(instance.check) else check_poll_at
            return context.now + duration(limit_s), look_at
        case InstanceStatus.RESETTING:
            limit = context.now + duration(policy.reset_timeout_s)
            return (instance.reboot.deadline_at or limit if instance.reboot else limit), poll_at
        case InstanceStatus.REBOOTING:
            limit = context.now + duration(policy.reboot_timeout_s)
            return (instance.reboot.deadline_at or limit if instance.reboot else limit), poll_at
        case InstanceStatus.REPLACING:
            limit = context.now + duration(policy.replace_timeout_s)
            return (instance.reboot.deadline_at or limit if instance.reboot else limit), poll_at
        case InstanceStatus.VERIFYING:
            usual_s = check_limit_s(instance.check, policy.verify_timeout_s)
            limit_s = DRAINED_VERIFY_S if instance.drained_by_others else usual_s
            return context.now + duration(limit_s), check_poll_at
        case InstanceStatus.QUARANTINED if instance.held is not None:
            return instance.held.timeout_from + duration(policy.repair_hold_timeout_s), context.now + duration(
                policy.hold_retry_interval_s
            )
        case InstanceStatus.QUARANTINED:
            return context.now + duration(policy.quarantine_reminder_s), None
        case _:
            return None, None
