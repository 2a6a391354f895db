"""Examinations, composed by the tests: what the kernel's log, the driver and the diagnostic said of an instance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import health_check
from health_check import driver, kernel_log
from health_check.boot import Boot
from health_check.document import document
from health_check.driver import DriverReport
from health_check.evidence import CheckEvidence, DiagnosticStep, weigh
from health_check.examine import DiagnosticRun, Examination, judge
from health_check.kernel_log import KernelLog
from health_check.parse import parse
from health_check.run import ProcessRun
from health_check.settings import CheckSettings
from health_check.verdict import InstanceVerdict
from health_check.xid_table import XidPolicy

SCHEMA = json.loads(Path(health_check.__file__).with_name("verdict.schema.json").read_text(encoding="utf-8"))
BOOTED_AT = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
BOOT = Boot("8a3b1c9e-7a52-4b0e-9f5e-2f8f1c0d7e11", BOOTED_AT)
STARTED_AT = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
SETTINGS = CheckSettings(
    check_id="check/i-0abc/3",
    instance_id="i-0abc",
    verdict_bucket="verdicts-bucket",
    verdict_key="verdicts/check/i-0abc/3.json",
    level=2,
    expected_gpus=8,
    timeout_s=60,
    host_proc=Path("/proc"),
    host_kmsg=Path("/dev/kmsg"),
    focus=(),
    since=None,
    xid_policy=XidPolicy.NVIDIA,
    region=None,
)
ADDRESSES = [f"0000:{0x10 + index:02x}:00" for index in range(8)]


def xid(code: int, gpu: int = 0, rest: str = ", pid=7, name=python, what happened") -> str:
    """A line of the kernel's log; GPU `n` has the address ADDRESSES[n]."""
    return f"NVRM: Xid (PCI:{ADDRESSES[gpu]}): {code}{rest}"


def action_changed(new: str, gpu: int = 0, old: str = "0x0 (None)") -> str:
    """XID 154."""
    return xid(154, gpu, f", GPU recovery action changed from {old} to {new}")


def log(*lines: str | tuple[float, str]) -> KernelLog:
    """A kernel log with a line at each of the given seconds since the boot, or one second after the one before."""
    records, at_s = [], 100.0
    for line in lines:
        at_s, text = line if isinstance(line, tuple) else (at_s + 1, line)
        records.append(f"4,{len(records)},{int(at_s * 1e6)},-;{text}")
    return KernelLog(kernel_log.parse("\n".join(records), BOOTED_AT))


def gpu_xml(index: int, action: str | None = "None", **tags: str) -> str:
    """One GPU of `nvidia-smi -q -x`; `action` None leaves the tag out, as drivers before 565 do."""
    said = "" if action is None else f"<gpu_recovery_action>{escape(action)}</gpu_recovery_action>"
    ecc = f"<sram_uncorrectable>0</sram_uncorrectable><dram_uncorrectable>{tags.get('ecc', '0')}</dram_uncorrectable>"
    return (
        f'<gpu id="0000{ADDRESSES[index]}.0"><uuid>GPU-{index}</uuid>{said}'
        f"<ecc_errors><volatile><dram_correctable>9</dram_correctable>{ecc}</volatile>"
        f"<aggregate><sram_threshold_exceeded>{tags.get('sram', 'No')}</sram_threshold_exceeded></aggregate>"
        "</ecc_errors>"
        f"<remapped_rows><remapped_row_pending>{tags.get('pending', 'No')}</remapped_row_pending>"
        f"<remapped_row_failure>{tags.get('failure', 'No')}</remapped_row_failure></remapped_rows>"
        f"<processes>{tags.get('processes', '')}</processes></gpu>"
    )


def smi(gpus: Sequence[str], version: str = "580.82.09") -> str:
    """The XML of `nvidia-smi -q -x`."""
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log><driver_version>{version}</driver_version>{''.join(gpus)}</nvidia_smi_log>\n"
    )


def answer(*gpus: str, version: str = "580.82.09") -> DriverReport:
    """The driver's answer with these GPUs; without any, that of eight healthy ones."""
    return driver.parse(smi(gpus or [gpu_xml(index) for index in range(8)], version), "", 0)


def evidence_of(seen: KernelLog, said: DriverReport | None = None, **changes: Any) -> CheckEvidence:
    """The evidence of a log and an answer, at level 2 by NVIDIA's list unless told otherwise."""
    facts: dict[str, Any] = {"level": 2, "policy": XidPolicy.NVIDIA, "since": None, "expected_gpus": 8}
    return weigh(seen, answer() if said is None else said, **(facts | changes))


def examination(
    *diagnoses: tuple[str, int],
    level: int = 2,
    seen: KernelLog | None = None,
    said: DriverReport | None = None,
    evidence: CheckEvidence | None = None,
    boot: Boot = BOOT,
) -> Examination:
    """An examination with (text, exit code) of each diagnostic that ran."""
    ran = tuple(
        DiagnosticRun(DiagnosticStep(level), ProcessRun(text, "", code), parse(text)) for text, code in diagnoses
    )
    return Examination(boot, seen or KernelLog(), said or DriverReport(), evidence or CheckEvidence(), ran)


def judged(text: str, exit_code: int = 0, *, level: int = 2, expected_gpus: int | None = None) -> InstanceVerdict:
    """The verdict on one diagnostic, where nothing else is known."""
    return judge(examination((text, exit_code), level=level), level=level, expected_gpus=expected_gpus)


def document_of(verdict: InstanceVerdict, of: Examination, **changes: Any) -> dict[str, Any]:
    """The document as its reader gets it: through JSON text. `changes` are of the settings."""
    settings = replace(SETTINGS, **changes)
    written = document(verdict, of, settings, started_at=STARTED_AT, ended_at=STARTED_AT + timedelta(seconds=90))
    return dict(json.loads(json.dumps(written)))
