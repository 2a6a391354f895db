"""The verdict document: what the control plane reads from S3. Its shape is `verdict.schema.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from health_check.judge import Verdict
from health_check.report import Report
from health_check.settings import Settings

SCHEMA_VERSION = 1
VERSION_MAX = 64


@dataclass(frozen=True)
class Boot:
    """Which boot was examined: proof, later, that a reboot happened. None where /proc does not say."""

    id: str | None
    at: str | None


def read_boot(host_proc: Path) -> Boot:
    """`boot_id` and `btime` of the kernel, from the host's /proc. A file that is missing gives None."""
    boot_id = _contents(host_proc / "sys/kernel/random/boot_id").strip()
    seconds = next(
        (
            line.split()[1]
            for line in _contents(host_proc / "stat").splitlines()
            if line.startswith("btime ") and len(line.split()) == 2
        ),
        "",
    )
    is_time = seconds.isascii() and seconds.isdigit() and len(seconds) <= 11
    booted_at = utc(datetime.fromtimestamp(int(seconds), UTC)) if is_time else None
    return Boot(boot_id[:VERSION_MAX] or None, booted_at)


def document(
    verdict: Verdict, report: Report, settings: Settings, boot: Boot, *, started_at: datetime, ended_at: datetime
) -> dict[str, Any]:
    """The verdict and the facts around it as JSON values. Both times must be aware."""
    return {
        "schema_version": SCHEMA_VERSION,
        "check_id": settings.check_id,
        "instance_id": settings.instance_id,
        "boot_id": boot.id,
        "booted_at": boot.at,
        "started_at": utc(started_at),
        "ended_at": utc(ended_at),
        "level": settings.level,
        "outcome": verdict.outcome,
        "exit_code": verdict.outcome.exit_code,
        "dcgm_version": report.dcgm_version and report.dcgm_version[:VERSION_MAX],
        "driver_version": report.driver_version and report.driver_version[:VERSION_MAX],
        "summary": verdict.summary,
        "findings": [asdict(finding) for finding in verdict.findings],
    }


def utc(moment: datetime) -> str:
    """ISO 8601, UTC, whole seconds, with a Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _contents(path: Path) -> str:
    """The text of a file of /proc, or nothing: a container may see only part of it."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
