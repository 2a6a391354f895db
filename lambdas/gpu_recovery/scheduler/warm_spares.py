"""Offer idle instances for warm spares while no job waits for GPUs, and recall warm spares for a job that needs them.

An offer reserves nothing: the claim of the instance is a conditional write. A job asks by waking the scheduler with its
own id, after its start and with each poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.heartbeat import Heartbeat, running_log_id
from gpu_recovery.core.instance.idle_check import has_passed
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.job import named_instances, warm_spares
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.policy import duration
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.snapshot import Placement, RejectionKind
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.partial_failures import run_each
from gpu_recovery.recovery import Recovery

_SHORT_OF_GPUS = (RejectionKind.GPUS, RejectionKind.HELD, RejectionKind.ROOM)
"""What a waiting job lacks if instances that are released may help."""


def offer(recovery: Recovery, asking: Iterable[Entry]) -> list[Exception]:
    """Offer idle instances to those of these jobs that lack warm spares.

    Only instances whose agent has reported lately are offered: the agent starts a rank in the container.

    Returns:
        The failures of single jobs and instances. The others were handled, and a job asks again with its next poll.
    """
    able = [
        entry.job_id
        for entry in asking
        if entry.works and not entry.narrow and (entry.asks_spares or recovery.policy.warm_spares)
    ]
    loaded: list[Job | None] = []
    failures = run_each(lambda name: loaded.append(recovery.store.load_job(name)), able)
    context = DecisionContext(recovery.policy, recovery.clock())
    jobs = [job for job in loaded if job is not None and warm_spares.missing(job, context)]
    jobs = _with_wrapper(recovery, jobs, failures)
    if not jobs:
        return failures
    listed = recovery.store.instances_in((InstanceStatus.AVAILABLE,), failures)
    idle = {one.instance_id: one for one in listed if is_usable(one) and not one.claims and not one.reserved_for}
    recent = recovery.clock() - duration(recovery.policy.suspect_s)
    beats = recovery.store.load_heartbeats(sorted(idle), failures) if idle else {}
    idle = {name: one for name, one in idle.items() if name in beats and beats[name].seen_at >= recent}

    def offer_to(job: Job) -> None:
        chosen = _chosen(job, idle, context.now)[: warm_spares.missing(job, context)]
        if not chosen:
            return
        for one in chosen:
            del idle[one.instance_id]
        offered = events.SparesOffered(
            at=recovery.clock(),
            attempt=job.attempt,
            instances=tuple(one.instance_id for one in chosen),
            epochs=tuple(one.epoch for one in chosen),
        )
        recovery.handle(job.job_id, offered)

    return [*failures, *run_each(offer_to, jobs)]


def _with_wrapper(recovery: Recovery, jobs: Sequence[Job], unreadable: list[Exception]) -> list[Job]:
    """Return the jobs whose rank 0 runs in `gpu-recovery-run`, by the report of its agent.

    In a container without the wrapper nothing would wait: the command of the job would run as one rank too many.
    """
    hosts = sorted({job.instances[0] for job in jobs if job.instances})
    beats = recovery.store.load_heartbeats(hosts, unreadable) if hosts else {}
    return [job for job in jobs if job.instances and _holds(beats.get(job.instances[0]), job)]


def _holds(beat: Heartbeat | None, job: Job) -> bool:
    return beat is not None and str(running_log_id(job.job_id, job.attempt, 0)) in beat.holds


def _chosen(job: Job, idle: Mapping[str, ListedInstance], now: datetime) -> list[ListedInstance]:
    """Return the idle instances that the job may use: without a history of faults first, then with a passed check.

    The instances that the job uses last are offered last.
    """
    last = named_instances.used_last(job)
    fit = [
        one
        for one in idle.values()
        if one.group == job.spec.group
        and one.gpus >= job.spec.gpus_per_node
        and one.departure is None
        and one.instance_id not in job.left_out
    ]
    return sorted(
        fit, key=lambda one: (one.instance_id in last, len(one.past), not has_passed(one, now), one.instance_id)
    )


def recall(recovery: Recovery, entries: Mapping[str, Entry], placement: Placement) -> tuple[int, list[Exception]]:
    """Recall all warm spares if a job waits for GPUs, or those that give way to a growth.

    Returns:
        The number of jobs that had some, and the failures.
    """
    first = next((one.job_id for one in placement.rejected if one.short_of in _SHORT_OF_GPUS), "")
    first = first or next((one.for_job for one in placement.suspensions), "")
    if first:
        why = {name: f"{first} waits for GPUs" for name, one in entries.items() if one.spares and not one.waits}
    else:
        why = {recall.job_id: f"{recall.for_job} needs more instances to grow" for recall in placement.recalls}

    def recall_from(job_id: str) -> None:
        attempt, sentence = entries[job_id].attempt, why[job_id]
        recovery.handle(job_id, events.SparesRecalled(at=recovery.clock(), attempt=attempt, sentence=sentence))

    return len(why), run_each(recall_from, why)
