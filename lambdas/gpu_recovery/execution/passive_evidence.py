"""Collect the passive evidence about the instances of an attempt, and wait a few seconds for the agents' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.fault_signs import SENTENCE_MAX, fault_of, has_reported, is_certain, with_idle_check
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job import gang_check, repeat_offender
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.passive_evidence import FAULTY_MAX, PassiveEvidence
from gpu_recovery.core.policy import duration
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.execution.context import ExecutionContext

WAITS, WAIT_S = 5, 1.5
"""Times that late reports are waited for, and the seconds of each.

An agent reports the end of a rank at most 3 s after its last report, and looks at its ranks once a second.
"""


def collect_passive_evidence(context: ExecutionContext, job: Job, plan: Plan) -> PassiveEvidence | None:
    """Return what the agents of the attempt's instances reported since its failure; None if no answer would matter."""
    since = job.failure.at if job.failure is not None else job.incident_at
    instance_ids = tuple(dict.fromkeys(plan.instances))
    if since is None or not all(instance_ids) or gang_check.check_to_come(job) is None:
        return None
    if gang_check.why_gang_is_checked(job, None, DecisionContext(context.policy, context.now)):
        return None
    records = context.store.load_instances(instance_ids)
    if any(name not in records for name in instance_ids):
        return None
    # An instance that is gone is left out by nature, and its agent reports nothing.
    present = tuple(name for name in instance_ids if records[name].status is not InstanceStatus.GONE)
    beats = _beats_since(context, present, since)
    silent = tuple(name for name in present if not has_reported(beats.get(name), since))
    if silent:
        return PassiveEvidence(len(silent), silent[0])
    first = repeat_offender.ended_first(job, job.first_ends, context.policy)
    apart = _apart_in_preflight(context, job, plan)
    signs = {
        name: fault_of(records[name], beats[name], first, context.now) or apart.get(name, "")[:SENTENCE_MAX]
        for name in present
    }
    began = job.began_by or since
    faulty = {name: with_idle_check(sign, records[name], began) for name, sign in signs.items() if sign}
    beyond = tuple(faulty)[FAULTY_MAX:]
    kept = {name: sign for name, sign in faulty.items() if name not in beyond}
    doubtful = tuple(name for name in kept if not is_certain(records[name], beats[name]))
    return PassiveEvidence(len(beyond), beyond[0] if beyond else "", kept, doubtful)


def _apart_in_preflight(context: ExecutionContext, job: Job, plan: Plan) -> Mapping[str, str]:
    """Return the instances that the preflight of the attempt sets apart from the others, each with a sentence.

    Without a preflight nothing is read.
    """
    if not plan.preflight:
        return {}
    # Imported here and not at the top: few jobs have a preflight, and every cold start would pay for the import.
    from gpu_recovery.core.diagnosis import preflight  # noqa: PLC0415

    buffers = context.store.observations_of(job.job_id, plan.attempt, tuple(dict.fromkeys(plan.instances)))
    reports = preflight.newest(report for buffer in buffers.values() for report in buffer.reports)
    failed = {name: step for name, report in reports.items() if (step := preflight.proof_of(report)) is not None}
    apart = {name: difference.sentence for name, difference in preflight.differences(reports).items()}
    return apart | {name: f"its preflight failed: {step.name}: {step.sentence}" for name, step in failed.items()}


def _beats_since(context: ExecutionContext, instance_ids: Sequence[str], since: datetime) -> Mapping[str, Heartbeat]:
    """Return the heartbeats of the instances, after a wait for the agents that have not reported since the failure.

    Nothing is waited for if one of these agents was silent before, or cannot read its GPUs.
    """
    alive_since = context.now - duration(context.policy.suspect_s)
    beats: dict[str, Heartbeat] = {}
    missing = tuple(instance_ids)
    for number in range(WAITS + 1):
        if number:
            context.wait(WAIT_S)
        beats |= context.store.load_heartbeats(missing)
        missing = tuple(name for name in missing if not has_reported(beats.get(name), since))
        in_vain = any(name not in beats or not alive_since <= beats[name].seen_at < since for name in missing)
        if not missing or in_vain or not context.has_time():
            break
    return beats
