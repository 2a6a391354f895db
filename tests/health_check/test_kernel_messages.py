"""Every known shape of an error in the kernel's log is found, and nothing else is."""

from __future__ import annotations

import pytest

from health_check.recovery_action import RecoveryAction, changed_to
from health_check.xid import LoggedErrors, bus_id, find
from tests.health_check.examinations import log


def found(*lines: str) -> LoggedErrors:
    return find(log(*lines).messages)


@pytest.mark.parametrize(
    ("line", "code", "address", "text"),
    [
        (
            "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH",
            109,
            "0000:cb:00",
            "pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH",
        ),
        (  # kernel_rc.c: an error of a GPU instance, and of a compute instance, of MIG
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
            94,
            "0000:01:00",
            "pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        ),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9", 13, "0000:3b:00", "pid=9"),
        ("NVRM: Xid (PCI:0000:cb:00): 46", 46, "0000:cb:00", ""),
        ("NVRM: Xid (0000:CB:00): 46,", 46, "0000:cb:00", ""),
        ("NVRM: Xid (PCI:...): 79, GPU has fallen off the bus.", 79, None, "GPU has fallen off the bus."),
        ("NVRM: Xid (PCI:00000000:3B:00.0): 31, Ch 1", 31, "0000:3b:00", "Ch 1"),
        ("NVRM: Xid (PCI:0000:01:00) GPU-77: 31, Ch 1", 31, "0000:01:00", "Ch 1"),
        ("[ 1.5] NVRM: Xid (PCI:0000:01:00): 9999 x", 9999, "0000:01:00", "x"),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", 79, "0000:3b:00", "GPU has fallen off the bus"),
        ("NVRM: GPU 3b:00.0: GPU has fallen off the bus", 79, "0000:3b:00", "GPU has fallen off the bus"),
        (
            "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:20b2) installed in this system has\\x0a"
            "NVRM: fallen off the bus and is not responding to commands.",
            79,
            "0000:3b:00",
            "GPU has fallen off the bus and is not responding to commands",
        ),
    ],
)
def test_an_xid_is_found_in_every_shape(line: str, code: int, address: str | None, text: str) -> None:
    """Code, address, and what follows the code."""
    (event,) = found("NVRM: loading", line, "pci 0000:3b:00.0: something else").xids
    assert (event.code, event.pci_bus_id, event.text) == (code, address, text)
    assert event.at is not None


@pytest.mark.parametrize(
    ("line", "code", "action"),
    [
        (
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
            154,
            RecoveryAction.NODE_REBOOT,
        ),
        (
            "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) "
            "returned from status @ kernel_channel.c:2874",
            154,
            RecoveryAction.GPU_RESET,
        ),
        (
            "NVRM: GPU6 nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)",
            154,
            RecoveryAction.GPU_RESET,
        ),
        ("NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out", 120, RecoveryAction.UNKNOWN),
        ("NVRM: GPU0 _kgspRpcRecvPoll: LibOS heartbeat timed out", 120, RecoveryAction.UNKNOWN),
    ],
)
def test_a_sentence_without_an_xid_counts_as_the_xid_of_its_state(line: str, code: int, action: RecoveryAction) -> None:
    """Lines of open-gpu-kernel-modules#1125, #1134 and #1151 and of gpud; they give no address."""
    (event,) = found("NVRM: loading", line).xids
    assert (event.code, event.pci_bus_id, changed_to(event.text)) == (code, None, action)
    assert event.text.startswith(line.removeprefix("NVRM: ")[:10]) or line[:60] in event.text


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 3856513292 heartbeat 0 diff 9 timeout 5200",
        "NVRM: RmFetchGspRmImages: Failed to load gsp_log_ga10x.bin, no GSP-RM logs will be printed (non-fatal)",
        "NVRM: nvCheckOkFailedNoLog: Check failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056)",
        "python[7]: NV_ERR_RESET_REQUIRED is what the test wants",
    ],
)
def test_other_sentences_of_the_driver_are_no_xid(line: str) -> None:
    """The first is only the measurement behind the heartbeat line; the others need nothing."""
    assert found(line).xids == ()


def test_a_loss_that_is_told_in_three_messages_is_one_loss() -> None:
    """The address is in the first, the loss in the third; a message of others may stand between."""
    lines = (
        "NVRM: The NVIDIA GPU 0000:5e:00.0",
        "NVRM: (PCI ID: 10de:20b2) installed in this system has",
        "eth0: up",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(event.code, event.pci_bus_id) for event in found(*lines).xids] == [(79, "0000:5e:00")]
    far = [*lines[:2], *["NVRM: other"] * 9, lines[3]]
    assert found(*far).xids == ()


def test_a_loss_that_has_its_number_and_its_words_is_one_loss() -> None:
    """The driver writes both lines for one GPU. Another GPU, and a loss without the number, count by themselves."""
    number = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    words = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    for lines in ((number, words), (words, number), (number, "NVRM: other", words)):
        assert [event.text for event in found(*lines).xids if event.code == 79] == [
            "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        ]
    assert len(found(number, words.replace("3b", "5e")).xids) == 2
    assert len(found(number, *["NVRM: other"] * 9, words).xids) == 2


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.09",
        "NVRM: Xid (PCI:0000:3b:00):",
        "NVRM: Xid (PCI:0000:3b:00): 123456789, too long to be one",
        "Xid (PCI:0000:3b:00): 79, not of the driver",
        "python: NVRM says nothing of an Xid: 79",
        "NVRM: fallen off the bus and is not responding to commands.",
        "request to query NVSwitch device information failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
        "nvidia-nvswitch0: SXid 20034",
    ],
)
def test_what_only_looks_like_an_error_is_none(line: str) -> None:
    """Neither an XID nor an SXid."""
    events = found(line)
    assert (events.xids, events.sxids) == ((), ())


@pytest.mark.parametrize(
    ("line", "code", "is_fatal"),
    [
        ("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", 20034, True),
        ("nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 12028, Non-fatal, Link 61 egress", 12028, False),
        ("[ERROR] [tid 12727] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus", 20034, True),
        ("[ERROR] [tid 12727] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch", 12028, False),
    ],
)
def test_an_sxid_is_fatal_or_not(line: str, code: int, is_fatal: bool) -> None:
    """As the driver of the switch writes it, and as the fabric manager does."""
    assert [(event.code, event.is_fatal) for event in found(line).sxids] == [(code, is_fatal)]


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("PCI:0000:cb:00", "0000:cb:00"),
        ("00000000:CB:00.0", "0000:cb:00"),
        ("cb:00", "0000:cb:00"),
        ("00010000:01:00.0", "10000:01:00"),
        ("PCI:...", None),
        ("", None),
        ("0000:cb:00.0.0", None),
    ],
)
def test_one_address_has_one_spelling(written: str, address: str | None) -> None:
    """nvidia-smi and the kernel write it differently."""
    assert bus_id(written) == address
