"""The stages of a check: the kernel's log, then the driver, then, where they leave it open, the diagnostic."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace

from health_check import driver, kernel_log
from health_check.boot import Boot, read_boot
from health_check.driver import DriverReport
from health_check.evidence import Evidence, Step, plan, weigh
from health_check.judge import findings_of, summary_of_health
from health_check.kernel_log import KernelLog
from health_check.parse import parse
from health_check.remedies import Remedy
from health_check.report import Report
from health_check.run import Run, StopRequested, diagnose, stop_raises
from health_check.settings import PASSIVE, Settings
from health_check.verdict import Finding, Verdict, conclude, counted

STOPPED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class Diagnosis:
    """One run of the diagnostic, and what it reported."""

    step: Step
    run: Run
    report: Report

    def findings(self, expected_gpus: int | None) -> list[Finding]:
        return findings_of(
            self.report,
            self.run.exit_code,
            level=self.step.level,
            expected_gpus=expected_gpus,
            gpus=self.step.gpus,
        )


@dataclass(frozen=True)
class Examination:
    """Everything that was looked at. `diagnoses` is empty for a passive check, and where evidence decided."""

    boot: Boot
    log: KernelLog
    driver: DriverReport
    evidence: Evidence
    diagnoses: tuple[Diagnosis, ...] = ()

    @property
    def report(self) -> Report:
        """The last diagnostic's, or an empty one."""
        return self.diagnoses[-1].report if self.diagnoses else Report()


def examine(settings: Settings) -> Examination:
    """Reads, asks, and diagnoses; a task that is stopped meanwhile has a diagnostic that a signal ended."""
    begun = time.monotonic()
    boot = read_boot(settings.host_proc)
    examination = Examination(boot, KernelLog(), DriverReport(), Evidence())
    try:
        with stop_raises():
            examination = _evidence(settings, boot)
            left_s = settings.timeout_s - (time.monotonic() - begun)
            for step in plan(settings.level, left_s, examination.evidence):
                left_s = settings.timeout_s - (time.monotonic() - begun)
                diagnosis = _diagnosis(step, left_s)
                examination = replace(examination, diagnoses=(*examination.diagnoses, diagnosis))
                stopped = diagnosis.run.exit_code == STOPPED
                if stopped or any(one.blames_hardware for one in diagnosis.findings(settings.expected_gpus)):
                    break
    except StopRequested:
        ended = Diagnosis(Step(settings.level), Run("", "the task was stopped", STOPPED), parse(""))
        examination = replace(examination, diagnoses=(*examination.diagnoses, ended))
    return examination


def _evidence(settings: Settings, boot: Boot) -> Examination:
    log = kernel_log.read(settings.host_kmsg, boot.at)
    answer = driver.ask()
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


def _diagnosis(step: Step, left_s: float) -> Diagnosis:
    timeout_s = left_s if step.timeout_s is None else min(step.timeout_s, left_s)
    run = diagnose(step.level, timeout_s, gpus=step.gpus)
    return Diagnosis(step, run, parse(run.output))


def judge(examination: Examination, *, level: int, expected_gpus: int | None) -> Verdict:
    """The verdict on everything that was found. Pure, and total."""
    evidence, diagnoses = examination.evidence, examination.diagnoses
    findings = list(evidence.findings)
    # A diagnostic of the hardware answers every suspicion: either it found something itself, or there is nothing.
    # If it could not tell, its own findings say so.
    if any(one.step.level > 1 for one in diagnoses):
        findings = [_answered(finding) for finding in findings]
    for diagnosis in diagnoses:
        findings += diagnosis.findings(expected_gpus)
    accused = {finding.gpu_index for finding in evidence.findings if finding.gpu_index is not None}
    return conclude(findings, _healthy(examination, level), accused | evidence.suspects)


def _answered(finding: Finding) -> Finding:
    return replace(finding, remedy=Remedy.IGNORE) if finding.remedy is Remedy.RUN_DIAGNOSTIC else finding


def _healthy(examination: Examination, level: int) -> str:
    if level == PASSIVE:
        gpus = counted(len(examination.driver.gpus), "GPU")
        return f"the kernel log and the driver of {gpus} accuse nothing (passive check)"
    last = examination.diagnoses[-1].step.level if examination.diagnoses else level
    return summary_of_health(examination.report, last)
