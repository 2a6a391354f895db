"""What an XID asks for depends on its code, on what else happened to the same GPU, and on what the driver says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from health_check.driver import DriverReport, RecoveryAction
from health_check.kernel_evidence import XidSummary, new_action
from health_check.kernel_log import KernelLog
from health_check.remedies import FindingRemedy
from health_check.xid import XidEvent
from health_check.xid_table import XidClass, XidPolicy
from tests.health_check.examinations import BOOTED_AT, action_changed, answer, evidence_of, gpu_xml, log, xid

C = XidClass
UNASKED = DriverReport(no_answer="nvidia-smi ended with 127: nvidia-smi is not installed")


def seen_in(seen: KernelLog, said: DriverReport = UNASKED, **changes: Any) -> dict[tuple[int, str | None], XidSummary]:
    """The XIDs by code and address."""
    return {(one.code, one.pci_bus_id): one for one in evidence_of(seen, said, **changes).xids}


def classes(seen: KernelLog, said: DriverReport = UNASKED, **changes: Any) -> dict[int, XidClass]:
    """The classes by code."""
    return {code: one.xid_class for (code, _), one in seen_in(seen, said, **changes).items()}


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (13, FindingRemedy.IGNORE),
        (31, FindingRemedy.IGNORE),
        (43, FindingRemedy.IGNORE),
        (45, FindingRemedy.IGNORE),
        (46, FindingRemedy.REBOOT_INSTANCE),
        (48, FindingRemedy.REBOOT_INSTANCE),
        (54, FindingRemedy.REPLACE_INSTANCE),
        (62, FindingRemedy.REBOOT_INSTANCE),
        (63, FindingRemedy.IGNORE),
        (64, FindingRemedy.REBOOT_INSTANCE),
        (74, FindingRemedy.RUN_DIAGNOSTIC),
        (78, FindingRemedy.FIX_CONFIGURATION),
        (79, FindingRemedy.REBOOT_INSTANCE),
        (94, FindingRemedy.IGNORE),
        (95, FindingRemedy.REBOOT_INSTANCE),
        (109, FindingRemedy.REBOOT_INSTANCE),
        (119, FindingRemedy.REBOOT_INSTANCE),
        (120, FindingRemedy.REBOOT_INSTANCE),
        (137, FindingRemedy.IGNORE),
        (140, FindingRemedy.REBOOT_INSTANCE),
        (142, FindingRemedy.IGNORE),
        (143, FindingRemedy.REBOOT_INSTANCE),
        (149, FindingRemedy.RUN_DIAGNOSTIC),
        (151, FindingRemedy.REBOOT_INSTANCE),
        (159, FindingRemedy.RUN_DIAGNOSTIC),
        (171, FindingRemedy.RUN_DIAGNOSTIC),
        (7, FindingRemedy.RUN_DIAGNOSTIC),
        (173, FindingRemedy.RUN_DIAGNOSTIC),
        (9_999, FindingRemedy.RUN_DIAGNOSTIC),
    ],
)
def test_an_xid_alone_has_the_remedy_of_its_row(code: int, remedy: FindingRemedy) -> None:
    """Once, nothing beside it, the driver unasked; a code that nobody knows is looked into, never ignored."""
    (finding,) = [one for one in evidence_of(log(xid(code)), UNASKED).findings if one.source == "kernel_log"]
    assert (finding.remedy, finding.code, finding.id) == (remedy, f"XID_{code}", code)


def test_where_vendors_disagree_the_policy_chooses() -> None:
    """AWS replaces for a remapped row, and for errors of the link does not look into their registers."""
    seen = log(*(xid(code) for code in (63, 74, 79, 142, 149)))
    assert classes(seen) == {63: C.WATCH, 74: C.DIAG, 79: C.REBOOT, 142: C.WATCH, 149: C.DIAG}
    assert classes(seen, policy=XidPolicy.AWS) == {
        63: C.REPLACE,
        74: C.REBOOT,
        79: C.REBOOT,
        142: C.REPLACE,
        149: C.WATCH,
    }


UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
RESET = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned"
HEARTBEAT = "NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out"


@pytest.mark.parametrize("line", [UVM, RESET, HEARTBEAT])
def test_a_sentence_of_the_driver_without_an_xid_asks_for_a_reboot(line: str) -> None:
    """No driver answers, or its release has no recovery action; a driver that needs nothing makes it a suspicion."""
    before_565 = answer(gpu_xml(0, None), version="550.90.07")
    for said in (UNASKED, before_565, answer(gpu_xml(0, "Reset"), gpu_xml(1))):
        evidence = evidence_of(log(line), said, expected_gpus=None)
        assert evidence.decides and [one.xid_class for one in evidence.xids] == [C.REBOOT]
    well = evidence_of(log(line), answer())
    assert [one.xid_class for one in well.xids] == [C.DIAG] and not well.decides and well.unnamed


# -- the driver's own recovery action ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", RecoveryAction.NODE_REBOOT),
        ("from 0x2 (Node Reboot Required) to 0x0 (None)", RecoveryAction.NONE),
        ("from 0x1 (GPU Reset Required) to 0x4 (Drain and Reset)", RecoveryAction.DRAIN_AND_RESET),
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", RecoveryAction.GPU_RESET),
        ("from 0x0 (None) to 0x3 (Drain P2P)", RecoveryAction.DRAIN_P2P),
        ("from 0x0 (None) to 0x1 (PF FLR)", RecoveryAction.GPU_RESET),
        ("from (None) to (PF FLR)", RecoveryAction.GPU_RESET),
        ("from 0x0 (None) to 0x2", RecoveryAction.NODE_REBOOT),
        ("from 0x0 (None) to 0x9 (Pray)", RecoveryAction.OTHER),
        ("from 0x0 (None) to 0x5 (Recover IMEX Domain)", RecoveryAction.RECOVER_IMEX_DOMAIN),
        ("from 0x0 (None) to 0x5 (GPU Reset Bus)", RecoveryAction.BUS_RESET),
        ("from 0x0 (None) to 0x7 (Unknown)", RecoveryAction.SYSTEM_REBOOT),
        ("from 0x2 (Node Reboot Required)", RecoveryAction.UNKNOWN),
        ("", RecoveryAction.UNKNOWN),
    ],
)
def test_only_the_part_after_to_says_what_the_action_is_now(text: str, action: RecoveryAction) -> None:
    """What stands before it is what the action was."""
    assert new_action(XidEvent(154, None, None, f"GPU recovery action changed {text}")) is action


@pytest.mark.parametrize("code", [13, 45, 63, 74, 94, 149])
def test_the_drivers_action_makes_a_reboot_of_an_error_that_asks_for_none(code: int) -> None:
    """XID 154 stands above the table."""
    evidence = evidence_of(log(xid(code), action_changed("0x2 (Node Reboot Required)")), UNASKED)
    assert evidence.decides
    assert {one.code: one.xid_class for one in evidence.xids} == {154: C.REBOOT, code: C.FOLLOW_OTHER}


FATAL_LINK = ", NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x0)"


def test_an_action_to_drain_peer_to_peer_traffic_reboots_nothing_at_once() -> None:
    """The driver must be asked again when the processes have ended; then its answer decides."""
    lines = [xid(149, rest=FATAL_LINK), action_changed("0x3 (Drain P2P)")]
    assert classes(log(lines[0]))[149] is C.REBOOT
    for said in (UNASKED, answer(gpu_xml(0, "Drain P2P"), gpu_xml(1)), answer()):
        evidence = evidence_of(log(*lines), said, expected_gpus=None)
        assert {one.code: one.xid_class for one in evidence.xids} == {149: C.FOLLOW_OTHER, 154: C.DIAG}
        assert not evidence.decides
    for action in ("Reset", "Reboot", "Drain and Reset"):
        assert evidence_of(log(*lines), answer(gpu_xml(0, action)), expected_gpus=None).decides
    later = [*lines, action_changed("0x1 (GPU Reset Required)", old="0x3 (Drain P2P)")]
    assert classes(log(*later)) == {149: C.REBOOT, 154: C.REBOOT}
    assert classes(log(xid(119), *lines))[119] is C.REBOOT  # the driver's action never covers it


def test_an_action_that_was_cleared_clears_what_came_before_it_on_its_gpu() -> None:
    """The GPU was reset meanwhile; another GPU's errors, and later ones, stay."""
    clearing = action_changed("0x0 (None)", old="0x2 (Node Reboot Required)")
    before = log(xid(79), action_changed("0x2 (Node Reboot Required)"), clearing)
    assert classes(before) == {79: C.IGNORE, 154: C.IGNORE}
    assert not evidence_of(before, UNASKED).decides
    assert classes(log(clearing, xid(79))) == {79: C.REBOOT, 154: C.IGNORE}
    assert seen_in(log(xid(79, 1), clearing))[79, "0000:11:00"].xid_class is C.REBOOT


def test_a_cleared_action_does_not_clear_what_no_reset_cures() -> None:
    """Power that is not connected, and a mistake of configuration."""
    assert classes(log(xid(54), xid(78), action_changed("0x0 (None)"))) == {54: C.REPLACE, 78: C.CONFIG, 154: C.IGNORE}


def test_where_addresses_are_hidden_a_cleared_action_clears_nothing() -> None:
    """It may be another GPU's."""
    hidden = [line.replace("PCI:0000:10:00", "PCI:...") for line in (xid(79), action_changed("0x0 (None)"))]
    assert classes(log(*hidden))[79] is C.REBOOT


def test_an_error_that_the_driver_asks_no_recovery_for_is_looked_into_not_rebooted_for() -> None:
    """If its action covers the code at its release: 79 since 565, 109 since 570, 119 never."""
    seen = log(xid(79), xid(109), xid(119))
    assert classes(seen, answer(version="565.57.01")) == {79: C.DIAG, 109: C.REBOOT, 119: C.REBOOT}
    assert classes(seen, answer(version="580.82.09")) == {79: C.DIAG, 109: C.DIAG, 119: C.REBOOT}
    assert classes(seen, answer(gpu_xml(0, None), version="550.90.07")) == dict.fromkeys((79, 109, 119), C.REBOOT)
    assert classes(log(xid(79, 1)), answer(gpu_xml(0))) == {79: C.REBOOT}  # of a GPU that does not answer


def test_an_action_in_the_log_that_the_driver_no_longer_asks_for_is_looked_into() -> None:
    """The driver's answer is of now."""
    seen = log(action_changed("0x1 (GPU Reset Required)"))
    assert classes(seen, answer()) == {154: C.DIAG}
    assert classes(seen, answer(gpu_xml(0, "Reset"))) == {154: C.REBOOT}


# -- errors that mean something only beside others --------------------------------------------------------------------


@pytest.mark.parametrize("code", [13, 31])
def test_an_applications_error_that_comes_again_on_the_same_gpu_is_looked_into(code: int) -> None:
    """Two minutes apart; a crash that writes a line for each channel at once is one error."""
    assert classes(log((100, xid(code)), (220, xid(code)))) == {code: C.DIAG}
    assert classes(log((100, xid(code)), (101, xid(code)), (159, xid(code)))) == {code: C.APP}
    assert set(classes(log((100, xid(code)), (220, xid(code, 1)))).values()) == {C.APP}


def test_a_graphics_exception_comes_again_only_on_the_same_unit() -> None:
    """Different units of one GPU point at the program, the same one at the GPU."""
    first, second = (f", Graphics SM Warp Exception on (GPC 7, TPC {unit}, SM 0)" for unit in (7, 2))
    assert classes(log((100, xid(13, 0, first)), (500, xid(13, 0, second)))) == {13: C.APP}
    assert classes(log((100, xid(13, 0, first)), (500, xid(13, 0, first)))) == {13: C.DIAG}


def test_a_contained_error_that_comes_again_asks_for_the_reset_it_was_spared() -> None:
    """Once it is the application's to restart."""
    assert classes(log((100, xid(94)))) == {94: C.APP}
    assert classes(log((100, xid(94)), (900, xid(94)))) == {94: C.REBOOT}


def test_errors_without_a_time_or_an_address_are_never_called_repeated() -> None:
    """Nobody can say that they are two, or of one GPU."""
    assert classes(KernelLog(log().messages)) == {}
    hidden = xid(94).replace("PCI:0000:10:00", "PCI:...")
    assert classes(log((100, hidden), (900, hidden))) == {94: C.APP}


def test_an_error_that_follows_another_is_never_the_cause() -> None:
    """45 comes with whatever ended the program; 171 and 172 add to a 48, and mean something only without it."""
    assert classes(log(xid(45))) == {45: C.IGNORE}
    assert classes(log(xid(79), xid(45))) == {79: C.REBOOT, 45: C.FOLLOW_OTHER}
    assert classes(log(xid(13), xid(45))) == {13: C.APP, 45: C.FOLLOW_OTHER}
    assert classes(log(xid(48), xid(171), xid(172))) == {48: C.REBOOT, 171: C.FOLLOW_OTHER, 172: C.FOLLOW_OTHER}
    assert classes(log(xid(48, 1), xid(172)))[172] is C.DIAG


@pytest.mark.parametrize(
    ("named", "xid_class"),
    [(145, C.DIAG), (149, C.DIAG), (79, C.REBOOT), (54, C.REPLACE), (31, C.APP), (45, C.IGNORE), (154, C.DIAG)],
)
def test_a_45_whose_cause_is_not_in_the_log_any_more_is_judged_by_the_cause_that_it_names(
    named: int, xid_class: XidClass
) -> None:
    """Driver 590 names the earlier XID (lines of open-gpu-kernel-modules#1150), whose own record may be overwritten."""
    lines = [
        xid(45, gpu, f", pid={pid}, name=python3, Ch 0000000{channel} caused by previous Xid {named}")
        for gpu, pid in ((2, 1818992), (5, 1818989), (7, 1818987))
        for channel in (1, 2)
    ]
    found = seen_in(log(*lines))
    assert {(code, one.xid_class) for (code, _), one in found.items()} == {(45, xid_class)} and len(found) == 3
    if xid_class is not C.IGNORE:
        assert all(f"of XID {named}, which is not in the log" in one.message for one in found.values())


def test_a_45_follows_the_record_of_its_cause_and_the_drivers_action() -> None:
    """The record says more than the number; an action of NONE since then has cleared both."""
    follows = xid(45, rest=", pid=7, name=python3, Ch 00000001 caused by previous Xid 79")
    assert classes(log(xid(79), follows)) == {79: C.REBOOT, 45: C.FOLLOW_OTHER}
    assert classes(log(xid(79, 1), follows))[45] is C.REBOOT  # the record of another GPU
    cleared = action_changed("0x0 (None)", old="0x2 (Node Reboot Required)")
    assert classes(log(follows, cleared))[45] is C.IGNORE
    said = answer(gpu_xml(0, "None"), version="580.82.09")
    assert seen_in(log(follows), said, expected_gpus=1)[45, "0000:10:00"].xid_class is C.DIAG


def test_a_double_bit_error_with_a_remapped_row_says_that_the_row_waits() -> None:
    """The reboot is what maps it in."""
    together = seen_in(log(xid(48), xid(63)))
    assert together[48, "0000:10:00"].xid_class is C.REBOOT
    assert "a row waits to be remapped" in together[48, "0000:10:00"].message
    assert "a row waits" not in seen_in(log(xid(48), xid(63, 1)))[48, "0000:10:00"].message


def test_a_fatal_error_of_a_switch_asks_for_a_reboot() -> None:
    """Beside an XID 74 it is the likely root; one that is not fatal is a note."""
    fatal = "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    evidence = evidence_of(log(fatal, xid(74)), UNASKED)
    (switch,) = [one for one in evidence.findings if one.code == "SXID_20034"]
    assert (switch.remedy, switch.id, evidence.decides) == (FindingRemedy.REBOOT_INSTANCE, 20034, True)
    assert "the switch is the likely cause" in switch.message
    mild = evidence_of(log(fatal.replace("Fatal", "Non-fatal")), UNASKED)
    assert [one.remedy for one in mild.findings if one.code == "SXID_20034"] == [FindingRemedy.IGNORE]


# -- time -------------------------------------------------------------------------------------------------------------


def test_what_happened_before_the_time_asked_about_is_a_suspicion_only() -> None:
    """An error of an earlier attempt, that somebody may have dealt with; a few seconds either way are the clocks'."""
    seen = log((100, xid(79)))
    at = BOOTED_AT + timedelta(seconds=100)
    assert classes(seen, since=at + timedelta(seconds=60)) == {79: C.DIAG}
    assert classes(seen, since=at + timedelta(seconds=3)) == {79: C.REBOOT}
    assert classes(seen, since=None) == {79: C.REBOOT}
    both = log((100, xid(79)), (900, xid(79)))
    assert classes(both, since=at + timedelta(seconds=60)) == {79: C.REBOOT}
    fatal = "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30"
    late = evidence_of(log((100, fatal)), UNASKED, since=at + timedelta(seconds=60))
    assert [one.remedy for one in late.findings if one.code == "SXID_20034"] == [FindingRemedy.RUN_DIAGNOSTIC]


def test_an_error_without_a_time_counts() -> None:
    """Better looked at than lost."""
    seen = KernelLog((*log(xid(79)).messages,))
    timeless = KernelLog(tuple(type(one)(None, one.text) for one in seen.messages))
    assert classes(timeless, since=BOOTED_AT + timedelta(days=1)) == {79: C.REBOOT}


# -- what is told -----------------------------------------------------------------------------------------------------


def test_an_xid_is_told_with_its_gpu_its_number_of_times_and_its_words() -> None:
    """The index is the driver's for the address."""
    (entry,) = seen_in(
        log((100, xid(48, 3, ", DBE (double bit error)")), (160, xid(48, 3, ", DBE"))), answer()
    ).values()
    assert (entry.gpu_index, entry.count) == (3, 2)
    assert (entry.first_at, entry.last_at) == (BOOTED_AT + timedelta(seconds=100), BOOTED_AT + timedelta(seconds=160))
    start = "ROBUST_CHANNEL_GPU_ECC_DBE at 0000:13:00 (2 times): "
    assert entry.message == f"{start}the driver asks for no recovery of this GPU: DBE"


def test_a_storm_of_errors_is_one_entry_a_code_and_the_worst_come_first() -> None:
    """Ten thousand lines, and more kinds than the document holds."""
    storm = log(*[xid(13)] * 10_000, xid(79, 1))
    assert [(one.code, one.count) for one in evidence_of(storm, UNASKED).xids] == [(79, 1), (13, 10_000)]
    kinds = evidence_of(log(*(xid(code) for code in range(1, 170))), UNASKED).xids
    assert len(kinds) == 64
    assert kinds[0].code == 54
