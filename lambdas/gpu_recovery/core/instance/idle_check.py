"""Idle checks: health checks of instances that no job uses. They give way to a job at once.

The reconciler starts an idle check (`reconciler/idle_checks.py`), and the scheduler stops it for a job. While the check
or its stop goes on, the instance is CHECKING, so no job is placed on it: the task of the check holds the GPUs. The
instance is AVAILABLE again when ECS has confirmed the end of that task.

A fault that an idle check finds takes the way of every other fault. A check that was stopped for a job, and a check
that ECS did not start, prove nothing. The next idle check of the instance begins after a whole period.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core import commands, events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance.effects import poke_if_usable, run_check, stop_check
from gpu_recovery.core.instance.health_reports import after_passive_check
from gpu_recovery.core.instance.record import CheckRun, Instance, InstanceStatus, ListedInstance
from gpu_recovery.core.instance.record_parts import PASS_COUNTS_FOR, IdleCheck, IdleCheckResult
from gpu_recovery.core.policy import RecoveryPolicy, duration
from gpu_recovery.core.queue.snapshot import OutOfUse
from gpu_recovery.core.state_machine import DecisionContext, HistoryEntry, Ignore, Step, unless_pending

STOP_COUNTS_FOR = timedelta(seconds=120)
"""Time for which the end of a check that is being stopped is expected. A `stopTimeout` of ECS is at most 120 s.

After that the scheduler gives the job other instances, or suspends others for the job.
"""
GPUS_SHOWN_WITHIN = timedelta(seconds=60)
"""Time after the end of an idle check within which ECS shows its GPUs as free."""


# -- beginning ---------------------------------------------------------------------------------------------------------


def is_idle(instance: ListedInstance) -> bool:
    """Return whether the instance works and no job, and no other task, has any of its GPUs or a right to them."""
    from gpu_recovery.core.instance.out_of_use import out_of_use  # noqa: PLC0415 - few events begin an idle check

    works = instance.status is InstanceStatus.AVAILABLE and out_of_use(instance) is None
    unused = not instance.claims and not instance.reserved_for and instance.need is None
    return works and unused and instance.gpus > 0 and instance.gpus_to_give() == instance.gpus


def is_due(instance: ListedInstance, policy: RecoveryPolicy, now: datetime) -> bool:
    """Return whether the period since the last check of an idle instance is over.

    An instance becomes AVAILABLE by its registration, or by the end of a check of any kind, so `status_at` is the
    beginning of the period.
    """
    every_s = policy.idle_check_every_s
    return every_s > 0 and is_idle(instance) and instance.status_at + duration(every_s) <= now


def idle_check_due(instance: Instance, event: events.IdleCheckDue, context: DecisionContext) -> Step | Ignore:
    """Begin an idle check. It reads the log lines since the last check."""
    if context.policy.observe_only:
        return Ignore("gpu-recovery is in observe-only mode")
    if not is_due(instance, context.policy, context.now):
        return Ignore("it is not idle, or was checked less than a period ago")
    level = context.policy.idle_check_level
    changes, orders = run_check(instance, CheckRun("", since=instance.status_at, level=level, idle=IdleCheck()))
    changes["history"] = _without_idle_checks(instance.history)
    reason = f"idle and not checked for {_hours(context.now - instance.status_at)}: idle check at level {level}"
    return Step(InstanceStatus.CHECKING, reason, changes, orders)


def _without_idle_checks(history: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the history without earlier idle checks that found no fault.

    A check each hour would push the repairs of the instance out of the bounded history.
    """
    kept: list[HistoryEntry] = []
    check: list[HistoryEntry] = []
    for entry in history:
        if entry.event == events.IdleCheckDue.__name__:
            kept, check = [*kept, *check], [entry]
        elif check and entry.after == InstanceStatus.CHECKING:
            check.append(entry)
        elif check and entry.after == InstanceStatus.AVAILABLE:
            kept, check = [*kept, *(one for one in check if one.event not in _OF_IDLE_CHECKS)], []
        else:
            kept, check = [*kept, *check, entry], []
    return (*kept, *check)


_OF_IDLE_CHECKS = (events.IdleCheckDue.__name__, events.IdleCheckPreempted.__name__)


def _hours(time: timedelta) -> str:
    """Return the time in minutes, from two hours on in hours, as words of a sentence."""
    minutes = int(time.total_seconds()) // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


# -- giving way --------------------------------------------------------------------------------------------------------


def idle_check_preempted(
    instance: Instance, event: events.IdleCheckPreempted, context: DecisionContext
) -> Step | Ignore:
    """Order the stop of the idle check. The instance stays CHECKING until the end of the task is confirmed."""
    run = instance.check
    if run is None or run.idle is None:
        return Ignore("no idle check is under way")
    if run.idle.preempted_by:
        return Ignore("its idle check is being stopped already")
    idle = replace(run.idle, preempted_by=event.job_id, preempted_at=context.now)
    changes = {"check": replace(run, idle=idle), "look_at": context.now + STOP_LOOK}
    reason = f"its idle check is stopped, because {event.job_id} waits for GPUs"
    return Step(instance.status, reason, changes, (stop_check(run),))


STOP_LOOK = timedelta(seconds=30)
"""Time between two polls of a check that is being stopped, in case that the report of its end was lost."""


def is_stopped(run: CheckRun | None) -> bool:
    """Return whether the check is an idle check that is being stopped for a job."""
    return run is not None and run.idle is not None and run.idle.preempted_by != ""


def poll_stopped(instance: Instance, run: CheckRun, event: events.InstanceLookDue, context: DecisionContext) -> Step:
    """Poll an idle check that is being stopped: order its stop again if its task runs, else ask for its end.

    The task may have started after the first order, because another function was about to start the check. While that
    command is pending, nothing is known.
    """
    starts = any(pending.command == commands.RunCheck(run.check_id) for pending in instance.commands)
    order = stop_check(run) if event.check_runs else commands.ObserveCheck(run.check_id)
    orders = () if starts else unless_pending(instance, order)
    return Step(instance.status, instance.reason, {"look_at": context.now + STOP_LOOK}, orders)


def ended_without_proof(
    instance: Instance, run: CheckRun, sentence: str, now: datetime, changes: dict[str, Any]
) -> Step:
    """Return the step after an idle check that proves nothing: the instance works as before.

    Reports about the GPUs that came meanwhile are still to be handled, because no check has examined the GPUs.

    Args:
        sentence: why the check proves nothing.
        changes: further changes of the record.
    """
    by = run.idle.preempted_by if run.idle is not None else ""
    reason = f"its idle check was stopped for {by}, and proves nothing" if by else "its idle check proves nothing"
    kept = instance.idle_check or IdleCheckResult(now)
    facts = {"health": after_passive_check(instance.health), "idle_check": replace(kept, ended_at=now, outcome="")}
    return Step(InstanceStatus.AVAILABLE, f"{reason}: {sentence}", {**changes, **facts}, poke_if_usable(instance))


# -- results -----------------------------------------------------------------------------------------------------------


def proves_nothing(run: CheckRun, verdict: Verdict) -> bool:
    """Return whether the end of the check is that of a stop. A verdict that came before the stop still counts."""
    return is_stopped(run) and verdict.outcome is CheckOutcome.INCONCLUSIVE


def with_origin(run: CheckRun, verdict: Verdict) -> Verdict:
    """Return the verdict of a faulty instance with the words that an idle check found the fault."""
    if run.idle is None or not verdict.outcome.blames_hardware:
        return verdict
    summary = f"{verdict.summary} (found by the idle check at level {run.level}, while no job used the instance)"
    return replace(verdict, summary=summary)


def result_after(instance: Instance, run: CheckRun, verdict: Verdict, now: datetime) -> dict[str, Any]:
    """Return the change that records the result of an idle check; {} after any other check."""
    if run.idle is None:
        return {}
    before = instance.idle_check or IdleCheckResult(now)
    passed = verdict.outcome is CheckOutcome.HEALTHY
    return {
        "idle_check": IdleCheckResult(
            now,
            verdict.outcome.value,
            now if passed else before.passed_at,
            run.level if passed else before.level,
            run.level if verdict.outcome.blames_hardware else 0 if passed else before.failed_level,
        )
    }


def without_fault(instance: Instance, run: CheckRun) -> dict[str, Any]:
    """Return the change after a passed check that was to show whether the fault of an idle check is gone."""
    checked = instance.idle_check
    if checked is None or not checked.failed_level or run.level != checked.failed_level:
        return {}
    return {"idle_check": replace(checked, failed_level=0)}


def has_passed(instance: ListedInstance, now: datetime) -> bool:
    """Return whether the instance passed an idle check within a day, with no fault, host or failed job since."""
    return passed_before(instance, now) is not None


def passed_before(instance: ListedInstance, at: datetime) -> datetime | None:
    """Return when the instance passed the idle check that was evidence for it at the time `at`; None without one.

    What came after `at` does not matter. So the pass before an attempt is known after the fault that ended the attempt.
    """
    passed_at = instance.idle_check.passed_at if instance.idle_check is not None else None
    if passed_at is None or not passed_at <= at < passed_at + PASS_COUNTS_FOR:
        return None
    ends = (instance.blamed_at, instance.replaced_at, instance.healed_at)
    ended = any(end is not None and passed_at < end <= at for end in ends)
    failed = any(passed_at.timestamp() < signal.at_s <= at.timestamp() for signal in instance.past)
    return None if ended or failed else passed_at


def gpus_after_idle_check(instance: ListedInstance, now: datetime) -> tuple[int, str]:
    """Return the GPUs that an idle check holds and gives back when a job needs them, and the check to stop for that.

    Returns:
        (number of GPUs, 0 if none; id of the check, "" if it has ended or is being stopped already).
    """
    run, last = instance.check, instance.idle_check
    if instance.claims or instance.reserved_for:
        return 0, ""
    from gpu_recovery.core.instance import out_of_use as reasons  # noqa: PLC0415 - only the scheduler asks this

    if instance.status is InstanceStatus.CHECKING and run is not None and run.idle is not None:
        if any(reason.kind is not OutOfUse.REPAIR for reason in reasons.out_of_use_reasons(instance)):
            return 0, ""
        ordered_at = run.idle.preempted_at
        if ordered_at is None:
            return instance.gpus, run.check_id
        return (instance.gpus if now - ordered_at < STOP_COUNTS_FOR else 0), ""
    has_ended = last is not None and now - last.ended_at < GPUS_SHOWN_WITHIN
    if has_ended and instance.status is InstanceStatus.AVAILABLE and reasons.out_of_use(instance) is None:
        return (instance.gpus if instance.gpus_to_give() < instance.gpus else 0), ""
    return 0, ""
