"""What is known before a diagnostic: when it decides, whom it suspects, and what it may say without one."""

from __future__ import annotations

from typing import Any

import pytest

from health_check.driver import DriverReport, parse
from health_check.evidence import CheckEvidence, DiagnosticStep, plan
from health_check.examine import judge
from health_check.kernel_log import KernelLog
from health_check.remedies import FindingRemedy, HealthOutcome
from health_check.settings import PASSIVE, Unread
from health_check.verdict import InstanceVerdict
from tests.health_check.diagnostics import dcgm4, result
from tests.health_check.examinations import answer, evidence_of, examination, gpu_xml, judged, log, smi, xid

QUIET = log("Linux version 6.1", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.09")
PASS = dcgm4([result(gpu) for gpu in range(8)], gpus=8)
UNREAD = KernelLog(unread="the kernel log /dev/kmsg cannot be read: No such file or directory")
ABSENT = parse("", "nvidia-smi is not installed", 127)
LONG_S = 24 * 3_600.0


def eight(number: int = 0, action: str | None = "None", **tags: str) -> DriverReport:
    """Eight GPUs, one of which is described."""
    return answer(*(gpu_xml(index, action, **tags) if index == number else gpu_xml(index) for index in range(8)))


def passive(seen: KernelLog, said: DriverReport, expected_gpus: int | None = 8) -> InstanceVerdict:
    """The verdict of a check without a diagnostic."""
    evidence = evidence_of(seen, said, level=PASSIVE, expected_gpus=expected_gpus)
    of = examination(seen=seen, said=said, evidence=evidence)
    return judge(of, level=PASSIVE, expected_gpus=expected_gpus)


# -- the driver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code", "remedy", "gpu"),
    [
        (eight(3, "Reboot"), "RECOVERY_ACTION_NODE_REBOOT", FindingRemedy.REBOOT_INSTANCE, 3),
        (eight(3, "Reset"), "RECOVERY_ACTION_GPU_RESET", FindingRemedy.REBOOT_INSTANCE, 3),
        (eight(3, "PF FLR"), "RECOVERY_ACTION_GPU_RESET", FindingRemedy.REBOOT_INSTANCE, 3),
        (eight(3, "Drain P2P"), "RECOVERY_ACTION_DRAIN_P2P", FindingRemedy.RESTART_APP, 3),
        (eight(3, failure="Yes"), "ROW_REMAP_FAILED", FindingRemedy.REPLACE_INSTANCE, 3),
        (eight(3, sram="Yes"), "SRAM_THRESHOLD_EXCEEDED", FindingRemedy.REPLACE_INSTANCE, 3),
        (eight(3, pending="Yes", ecc="2"), "ROW_REMAP_PENDING", FindingRemedy.REBOOT_INSTANCE, 3),
        (eight(3, ecc="2"), "ECC_UNCORRECTED", FindingRemedy.RUN_DIAGNOSTIC, 3),
        (answer(*map(gpu_xml, range(7))), "GPU_LOST", FindingRemedy.REBOOT_INSTANCE, None),
    ],
)
def test_the_driver_says_one_thing_of_one_gpu(
    said: DriverReport, code: str, remedy: FindingRemedy, gpu: int | None
) -> None:
    """And the verdict stands at once where that is an accusation."""
    evidence = evidence_of(QUIET, said)
    assert [(one.source, one.code, one.remedy, one.gpu_index) for one in evidence.findings] == [
        ("driver", code, remedy, gpu)
    ]
    assert evidence.decides is (remedy not in (FindingRemedy.RUN_DIAGNOSTIC, FindingRemedy.RESTART_APP))
    suspect = (DiagnosticStep(3, frozenset({3}), LONG_S - 1_200), DiagnosticStep(2))
    undecided = suspect if remedy is FindingRemedy.RUN_DIAGNOSTIC else (DiagnosticStep(2),)
    assert plan(2, LONG_S, evidence) == (() if evidence.decides else undecided)


def test_a_gpu_that_the_driver_cannot_reach_decides() -> None:
    """Even where the others do not answer either."""
    line = "Unable to determine the device handle for GPU1: 0000:11:00.0: Unknown Error"
    for said in (parse(smi([gpu_xml(0)]), line, 0), parse(line, "", 15)):
        evidence = evidence_of(QUIET, said, expected_gpus=None)
        assert evidence.decides
        assert ("GPU_UNREACHABLE", 1) in [(one.code, one.gpu_index) for one in evidence.findings]


@pytest.mark.parametrize("said", [answer(), eight(0, None), ABSENT, parse(smi([]), "", 0), parse("garbage", "", 1)])
def test_a_driver_that_accuses_nothing_decides_nothing(said: DriverReport) -> None:
    """All is well, or it does not answer: the diagnostic runs as ordered."""
    evidence = evidence_of(QUIET, said)
    assert not evidence.decides
    assert evidence.suspects == frozenset()
    assert plan(2, 1_200, evidence) == (DiagnosticStep(2),)


# -- levels and suspects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "timeout_s", "steps"),
    [
        (1, 300, (DiagnosticStep(1),)),  # nothing deeper fits
        (1, 1_499, (DiagnosticStep(1),)),
        (1, 1_500, (DiagnosticStep(2, frozenset({3}), 1_200), DiagnosticStep(1))),
        (1, 3_000, (DiagnosticStep(3, frozenset({3}), 2_700), DiagnosticStep(1))),
        (2, 2_220, (DiagnosticStep(2),)),  # the defaults: all GPUs are examined at level 2 anyway
        (2, 3_900, (DiagnosticStep(3, frozenset({3}), 2_700), DiagnosticStep(2))),
        (3, LONG_S, (DiagnosticStep(3),)),
        (4, LONG_S, (DiagnosticStep(4),)),
    ],
)
def test_a_suspect_is_examined_first_and_deeper_where_the_time_allows(
    level: int, timeout_s: float, steps: tuple[DiagnosticStep, ...]
) -> None:
    """Then all GPUs as ordered, for a suspicion may be wrong and a GPU may be missing."""
    evidence = evidence_of(log(xid(159, 3)))
    assert evidence.suspects == {3}
    assert plan(level, timeout_s, evidence) == steps


def test_a_deep_test_never_has_less_time_than_it_takes() -> None:
    """A test that is cut short looks like a GPU that hangs, and would cost a reboot."""
    evidence = CheckEvidence(suspects=frozenset({0}))
    for level in (1, 2, 3, 4):
        for timeout_s in range(100, 6_000, 50):
            steps = plan(level, timeout_s, evidence)
            assert steps[-1] == DiagnosticStep(level)
            if len(steps) == 2:
                assert steps[0].timeout_s is not None
                assert steps[0].timeout_s >= {2: 1_200, 3: 2_700}[steps[0].level]
                assert timeout_s - steps[0].timeout_s >= {1: 300, 2: 1_200}[level]


def test_a_suspicion_without_a_name_raises_the_level_for_all() -> None:
    """The kernel's log hides the address, or the driver does not answer."""
    hidden = evidence_of(log(xid(159).replace("PCI:0000:10:00", "PCI:...")))
    unanswered = evidence_of(log(xid(159)), ABSENT)
    hung = evidence_of(QUIET, parse("", "", 124))
    for evidence in (hidden, unanswered, hung):
        assert (evidence.unnamed, evidence.suspects) == (True, frozenset())
        assert plan(1, 1_200, evidence) == (DiagnosticStep(2),)
        assert plan(1, 1_199, evidence) == (DiagnosticStep(1),)
        assert plan(2, 2_700, evidence) == (DiagnosticStep(3),)


@pytest.mark.parametrize(
    ("focus", "suspects", "unnamed"),
    [
        (("3", "GPU-5"), {3, 5}, False),
        (("3", "GPU-of-another-instance"), {3}, True),
        (("9",), set(), True),
        ((), set(), False),
        (("0000:13:00", "gpu-5"), {3, 5}, False),
        (("0000:99:00",), set(), True),
    ],
)
def test_the_caller_may_name_suspects(focus: tuple[str, ...], suspects: set[int], unnamed: bool) -> None:
    """By index, UUID or address; a name that the driver does not know is a suspicion without one, and is told."""
    evidence = evidence_of(QUIET, focus=focus)
    assert (evidence.suspects, evidence.unnamed) == (suspects, unnamed)
    assert [one.code for one in evidence.findings] == (["FOCUS_UNKNOWN"] if unnamed else [])
    assert not evidence.decides


def test_a_lost_gpu_is_a_suspect_by_the_address_that_it_had() -> None:
    """It has no UUID any more; what is left is what nvidia-smi says that it cannot reach."""
    lost = "Unable to determine the device handle for GPU3: 0000:13:00.0: Unknown Error"
    evidence = evidence_of(QUIET, parse("", lost, 0), focus=("0000:13:00",))
    assert evidence.suspects == {3} and not evidence.unnamed


def test_a_setting_that_cannot_be_read_never_outweighs_the_hardware() -> None:
    """Without it the check could not tell; an XID that asks for a reboot is found all the same."""
    unread = tuple(
        Unread(name, remedy, f"{name} is 'x'")
        for name, remedy in (
            ("FOCUS", FindingRemedy.IGNORE),
            ("EXPECTED_GPUS", FindingRemedy.CONTACT_SUPPORT),
            ("XID_POLICY", FindingRemedy.FIX_CONFIGURATION),
        )
    )
    for known, outcome in (
        (1, HealthOutcome.HEALTHY),
        (2, HealthOutcome.INCONCLUSIVE),
        (3, HealthOutcome.CONFIGURATION),
    ):
        evidence = evidence_of(QUIET, unread=unread[:known])
        verdict = judge(examination((PASS, 0), evidence=evidence), level=2, expected_gpus=8)
        assert verdict.outcome is outcome and evidence.unnamed
        assert {one.code for one in verdict.findings} == {f"{one.name}_UNREAD" for one in unread[:known]}
    fallen = evidence_of(log(xid(79, 3)), answer(*(gpu_xml(index, None) for index in range(8))), unread=unread)
    assert judge(examination(evidence=fallen), level=2, expected_gpus=8).outcome is HealthOutcome.REBOOT


def test_a_suspicion_ends_with_a_diagnostic_of_the_hardware() -> None:
    """Level 1 tests software only, so it ends nothing."""
    evidence = evidence_of(log(xid(159, 3)))
    for level, outcome in ((1, HealthOutcome.INCONCLUSIVE), (2, HealthOutcome.HEALTHY)):
        of = examination((PASS, 0), level=level, evidence=evidence)
        verdict = judge(of, level=level, expected_gpus=8)
        assert (verdict.outcome, verdict.findings[0].code) == (outcome, "XID_159")
    assert "noted: kernel log on GPU 3: XID_159: ROBUST_CHANNEL_CHI_NON_DATA_ERROR at 0000:13:00: " in verdict.summary


def test_a_diagnostic_that_could_not_tell_ends_no_suspicion() -> None:
    """It was killed, or found no test for the GPU."""
    for exit_code in (203, 198, 235):
        of = examination(("", exit_code), evidence=evidence_of(log(xid(159, 3))))
        assert judge(of, level=2, expected_gpus=8).outcome in (HealthOutcome.INCONCLUSIVE, HealthOutcome.CONFIGURATION)


def test_an_error_of_the_application_leaves_a_healthy_instance_healthy() -> None:
    """13, 31 and 43 are the program's; the instance is examined as ordered and nobody is suspected."""
    evidence = evidence_of(log(xid(13), xid(31), xid(43), xid(45)))
    assert plan(2, LONG_S, evidence) == (DiagnosticStep(2),)
    assert judge(examination((PASS, 0), evidence=evidence), level=2, expected_gpus=8).outcome is HealthOutcome.HEALTHY


# -- a check without a diagnostic -------------------------------------------------------------------------------------


def test_a_passive_check_of_a_quiet_instance_is_healthy() -> None:
    """Kernel log and driver were read, and accuse nothing."""
    verdict = passive(QUIET, answer())
    assert (verdict.outcome, verdict.findings) == (HealthOutcome.HEALTHY, ())
    assert verdict.summary == "healthy: the kernel log and the driver of 8 GPUs show no fault (passive check)"


@pytest.mark.parametrize(
    ("seen", "said", "code"),
    [
        (UNREAD, answer(), "KERNEL_LOG_UNREAD"),
        (QUIET, ABSENT, "DRIVER_SILENT"),
        (QUIET, parse("", "", 124), "DRIVER_HUNG"),
        (QUIET, parse(smi([]), "", 0), "DRIVER_SILENT"),
        (log(xid(159)), answer(), "XID_159"),
        (QUIET, eight(ecc="1"), "ECC_UNCORRECTED"),
    ],
)
def test_a_passive_check_that_saw_only_half_could_not_tell(seen: KernelLog, said: DriverReport, code: str) -> None:
    """What was not looked at is not passed, and a suspicion has nobody to end it."""
    verdict = passive(seen, said)
    assert (verdict.outcome, verdict.findings[0].code) == (HealthOutcome.INCONCLUSIVE, code)


def test_a_silent_source_is_a_note_beside_a_diagnostic() -> None:
    """dcgmi examines the GPUs whether nvidia-smi is there or not."""
    of = examination((PASS, 0), evidence=evidence_of(UNREAD, ABSENT))
    verdict = judge(of, level=2, expected_gpus=8)
    assert (verdict.outcome, {one.remedy for one in verdict.findings}) == (
        HealthOutcome.HEALTHY,
        {FindingRemedy.IGNORE},
    )
    assert verdict.summary == judged(PASS).summary


@pytest.mark.parametrize(
    ("seen", "said", "outcome"),
    [
        (log(xid(79, 3)), answer(version="550.90.07"), HealthOutcome.REBOOT),
        (log(xid(54)), answer(), HealthOutcome.REPLACE),
        (QUIET, eight(2, "Reboot"), HealthOutcome.REBOOT),
        (QUIET, eight(2, failure="Yes"), HealthOutcome.REPLACE),
        (QUIET, answer(*map(gpu_xml, range(7))), HealthOutcome.REBOOT),
        (UNREAD, eight(2, "Reset"), HealthOutcome.REBOOT),
        (log(xid(78)), answer(), HealthOutcome.CONFIGURATION),
    ],
)
def test_a_passive_check_accuses_on_evidence(seen: KernelLog, said: DriverReport, outcome: HealthOutcome) -> None:
    """Half of the evidence is enough to accuse."""
    assert passive(seen, said).outcome is outcome


@pytest.mark.parametrize("tags", [{"processes": "<process_info><pid>7</pid></process_info>"}, {"pending": "Yes"}])
def test_a_passive_check_blames_nobody_for_work_on_the_gpu(tags: dict[str, Any]) -> None:
    """Others work there: that is why it is passive. A row that waits for the next reset does not disturb them."""
    assert passive(QUIET, eight(0, **tags)).outcome is HealthOutcome.HEALTHY


def test_a_passive_check_runs_no_diagnostic() -> None:
    """Whatever is suspected."""
    assert plan(PASSIVE, LONG_S, evidence_of(log(xid(159)), level=PASSIVE, focus=("1",))) == ()


def test_a_cut_log_is_told() -> None:
    """An error before its beginning would not be seen."""
    cut = KernelLog(log((7_200, "NVRM: late")).messages, begins_at=log((7_200, "x")).messages[0].at)
    notes = [one for one in evidence_of(cut).findings if one.code == "KERNEL_LOG_CUT"]
    assert [(one.remedy, one.message) for one in notes] == [
        (FindingRemedy.IGNORE, "older records are overwritten; it begins at 2026-03-01T11:00:00Z")
    ]
