"""What there is to go by when an attempt has failed: its ranks' own reports, its machines, its end, its logs.

Everything is read once and turned into the reports of `core.diagnosis`; which of them means what is decided there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.diagnosis.case import History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    LogFinding,
    Observation,
    SilenceReport,
    StageReport,
    Written,
    XidReport,
)
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.identifiers import gpu_name
from gpu_recovery.core.instance.fault_history import score
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.diagnosis_result import INSTANCES_MAX, DiagnosisResult
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.redaction import masked
from gpu_recovery.core.task import EndingKind, RankFailure
from gpu_recovery.core.xid import NAMED_XID, class_of
from gpu_recovery.ports.store import AttemptStore, HeartbeatStore, Store

LOG_LINES_PER_RANK = 400
"""The last lines of a log that are read: what ended a rank is written at its end."""
LOGS_MAX = 4
"""The logs of so many ranks are read: the first that failed, and those of rank 0 and its neighbours."""
PARTS_MAX = 4
"""In so many parts a wrapper tells what its rank wrote last (docs/protocol.md)."""
OUTPUT_TAILS_MAX = 64
"""And the last words of so many that have no log to be read."""
REPORTS_MAX = 20_000
"""So many fit into the smallest function that may have to read them."""
SIGNAL_BASE = 128
WORKER_OF_RANK = re.compile(r"(?P<rank>\d{1,6})\.\d{1,6}")
"""What a process calls itself that was given no name: its rank, and its number within it."""

LogTail = Callable[[Job, str, int], Sequence[str] | str]
"""The last lines, so many at most, of what a task of a job wrote; or in a sentence why there are none."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one attempt. unread: why some log could not be read, by rank; history: of its machines."""

    reports: tuple[Observation, ...]
    topology: Topology
    unread_logs: Mapping[int, str]
    history: History

    def diagnosis(self, policy: RecoveryPolicy, now: datetime) -> Diagnosis:
        """What they come to."""
        return diagnose(self.reports, self.topology, self.history, now.timestamp(), thresholds_of(policy))


def thresholds_of(policy: RecoveryPolicy) -> Thresholds:
    """The thresholds of diagnoses, with those that the policy sets."""
    return Thresholds(silent_s=float(policy.suspect_s), stalled_s=float(policy.progress_timeout_s))


def collect_evidence(
    store: Store, log_tail: LogTail, policy: RecoveryPolicy, job: Job, plan: Plan, now: datetime
) -> Evidence:
    """Everything that speaks about an attempt of `job`. Raises what the store and `log_tail` raise."""
    names = tuple(dict.fromkeys(filter(None, plan.instances)))
    machines = store.load_instances(names)
    kept = store.observations_of(job.job_id, plan.attempt, names).values()
    told = tuple(report for one in kept for report in one.reports)[-REPORTS_MAX:]
    own = tuple(one for one in told if not isinstance(one, Written))
    logs, unread = _logs(log_tail, job, plan, _output_tails(told, plan), now)
    reports = (*own, *_ends(store, job, plan), *_instance_observations(store, machines, policy, now), *logs)
    lemons = {name: score(machine.past, now) for name, machine in machines.items() if machine.past}
    return Evidence(reports, topology_of(plan, machines, own), unread, History(lemons))


def topology_of(plan: Plan, machines: Mapping[str, Instance], reports: Iterable[Observation]) -> Topology:
    """Where everybody is: each worker that spoke or was spoken of, and each rank of which no worker is known."""
    rack = {name: machine.rack for name, machine in machines.items()}
    found: dict[str, Worker] = {}
    for one in reports:
        own = WORKER_OF_RANK.fullmatch(one.worker)
        rank = one.rank if one.instance_id else int(own["rank"]) if own is not None else None
        instance_id = one.instance_id or (
            plan.instances[rank] if rank is not None and rank < len(plan.instances) else ""
        )
        if one.worker and instance_id:
            found[one.worker] = Worker(one.worker, instance_id, rack.get(instance_id, ""), rank)
    known = {worker.rank for worker in found.values()}
    for rank, instance_id in enumerate(plan.instances):
        if rank not in known:
            found[f"rank {rank}"] = Worker(f"rank {rank}", instance_id, rack.get(instance_id, ""), rank)
    return Topology(found)


def diagnosis_result_of(heard: Evidence, diagnosis: Diagnosis, plan: Plan) -> DiagnosisResult | None:
    """What the job keeps of a diagnosis; None where nothing was found."""
    if not diagnosis.findings:
        return None
    there = heard.topology.instances_of(diagnosis.scope)
    instances = tuple(one for one in dict.fromkeys(plan.instances) if one in there)  # in rank order
    strongest = max(diagnosis.findings, key=lambda one: (one.weight, one.row))
    few = len(instances) <= INSTANCES_MAX
    gpus = _gpus(heard, diagnosis, instances)
    return DiagnosisResult(
        plan.attempt,
        diagnosis.cause,
        str(diagnosis.scope)[:200],
        instances if few else (),
        diagnosis.remedy,
        round(100 * diagnosis.confidence),
        diagnosis.decided and few,
        masked(strongest.english)[:500],
        gpus,
    )


def _gpus(heard: Evidence, diagnosis: Diagnosis, instances: Sequence[str]) -> tuple[str, ...]:
    """The GPUs that the evidence names, as `<instance>/<its name>`."""
    cited = set(diagnosis.evidence)
    named = {
        f"{instance_id}/{one.gpu}"
        for one in heard.reports
        if one.report_id in cited and isinstance(one, StageReport | XidReport) and one.gpu
        if (instance_id := heard.topology.instance_of(one)) in instances
    }
    return tuple(sorted(named))[:INSTANCES_MAX]


# -- each kind ---------------------------------------------------------------------------------------------------------


def _ends(store: AttemptStore, job: Job, plan: Plan) -> Iterator[Observation]:
    progress = store.load_progress(job.job_id, plan.attempt)
    first = progress.failure if progress is not None and progress.failure is not None else job.failure
    if first is not None and (plan.attempt == job.attempt or progress is not None):
        yield _end(first)


def _end(failure: RankFailure) -> ExitReport:
    code = failure.ending.exit_code
    return ExitReport(
        report_id=f"exit/{failure.rank}",
        at_s=failure.at.timestamp(),
        instance_id=failure.instance_id,
        rank=failure.rank,
        code=code,
        signal=code - SIGNAL_BASE if code is not None and code > SIGNAL_BASE else None,
        by_us=failure.ending.kind in (EndingKind.STOPPED_BY_US, EndingKind.STOPPED_BY_PERSON),
    )


def _instance_observations(
    store: HeartbeatStore, machines: Mapping[str, Instance], policy: RecoveryPolicy, now: datetime
) -> Iterator[Observation]:
    for name, machine in machines.items():
        for source, health in machine.health.items():
            if health.status is not HealthStatus.IMPAIRED:
                continue
            for number, found in enumerate(NAMED_XID.finditer(health.sentence)):
                xid = int(found["xid"])
                yield XidReport(
                    report_id=f"xid/{name}/{source}/{number}",
                    at_s=health.since.timestamp(),
                    instance_id=name,
                    xid=xid,
                    asks=class_of(xid, policy.xid_profile),
                    gpu=gpu_name(found["gpu"] or ""),
                )
    for name, beat in store.load_heartbeats(tuple(machines)).items():
        silent_s = (now - beat.seen_at).total_seconds()
        if silent_s > policy.suspect_s:
            yield SilenceReport(report_id=f"silent/{name}", at_s=now.timestamp(), instance_id=name, silent_s=silent_s)


def _output_tails(told: Iterable[Observation], plan: Plan) -> dict[int, list[str]]:
    """The last lines that ranks wrote, by their wrappers; each from where the rank was, and no more than these send."""
    parts: dict[int, dict[int, Written]] = {}
    for one in told:
        if isinstance(one, Written) and one.rank is not None and 0 <= one.part < PARTS_MAX:
            where = plan.instances[one.rank] if one.rank < len(plan.instances) else ""
            if where and where == one.instance_id:
                parts.setdefault(one.rank, {})[one.part] = one
    lines = {
        rank: [line for _, one in sorted(found.items(), reverse=True) for line in one.lines if line]
        for rank, found in parts.items()
    }
    return {rank: found for rank, found in lines.items() if found}


def _logs(
    log_tail: LogTail, job: Job, plan: Plan, written: Mapping[int, Sequence[str]], now: datetime
) -> tuple[tuple[LogFinding, ...], dict[int, str]]:
    """What the logs say of the rank that failed first, and of the first ranks beside it; and what failed ranks wrote.

    What a rank's wrapper told stands for a log that cannot be read.
    """
    first = job.failure.rank if job.failure is not None and plan.attempt == job.attempt else 0
    ranks = [rank for rank in dict.fromkeys((first, *range(LOGS_MAX))) if rank < len(plan.task_ids)][:LOGS_MAX]
    lines: dict[int, Sequence[str]] = {}
    unread: dict[int, str] = {}
    for rank in ranks:
        found = log_tail(job, plan.task_ids[rank], LOG_LINES_PER_RANK) if plan.task_ids[rank] else "it never had a task"
        if isinstance(found, str) and rank not in written:
            unread[rank] = found
        elif not isinstance(found, str) and found:
            lines[rank] = found
    more = [rank for rank in sorted(written) if rank not in lines][:OUTPUT_TAILS_MAX]
    lines |= {rank: written[rank] for rank in more}
    return tuple(one for rank, found in lines.items() for one in _findings(rank, found, plan, now)), unread


def _findings(rank: int, lines: Sequence[str], plan: Plan, now: datetime) -> Iterator[LogFinding]:
    for one in classify(lines).findings:
        yield LogFinding(
            report_id=f"log/{rank}/{one.number}",
            at_s=now.timestamp(),
            instance_id=plan.instances[rank],
            rank=rank,
            line=one.line[:500],
            kind=one.kind,
            role=one.role,
            generic=one.generic,
        )
