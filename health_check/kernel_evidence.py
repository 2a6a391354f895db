"""Findings from the kernel log: XIDs by their table, in relation to other events.

Some rules do not fit into a table. The driver's own recovery action (XID 154) overrides the table. An error that
follows another error is no cause. An error of the application becomes suspicious when it repeats on the same GPU. An
error before the time in question is a reason to examine, not a verdict. Pure; never raises.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, pairwise

from health_check import nvlink
from health_check.driver import DriverReport
from health_check.recovery_action import RecoveryAction, changed_to
from health_check.remedies import FindingRemedy
from health_check.verdict import KERNEL_LOG, MESSAGE_MAX, CheckFinding
from health_check.xid import PREEMPTIVE_REMOVAL, LoggedErrors, XidEvent, named_cause
from health_check.xid_table import RECOVERY_ACTION_CHANGED, KnownXid, XidClass, XidPolicy, known

XIDS_MAX = 64
"""Largest number of XID entries in a verdict document, the worst first."""
APART = timedelta(seconds=60)
"""Shortest time between two errors that count as two incidents. One crash writes a line for each of its channels."""
CLOCKS_DIFFER_BY = timedelta(seconds=5)
"""Largest difference of clocks: the boot time has whole seconds, and the kernel's clock is not corrected like the wall
clock.
"""
REMEDIES = {
    XidClass.IGNORE: FindingRemedy.IGNORE,
    XidClass.FOLLOW_OTHER: FindingRemedy.IGNORE,
    XidClass.APP: FindingRemedy.IGNORE,  # not the instance's fault: the job fails by its own exit
    XidClass.WATCH: FindingRemedy.IGNORE,
    XidClass.CONFIG: FindingRemedy.FIX_CONFIGURATION,
    XidClass.DIAG: FindingRemedy.RUN_DIAGNOSTIC,
    XidClass.REBOOT: FindingRemedy.REBOOT_INSTANCE,
    XidClass.REPLACE: FindingRemedy.REPLACE_INSTANCE,
}
"""The remedy of each class."""
DOUBLE_BIT_ERROR, ROW_REMAPPED = 48, (63, 64)
GRAPHICS_EXCEPTION = 13
_UNIT = re.compile(r"GPC (\d{1,3}), TPC (\d{1,3})")


@dataclass(frozen=True)
class XidSummary:
    """All XIDs of one code on one GPU: one entry of the verdict document.

    `action` is the last recovery action that the driver changed to; only XID 154 has it.
    """

    code: int
    mnemonic: str
    xid_class: XidClass
    gpu_index: int | None
    pci_bus_id: str | None
    count: int
    first_at: datetime | None
    last_at: datetime | None
    remedy: FindingRemedy
    message: str
    action: RecoveryAction | None = None

    def finding(self) -> CheckFinding:
        """Return the entry as a finding."""
        return CheckFinding(
            KERNEL_LOG,
            "kernel log",
            self.gpu_index,
            f"XID_{self.code}",
            self.code,
            None,
            self.remedy,
            self.message[:MESSAGE_MAX],
        )


def weigh_xids(
    events: LoggedErrors, driver: DriverReport, *, policy: XidPolicy, since: datetime | None
) -> tuple[XidSummary, ...]:
    """Return the XIDs of every GPU, the worst first, at most XIDS_MAX."""
    by_gpu = sorted(events.xids, key=lambda event: event.pci_bus_id or "")
    seen = [
        entry
        for address, group in groupby(by_gpu, key=lambda event: event.pci_bus_id)
        for entry in _OneGpu(address, tuple(group), events, driver, policy, since).entries()
    ]
    return tuple(sorted(seen, key=lambda entry: nvlink.WORST_FIRST.index(_weight(entry)))[:XIDS_MAX])


def _weight(entry: XidSummary) -> XidClass:
    return next(xid_class for xid_class in nvlink.WORST_FIRST if REMEDIES[xid_class] is entry.remedy)


def switch_findings(events: LoggedErrors, since: datetime | None) -> Iterator[CheckFinding]:
    """Yield errors of NVSwitches, one finding per code.

    A fatal error needs a reset of the fabric, which is a reboot.
    """
    with_link = any(event.code == nvlink.NVLINK_ERROR for event in events.xids)
    ordered = sorted(events.sxids, key=lambda event: (not event.is_fatal, event.code))
    for (_, code), group in groupby(ordered, key=lambda event: (not event.is_fatal, event.code)):
        same = list(group)
        current = [event for event in same if _is_current(event.at, since)]
        remedy = FindingRemedy.IGNORE
        if same[0].is_fatal:
            remedy = FindingRemedy.REBOOT_INSTANCE if current else FindingRemedy.RUN_DIAGNOSTIC
        root = "; together with XID 74, the switch is the likely cause" if with_link else ""
        message = f"{(current or same)[-1].text}{_times(len(same))}{root}"
        yield CheckFinding(KERNEL_LOG, "kernel log", None, f"SXID_{code}", code, None, remedy, message[:MESSAGE_MAX])


def _is_current(at: datetime | None, since: datetime | None) -> bool:
    return since is None or at is None or at >= since - CLOCKS_DIFFER_BY


def new_action(event: XidEvent) -> RecoveryAction:
    """Return the action that an XID 154 changed to."""
    return changed_to(event.text)


@dataclass(frozen=True)
class _OneGpu:
    """The events at one PCI address, in the order of the log. `address` is None for events that hide it."""

    address: str | None
    events: tuple[XidEvent, ...]
    all: LoggedErrors
    driver: DriverReport
    policy: XidPolicy
    since: datetime | None

    def entries(self) -> Iterator[XidSummary]:
        changes = [number for number, event in enumerate(self.events) if event.code == RECOVERY_ACTION_CHANGED]
        action = new_action(self.events[changes[-1]]) if changes and self.address else None
        ordered = sorted(range(len(self.events)), key=lambda number: self.events[number].code)
        for code, group in groupby(ordered, key=lambda number: self.events[number].code):
            numbers = list(group)
            same = [self.events[number] for number in numbers]
            if code == RECOVERY_ACTION_CHANGED:
                yield self._of_the_action(same)
            else:
                # The last XID 154 covers the errors before it. Without addresses it may belong to another GPU.
                later_action = action if changes and numbers[-1] < changes[-1] else None
                yield self._of_a_code(code, same, later_action)

    def _of_the_action(self, same: list[XidEvent]) -> XidSummary:
        action = new_action(same[-1])
        if action in (RecoveryAction.UNKNOWN, RecoveryAction.OTHER):
            xid_class, why = (
                XidClass.DIAG,
                "the driver changed its recovery action to an action that this release does not know",
            )
        elif not action.asks:
            xid_class, why = XidClass.IGNORE, "the driver's recovery action was cleared"
        elif action is RecoveryAction.RECOVER_IMEX_DOMAIN and self._present_action() is not RecoveryAction.NONE:
            xid_class, why = XidClass.CONFIG, "the driver asks for a recovery of the IMEX domain, not for a reboot"
        elif action is RecoveryAction.DRAIN_P2P:
            xid_class, why = XidClass.DIAG, f"the driver asked for {action}; after that its state must be read again"
        elif self._present_action() is RecoveryAction.NONE:
            xid_class, why = XidClass.DIAG, f"the driver asked for {action}, but no longer does"
        else:
            xid_class, why = XidClass.REBOOT, f"the driver asks for {action}"
        return replace(self._entry(RECOVERY_ACTION_CHANGED, same, xid_class, why), action=action)

    def _of_a_code(self, code: int, same: list[XidEvent], action: RecoveryAction | None) -> XidSummary:
        """Return the entry of one code.

        `action` is the driver's recovery action after these events; None if there is none.
        """
        current = [event for event in same if _is_current(event.at, self.since)]
        cause = self._cause_without_record(code, current or same)
        row = known(code if cause is None else cause, self.policy)
        if cause is None:
            xid_class, why = self._class(code, row, current or same)
        else:
            xid_class, why = row.xid_class, f"the consequence of XID {cause}, which is not in the log"
        if xid_class not in (
            XidClass.REPLACE,
            XidClass.CONFIG,
        ):  # no reset cures these, so the action does not cover them
            if action is RecoveryAction.NONE:
                return self._entry(code, same, XidClass.IGNORE, "cleared by the driver since")
            if action is not None and action.asks and (xid_class is not XidClass.REBOOT or self._waits(row, action)):
                return self._entry(code, same, XidClass.FOLLOW_OTHER, "the driver's recovery action confirms it")
            if xid_class is XidClass.REBOOT and self._is_denied(row):
                xid_class, why = XidClass.DIAG, "the driver asks for no recovery of this GPU"
        if not current and xid_class in (XidClass.REBOOT, XidClass.REPLACE):
            xid_class, why = XidClass.DIAG, "it is older than the period that is examined"
        return self._entry(code, same, xid_class, why)

    def _class(self, code: int, row: KnownXid, same: Sequence[XidEvent]) -> tuple[XidClass, str]:
        """Return the class of a code's events on one GPU, and the reason if it is not the table's class."""
        xid_class, why = row.xid_class, ""
        if not row.fixed:
            links = Counter(map(nvlink.link_of, same))
            decoded = {nvlink.decode(event, links[nvlink.link_of(event)]) for event in same}
            xid_class = nvlink.worst({each for each in decoded if each is not None}) or xid_class
        if row.repeated and self._incidents(code, same) > 1:
            return row.repeated, "it occurred again on this GPU"
        if xid_class is XidClass.FOLLOW_OTHER and self._is_alone(code):
            return row.alone or XidClass.DIAG, "without another XID before it"
        if code == DOUBLE_BIT_ERROR and {event.code for event in self.events} & set(ROW_REMAPPED):
            why = "a row waits to be remapped, which needs a reset"
        return xid_class, why

    def _cause_without_record(self, code: int, same: Sequence[XidEvent]) -> int | None:
        """Return the gravest XID that events 45 name as their cause and that has no record of its own, or None."""
        if code != PREEMPTIVE_REMOVAL:
            return None
        named = {cause for event in same if (cause := named_cause(event)) is not None}
        named -= {event.code for event in self.events}
        classes = {cause: known(cause, self.policy).xid_class for cause in sorted(named)}
        return min(classes, key=lambda cause: nvlink.WORST_FIRST.index(classes[cause]), default=None)

    def _is_alone(self, code: int) -> bool:
        others = self.events if self.address else self.all.xids
        return all(
            event.code == code or known(event.code, self.policy).xid_class is XidClass.FOLLOW_OTHER for event in others
        )

    def _incidents(self, code: int, same: Sequence[XidEvent]) -> int:
        """Return the number of incidents, the maximum over the units of the GPU.

        Without a time or an address it is 1.
        """
        if self.address is None or any(event.at is None for event in same):
            return 1
        by_unit: dict[str, list[datetime]] = {}
        for event in same:
            unit = _UNIT.search(event.text) if code == GRAPHICS_EXCEPTION else None
            if event.at is not None:
                by_unit.setdefault(unit[0] if unit else "", []).append(event.at)
        return max(_separate(sorted(times)) for times in by_unit.values())

    def _present_action(self) -> RecoveryAction:
        """Return the driver's present action for this GPU. Without an address it is NONE if no GPU needs any action."""
        if self.address is None:
            all_none = bool(self.driver.gpus) and {gpu.action for gpu in self.driver.gpus} == {RecoveryAction.NONE}
            return RecoveryAction.NONE if all_none and not self.driver.lost else RecoveryAction.UNKNOWN
        actions = (gpu.action for gpu in self.driver.gpus if gpu.pci_bus_id == self.address)
        return next(actions, RecoveryAction.UNKNOWN)

    def _waits(self, row: KnownXid, action: RecoveryAction) -> bool:
        """Return whether the driver will say what this code needs only after the peer-to-peer traffic has ended."""
        return row.action_since_driver is not None and action is RecoveryAction.DRAIN_P2P

    def _is_denied(self, row: KnownXid) -> bool:
        """Return whether the driver's action covers this code in this release, and asks for nothing at present."""
        version = self.driver.version or ""
        release = int(version.partition(".")[0]) if version.partition(".")[0].isdigit() else 0
        covers = row.action_since_driver is not None and release >= row.action_since_driver
        # The driver names the IMEX domain only if the GPU needs neither a reset nor a reboot.
        return covers and self._present_action() in (RecoveryAction.NONE, RecoveryAction.RECOVER_IMEX_DOMAIN)

    def _entry(self, code: int, same: list[XidEvent], xid_class: XidClass, why: str) -> XidSummary:
        times = [event.at for event in same if event.at is not None]
        row = known(code, self.policy)
        index = self.driver.index_of(self.address)
        where = f" at {self.address}" if self.address else ""
        parts = [f"{row.mnemonic or 'not in the catalogue'}{where}{_times(len(same))}", why, same[-1].text]
        return XidSummary(
            code,
            row.mnemonic,
            xid_class,
            index,
            self.address,
            len(same),
            min(times, default=None),
            max(times, default=None),
            REMEDIES[xid_class],
            ": ".join(part for part in parts if part),
        )


def _separate(times: list[datetime]) -> int:
    return 1 + sum(later - earlier >= APART for earlier, later in pairwise(times))


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""
