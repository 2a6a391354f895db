"""Reboot proof: what proves that a reboot happened, and what a proved reboot ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.commands import ConfirmEnd
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance.record import (
    CheckRun,
    Claim,
    HealthReport,
    Instance,
    RankOnInstance,
    Reboot,
    RepairLevel,
)

CLOCK_SKEW = timedelta(seconds=60)
"""Clock skew of an instance that is tolerated if its boot id has changed."""


def proves_reboot(reboot: Reboot, verdict: Verdict) -> bool:
    """Return whether the check on the instance proves a boot after the request.

    The boot time must be later than the request, and the boot id must differ from the earlier id. If time or id is
    unknown, the other is enough. A changed id is no proof beside an earlier boot time, because others reboot instances
    too. Our reboot would then be still to come, and would hit the next job on the instance. An instance with a clock
    that is slow by more than a minute proves nothing and goes to an operator.
    """
    ids_known = reboot.boot_id is not None and verdict.boot_id is not None
    if ids_known and verdict.boot_id == reboot.boot_id:
        return False
    if verdict.booted_at is None:
        return ids_known
    # The boot time is in whole seconds of the instance's own clock. With a changed id, some clock skew is tolerated.
    return verdict.booted_at > reboot.asked_at - (CLOCK_SKEW if ids_known else timedelta())


def is_outlived(instance: Instance, run: CheckRun, ended_at: datetime) -> bool:
    """Return whether the instance may have booted since its check ended, because the ECS agent was away then or since.

    ECS reports no boots, only that its agent left and came back. Most often no boot is behind that. A check during
    which the agent was away stays valid, because a boot would have ended the check.
    """
    return not instance.agent_connected or (run.agent_back_at is not None and run.agent_back_at > ended_at)


def without_health_of(health: Mapping[str, HealthReport], kinds: Collection[str]) -> dict[str, HealthReport]:
    """Return `health` with the outdated reports of `kinds` set to INSUFFICIENT_DATA."""
    unknown = {
        kind: HealthReport(HealthStatus.INSUFFICIENT_DATA, health[kind].since) for kind in kinds if kind in health
    }
    return {**health, **unknown}


def confirm_ended(instance: Instance) -> tuple[Any, ...]:
    """Return the commands that confirm the ends of the ranks that a reboot was requested for, and of all orphans."""
    sentence = "ended when its instance was rebooted"
    return tuple(ConfirmEnd(rank.job_id, rank.attempt, sentence) for rank in _ended_ranks(instance))


def claims_left(instance: Instance) -> dict[str, Claim]:
    """Return the claims that are left after a proved reboot: without its ranks to end, and without the orphans."""
    ended = _ended_ranks(instance)
    return {job: claim for job, claim in instance.claims.items() if RankOnInstance(job, claim.attempt) not in ended}


def is_reset(instance: Instance) -> bool:
    """Return whether the repair under way is a reset of the GPUs, which needs no boot and ends no rank."""
    return instance.reboot is not None and instance.need is not None and instance.need.rung is RepairLevel.RESET


def _ended_ranks(instance: Instance) -> tuple[RankOnInstance, ...]:
    """Return the ranks that the proved boot has ended: those that a reboot was requested for, and all orphans."""
    reboot = instance.reboot if not is_reset(instance) else None
    ends = (reboot.ends,) if reboot is not None and reboot.ends is not None else ()
    to_end = instance.ranks_to_end if reboot is not None else ()
    return tuple(dict.fromkeys((*ends, *to_end, *instance.orphaned_ranks)))


def proves_end_of_orphans(instance: Instance, verdict: Verdict) -> bool:
    """Return whether the check shows a boot after the end of the registration, which the orphans did not survive."""
    orphans = instance.orphans
    return orphans is None or proves_reboot(Reboot(orphans.since, instance.boot_id), verdict)
