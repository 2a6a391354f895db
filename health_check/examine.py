"""The stages of a check: kernel log, driver, and the diagnostic if these leave it open."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from health_check import driver, kernel_log
from health_check.boot import Boot, read_boot
from health_check.driver import DriverReport
from health_check.evidence import DRAIN_REQUESTED, CheckEvidence, DiagnosticStep, plan, weigh
from health_check.host_engines import HostEngineChoice, other_host_engine, usable_engine
from health_check.judge import contradicts_itself, findings_of, summary_of_health
from health_check.kernel_log import KernelLog
from health_check.parse import parse
from health_check.recovery_action import RecoveryAction
from health_check.remedies import DEADLINE_PASSED, HUNG_BESIDE_HOST_ENGINE, FindingRemedy
from health_check.report import DiagnosticReport
from health_check.run import ProcessRun, StopRequested, diagnose, run_bounded, stop_raises
from health_check.settings import PASSIVE, TIMEOUT_S_BY_LEVEL, CheckSettings
from health_check.verdict import CheckFinding, InstanceVerdict, by_check, conclude, counted

STOPPED = 128 + signal.SIGTERM
"""Exit code of a diagnostic that SIGTERM ended."""
ANSWERS_AFTER_A_HANG_S = 45.0
"""Seconds that the driver has after a diagnostic that hung. The control plane ends a check 180 s (CHECK_MARGIN_S) after
its limit, and the start and the end of the task need most of them.
"""
DRAINED_WITHIN_S = 20.0
"""Seconds between two looks at a GPU whose peer-to-peer traffic must end. The job's processes have ended by then; the
driver and the host need some seconds more.
"""
DRAIN_LOOKS_MAX = 3
"""Looks after the first look."""


@dataclass(frozen=True)
class DiagnosticRun:
    """One run of the diagnostic, and its report."""

    step: DiagnosticStep
    run: ProcessRun
    report: DiagnosticReport

    def findings(self, expected_gpus: int | None, driver: DriverReport) -> list[CheckFinding]:
        """Return the findings of this run. `driver` is the answer of nvidia-smi."""
        return findings_of(
            self.report,
            self.run.exit_code,
            level=self.step.level,
            expected_gpus=expected_gpus,
            gpus=self.step.gpus,
            late=self.run.late,
            driver_late=driver.late,
        )


@dataclass(frozen=True)
class Examination:
    """Everything that was examined.

    `diagnoses` is empty for a passive check, and if the evidence decided. A stop of the task adds an entry with exit
    code STOPPED, also to a passive check.
    """

    boot: Boot
    log: KernelLog
    driver: DriverReport
    evidence: CheckEvidence
    diagnoses: tuple[DiagnosticRun, ...] = ()

    @property
    def report(self) -> DiagnosticReport:
        """Return the report of the last diagnostic, or an empty report."""
        return self.diagnoses[-1].report if self.diagnoses else DiagnosticReport()


def examine(settings: CheckSettings) -> Examination:
    """Examine the instance. If the task is stopped meanwhile, the last of `diagnoses` has exit code STOPPED."""
    begun = time.monotonic()
    boot = read_boot(settings.host_proc)
    examination = Examination(boot, KernelLog(), DriverReport(), CheckEvidence())
    try:
        with stop_raises():
            log = kernel_log.read(settings.host_kmsg, boot.at)
            # What the kernel log says stands, even if the task is stopped while the driver is asked.
            examination = _weighed(settings, boot, log, DriverReport())
            examination = _weighed(
                settings, boot, log, driver.ask(timeout_s=min(driver.ANSWERS_WITHIN_S, settings.timeout_s / 2))
            )
            examination = _after_a_drain(settings, examination)
            left_s = settings.timeout_s - (time.monotonic() - begun)
            steps = plan(settings.level, left_s, examination.evidence)
            engine = _host_engine(settings) if steps else HostEngineChoice()
            examination = _with_note(examination, engine)
            for step in steps:
                left_s = settings.timeout_s - (time.monotonic() - begun)
                diagnosis = _diagnosis(step, left_s, engine.address)
                left_s = settings.timeout_s - (time.monotonic() - begun)
                if contradicts_itself(diagnosis.report, diagnosis.run.exit_code) and (
                    left_s >= TIMEOUT_S_BY_LEVEL[step.level]
                ):
                    diagnosis = _diagnosis(step, left_s, engine.address)
                hung_beside = engine.address is None and diagnosis.run.exit_code == DEADLINE_PASSED
                if hung_beside and other_host_engine(settings.host_proc):
                    # A stop of the task during the second look must not leave the hang alone as the verdict.
                    examination = _with_note(_after_a_hang(settings, examination, diagnosis), engine)
                    break
                examination = replace(examination, diagnoses=(*examination.diagnoses, diagnosis))
                findings = diagnosis.findings(settings.expected_gpus, examination.driver)
                if diagnosis.run.exit_code == STOPPED or any(finding.blames_hardware for finding in findings):
                    break
    except StopRequested:
        ended = DiagnosticRun(
            DiagnosticStep(settings.level), ProcessRun("", "the task was stopped", STOPPED), parse("")
        )
        examination = replace(examination, diagnoses=(*examination.diagnoses, ended))
    return examination


def _host_engine(settings: CheckSettings) -> HostEngineChoice:
    """Return the engine of the host if the settings allow it and the check can use it."""
    if settings.host_engine is None:
        return HostEngineChoice()
    return usable_engine(settings.host_engine, lambda command, timeout_s: run_bounded(command, timeout_s).output)


def _with_note(examination: Examination, engine: HostEngineChoice) -> Examination:
    """Return the examination with a finding that says which engine ran the tests, if the host has an engine."""
    if engine.address is not None:
        message = f"the host engine of the instance at {engine.address} ran the diagnostic"
        finding = by_check("host engine", "HOST_ENGINE_USED", FindingRemedy.IGNORE, message)
    elif engine.note:
        message = f"the check started its own host engine: {engine.note}"
        finding = by_check("host engine", "HOST_ENGINE_NOT_USED", FindingRemedy.IGNORE, message)
    else:
        return examination
    evidence = replace(examination.evidence, findings=(*examination.evidence.findings, finding))
    return replace(examination, evidence=evidence)


def _after_a_drain(settings: CheckSettings, examination: Examination) -> Examination:
    """Ask the driver again while it wants peer-to-peer traffic to end. Its later answer decides.

    No job works on the instance, except beside a passive check, which waits for nothing. The driver itself withdraws
    the request as soon as the traffic has ended. If it still asks at the last look, the rest of the traffic belongs to
    no job, and only a reset ends it: DCGM gives this request the severity RESET.
    """
    if settings.level == PASSIVE:
        return examination
    for _ in range(DRAIN_LOOKS_MAX):
        if not _drains(examination.driver):
            return examination
        time.sleep(DRAINED_WITHIN_S)
        log = kernel_log.read(settings.host_kmsg, examination.boot.at)
        answer = driver.ask(timeout_s=ANSWERS_AFTER_A_HANG_S)
        examination = _weighed(settings, examination.boot, log, answer)
    if not _drains(examination.driver):
        return examination
    findings = tuple(map(_never_drained, examination.evidence.findings))
    return replace(examination, evidence=replace(examination.evidence, findings=findings))


def _drains(answer: DriverReport) -> bool:
    """Return whether the driver wants the peer-to-peer traffic of a GPU to end."""
    return any(gpu.action is RecoveryAction.DRAIN_P2P for gpu in answer.gpus)


def _never_drained(finding: CheckFinding) -> CheckFinding:
    """Return the finding of a request that the driver still repeats, with the remedy of a reset; others unchanged."""
    if finding.code != DRAIN_REQUESTED:
        return finding
    waited = f"{finding.message}, still {int(DRAIN_LOOKS_MAX * DRAINED_WITHIN_S)} s after every job had ended"
    return replace(finding, remedy=FindingRemedy.REBOOT_INSTANCE, message=waited)


def _after_a_hang(settings: CheckSettings, examination: Examination, hung: DiagnosticRun) -> Examination:
    """Collect the evidence again after a diagnostic that hung beside a host engine of the instance.

    The two engines may have blocked each other. If the driver answers, the hang alone accuses nothing; new records of
    the kernel log count as always. If the driver does not answer either, the hang stands.
    """
    log = kernel_log.read(settings.host_kmsg, examination.boot.at)
    now = _weighed(settings, examination.boot, log, driver.ask(timeout_s=ANSWERS_AFTER_A_HANG_S))
    if not now.driver.hung:
        hung = replace(hung, run=replace(hung.run, exit_code=HUNG_BESIDE_HOST_ENGINE))
    return replace(now, diagnoses=(*examination.diagnoses, hung))


def _weighed(settings: CheckSettings, boot: Boot, log: KernelLog, answer: DriverReport) -> Examination:
    evidence = weigh(
        log,
        answer,
        level=settings.level,
        policy=settings.xid_policy,
        since=settings.since,
        expected_gpus=settings.expected_gpus,
        focus=settings.focus,
        unread=settings.unread,
    )
    return Examination(boot, log, answer, evidence)


def _diagnosis(step: DiagnosticStep, left_s: float, host_engine: Path | None) -> DiagnosticRun:
    timeout_s = left_s if step.timeout_s is None else min(step.timeout_s, left_s)
    run = diagnose(step.level, timeout_s, gpus=step.gpus, host_engine=host_engine)
    return DiagnosticRun(step, run, parse(run.output))


def judge(examination: Examination, *, level: int, expected_gpus: int | None) -> InstanceVerdict:
    """Return the verdict on all findings. Pure; never raises."""
    evidence, diagnoses = examination.evidence, examination.diagnoses
    findings = list(evidence.findings)
    # A diagnostic above level 1 replaces every suspicion: it has findings itself, or the hardware is sound.
    # If it was inconclusive or stopped, its own findings say so.
    if any(diagnosis.step.level > 1 for diagnosis in diagnoses):
        findings = [_answered(finding) for finding in findings]
    for diagnosis in diagnoses:
        findings += diagnosis.findings(expected_gpus, examination.driver)
    accused = {finding.gpu_index for finding in evidence.findings if finding.gpu_index is not None}
    return conclude(findings, _healthy(examination, level), accused | evidence.suspects)


def _answered(finding: CheckFinding) -> CheckFinding:
    return replace(finding, remedy=FindingRemedy.IGNORE) if finding.remedy is FindingRemedy.RUN_DIAGNOSTIC else finding


def _healthy(examination: Examination, level: int) -> str:
    if level == PASSIVE:
        gpus = counted(len(examination.driver.gpus), "GPU")
        return f"the kernel log and the driver of {gpus} show no fault (passive check)"
    last = examination.diagnoses[-1].step.level if examination.diagnoses else level
    return summary_of_health(examination.report, last)
