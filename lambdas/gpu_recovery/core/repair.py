"""The rules of a repair, apart from the mechanics of moving: when a reboot is in order, and what proves one."""

from __future__ import annotations

from typing import Any

from .check import CheckOutcome, Verdict
from .commands import ConfirmEnd
from .instance_record import CheckRun, Claim, Instance, Reboot
from .machine import Given
from .policy import within


def proves_reboot(reboot: Reboot, verdict: Verdict) -> bool:
    """Whether the machine itself shows that it booted after it was asked to: another boot id, or a later boot time."""
    if reboot.boot_id is not None and verdict.boot_id is not None:
        return verdict.boot_id != reboot.boot_id
    return verdict.booted_at is not None and verdict.booted_at > reboot.asked_at


def why_no_reboot(instance: Instance, run: CheckRun, verdict: Verdict, given: Given) -> str:
    """Why the instance goes to a human instead of through a reboot; "" if a reboot is in order."""
    if verdict.outcome is CheckOutcome.REPLACE:
        return "a reboot does not cure that, it must be replaced"
    if not run.may_reboot:
        return "no attempt is left that a reboot would serve"
    recent = [at for at in instance.reboots if given.now - at < within(given.policy.reboot_window_s)]
    if len(recent) >= given.policy.reboots_max:
        return f"it was rebooted {len(recent)} time(s) within {given.policy.reboot_window_s} s"
    return ""


def confirm_ended(instance: Instance) -> tuple[Any, ...]:
    """A proved reboot ends every rank that was launched before it."""
    reboot = instance.reboot
    if reboot is None or not reboot.ends_rank:
        return ()
    return (ConfirmEnd(reboot.job_id, reboot.attempt, "ended when its instance was rebooted"),)


def claims_left(instance: Instance) -> dict[str, Claim]:
    """The claims left once a proved reboot has ended the rank it was asked for."""
    reboot = instance.reboot
    ended = reboot.job_id if reboot is not None and reboot.ends_rank else ""
    return {job: claim for job, claim in instance.claims.items() if job != ended}
