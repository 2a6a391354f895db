"""The rules of a repair, apart from the mechanics of moving: what proves one, and what it ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.commands import ConfirmEnd
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance.record import CheckRun, Claim, HealthReport, Instance, Reboot

CLOCK_SKEW = timedelta(seconds=60)


def proves_reboot(reboot: Reboot, verdict: Verdict) -> bool:
    """Whether the machine itself shows that it booted after it was asked to.

    Its boot time must not lie before the request, and its boot id must differ from the one it had; either alone will
    do where the other is not known. A changed id alone could be months old: others reboot machines too, and then ours
    would still be to come, under whoever works there by that time. A machine whose clock is slow by more than a minute
    proves nothing, and goes to a person.
    """
    ids_known = reboot.boot_id is not None and verdict.boot_id is not None
    if ids_known and verdict.boot_id == reboot.boot_id:
        return False
    if verdict.booted_at is None:
        return ids_known
    # The boot time counts whole seconds, on the machine's own clock: a known change of the id makes up for some skew.
    return verdict.booted_at > reboot.asked_at - (CLOCK_SKEW if ids_known else timedelta())


def is_outlived(instance: Instance, run: CheckRun, ended_at: datetime) -> bool:
    """Whether the machine may have booted since its check ended: the agent of ECS was away then, or has been since.

    ECS tells of no boot, only that its agent went and came back. Most often that is nothing, and it voids no check that
    went on meanwhile: a boot would have ended it.
    """
    return not instance.agent_connected or (run.agent_back_at is not None and run.agent_back_at > ended_at)


def without_health_of(health: Mapping[str, HealthReport], kinds: Collection[str]) -> dict[str, HealthReport]:
    """`health` once nobody knows any more how it is with `kinds`; what these watchers said before is over."""
    forgotten = {
        kind: HealthReport(HealthStatus.INSUFFICIENT_DATA, health[kind].since) for kind in kinds if kind in health
    }
    return {**health, **forgotten}


def confirm_ended(instance: Instance) -> tuple[Any, ...]:
    """A proved reboot ends every rank that was launched before it."""
    reboot = instance.reboot
    if reboot is None or reboot.ends is None:
        return ()
    return (ConfirmEnd(reboot.ends.job_id, reboot.ends.attempt, "ended when its instance was rebooted"),)


def claims_left(instance: Instance) -> dict[str, Claim]:
    """The claims left once a proved reboot has ended the rank it was asked for."""
    reboot = instance.reboot
    ended = reboot.ends.job_id if reboot is not None and reboot.ends is not None else ""
    return {job: claim for job, claim in instance.claims.items() if job != ended}
