"""What instances say and order again and again: checks, reports to jobs, the scheduler woken."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from .. import commands, events
from ..check import CheckOutcome
from ..machine import Step
from ..names import check_id
from .record import CheckRun, EcsStatus, Instance, InstanceStatus


def poke(instance: Instance) -> commands.PokeScheduler:
    """The order that makes the scheduler look: something changed for those in line."""
    return commands.PokeScheduler(f"{instance.instance_id}/{instance.version + 1}")


def run_check(instance: Instance, run: CheckRun) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The changes and orders that start `run` as the instance's next check."""
    number = instance.checks + 1
    run = replace(run, check_id=check_id(instance.instance_id, number))
    return {"checks": number, "check": run}, (commands.RunCheck(run.check_id),)


def report(run: CheckRun, outcome: CheckOutcome, summary: str, repairing: bool = False) -> tuple[Any, ...]:
    """What the job that asked for the check must hear; nothing where nobody asked."""
    if not run.job_id:
        return ()
    return (commands.ReportCheck(run.job_id, run.attempt, outcome, summary, repairing),)


def repair_ended(instance: Instance, healed: bool, sentence: str, now: datetime) -> tuple[Any, ...]:
    """What the job that waits for this repair must hear; nothing where nobody waits."""
    waiting = instance.reboot or instance.need
    job_id, attempt = (waiting.job_id, waiting.attempt) if waiting is not None else ("", 0)
    if not job_id and instance.check is not None and instance.check.waiting is not None:
        job_id, attempt = instance.check.waiting.job_id, instance.check.waiting.attempt
    if not job_id:
        return ()
    event = events.RepairEnded(
        at=now, attempt=attempt, instance_id=instance.instance_id, healed=healed, sentence=sentence
    )
    return (commands.TellJob(job_id, event),)


def drain(instance: Instance) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Have ECS place nothing on it. An instance that a person has drained is none of ours to activate later."""
    ours = instance.drained or instance.ecs_status != EcsStatus.DRAINING
    return {"drained": ours}, (commands.DrainInstance(),) if ours else ()


def activate(instance: Instance) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Have ECS place on it again, if it was us who drained it."""
    return ({"drained": False}, (commands.ActivateInstance(),)) if instance.drained else ({}, ())


def verify(
    instance: Instance, reason: str, proof_needed: bool, changes: dict[str, Any] | None = None, repeats: int = 0
) -> Step:
    """To the check that must pass before it works again. A check needs placement, so ECS is told to place again."""
    run_changes, checks = run_check(instance, CheckRun("", proof_needed=proof_needed, repeats=repeats))
    active_changes, active = activate(instance)
    all_changes = {"held": None, **active_changes, **(changes or {}), **run_changes}
    return Step(InstanceStatus.VERIFYING, reason, all_changes, (*active, *checks))
