"""Reports of health sources about an instance: EC2 status checks, GPU health, the agent of ECS, the node agent.

A report may be wrong, late or lost. So a report alone begins nothing that cannot be undone: a repair that it asks for
passes the same limits as every other repair (`escalation.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.effects import poke_scheduler
from gpu_recovery.core.instance.escalation import EVIDENCE_CHARACTERS_MAX, check_instead, escalate
from gpu_recovery.core.instance.faults import fault_after
from gpu_recovery.core.instance.record import HealthReport, Instance, RepairLevel, RepairNeed
from gpu_recovery.core.policy import within
from gpu_recovery.core.state_machine import DecisionContext, Ignore, Step
from gpu_recovery.core.xid import HARMLESS, class_of


def health_recorded(instance: Instance, event: events.HealthReported, given: DecisionContext) -> Step | Ignore:
    """Kept, and nothing more: the instance is busy with something that will show how its GPUs are.

    What it will not show, the health of the machine itself, is thought of when the instance works again.
    """
    return Step(instance.status, instance.reason, _health(instance, event, given, handled=event.kind not in _LEVELS))


def health_reported(instance: Instance, event: events.HealthReported, given: DecisionContext) -> Step | Ignore:
    """A watcher finds a working instance impaired, or well again."""
    changes = _health(instance, event, given)
    if event.status is not HealthStatus.IMPAIRED:
        was = instance.health.get(event.kind)
        well = event.status is HealthStatus.OK and was is not None and was.status is HealthStatus.IMPAIRED
        return Step(instance.status, instance.reason, changes, (poke_scheduler(instance),) if well else ())
    evidence = f"{event.kind} is {event.status}" + (f": {event.sentence}" if event.sentence else "")
    is_old = given.now - event.at >= within(given.policy.evidence_stale_s)
    if is_old and event.kind in _LEVELS:
        return Ignore("said some time ago, and EC2 is asked each minute how the machine is")
    rung = _level_of(event) if not is_old else None
    if rung is None or not instance.gpus_most:  # what works without GPUs is not ours to repair
        return Step(instance.status, evidence, changes)
    return escalate(instance, RepairNeed(rung, evidence, given.now, source=event.kind), given, changes)


def health_of_held(instance: Instance, event: events.HealthReported, given: DecisionContext) -> Step | Ignore:
    """The watcher whose word is waiting to be acted on says that all is well: a check will show."""
    need = instance.need
    asked = need is not None and need.source == event.kind
    changes = _health(instance, event, given, handled=asked or event.kind not in _LEVELS)
    if not asked or event.status is not HealthStatus.OK or instance.claims:
        return Step(instance.status, instance.reason, changes)
    return check_instead(instance, f"{event.kind} is {event.status} again", changes)


def _health(
    instance: Instance, event: events.HealthReported, given: DecisionContext, handled: bool = True
) -> dict[str, Any]:
    """The changes that keep a watcher's word. One that cannot tell takes nothing back that was said before."""
    before = instance.health.get(event.kind)
    sentence, fault = event.sentence[:EVIDENCE_CHARACTERS_MAX], fault_after(event, before, given)
    word = HealthReport(event.status, event.since, sentence, handled, fault)
    unsure = event.status in (HealthStatus.INSUFFICIENT_DATA, HealthStatus.INITIALIZING)
    if unsure and before is not None and before.status is HealthStatus.IMPAIRED:
        word = replace(before, since=event.since)
    return {"health": {**instance.health, event.kind: word}}


def unhandled_report(instance: Instance) -> HealthKind | None:
    """The watcher who found the machine impaired while it was busy, and on whose word nothing was done yet."""
    words = instance.health.items()
    kinds = [kind for kind, one in words if one.status is HealthStatus.IMPAIRED and not one.answered]
    return HealthKind(min(kinds)) if kinds and instance.gpus_most else None


def answer_report(instance: Instance, kind: HealthKind, given: DecisionContext) -> Step:
    """It works again, and the watcher has not taken its word back since."""
    word = instance.health[kind]
    changes = {"health": {**instance.health, kind: replace(word, answered=True)}}
    evidence = f"{kind} is {word.status}" + (f": {word.sentence}" if word.sentence else "")
    return escalate(instance, RepairNeed(_LEVELS[kind], evidence, given.now, source=kind), given, changes)


def _level_of(event: events.HealthReported) -> RepairLevel | None:
    """What an impairment asks for; None where it is no reason to touch the machine.

    GPUs are asked by a check of our own. EC2's system check fails for the host under the machine, which another host
    cures; its instance check for the machine itself, which a reboot cures (EC2 user guide, status checks).
    """
    if event.kind == HealthKind.ACCELERATED_COMPUTE:
        return None if event.xid is not None and class_of(event.xid) in HARMLESS else RepairLevel.CHECK
    return RepairLevel.CHECK if event.kind == HealthKind.NODE_AGENT else _LEVELS.get(event.kind)


_LEVELS = {HealthKind.SYSTEM_STATUS: RepairLevel.REPLACE, HealthKind.INSTANCE_STATUS: RepairLevel.REBOOT}
