"""The verdict document, which the control plane reads from S3.

Its shape is `verdict.schema.json`.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from health_check.driver import DriverReport
from health_check.examine import DiagnosticRun, Examination
from health_check.kernel_evidence import XidSummary
from health_check.recovery_action import RecoveryAction
from health_check.settings import CheckSettings
from health_check.verdict import InstanceVerdict
from health_check.xid_table import XID_TABLE_VERSION

SCHEMA_VERSION = 3
VERSION_MAX = 64
REASON_MAX = 500


def document(
    verdict: InstanceVerdict,
    examination: Examination,
    settings: CheckSettings,
    *,
    started_at: datetime,
    ended_at: datetime,
) -> dict[str, Any]:
    """Return the verdict and the facts around it as JSON values. Both times must be aware."""
    report, driver = examination.report, examination.driver
    driver_version = report.driver_version or driver.version
    return {
        "schema_version": SCHEMA_VERSION,
        "check_id": settings.check_id,
        "instance_id": settings.instance_id,
        "boot_id": examination.boot.id,
        "booted_at": _utc_or_none(examination.boot.at),
        "started_at": utc(started_at),
        "ended_at": utc(ended_at),
        "level": settings.level,
        "focus": list(settings.focus),
        "suspects": sorted(examination.evidence.suspects),
        "xid_policy": settings.xid_policy,
        "xid_table_version": XID_TABLE_VERSION,
        "diagnostics": [_diagnostic(diagnosis) for diagnosis in examination.diagnoses],
        "outcome": verdict.outcome,
        "exit_code": verdict.outcome.exit_code,
        "dcgm_version": report.dcgm_version and report.dcgm_version[:VERSION_MAX],
        "driver_version": driver_version and driver_version[:VERSION_MAX],
        "summary": verdict.summary,
        "findings": [asdict(finding) for finding in verdict.findings],
        "kernel_log": {
            "unread": examination.log.unread and examination.log.unread[:REASON_MAX],
            "since": _utc_or_none(settings.since),
            "begins_at": _utc_or_none(examination.log.begins_at),
        },
        "xids": [_xid(seen) for seen in examination.evidence.xids],
        "driver": _driver(driver),
    }


def utc(moment: datetime) -> str:
    """Return the time in ISO 8601, UTC, whole seconds, with a Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else utc(moment)


def _diagnostic(diagnosis: DiagnosticRun) -> dict[str, Any]:
    gpus = diagnosis.step.gpus
    return {
        "level": diagnosis.step.level,
        "gpus": None if gpus is None else sorted(gpus),
        "exit_code": diagnosis.run.exit_code,
    }


def _xid(seen: XidSummary) -> dict[str, Any]:
    return {
        "code": seen.code,
        "mnemonic": seen.mnemonic or None,
        "class": seen.xid_class,
        "gpu_index": seen.gpu_index,
        "pci_bus_id": seen.pci_bus_id,
        "count": seen.count,
        "first_at": _utc_or_none(seen.first_at),
        "last_at": _utc_or_none(seen.last_at),
    } | ({} if seen.action is None else {"recovery_action": seen.action})


def _driver(driver: DriverReport) -> dict[str, Any]:
    """Return the facts of the driver.

    `recovery_action` is the first action that asks for something. Without such an action it is UNKNOWN if the action of
    any GPU is unknown or no GPU answered, and NONE in every other case.
    """
    actions = [gpu.action for gpu in driver.gpus]
    asked = next((action for action in actions if action.asks), None)
    all_known = bool(actions) and RecoveryAction.UNKNOWN not in actions
    return {
        "silent": driver.no_answer and driver.no_answer[:REASON_MAX],
        "recovery_action": asked or (RecoveryAction.NONE if all_known else RecoveryAction.UNKNOWN),
        "gpus": [
            {"index": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.pci_bus_id, "recovery_action": gpu.action}
            for gpu in driver.gpus
        ],
    }
