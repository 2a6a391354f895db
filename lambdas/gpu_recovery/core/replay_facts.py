"""Replay facts of a decision: what an event of the bus says so that the decision can be made again later.

`gpu-recovery fleet what-if` replays recorded incidents under another policy. The reason of a decision is a sentence for
people. The replay facts say the same as values: which event was decided about, under which policy, on which instances,
and what the event had found. `elastic` is true if the job is elastic; facts without it are those of a fixed width.
`together` is true if more than half of a held gang ended by itself; `AllRanksHeld` is no change of status to record.
`faulty` are instances with a sign of a fault, and `doubtful` those of them with no sign but one that a program causes.
The facts are bounded, and `version` says which members to expect.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.repeat_offender import ended_together
from gpu_recovery.core.policy import PRESETS, RecoveryPolicy
from gpu_recovery.core.published_events import utc_text

VERSION = 1
"""Version of the replay facts. A reader refuses a later version."""
PLACED_MAX = 64
"""Ranks at most whose instance the facts of a placement name: those with another instance than before."""
NAMED_MAX = 8
"""Instances with a fault at most that the facts name."""


def policy_document(policy: RecoveryPolicy) -> dict[str, Any]:
    """Return the policy as `core.policy.policy_from` reads it: the preset, and each setting that differs from it."""
    base = PRESETS[policy.preset]
    different = {
        field.name: getattr(policy, field.name)
        for field in fields(policy)
        if getattr(policy, field.name) != getattr(base, field.name)
    }
    values = {"preset": policy.preset, **different}
    return {name: value.value if isinstance(value, StrEnum) else value for name, value in values.items()}


def job_facts(job: Job, event: events.JobEvent | str, policy: RecoveryPolicy) -> dict[str, Any]:
    """Return the replay facts of a decision about a job.

    Args:
        job: the record before the decision.
        event: the event; the name of the decision for a new job.
        policy: the policy of the decision.
    """
    facts: dict[str, Any] = {"version": VERSION, "event": event if isinstance(event, str) else type(event).__name__}
    if job.spec.nnodes_min is not None:
        facts["elastic"] = True
    match event:
        case events.JobPlaced():
            facts |= {"policy": policy_document(policy), **_placement(job, event)}
        case events.AllRanksStopped() | events.AllRanksHeld():
            facts["own_ends"] = event.own_ends
            if event.failure is not None:
                facts["failed_at"] = utc_text(event.failure.at)
        case events.RankFailed():
            facts["failed_at"] = utc_text(event.failure.at)
        case events.PassiveEvidenceCollected():
            facts |= {"silent": event.evidence.silent, "faulty": list(event.evidence.faulty)[:NAMED_MAX]}
            if event.evidence.doubtful:
                facts["doubtful"] = list(event.evidence.doubtful)[:NAMED_MAX]
    if isinstance(event, events.PassiveEvidenceCollected | events.Diagnosed) and ended_together(job, policy):
        facts["together"] = True
    return facts


def instance_facts(event: events.InstanceEvent | str) -> dict[str, Any]:
    """Return the replay facts of a decision about an instance. `event` is "" for a new record."""
    facts: dict[str, Any] = {"version": VERSION, "event": event if isinstance(event, str) else type(event).__name__}
    if isinstance(event, events.CheckEnded):
        facts["outcome"] = event.verdict.outcome.value
    return facts


def _placement(job: Job, event: events.JobPlaced) -> dict[str, Any]:
    """Return the ranks with another instance than before, by rank, and how many further ranks have another one."""
    before = job.instances if len(job.instances) == len(event.instances) else ("",) * len(event.instances)
    changed = {
        str(rank): name for rank, (name, was) in enumerate(zip(event.instances, before, strict=True)) if name != was
    }
    named = dict(list(changed.items())[:PLACED_MAX])
    return {"placed": named, "unnamed": len(changed) - len(named)}
