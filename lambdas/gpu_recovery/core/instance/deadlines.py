"""How long each status of an instance waits: when it gives up, and when it is next compared with what ECS says."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core.instance.interruptions import next_wake_at
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext


def deadlines(instance: Instance, given: DecisionContext) -> tuple[datetime | None, datetime | None]:
    """When the instance's status gives up, and when it is next compared with ECS."""
    policy, look = given.policy, given.now + within(given.policy.poll_interval_s)
    check_look = given.now + within(policy.check_poll_interval_s)
    match instance.status:
        case InstanceStatus.AVAILABLE:
            return next_wake_at(instance, given.now, given), None
        case InstanceStatus.CHECKING:
            return given.now + within(policy.check_timeout_s), check_look
        case InstanceStatus.REBOOTING:
            limit = given.now + within(policy.reboot_timeout_s)
            return (instance.reboot.deadline_at or limit if instance.reboot else limit), look
        case InstanceStatus.REPLACING:
            limit = given.now + within(policy.replace_timeout_s)
            return (instance.reboot.deadline_at or limit if instance.reboot else limit), look
        case InstanceStatus.VERIFYING:
            return given.now + within(policy.verify_timeout_s), check_look
        case InstanceStatus.QUARANTINED if instance.held is not None:
            return instance.held.since + within(policy.repair_hold_timeout_s), given.now + within(
                policy.hold_retry_interval_s
            )
        case InstanceStatus.QUARANTINED:
            return given.now + within(policy.quarantine_reminder_s), None
        case _:
            return None, None
