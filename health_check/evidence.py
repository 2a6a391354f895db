"""Weighs kernel log and driver before any diagnostic, and plans the diagnostics. Pure.

Kernel log and driver answer in seconds. If either clearly finds a GPU faulty, the verdict is final and no diagnostic
runs: ten more minutes of tests would not change the reboot. If they only raise a suspicion, the suspected GPUs are
examined first, and at a deeper level if the time allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from health_check.driver import DriverGpu, DriverReport
from health_check.kernel_evidence import XidSummary, switch_findings, weigh_xids
from health_check.kernel_log import KernelLog
from health_check.recovery_action import RecoveryAction
from health_check.remedies import FindingRemedy
from health_check.settings import PASSIVE, TIMEOUT_S_BY_LEVEL, Unread
from health_check.verdict import DRIVER, MESSAGE_MAX, CheckFinding, by_check
from health_check.xid import bus_id, find
from health_check.xid_table import XidPolicy

_OF_AN_ACTION = {
    RecoveryAction.DRAIN_P2P: (FindingRemedy.RESTART_APP, ""),
    RecoveryAction.RECOVER_IMEX_DOMAIN: (
        FindingRemedy.FIX_CONFIGURATION,
        ": end the jobs of its IMEX domain, then restart nvidia-imex on every instance of the domain",
    ),
    RecoveryAction.OTHER: (
        FindingRemedy.CONTACT_SUPPORT,
        ", which this release does not know: see NVIDIA's documentation of the driver",
    ),
}
"""Remedies of the recovery actions that no reboot carries out, with an addition to the message.

The driver names the IMEX domain after nvidia-imex has ended while other hosts still had its memory. It then refuses
further fabric memory until the service is started again (`imex_session_api.c` of open-gpu-kernel-modules).
"""
DRAIN_REQUESTED = f"RECOVERY_ACTION_{RecoveryAction.DRAIN_P2P}"
"""The code of the finding that the driver wants the peer-to-peer traffic of a GPU to end."""
DEEPEST = 3
"""The deepest level that is chosen automatically. Level 4 takes hours, so only an operator requests it."""


@dataclass(frozen=True)
class CheckEvidence:
    """Findings and suspicions.

    `suspects` are indices of GPUs; `unnamed` says that a suspected GPU has no known index.
    """

    findings: tuple[CheckFinding, ...] = ()
    xids: tuple[XidSummary, ...] = ()
    suspects: frozenset[int] = frozenset()
    unnamed: bool = False

    @property
    def decides(self) -> bool:
        """Return whether the verdict is final without a diagnostic."""
        return any(finding.blames_hardware for finding in self.findings)


@dataclass(frozen=True)
class DiagnosticStep:
    """One diagnostic to run.

    `level` is its level, `gpus` the GPUs to examine (None: all), and `timeout_s` the most seconds it may take (None:
    all that remain).
    """

    level: int
    gpus: frozenset[int] | None = None
    timeout_s: float | None = None


def weigh(
    log: KernelLog,
    driver: DriverReport,
    *,
    level: int,
    policy: XidPolicy,
    since: datetime | None,
    expected_gpus: int | None,
    focus: tuple[str, ...] = (),
    unread: tuple[Unread, ...] = (),
) -> CheckEvidence:
    """Return the evidence of kernel log and driver. Never raises.

    Args:
        log: the kernel log.
        driver: the driver's answer.
        level: the requested level of the diagnostic.
        policy: the vendor of the list of XIDs to apply.
        since: the begin of the time in question; None for the boot.
        expected_gpus: how many GPUs the instance should have; None if unknown.
        focus: GPUs that the caller suspects, by index, UUID or PCI address.
        unread: the settings that could not be read.
    """
    events = find(log.messages)
    xids = weigh_xids(events, driver, policy=policy, since=since)
    findings = [entry.finding() for entry in xids]
    findings += switch_findings(events, since)
    findings += _of_the_driver(driver, expected_gpus, level)
    findings += _of_what_is_missing(log, driver, level)
    findings += _of_the_settings(unread, [name for name in focus if _index(name, driver) is None])
    suspected = {_index(name, driver) for name in focus}
    suspected |= {None for setting in unread if setting.name == "FOCUS"}
    suspected |= {finding.gpu_index for finding in findings if finding.remedy is FindingRemedy.RUN_DIAGNOSTIC}
    suspects = frozenset(index for index in suspected if index is not None)
    return CheckEvidence(tuple(findings), xids, suspects, unnamed=None in suspected)


def plan(level: int, timeout_s: float, evidence: CheckEvidence) -> tuple[DiagnosticStep, ...]:
    """Return the diagnostics to run, in order. All of them together may take `timeout_s` seconds.

    A level is raised only if its own time fits: a deep test that is cut short looks like a GPU that hangs. For suspects
    the time of both levels must fit, because the requested level follows on all GPUs.
    """
    if level == PASSIVE or evidence.decides:
        return ()
    for deeper in range(DEEPEST, level, -1):
        if evidence.unnamed and TIMEOUT_S_BY_LEVEL[deeper] <= timeout_s:
            return (DiagnosticStep(deeper),)
        both = TIMEOUT_S_BY_LEVEL[deeper] + TIMEOUT_S_BY_LEVEL[level]
        if evidence.suspects and not evidence.unnamed and both <= timeout_s:
            return DiagnosticStep(deeper, evidence.suspects, timeout_s - TIMEOUT_S_BY_LEVEL[level]), DiagnosticStep(
                level
            )
    return (DiagnosticStep(level),)


def _index(name: str, driver: DriverReport) -> int | None:
    """Return the index of a GPU given by index, UUID or PCI address; None if the driver does not know it.

    If the driver did not answer, an index is accepted unchanged.
    """
    if name.isdigit():
        return int(name) if not driver.gpus or any(gpu.index == int(name) for gpu in driver.gpus) else None
    address = bus_id(name)
    if address is not None:
        return driver.index_of(address)
    return next((gpu.index for gpu in driver.gpus if name.casefold() == (gpu.uuid or "").casefold()), None)


def _of_the_settings(unread: tuple[Unread, ...], unknown: list[str]) -> Iterator[CheckFinding]:
    """Yield findings about settings that could not be read. A GPU without an index is only a note: FOCUS is a hint."""
    for setting in unread:
        yield by_check("settings", f"{setting.name}_UNREAD", setting.remedy, setting.message)
    if unknown:
        message = f"the driver gives no index for {', '.join(unknown)}, which FOCUS names; all GPUs are examined"
        yield by_check("settings", "FOCUS_UNKNOWN", FindingRemedy.IGNORE, message)


def _of_the_driver(driver: DriverReport, expected_gpus: int | None, level: int) -> Iterator[CheckFinding]:
    for lost in driver.lost:
        where = f" at {lost.pci_bus_id}" if lost.pci_bus_id else ""
        yield _by_driver(
            "GPU_UNREACHABLE", FindingRemedy.REBOOT_INSTANCE, f"it cannot reach the GPU{where}", lost.index
        )
    present = len(driver.gpus)
    if present and expected_gpus is not None and present < expected_gpus:
        message = f"{present} of {expected_gpus} GPUs are present"
        yield _by_driver("GPU_LOST", FindingRemedy.REBOOT_INSTANCE, message, None)
    for gpu in driver.gpus:
        yield from _of_a_gpu(gpu, level)


def _of_a_gpu(gpu: DriverGpu, level: int) -> Iterator[CheckFinding]:
    if gpu.action.asks:
        remedy, more = _OF_AN_ACTION.get(gpu.action, (FindingRemedy.REBOOT_INSTANCE, ""))
        message = f"its recovery action for the GPU is {gpu.action}"
        if gpu.action is RecoveryAction.OTHER:
            message = f"its recovery action for the GPU is '{gpu.action_text}'"
        yield _by_driver(f"RECOVERY_ACTION_{gpu.action}", remedy, message + more, gpu.index)
    if gpu.remap_failed:
        message = "a spare row could not be mapped in; no reboot brings it back"
        yield _by_driver("ROW_REMAP_FAILED", FindingRemedy.REPLACE_INSTANCE, message, gpu.index)
    if gpu.sram_threshold_exceeded:
        message = "the lifetime count of SRAM errors exceeds the threshold"
        yield _by_driver("SRAM_THRESHOLD_EXCEEDED", FindingRemedy.REPLACE_INSTANCE, message, gpu.index)
    if gpu.remap_pending:
        # Running applications are not affected, so a passive check must not end the jobs on the instance.
        remedy = FindingRemedy.IGNORE if level == PASSIVE else FindingRemedy.REBOOT_INSTANCE
        yield _by_driver("ROW_REMAP_PENDING", remedy, "a row is remapped at the next reset", gpu.index)
    elif gpu.uncorrected_errors:
        message = f"{gpu.uncorrected_errors} uncorrectable memory errors since the driver was loaded"
        yield _by_driver("ECC_UNCORRECTED", FindingRemedy.RUN_DIAGNOSTIC, message, gpu.index)


def _of_what_is_missing(log: KernelLog, driver: DriverReport, level: int) -> Iterator[CheckFinding]:
    """Yield findings about sources without data.

    They are notes beside a diagnostic, and make a passive check inconclusive, because it has no other source. Two
    findings are the same at every level: a driver that hangs is a suspicion, and overwritten log records are a note.
    """
    remedy = FindingRemedy.CONTACT_SUPPORT if level == PASSIVE else FindingRemedy.IGNORE
    if log.unread:
        yield by_check("kernel log", "KERNEL_LOG_UNREAD", remedy, log.unread)
    if log.begins_at:
        message = f"older records are overwritten; it begins at {log.begins_at:%Y-%m-%dT%H:%M:%SZ}"
        yield by_check("kernel log", "KERNEL_LOG_CUT", FindingRemedy.IGNORE, message)
    if driver.hung:
        yield _by_driver("DRIVER_HUNG", FindingRemedy.RUN_DIAGNOSTIC, driver.no_answer or "", None)
    elif driver.no_answer:
        yield by_check("driver", "DRIVER_SILENT", remedy, driver.no_answer)


def _by_driver(code: str, remedy: FindingRemedy, message: str, gpu_index: int | None) -> CheckFinding:
    return CheckFinding(DRIVER, "driver", gpu_index, code, None, None, remedy, message[:MESSAGE_MAX])
