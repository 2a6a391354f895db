"""What is known before any diagnostic runs, and what that makes of the diagnostic. Pure, and total.

The kernel's log and the driver answer in seconds. If one of them accuses a GPU outright, the verdict stands and no
diagnostic is needed: a reboot is not made better by ten more minutes of tests. If they only cast suspicion, the
suspects are examined first, and deeper, where the time allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from health_check.driver import DriverGpu, DriverReport
from health_check.kernel_evidence import XidSeen, switch_findings, weigh_xids
from health_check.kernel_log import KernelLog
from health_check.remedies import Remedy
from health_check.settings import PASSIVE, TIMEOUT_S_BY_LEVEL, Unread
from health_check.verdict import DRIVER, MESSAGE_MAX, Finding, by_check
from health_check.xid import bus_id, find
from health_check.xid_table import XidPolicy

DEEPEST = 3
"""Level 4 takes hours; nobody but the operator orders it."""


@dataclass(frozen=True)
class Evidence:
    """`suspects` are indices of GPUs; `unnamed` says that a suspicion falls on a GPU whose index is not known."""

    findings: tuple[Finding, ...] = ()
    xids: tuple[XidSeen, ...] = ()
    suspects: frozenset[int] = frozenset()
    unnamed: bool = False

    @property
    def decides(self) -> bool:
        """Whether the verdict stands without a diagnostic."""
        return any(finding.blames_hardware for finding in self.findings)


@dataclass(frozen=True)
class Step:
    """One diagnostic to run: its level, the GPUs it is for (None: all), and the most seconds it may take (None: all
    that are left)."""

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
) -> Evidence:
    """The evidence of log and driver.

    `focus` are GPUs that somebody else suspects already, by index, UUID or PCI address; `unread` are the settings that
    could not be read.
    """
    events = find(log.messages)
    xids = weigh_xids(events, driver, policy=policy, since=since)
    findings = [entry.finding() for entry in xids]
    findings += switch_findings(events, since)
    findings += _of_the_driver(driver, expected_gpus, level)
    findings += _of_what_is_missing(log, driver, level)
    findings += _of_the_settings(unread, [name for name in focus if _index(name, driver) is None])
    suspected = {_index(name, driver) for name in focus}
    suspected |= {None for one in unread if one.name == "FOCUS"}
    suspected |= {finding.gpu_index for finding in findings if finding.remedy is Remedy.RUN_DIAGNOSTIC}
    suspects = frozenset(index for index in suspected if index is not None)
    return Evidence(tuple(findings), xids, suspects, unnamed=None in suspected)


def plan(level: int, timeout_s: float, evidence: Evidence) -> tuple[Step, ...]:
    """The diagnostics to run, in order, `timeout_s` seconds for all of them.

    A level is raised only where its own time fits: a deep test that is cut short looks like a GPU that hangs.
    """
    if level == PASSIVE or evidence.decides:
        return ()
    for deeper in range(DEEPEST, level, -1):
        if evidence.unnamed and TIMEOUT_S_BY_LEVEL[deeper] <= timeout_s:
            return (Step(deeper),)
        both = TIMEOUT_S_BY_LEVEL[deeper] + TIMEOUT_S_BY_LEVEL[level]
        if evidence.suspects and not evidence.unnamed and both <= timeout_s:
            return Step(deeper, evidence.suspects, timeout_s - TIMEOUT_S_BY_LEVEL[level]), Step(level)
    return (Step(level),)


def _index(name: str, driver: DriverReport) -> int | None:
    """The index of a GPU given by index, UUID or PCI address, None where the driver does not tell it.

    Without an answer of the driver an index is taken as it is.
    """
    if name.isdigit():
        return int(name) if not driver.gpus or any(gpu.index == int(name) for gpu in driver.gpus) else None
    address = bus_id(name)
    if address is not None:
        return driver.index_of(address)
    return next((gpu.index for gpu in driver.gpus if name.casefold() == (gpu.uuid or "").casefold()), None)


def _of_the_settings(unread: tuple[Unread, ...], unknown: list[str]) -> Iterator[Finding]:
    """A setting that cannot be read costs what it would have said, and a name that nobody knows is only a hint."""
    for one in unread:
        yield by_check("settings", f"{one.name}_UNREAD", one.remedy, one.message)
    if unknown:
        message = f"the driver gives no index for {', '.join(unknown)}, which FOCUS names; all GPUs are examined"
        yield by_check("settings", "FOCUS_UNKNOWN", Remedy.IGNORE, message)


def _of_the_driver(driver: DriverReport, expected_gpus: int | None, level: int) -> Iterator[Finding]:
    for lost in driver.lost:
        where = f" at {lost.pci_bus_id}" if lost.pci_bus_id else ""
        yield _by_driver("GPU_UNREACHABLE", Remedy.REBOOT_INSTANCE, f"it cannot reach the GPU{where}", lost.index)
    present = len(driver.gpus)
    if present and expected_gpus is not None and present < expected_gpus:
        message = f"{present} of {expected_gpus} GPUs are present"
        yield _by_driver("GPU_LOST", Remedy.REBOOT_INSTANCE, message, None)
    for gpu in driver.gpus:
        yield from _of_a_gpu(gpu, level)


def _of_a_gpu(gpu: DriverGpu, level: int) -> Iterator[Finding]:
    if gpu.action.asks:
        message = f"its recovery action for the GPU is {gpu.action}"
        yield _by_driver(f"RECOVERY_ACTION_{gpu.action}", Remedy.REBOOT_INSTANCE, message, gpu.index)
    if gpu.remap_failed:
        message = "a spare row could not be mapped in; no reboot brings it back"
        yield _by_driver("ROW_REMAP_FAILED", Remedy.REPLACE_INSTANCE, message, gpu.index)
    if gpu.sram_threshold_exceeded:
        message = "the count of SRAM errors over its life has passed the threshold"
        yield _by_driver("SRAM_THRESHOLD_EXCEEDED", Remedy.REPLACE_INSTANCE, message, gpu.index)
    if gpu.remap_pending:
        # The running applications are not affected, so it is no reason to end those of somebody else.
        remedy = Remedy.IGNORE if level == PASSIVE else Remedy.REBOOT_INSTANCE
        yield _by_driver("ROW_REMAP_PENDING", remedy, "a row is remapped at the next reset", gpu.index)
    elif gpu.uncorrected_errors:
        message = f"{gpu.uncorrected_errors} uncorrectable memory errors since the driver was loaded"
        yield _by_driver("ECC_UNCORRECTED", Remedy.RUN_DIAGNOSTIC, message, gpu.index)


def _of_what_is_missing(log: KernelLog, driver: DriverReport, level: int) -> Iterator[Finding]:
    """A source that said nothing: a note beside a diagnostic, but a passive check has nothing else."""
    remedy = Remedy.CONTACT_SUPPORT if level == PASSIVE else Remedy.IGNORE
    if log.unread:
        yield by_check("kernel log", "KERNEL_LOG_UNREAD", remedy, log.unread)
    if log.begins_at:
        message = f"older records are overwritten; it begins at {log.begins_at:%Y-%m-%dT%H:%M:%SZ}"
        yield by_check("kernel log", "KERNEL_LOG_CUT", Remedy.IGNORE, message)
    if driver.hung:
        yield _by_driver("DRIVER_HUNG", Remedy.RUN_DIAGNOSTIC, driver.silent or "", None)
    elif driver.silent:
        yield by_check("driver", "DRIVER_SILENT", remedy, driver.silent)


def _by_driver(code: str, remedy: Remedy, message: str, gpu_index: int | None) -> Finding:
    return Finding(DRIVER, "driver", gpu_index, code, None, None, remedy, message[:MESSAGE_MAX])
