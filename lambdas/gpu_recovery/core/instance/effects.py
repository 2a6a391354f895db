"""What instances say and order again and again: checks, reports to jobs, the scheduler woken."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import check_id
from gpu_recovery.core.instance.record import CheckRun, EcsStatus, Instance, InstanceStatus, RankOnInstance
from gpu_recovery.core.state_machine import Step


def poke_scheduler(instance: Instance) -> commands.PokeScheduler:
    """The order that makes the scheduler look: something changed for those in line."""
    return commands.PokeScheduler(f"{instance.instance_id}/{instance.version + 1}")


def poke_if_usable(instance: Instance) -> tuple[commands.PokeScheduler, ...]:
    """The order that makes the scheduler look at what works again; none while there is nothing for it to see.

    The check that has just ended still holds the GPUs, as far as ECS has said: that they are free wakes the scheduler.
    Where jobs have claims on it, it may be they who must make room.
    """
    return (poke_scheduler(instance),) if instance.claims or instance.gpus_to_give() else ()


def run_check(instance: Instance, run: CheckRun) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The changes and orders that start `run` as the instance's next check."""
    number = instance.checks + 1
    run = replace(run, check_id=check_id(instance.instance_id, number))
    return {"checks": number, "check": run}, (commands.RunCheck(run.check_id),)


def check_report(run: CheckRun, outcome: CheckOutcome, summary: str, repairing: bool = False) -> tuple[Any, ...]:
    """What the job that asked for the check must hear; nothing where nobody asked."""
    if not run.job_id:
        return ()
    return (commands.ReportCheck(run.job_id, run.attempt, outcome, summary, repairing),)


WAITING_MAX = 8
"""Jobs that may wait for one repair: as many as can share the GPUs of an instance."""


def waiting_jobs(instance: Instance) -> tuple[RankOnInstance, ...]:
    """Every job that waits for the instance's repair, or for the check that looks into it once more."""
    first = instance.reboot or instance.need
    named = [RankOnInstance(first.job_id, first.attempt)] if first is not None and first.job_id else []
    if instance.check is not None and instance.check.waiting is not None:
        named.append(instance.check.waiting)
    return tuple({rank.job_id: rank for rank in (*named, *instance.also_waiting)}.values())


def other_waiting_jobs(instance: Instance, job_id: str = "") -> tuple[RankOnInstance, ...]:
    """Those who wait for the repair, once it is `job_id`'s ("": nobody's) in the first place."""
    return tuple(rank for rank in waiting_jobs(instance) if rank.job_id != job_id)[-WAITING_MAX:]


def repair_ended(instance: Instance, healed: bool, sentence: str, now: datetime, gone: bool = False) -> tuple[Any, ...]:
    """What the jobs that wait for this repair must hear; nothing where nobody waits."""
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
            ),
        )
        for rank in waiting_jobs(instance)
    )


def drain(instance: Instance) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Have ECS place nothing on it. An instance that a person has drained is none of ours to activate later."""
    ours = instance.drained or instance.ecs_status != EcsStatus.DRAINING
    return {"drained": ours}, (commands.DrainInstance(),) if ours else ()


def activate(instance: Instance) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Have ECS place on it again, if it was us who drained it."""
    if not instance.drained:
        return {}, ()
    # Until ECS says so itself: its DRAINING, still in the record, must not pass for a person's.
    return {"drained": False, "ecs_status": EcsStatus.ACTIVE}, (commands.ActivateInstance(),)


def verify(
    instance: Instance,
    reason: str,
    proof_needed: bool,
    changes: dict[str, Any] | None = None,
    repeats: int = 0,
    since: datetime | None = None,
) -> Step:
    """To the check that must pass before it works again. A check needs placement, so ECS is told to place again."""
    run_changes, checks = run_check(instance, CheckRun("", proof_needed=proof_needed, repeats=repeats, since=since))
    active_changes, active = activate(instance)
    all_changes = {"held": None, **(changes or {}), **active_changes, **run_changes}
    return Step(InstanceStatus.VERIFYING, reason, all_changes, (*active, *checks))
