"""XIDs and SXids in lines: what the number says, and what the driver says beside it."""

from __future__ import annotations

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.xids import of_xid


@pytest.mark.parametrize(
    ("code", "kind", "role"),
    [
        (13, LineKind.XID_APPLICATION, LineRole.ROOT),
        (31, LineKind.XID_APPLICATION, LineRole.ROOT),
        (43, LineKind.XID_APPLICATION, LineRole.CASCADE),
        (45, LineKind.XID_CASCADE, LineRole.CASCADE),
        (48, LineKind.HARDWARE_GPU_ECC, LineRole.ROOT),
        (63, LineKind.HARDWARE_GPU_ECC, LineRole.ROOT),
        (74, LineKind.HARDWARE_NVLINK, LineRole.ROOT),
        (79, LineKind.HARDWARE_GPU_LOST, LineRole.ROOT),
        (94, LineKind.HARDWARE_GPU_ECC, LineRole.ROOT),
        (119, LineKind.HARDWARE_GPU_RESET, LineRole.ROOT),
        (149, LineKind.HARDWARE_NVLINK, LineRole.ROOT),
        (171, LineKind.XID_CASCADE, LineRole.CASCADE),
        (999, LineKind.HARDWARE_GPU_RESET, LineRole.ROOT),
    ],
)
def test_the_number_of_an_xid_says_what_it_is(code: int, kind: LineKind, role: LineRole) -> None:
    """An application's fault, hardware, or the consequence of another; an unknown number is never met with silence."""
    assert of_xid(f"nvrm: xid (pci:0000:3b:00): {code}, pid=42, name=python, ch 00000008") == (kind, role)


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (LineKind.HARDWARE_GPU_ECC, {48, 63, 64, 92, 94, 95, 140, 156, 157, 160, 161, 168}),
        (LineKind.HARDWARE_NVLINK, {74, 136, 144, 145, 146, 147, 148, 149, 150, 155, 166, 170}),
        (LineKind.HARDWARE_GPU_LOST, {54, 79}),
    ],
)
def test_numbers_of_memory_links_and_lost_gpus_are_those_of_nvidias_catalogue(kind: LineKind, codes: set[int]) -> None:
    """Exactly these numbers, among all that the catalogue has; a lost GPU may also be one that is to be replaced."""
    found = {
        code for code in range(1, 174) if of_xid(f"nvrm: xid (pci:0000:3b:00): {code}, x") == (kind, LineRole.ROOT)
    }
    assert found == codes


@pytest.mark.parametrize(
    "line",
    [
        "/training/xid.cu:79: void fails(int): block: [0,0,0], thread: [0,0,0] assertion `x == 1` failed.",
        'file "/training/xid.py", line 79, in <module>',
        "/training/xid/reader.cpp:48: check failed",
        "xid-fault.cc(94): error",
    ],
)
def test_the_line_of_a_source_file_is_no_xid(line: str) -> None:
    """A program for tests of XIDs is named after them."""
    assert of_xid(line) is None


@pytest.mark.parametrize("ago", ["54 minutes", "79 hours", "48 s", "3 days"])
def test_a_time_before_a_quoted_line_of_the_driver_is_no_xid(ago: str) -> None:
    """Monitors quote the driver after words of their own."""
    quoted = 'nvrm: xid (pci:0000:9b:00): 119, pid=1, timeout after 45s of waiting for rpc response from gpu4 gsp!"'
    assert of_xid(f'[xid found] ({ago} ago) "{quoted}') == (LineKind.HARDWARE_GPU_RESET, LineRole.ROOT)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(31, LineKind.XID_APPLICATION), (48, LineKind.HARDWARE_GPU_ECC), (79, LineKind.HARDWARE_GPU_LOST)],
)
def test_the_condition_of_a_node_names_its_xid(code: int, kind: LineKind) -> None:
    """The times of the condition stand before the number."""
    times = "mon, 23 jun 2025 18:45:43 +0000   mon, 23 jun 2025 18:44:57 +0000"
    assert of_xid(f'xidcriticalerror     true    {times}   {{"{code}":true}}') == (kind, LineRole.ROOT)


def test_an_xid_that_names_another_follows_it() -> None:
    """Whatever its own number."""
    assert of_xid("nvrm: xid (pci:0000:dc:00): 79, ch 01 caused by previous xid 149") == (
        LineKind.XID_CASCADE,
        LineRole.CASCADE,
    )


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("0x1 (GPU Reset Required)", LineKind.HARDWARE_GPU_RESET),
        ("0x2 (Node Reboot Required)", LineKind.HARDWARE_GPU_RESET),
        ("0x7 (System Reboot)", LineKind.HARDWARE_GPU_RESET),
        ("0x5 (Recover IMEX Domain)", LineKind.DRIVER_ENVIRONMENT),
        ("0x0 (None)", LineKind.BENIGN),
    ],
)
def test_of_an_xid_154_its_text_says_what_is_asked_for(action: str, kind: LineKind) -> None:
    """Its number is the same when the driver takes its wish back."""
    line = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x3 (Drain) to {action}"
    assert classify([line]).kind is kind


def test_words_of_crashes_in_an_xid_do_not_make_it_one() -> None:
    """XID 13 speaks of illegal instructions; no processor ran one."""
    line = "NVRM: Xid (PCI:0000:cb:00): 13, Graphics SM Warp Exception: Illegal Instruction Parameter"
    assert classify([line]).kind is LineKind.XID_APPLICATION


@pytest.mark.parametrize("line", ["watching for Xid errors", "Xid: none", "no Xid seen on 8 GPUs", "exid 79"])
def test_speaking_of_xids_is_not_reporting_one(line: str) -> None:
    """A monitor says what it looks for."""
    assert classify([line]).kind is LineKind.BENIGN


def test_an_sxid_is_of_the_switch() -> None:
    """Its numbers are not those of XIDs."""
    line = "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    assert classify([line]).kind is LineKind.HARDWARE_NVLINK
