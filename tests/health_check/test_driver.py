"""The driver's answer: who is there, what it asks for, what memory has lost; and every way not to answer."""

from __future__ import annotations

from collections.abc import Sequence

import pynvml
import pytest
from gpu_recovery.core.xid import RECOVERY_ACTIONS

from health_check.driver import ANSWERS_WITHIN_S, NO_DEVICES, LostGpu, RecoveryAction, action_in, ask, parse
from health_check.recovery_action import BY_NUMBER, action_of
from health_check.run import ProcessRun
from tests.health_check.examinations import ADDRESSES, gpu_xml, smi


def test_the_answer_names_every_gpu_and_what_is_wrong_with_it() -> None:
    """Eight GPUs; the third has lost memory in every way there is, and waits for a reset."""
    bad = gpu_xml(2, "Drain and Reset", ecc="3", pending="Yes", failure="Yes", sram="Yes")
    report = parse(smi([gpu_xml(0), gpu_xml(1), bad, *map(gpu_xml, range(3, 8))]), "", 0)
    assert (report.version, report.no_answer, report.lost) == ("580.82.09", None, ())
    assert [gpu.index for gpu in report.gpus] == list(range(8))
    assert [gpu.pci_bus_id for gpu in report.gpus] == ADDRESSES
    healthy, sick = report.gpus[1:3]
    assert (healthy.uuid, healthy.action, healthy.uncorrected_errors) == ("GPU-1", RecoveryAction.NONE, 0)
    assert (healthy.remap_pending, healthy.remap_failed, healthy.sram_threshold_exceeded) == (False, False, False)
    assert (sick.action, sick.uncorrected_errors) == (RecoveryAction.DRAIN_AND_RESET, 3)
    assert (sick.remap_pending, sick.remap_failed, sick.sram_threshold_exceeded) == (True, True, True)
    assert (report.index_of(ADDRESSES[2]), report.index_of("0000:ff:00"), report.index_of(None)) == (2, None, None)


def test_what_the_driver_does_not_tell_is_unknown() -> None:
    """Releases before 565 have no recovery action; a GPU without ECC has no counts."""
    (old,) = parse(smi([gpu_xml(0, None, ecc="N/A", pending="N/A", failure="N/A", sram="N/A")]), "", 0).gpus
    assert (old.action, old.remap_pending, old.remap_failed) == (RecoveryAction.UNKNOWN, None, None)
    assert old.sram_threshold_exceeded is None
    bare = '<nvidia_smi_log><gpu id="00000000:10:00.0"></gpu></nvidia_smi_log>'
    (empty,) = parse(bare, "", 0).gpus
    assert (empty.uuid, empty.uncorrected_errors, empty.action) == (None, None, RecoveryAction.UNKNOWN)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("None", RecoveryAction.NONE),
        ("Reset", RecoveryAction.GPU_RESET),
        ("GPU_RESET", RecoveryAction.GPU_RESET),
        ("Bus Reset", RecoveryAction.BUS_RESET),
        ("PF FLR", RecoveryAction.GPU_RESET),
        ("Reboot", RecoveryAction.NODE_REBOOT),
        ("System Reboot", RecoveryAction.SYSTEM_REBOOT),
        ("OS Reboot", RecoveryAction.NODE_REBOOT),
        ("Drain P2P", RecoveryAction.DRAIN_P2P),
        ("Drain and Reset", RecoveryAction.DRAIN_AND_RESET),
        ("N/A", RecoveryAction.UNKNOWN),
        ("Recover IMEX Domain", RecoveryAction.RECOVER_IMEX_DOMAIN),
        ("Replace Cooling", RecoveryAction.OTHER),
        ("[N/A]", RecoveryAction.UNKNOWN),
        ("Insufficient Permissions", RecoveryAction.UNKNOWN),
        ("Unknown Error", RecoveryAction.UNKNOWN),
        ("Requested functionality has been deprecated", RecoveryAction.UNKNOWN),
        ("", RecoveryAction.UNKNOWN),
        (None, RecoveryAction.UNKNOWN),
    ],
)
def test_an_action_is_known_by_its_words(text: str | None, action: RecoveryAction) -> None:
    """A missing answer is UNKNOWN and asks for nothing. An action without a name here asks for something."""
    assert action_in(text) is action
    assert action.asks is (action not in (RecoveryAction.NONE, RecoveryAction.UNKNOWN))
    assert action.needs_reboot is (action.asks and action.name not in ("DRAIN_P2P", "RECOVER_IMEX_DOMAIN", "OTHER"))


def test_nvmls_numbers_are_the_names_of_its_header() -> None:
    """The binding of the newest release has them; number 5 was the bus in branch 580."""
    names = {
        value: name.removeprefix("NVML_GPU_RECOVERY_ACTION_")
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_GPU_RECOVERY_ACTION_")
    }
    assert names == {number: str(action) for number, action in BY_NUMBER.items()}
    assert set(RECOVERY_ACTIONS) == set(BY_NUMBER) - {0}
    assert [action_of(5, driver) for driver in ("580.126.09", "595.45.04", "", None)] == [
        RecoveryAction.BUS_RESET,
        *[RecoveryAction.RECOVER_IMEX_DOMAIN] * 3,
    ]
    assert action_of(8) is RecoveryAction.OTHER


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("Unable to determine the device handle for GPU1: 0000:11:00.0: Unknown Error", LostGpu(1, "0000:11:00")),
        ("Unable to determine the device handle for GPU0000:11:00.0: Unknown Error", LostGpu(None, "0000:11:00")),
        ("Unable to determine the device handle for GPU 0000:11:00.0: GPU is lost.", LostGpu(None, "0000:11:00")),
        ("Unable to determine the device handle for GPU1: Unknown Error", LostGpu(1, None)),
    ],
)
def test_a_gpu_that_cannot_be_reached_is_lost(line: str, lost: LostGpu) -> None:
    """The others still answer, on whichever stream the line is; its index is not given to another."""
    output = smi([gpu_xml(0), gpu_xml(2)])
    for report in (parse(output, line + "\n", 0), parse(line + "\n" + output, "", 15), parse(line, "", 15)):
        assert report.lost == (lost,)
    assert [gpu.index for gpu in parse(output, line, 0).gpus] == ([0, 2] if lost.index == 1 else [0, 1])
    assert parse(output, line, 0).index_of("0000:11:00") == (1 if lost.pci_bus_id and lost.index else None)


def test_a_gpu_that_may_not_be_seen_is_not_lost() -> None:
    """A container without its device file says nothing of the GPU."""
    line = "Unable to determine the device handle for GPU 0000:11:00.0: Insufficient Permissions"
    assert parse(smi([gpu_xml(0)]), line, 4).lost == ()


@pytest.mark.parametrize(
    ("output", "error", "code", "silent"),
    [
        ("", "nvidia-smi is not installed", 127, "nvidia-smi ended with 127: nvidia-smi is not installed"),
        ("NVIDIA-SMI has failed because", "", 9, "nvidia-smi ended with 9: NVIDIA-SMI has failed because"),
        ("", "", 0, "nvidia-smi ended with 0: it printed nothing"),
        (smi([]), "", 0, NO_DEVICES),
        ("No devices were found", "", 6, "nvidia-smi ended with 6: No devices were found"),
        (smi([gpu_xml(0)])[:-30], "", 0, 'nvidia-smi ended with 0: <?xml version="1.0" ?>'),
        (
            "<nvidia_smi_log><gpu></nvidia_smi_log>",
            "",
            0,
            "nvidia-smi ended with 0: <nvidia_smi_log><gpu></nvidia_smi_log>",
        ),
    ],
)
def test_a_driver_without_an_answer_says_why(output: str, error: str, code: int, silent: str) -> None:
    """No answer is no verdict: no GPU is there, and none is missing."""
    report = parse(output, error, code)
    assert (report.gpus, report.lost, report.no_answer, report.hung) == ((), (), silent, False)


def test_a_driver_that_does_not_answer_in_time_hangs() -> None:
    """nvidia-smi itself may block on a lost GPU."""
    asked: list[tuple[Sequence[str], float]] = []

    def never(command: Sequence[str], timeout_s: float) -> ProcessRun:
        asked.append((command, timeout_s))
        return ProcessRun("", "", 124)

    report = ask(never)
    assert (report.hung, report.no_answer) == (True, "nvidia-smi ended with 124: it did not answer in time")
    assert asked == [(("nvidia-smi", "-q", "-x"), ANSWERS_WITHIN_S)]
