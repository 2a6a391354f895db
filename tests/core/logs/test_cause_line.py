"""The line that explains how a log ends: by time and by kind, not the first error of a week."""

from __future__ import annotations

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_time import Clock, LineTime, line_time

XID_31 = (
    "NVRM: Xid (PCI:0000:00:06): 31, pid=212125, name=python3.10, Ch 00000008, intr 00000000. MMU Fault: ENGINE "
    "GRAPHICS GPCCLIENT_T1_8 faulted @ 0x71bc_2c000000"
)
XID_94 = (
    "NVRM: Xid (PCI:0000:00:06): 94, pid=7194, name=python3.10, Contained: CE User Channel (0x9). RST: No, D-RST: No"
)
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CORRECTED = "pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5"
GSP_LOG = "NVRM: RmFetchGspRmImages: Failed to load gsp_log_ga10x.bin, no GSP-RM logs will be printed (non-fatal)"
USER_ERROR = "ValueError: Unrecognized configuration class for this kind of AutoModel"
WATCHDOG = (
    "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)"
)
ACTOR = "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."
LOW_MEMORY = "Task was killed due to the node running low on memory."
NVLS = (
    "gpu1:1:2 [0] transport/nvls.cc:169 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 "
    ": CUDA error 401 'the operation cannot be performed in the present state'"
)
NCCL_FAILED = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error, NCCL version 2.26.2"
)


def cause(*lines: str) -> tuple[LineKind, int]:
    """Return the kind and the number of the line that is the cause."""
    verdict = classify(lines).verdict
    assert verdict is not None
    return verdict.kind, verdict.number


# -- the three excerpts of real logs -----------------------------------------------------------------------------------


def test_of_a_kernel_log_of_days_the_last_fault_is_the_cause() -> None:
    """An XID of an application on the fifth, and an ECC error on the ninth: another job had the first."""
    log = (f"[Tue Aug  5 10:11:12 2025] {XID_31}", f"[Sat Aug  9 03:04:05 2025] {XID_94}")
    assert cause(*log) == (LineKind.HARDWARE_GPU_ECC, 2)
    swapped = (f"[Tue Aug  5 10:11:12 2025] {XID_94}", f"[Sat Aug  9 03:04:05 2025] {XID_31}")
    assert cause(*swapped) == (LineKind.XID_APPLICATION, 2)


def test_corrected_errors_and_missing_logs_of_gsp_hide_no_fault() -> None:
    """A healthy machine writes both every day."""
    log = (f"[  100.000001] {CORRECTED}", f"[  100.000002] {GSP_LOG}", f"[86500.000001] {XID_79}")
    assert cause(*log) == (LineKind.HARDWARE_GPU_LOST, 3)
    assert cause(GSP_LOG, CORRECTED, USER_ERROR) == (LineKind.USER_ERROR_CONFIG, 3)
    assert classify([GSP_LOG, CORRECTED]).verdict is None


def test_a_process_that_died_is_explained_by_the_line_that_says_why() -> None:
    """Ray first tells of its actor, then of the memory of the node."""
    assert cause(ACTOR, LOW_MEMORY) == (LineKind.HOST_OOM, 2)
    assert cause(ACTOR, WATCHDOG) == (LineKind.PROCESS_KILLED_UNKNOWN, 1)


def test_a_multicast_that_cannot_be_bound_is_the_environment_and_no_error_of_the_program() -> None:
    """CUDA error 401 of NVLink SHARP comes from the fabric manager."""
    assert cause(NVLS, NCCL_FAILED) == (LineKind.DRIVER_ENVIRONMENT, 1)


# -- by time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ("2025-08-05T10:00:00Z", "2025-08-05T10:59:00Z", False),
        ("2025-08-05T10:00:00Z", "2025-08-05T11:01:00Z", True),
        ("2025-08-05 10:00:00,123", "2025-08-06 10:00:00,123", True),
        ("[ 100.123456]", "[ 3600.123456]", False),
        ("[ 100.123456]", "[ 3800.123456]", True),
        ("Aug  5 10:00:00 gpu-1 kernel:", "Aug  9 10:00:00 gpu-1 kernel:", True),
        ("[Tue Aug  5 10:00:00 2025]", "[ 999999.123456]", False),
        ("", "2025-08-05T10:00:00Z", False),
    ],
)
def test_errors_more_than_an_hour_apart_are_no_chain(first: str, second: str, apart: bool) -> None:
    """Within an hour the first root is the cause, because no default time-out is longer than half an hour."""
    full, ecc = "OSError: [Errno 28] No space left on device", "RuntimeError: CUDA error: uncorrectable ECC error"
    expected = (LineKind.HARDWARE_GPU_ECC, 2) if apart else (LineKind.STORAGE_FULL, 1)
    assert cause(f"{first} {full}", f"{second} {ecc}") == expected


def test_a_line_without_a_time_has_that_of_the_line_before() -> None:
    """Exceptions have no time stamp, and the lines of the loop around them do."""
    log = (
        "2025-08-05 10:00:00,123 step 1",
        "OSError: [Errno 28] No space left on device",
        "2025-08-05 12:00:00,123 step 900",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    )
    assert cause(*log) == (LineKind.HARDWARE_GPU_ECC, 4)


def test_a_consequence_is_explained_by_the_last_root_of_the_day_before() -> None:
    """A root that is older explains nothing."""
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert cause(f"2025-08-05T10:00:00Z {ecc}", f"2025-08-05T15:00:00Z {WATCHDOG}")[0] is LineKind.HARDWARE_GPU_ECC
    assert cause(f"2025-08-01T10:00:00Z {ecc}", f"2025-08-05T15:00:00Z {WATCHDOG}")[0] is LineKind.COLLECTIVE_TIMEOUT


def test_an_xid_of_an_application_does_not_explain_a_lost_gpu() -> None:
    """The hardware fault explains the XID. An application cannot take a GPU off the bus."""
    assert cause(XID_31, XID_79) == (LineKind.HARDWARE_GPU_LOST, 2)
    assert cause(XID_79, XID_31) == (LineKind.HARDWARE_GPU_LOST, 1)
    assert cause(XID_31, USER_ERROR) == (LineKind.XID_APPLICATION, 1)


def test_a_warning_is_the_last_resort() -> None:
    """The program went on after it."""
    warned = "2025-08-05 10:00:00,123 WARNING model.py:3 -- CUDA out of memory, trying a smaller batch"
    verdict = classify([warned]).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.role) == (LineKind.CUDA_OOM, LineRole.WARNING)
    assert cause(warned, WATCHDOG) == (LineKind.COLLECTIVE_TIMEOUT, 2)


# -- time stamps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clock", "seconds"),
    [
        ("2025-08-05T10:00:01.5Z x", Clock.DATE, 1754388001.0),
        ("(raylet) [2025-08-05 10:00:01,123 E 1 2] x", Clock.DATE, 1754388001.0),
        ("[Tue Aug  5 10:00:01 2025] x", Clock.DATE, 1754388001.0),
        ("[Aug 05 2025 10:00:01] [INFO] x", Clock.DATE, 1754388001.0),
        ("[    1.500000] x", Clock.BOOT, 1.5),
        ("ERROR 01-02 00:00:03 [core.py:1] x", Clock.DATE_WITHOUT_YEAR, 1704153603.0),
        ("[rank0]:[E0102 00:00:03.1 x.cpp:1] x", Clock.DATE_WITHOUT_YEAR, 1704153603.0),
        ("Jan  2 00:00:03 gpu-1 kernel: x", Clock.DATE_WITHOUT_YEAR, 1704153603.0),
    ],
)
def test_the_stamps_of_carriers_are_read(text: str, clock: Clock, seconds: float) -> None:
    """ISO 8601, dmesg, the fabric manager, journald, glog and vLLM."""
    assert line_time(text) == LineTime(clock, seconds)


@pytest.mark.parametrize("text", ["", "step 5", "2025-13-45T10:00:01Z x", "Foo 99 10:00:01 x", "[abc] x", "1.5 x"])
def test_a_text_without_a_date_has_no_time(text: str) -> None:
    """Nothing is guessed, and no date that does not exist is read."""
    assert line_time(text) is None
