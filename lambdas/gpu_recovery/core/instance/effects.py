"""Parts of a step that many instance transitions share: start a check, report to jobs, drain, activate."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthKind
from gpu_recovery.core.identifiers import check_id
from gpu_recovery.core.instance.record import (
    CheckRun,
    EcsStatus,
    Instance,
    InstanceStatus,
    RankOnInstance,
    Reboot,
)
from gpu_recovery.core.instance.record_parts import Quarantine
from gpu_recovery.core.instance.repair_proof import without_health_of
from gpu_recovery.core.state_machine import Step


def poke_scheduler(instance: Instance) -> commands.PokeScheduler:
    """Return the command that wakes the scheduler because something changed for queued jobs."""
    return commands.PokeScheduler(f"{instance.instance_id}/{instance.version + 1}")


def poke_if_usable(instance: Instance) -> tuple[commands.PokeScheduler, ...]:
    """Return the command that wakes the scheduler if it can use the instance now, else no command.

    The check that has just ended still holds the GPUs, as far as ECS has reported. The report of ECS that they are free
    wakes the scheduler later. An instance with claims does wake the scheduler, because a job on it may have to be
    preempted.
    """
    return (poke_scheduler(instance),) if instance.claims or instance.gpus_to_give() else ()


def run_check(instance: Instance, run: CheckRun) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return the changes and commands that start `run` as the instance's next check."""
    number = instance.checks + 1
    run = replace(run, check_id=check_id(instance.instance_id, number), task_id="", signed=True)
    return {"checks": number, "check": run}, (commands.RunCheck(run.check_id),)


def stop_check(run: CheckRun) -> commands.StopCheck:
    """Return the command that stops the task of the check."""
    return commands.StopCheck(run.check_id, run.task_id, run.signed)


def check_report(run: CheckRun, outcome: CheckOutcome, summary: str, repairing: bool = False) -> tuple[Any, ...]:
    """Return the command that reports the check's result to the job that asked for it; () if no job asked."""
    if not run.job_id:
        return ()
    return (commands.ReportCheck(run.job_id, run.attempt, outcome, summary, repairing),)


WAITING_MAX = 8
"""Upper bound of the jobs that wait for one repair: as many as can share the GPUs of an instance."""


def waiting_jobs(instance: Instance) -> tuple[RankOnInstance, ...]:
    """Return every job that waits for the instance's repair, or for the check that re-validates its need."""
    first = instance.reboot or instance.need
    named = [RankOnInstance(first.job_id, first.attempt)] if first is not None and first.job_id else []
    if instance.check is not None and instance.check.waiting is not None:
        named.append(instance.check.waiting)
    return tuple({rank.job_id: rank for rank in (*named, *instance.also_waiting)}.values())


def other_waiting_jobs(instance: Instance, job_id: str = "") -> tuple[RankOnInstance, ...]:
    """Return the waiting jobs except `job_id`, for a repair that is from now on that job's. "": no job is excepted."""
    return tuple(rank for rank in waiting_jobs(instance) if rank.job_id != job_id)[-WAITING_MAX:]


def repair_ended(
    instance: Instance, healed: bool, sentence: str, now: datetime, gone: bool = False, by_operator: bool = False
) -> tuple[Any, ...]:
    """Return the commands that report the end of the repair to every waiting job; () if no job waits.

    Args:
        healed: the repair is proved and the check passed.
        gone: the instance is off or has left the cluster, so all its ranks have ended.
        by_operator: an operator has quarantined the instance during its repair.
    """
    return tuple(
        commands.TellJob(
            rank.job_id,
            events.RepairEnded(
                at=now,
                attempt=rank.attempt,
                instance_id=instance.instance_id,
                healed=healed,
                sentence=sentence,
                gone=gone,
                by_operator=by_operator,
            ),
        )
        for rank in waiting_jobs(instance)
    )


def drain(instance: Instance) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return the changes and commands that keep ECS from placing tasks on the instance.

    If a user drained the instance before, no command is given, and the instance is not activated by the system later.
    """
    ours = instance.drained or instance.ecs_status != EcsStatus.DRAINING
    return {"drained": ours}, (commands.DrainInstance(),) if ours else ()


def activate(instance: Instance) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return the changes and commands that let ECS place tasks again, if the system drained the instance."""
    if not instance.drained:
        return {}, ()
    # The record still holds DRAINING until ECS reports the change; it must not pass for a user's drain.
    return {"drained": False, "ecs_status": EcsStatus.ACTIVE}, (commands.ActivateInstance(),)


def verify(
    instance: Instance,
    reason: str,
    proof_needed: bool,
    changes: dict[str, Any] | None = None,
    repeats: int = 0,
    since: datetime | None = None,
) -> Step:
    """Return the step to VERIFYING: the instance works again only after this check has passed.

    A check needs placement, so the instance is activated in ECS. While orphans may hold the GPUs, or a rank that an
    uncertain reboot is to end, the check is passive: it only reads the boot, and a second check examines the GPUs.
    A fault that an idle check found at a higher level is looked for at that level.

    Args:
        proof_needed: the check must also prove a repair.
        changes: further changes of the record.
        repeats: number of inconclusive checks before this one.
        since: start of the period that the check reads logs of; None for the check's default.
    """
    reboot: Reboot | None = (changes or {}).get("reboot", instance.reboot)
    ends = reboot.ends if reboot is not None and reboot.uncertain else None
    passive = bool(instance.orphaned_ranks) or (ends is not None and ends.job_id in instance.claims)
    level = instance.failed_level
    run = CheckRun("", proof_needed=proof_needed, repeats=repeats, passive=passive, since=since, level=level)
    run_changes, checks = run_check(instance, run)
    active_changes, active = activate(instance)
    all_changes = {"held": None, **(changes or {}), **active_changes, **run_changes}
    return Step(InstanceStatus.VERIFYING, reason, all_changes, (*active, *checks))


def gone(
    instance: Instance, reason: str, changes: dict[str, Any], now: datetime, quarantine: Quarantine | None = None
) -> Step:
    """Record that the instance has left the cluster: its ranks have ended, and waiting jobs are notified.

    Args:
        instance: the record.
        reason: why it is known to have left.
        changes: further changes of the record.
        now: the time.
        quarantine: the quarantine that stands if the instance registers again; None if there is none.
    """
    if quarantine is not None:
        reason = f"{reason}; its quarantine stands if it registers again"
    orders: list[Any] = []
    if instance.check is not None and instance.status is InstanceStatus.CHECKING:
        orders += check_report(instance.check, CheckOutcome.GONE, reason)
    orders += repair_ended(instance, False, f"{instance.instance_id} is gone: {reason}", now, gone=True)
    orders += [
        commands.ConfirmEnd(job_id, claim.attempt, f"ended with its instance: {reason}")
        for job_id, claim in instance.claims.items()
    ]
    cleared: dict[str, Any] = {
        "check": None,
        "reboot": None,
        "need": None,
        "held": None,
        "departure": None,
        "quarantine": quarantine,
        "withdrawn": False,
        "also_waiting": (),
        "health": without_health_of(instance.health, tuple(HealthKind)),
        "claims": {},
        "orphans": None,
        "reserved_for": "",
        "silent_since": None,
    }
    return Step(InstanceStatus.GONE, reason, {**changes, **cleared}, tuple(orders))
