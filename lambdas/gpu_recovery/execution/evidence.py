"""Evidence of a failed attempt: observations of its ranks, health of its instances, first exit, log lines.

Each source is read once and converted to observations for `core.diagnosis`, which decides what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from gpu_recovery.core import events
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.diagnosis.case import History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.event_delivery import CLAIM_KIND, CLAIM_ROLE, success_claims
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    FlightReport,
    IdleCheckReport,
    LogFinding,
    Observation,
    ProbeReport,
    ProgressReport,
    RestartReport,
    SilenceReport,
    StageReport,
    Written,
    XidReport,
)
from gpu_recovery.core.diagnosis.rules.instances import IDLE_CHECK
from gpu_recovery.core.diagnosis.taxonomy import Cause, Probe, Remedy
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.identifiers import gpu_name
from gpu_recovery.core.instance.fault_history import score
from gpu_recovery.core.instance.idle_check import passed_before
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.diagnosis_result import INSTANCES_MAX, SHARED_STORAGE, DiagnosisResult
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.progress_timeout import progress_timeout
from gpu_recovery.core.redaction import masked
from gpu_recovery.core.task import EndingKind, RankFailure
from gpu_recovery.core.xid import NAMED_XID, class_of
from gpu_recovery.execution.context import ForEach, sequentially
from gpu_recovery.execution.hang_detection import newest_by_reporter
from gpu_recovery.ports.heartbeats import HeartbeatStore
from gpu_recovery.ports.store import Store

LOG_LINES_PER_RANK = 400
"""Lines that are read from the end of a log: a rank writes the cause of its end last."""
LOGS_MAX = 4
"""Ranks with logs that are read: the rank that failed first, then rank 0 and the ranks after it."""
PARTS_MAX = 4
"""Largest number of parts in which a wrapper reports the output tail of its rank (docs/protocol.md)."""
FRAME = re.compile(r'File "[^"]{1,300}", line \d{1,7}(?:, in \S{1,80})?')
"""A frame of a Python traceback."""
FRAME_WITHIN = 6
"""Lines before an error in which the last frame of its traceback is searched."""
LOG_LINE_MAX = 500
"""Characters of a log line that an observation keeps."""
ERROR_LINE_MAX = 400
"""Characters of the error line of a diagnosis result."""
OUTPUT_TAILS_MAX = 64
"""Largest number of ranks for which the output tail replaces an unreadable log."""
REPORTS_MAX = 20_000
"""Observations that are used: as many as fit into the memory of the smallest function that reads them."""
POSSIBLE_MAX = 3
"""Largest number of possible causes that an undecided diagnosis result names."""
SIGNAL_BASE = 128
"""Exit codes above this value are this value plus the number of a signal."""
WORKER_OF_RANK = re.compile(r"(?P<rank>\d{1,6})\.\d{1,6}")
"""The default name of a worker: its rank, and its number within the rank."""

ROLE_VARIABLE = "GPU_RECOVERY_ROLE"
"""Environment variable of a job's processes that names their role (docs/training.md)."""

LogTail = Callable[[Job, str, int], Sequence[str] | str]
"""Reads the end of a task's log. Arguments: the job, the task id, and the largest number of lines.

Returns the last lines. If there is no log, returns the reason as a sentence.
"""


@frozen_dataclass()
class Evidence:
    """Evidence of one attempt.

    unread_logs: the reason why the log of a rank could not be read, by rank.
    history:     fault scores of the attempt's instances.
    error_line:  the error in the output of the rank that failed first, masked; "" if its output names none.
    stalled_s:   seconds without progress that are strong evidence of a hang; None: as long as the policy says.
    """

    reports: tuple[Observation, ...]
    topology: Topology
    unread_logs: Mapping[int, str]
    history: History
    error_line: str = ""
    stalled_s: float | None = None

    def diagnosis(self, policy: RecoveryPolicy, now: datetime) -> Diagnosis:
        """Return the diagnosis of this evidence at `now`."""
        return diagnose(
            self.reports, self.topology, self.history, now.timestamp(), thresholds_of(policy, self.stalled_s)
        )


def thresholds_of(policy: RecoveryPolicy, stalled_s: float | None = None) -> Thresholds:
    """Return the diagnosis thresholds, with the values that the policy sets.

    Args:
        stalled_s: seconds without progress that are strong evidence of a hang; None: as long as the policy says.
    """
    return Thresholds(
        silent_s=float(policy.suspect_s),
        stalled_s=float(policy.progress_timeout_s) if stalled_s is None else stalled_s,
    )


def collect_evidence(
    store: Store,
    log_tail: LogTail,
    policy: RecoveryPolicy,
    job: Job,
    plan: Plan,
    now: datetime,
    for_each: ForEach = sequentially,
) -> Evidence:
    """Collect the evidence of one attempt of `job`.

    Raises:
        Exception: errors of the store and of `log_tail`.
    """
    instance_ids = tuple(dict.fromkeys(filter(None, plan.instances)))
    instances, progress = store.load_instances(instance_ids), store.load_progress(job.job_id, plan.attempt)
    buffers = store.observations_of(job.job_id, plan.attempt, instance_ids).values()
    received = tuple(report for buffer in buffers for report in buffer.reports)[-REPORTS_MAX:]
    not_output = tuple(report for report in received if not isinstance(report, Written))
    output, unread = _output_of_ranks(log_tail, job, plan, _output_tails(received, plan), for_each)
    logs = tuple(found for rank, lines in output.items() for found in log_findings(rank, lines, plan, now))
    reports = (
        *not_output,
        *_exit_observations(progress, job, plan),
        *_check_observations(progress, plan, now),
        *_instance_observations(store, instances, policy, now),
        *_restarts(job, plan, instances),
        *_idle_checks(job, plan, instances),
        *logs,
    )
    lemons = {name: score(instance.past, now) for name, instance in instances.items() if instance.past}
    quoted = error_line(output.get(_failed_first(job, plan), ()))
    topology = topology_of(plan, instances, not_output, job.spec.env.get(ROLE_VARIABLE, ""))
    told = [report for report in not_output if isinstance(report, ProgressReport) and report.value is not None]
    newest = newest_by_reporter(told)
    # An attempt that was stopped for a confirmed hang stood still for the shorter timeout only.
    stopped = events.ProgressStopped.__name__
    is_hang = any((entry.event, entry.attempt) == (stopped, plan.attempt) for entry in job.history)
    stalled_s = progress_timeout(newest, policy, job.spec.progress_timeout_s, confirmed=is_hang).seconds
    return Evidence(reports, topology, unread, History(lemons), quoted, stalled_s)


def topology_of(
    plan: Plan, instances: Mapping[str, Instance], reports: Iterable[Observation], role: str = ""
) -> Topology:
    """Return where each worker runs.

    It holds each worker that reported or was named in a report, and a worker `rank N` for each other rank of the plan.

    Args:
        reports: the observations of the processes.
        role: role of the workers that reported none, as the job's environment sets it.
    """
    racks, reports = {name: instance.rack for name, instance in instances.items()}, tuple(reports)
    roles = _roles(reports)
    workers: dict[str, Worker] = {}
    for report in reports:
        match = WORKER_OF_RANK.fullmatch(report.worker)
        rank = report.rank if report.instance_id else int(match["rank"]) if match is not None else None
        instance_id = report.instance_id or (
            plan.instances[rank] if rank is not None and rank < len(plan.instances) else ""
        )
        if isinstance(report, FlightReport):  # its rank counts GPUs, the plan counts instances
            rank = None
        if report.worker and instance_id:
            rack, own_role = racks.get(instance_id, ""), roles.get((report.worker, rank), role)
            workers[report.worker] = Worker(report.worker, instance_id, rack, rank, own_role)
    known = {worker.rank for worker in workers.values()}
    for rank, instance_id in enumerate(plan.instances):
        if rank not in known:
            rack, own_role = racks.get(instance_id, ""), roles.get(("", rank), role)
            workers[f"rank {rank}"] = Worker(f"rank {rank}", instance_id, rack, rank, own_role)
    return Topology(workers)


def _roles(reports: Iterable[Observation]) -> dict[tuple[str, int | None], str]:
    """Return the role of each worker, by its name and rank; "" if processes with the same name have two roles."""
    told: dict[tuple[str, int | None], set[str]] = {}
    for report in reports:
        if report.worker_role:
            told.setdefault((report.worker, report.rank), set()).add(report.worker_role)
    return {key: next(iter(roles)) if len(roles) == 1 else "" for key, roles in told.items()}


def diagnosis_result_of(evidence: Evidence, diagnosis: Diagnosis, plan: Plan) -> DiagnosisResult | None:
    """Return the diagnosis result that the job stores; None if the diagnosis has no findings."""
    if not diagnosis.findings:
        return None
    scope_instances = evidence.topology.instances_of(diagnosis.scope)
    instances = tuple(name for name in dict.fromkeys(plan.instances) if name in scope_instances)  # in rank order
    strongest = max(diagnosis.findings, key=lambda finding: (finding.weight, finding.row))
    few = len(instances) <= INSTANCES_MAX
    sentences = (strongest.english, *_idle_check_notes(evidence, diagnosis, instances))
    is_shared_storage = diagnosis.cause is Cause.STORAGE and diagnosis.remedy is Remedy.PERSON
    where = SHARED_STORAGE if is_shared_storage else str(diagnosis.scope)
    gpus = _gpus(evidence, diagnosis, instances)
    return DiagnosisResult(
        plan.attempt,
        diagnosis.cause,
        where[:200],
        instances if few else (),
        diagnosis.remedy,
        round(100 * diagnosis.confidence),
        diagnosis.decided and few,
        masked("; ".join(sentences))[:500],
        gpus,
        possible=() if diagnosis.decided else _possible_causes(diagnosis),
        quoted=evidence.error_line,
    )


def _idle_check_notes(evidence: Evidence, diagnosis: Diagnosis, instances: Sequence[str]) -> Iterator[str]:
    """Yield the notes about the idle checks that these instances had passed before the attempt."""
    for note in diagnosis.informational:
        if note.row == IDLE_CHECK and evidence.topology.instances_of(note.scope) <= set(instances):
            yield note.english


def _possible_causes(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the cause and its rivals with their confidence, the most probable first, each cause once."""
    causes = {diagnosis.cause: diagnosis.confidence}
    for rival in diagnosis.rivals:
        causes.setdefault(rival.cause, rival.confidence)
    ranked = sorted(causes.items(), key=lambda of_cause: -of_cause[1])
    return tuple(f"{cause} ({confidence:.0%})" for cause, confidence in ranked[:POSSIBLE_MAX])


def _gpus(evidence: Evidence, diagnosis: Diagnosis, instances: Sequence[str]) -> tuple[str, ...]:
    """Return the GPUs that the evidence names, as `<instance>/<GPU name>`."""
    cited = set(diagnosis.evidence)
    named = {
        f"{instance_id}/{report.gpu}"
        for report in evidence.reports
        if report.report_id in cited and isinstance(report, StageReport | XidReport) and report.gpu
        if (instance_id := evidence.topology.instance_of(report)) in instances
    }
    return tuple(sorted(named))[:INSTANCES_MAX]


# -- each kind ---------------------------------------------------------------------------------------------------------


def _exit_observations(progress: AttemptProgress | None, job: Job, plan: Plan) -> Iterator[Observation]:
    first = progress.failure if progress is not None and progress.failure is not None else job.failure
    if first is not None and (plan.attempt == job.attempt or progress is not None):
        yield _exit_observation(first)


def _check_observations(progress: AttemptProgress | None, plan: Plan, now: datetime) -> Iterator[Observation]:
    """Yield a failed probe for each instance on which a health check of the attempt found a fault."""
    for rank, checked in sorted(progress.checked.items()) if progress is not None else ():
        if checked.outcome in (CheckOutcome.REBOOT, CheckOutcome.REPLACE):
            yield ProbeReport(
                report_id=f"check/{rank}",
                at_s=now.timestamp(),
                instance_id=plan.instances[rank],
                probe=Probe.DCGM,
                passed=False,
            )


def _exit_observation(failure: RankFailure) -> ExitReport:
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
    store: HeartbeatStore, instances: Mapping[str, Instance], policy: RecoveryPolicy, now: datetime
) -> Iterator[Observation]:
    for name, instance in instances.items():
        for source, health in instance.health.items():
            if health.status is not HealthStatus.IMPAIRED:
                continue
            for number, match in enumerate(NAMED_XID.finditer(health.sentence)):
                xid = int(match["xid"])
                yield XidReport(
                    report_id=f"xid/{name}/{source}/{number}",
                    at_s=health.since.timestamp(),
                    instance_id=name,
                    xid=xid,
                    asks=class_of(xid, policy.xid_profile),
                    gpu=gpu_name(match["gpu"] or ""),
                )
    for name, beat in store.load_heartbeats(tuple(instances)).items():
        silent_s = (now - beat.seen_at).total_seconds()
        if silent_s > policy.suspect_s:
            yield SilenceReport(report_id=f"silent/{name}", at_s=now.timestamp(), instance_id=name, silent_s=silent_s)


def _restarts(job: Job, plan: Plan, instances: Mapping[str, Instance]) -> Iterator[Observation]:
    """Yield the boots of instances during the run of the present attempt that gpu-recovery did not order."""
    began = job.running_at
    if began is None or plan.attempt != job.attempt:
        return
    for name, instance in instances.items():
        booted = instance.restarted_after(began)
        if booted is None:
            continue
        yield RestartReport(report_id=f"restart/{name}", at_s=booted.timestamp(), instance_id=name)


def _idle_checks(job: Job, plan: Plan, instances: Mapping[str, Instance]) -> Iterator[Observation]:
    """Yield the idle check that each instance had passed before the present attempt, while that pass was evidence."""
    began = job.began_by if plan.attempt == job.attempt else None
    if began is None:
        return
    for name, instance in instances.items():
        passed_at = passed_before(instance, began)
        if passed_at is not None and instance.idle_check is not None:
            level = instance.idle_check.level
            yield IdleCheckReport(
                report_id=f"idle-check/{name}", at_s=passed_at.timestamp(), instance_id=name, level=level
            )


def _output_tails(reports: Iterable[Observation], plan: Plan) -> dict[int, list[str]]:
    """Return the last output lines of ranks, as their wrappers reported them, by rank.

    A report counts only if it came from the instance of its rank.
    """
    parts: dict[int, dict[int, Written]] = {}
    for report in reports:
        if isinstance(report, Written) and report.rank is not None and 0 <= report.part < PARTS_MAX:
            instance_id = plan.instances[report.rank] if report.rank < len(plan.instances) else ""
            if instance_id and instance_id == report.instance_id:
                parts.setdefault(report.rank, {})[report.part] = report
    lines = {
        rank: [line for _, part in sorted(by_part.items(), reverse=True) for line in part.lines if line]
        for rank, by_part in parts.items()
    }
    return {rank: tail for rank, tail in lines.items() if tail}


def _failed_first(job: Job, plan: Plan) -> int:
    """Return the rank that failed first, or 0 if it is unknown."""
    return job.failure.rank if job.failure is not None and plan.attempt == job.attempt else 0


def _output_of_ranks(
    log_tail: LogTail, job: Job, plan: Plan, written: Mapping[int, Sequence[str]], for_each: ForEach
) -> tuple[dict[int, Sequence[str]], dict[int, str]]:
    """Return the last lines of ranks, and the reason for each log that could not be read, both by rank.

    The logs of the first failed rank and of the first ranks are read. An output tail replaces a log that cannot be
    read.
    """
    first = _failed_first(job, plan)
    ranks = [rank for rank in dict.fromkeys((first, *range(LOGS_MAX))) if rank < len(plan.task_ids)][:LOGS_MAX]
    lines: dict[int, Sequence[str]] = {}
    unread: dict[int, str] = {}
    tails: dict[int, Sequence[str] | str] = {}

    def read(rank: int) -> None:
        task_id = plan.task_ids[rank]
        tails[rank] = log_tail(job, task_id, LOG_LINES_PER_RANK) if task_id else "it never had a task"

    ranks.sort(key=lambda rank: not plan.task_ids[rank])
    for_each(read, ranks[:1])  # creates the clients, which parallel reads would do once each
    for_each(read, ranks[1:])
    for rank in ranks:
        tail = tails[rank]
        if isinstance(tail, str) and rank not in written:
            unread[rank] = tail
        elif not isinstance(tail, str) and (own := lines_of_attempt(tail, plan.attempt)):
            lines[rank] = own
    with_tail_only = [rank for rank in sorted(written) if rank not in lines][:OUTPUT_TAILS_MAX]
    return lines | {rank: written[rank] for rank in with_tail_only}, unread


def lines_of_attempt(lines: Sequence[str], attempt: int) -> Sequence[str]:
    """Return the lines that this attempt has written. A container that was held has the log of several attempts.

    `gpu-recovery-run` writes a line when an attempt starts in a container of an earlier attempt.
    """
    begin = f"gpu-recovery-run: attempt {attempt} starts in this container"
    starts = [number for number, line in enumerate(lines) if line.strip() == begin]
    return lines[starts[-1] + 1 :] if starts else lines


def error_line(lines: Sequence[str]) -> str:
    """Return the error in the output of a rank as one masked line: its place in the program, and its text.

    The line is that of the classifier's verdict, else the last line.
    """
    verdict = classify(lines).verdict
    number = verdict.number if verdict is not None else len(lines)
    if not lines:
        return ""
    frames = [match[0] for line in lines[max(0, number - FRAME_WITHIN) : number] if (match := FRAME.search(line))]
    place = f"{frames[-1]}: " if frames else ""
    return masked(f"{place}{lines[number - 1].strip()}")[:ERROR_LINE_MAX]


def log_findings(rank: int, lines: Sequence[str], plan: Plan, now: datetime) -> Iterator[LogFinding]:
    """Yield the classified lines of a rank as observations.

    Their ids sort in the order of the lines, because all of them have the same time.
    """
    for number, line in success_claims(lines).values():
        yield LogFinding(
            report_id=f"log/{rank}/{number}/claim",
            at_s=now.timestamp(),
            instance_id=plan.instances[rank],
            rank=rank,
            line=line[:LOG_LINE_MAX],
            kind=CLAIM_KIND,
            role=CLAIM_ROLE,
        )
    for finding in classify(lines).findings:
        yield LogFinding(
            report_id=f"log/{rank}/{finding.number:03}",
            at_s=now.timestamp(),
            instance_id=plan.instances[rank],
            rank=rank,
            line=finding.line[:LOG_LINE_MAX],
            kind=finding.kind,
            role=finding.role,
            generic=finding.generic,
        )
