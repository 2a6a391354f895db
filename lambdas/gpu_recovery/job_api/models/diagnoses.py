"""Models of diagnoses and of findings in logs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel

from gpu_recovery.core.diagnosis.taxonomy import Cause, Probe, Remedy, ScopeKind
from gpu_recovery.core.logs.kinds import LineKind, LineRole, LogClass
from gpu_recovery.job_api.models.base import ResponseModel


class Scope(ResponseModel):
    """What a cause concerns."""

    kind: ScopeKind
    names: list[str]


class Finding(ResponseModel):
    """A finding: a row of the tables of diagnosis, and its evidence."""

    row: str
    cause: str | None
    weight: float
    follows: bool
    english: str
    chinese: str
    evidence: list[str]


class Rival(ResponseModel):
    """Another cause that the evidence supports, with a lower confidence."""

    cause: Cause
    scope: Scope
    confidence: float
    follows: bool
    evidence: list[str]


class LeftOut(ResponseModel):
    """Numbers of entries that the lists of a diagnosis leave out."""

    evidence: int
    findings: int
    said: int


class ReportText(ResponseModel):
    """The diagnosis as a text in two languages."""

    en: str
    zh: str


class RemedyOutcome(ResponseModel):
    """The outcome of the remedy that an earlier diagnosis led to."""

    cause: Cause
    where: str
    held: bool | None
    english: str
    chinese: str


class Diagnosis(ResponseModel):
    """What failed, where, and with which confidence."""

    job_id: str | None
    attempt: int | None
    cause: Cause
    scope: Scope
    remedy: Remedy
    remedy_sentence: str
    confidence: float
    decided: bool
    evidence: list[str]
    findings: list[Finding]
    rivals: list[Rival]
    next_probe: Probe | None
    said: list[Finding]
    more: LeftOut
    version: str
    page: ReportText
    unread_logs: dict[str, str]
    outcome: RemedyOutcome | None


class LogFinding(ResponseModel):
    """A line of a log that a signature matches."""

    number: int
    line: str
    kind: LineKind
    role: LineRole


class LogCause(LogFinding):
    """The line of a log that names the cause."""

    log_class: Annotated[LogClass, Field(alias="class")]
    policy: str


class LogFindings(ResponseModel):
    """The findings in a log, by line."""

    name: str
    findings: list[LogFinding]
    verdict: LineKind
    cause: LogCause | None


class DiagnosisOrLogFindings(RootModel[Diagnosis | LogFindings]):
    """A diagnosis, or the findings in the log of the request."""
