"""How long each status of an instance waits: when it gives up, and when it is next compared with what ECS says."""

from __future__ import annotations

from datetime import datetime

from ..machine import Given
from ..policy import within
from .record import Instance, InstanceStatus


def deadlines(instance: Instance, given: Given) -> tuple[datetime | None, datetime | None]:
    """When the instance's status gives up, and when it is next compared with ECS."""
    look = given.now + within(given.policy.look_s)
    match instance.status:
        case InstanceStatus.AVAILABLE:
            return (given.now + within(given.policy.reserve_s) if instance.reserved_for else None), None
        case InstanceStatus.CHECKING:
            return given.now + within(given.policy.check_timeout_s), look
        case InstanceStatus.REBOOTING:
            return (
                instance.reboot.deadline_at if instance.reboot else given.now + within(given.policy.reboot_timeout_s)
            ), look
        case InstanceStatus.VERIFYING:
            return given.now + within(given.policy.verify_timeout_s), look
        case InstanceStatus.QUARANTINED:
            return given.now + within(given.policy.quarantine_reminder_s), None
        case _:
            return None, None
