"""What the diagnostic says, and what the instance is therefore in need of."""

from __future__ import annotations

import json

import pytest

from health_check.driver import DriverReport
from health_check.examine import judge
from health_check.remedies import ERRORS, ErrorSeverity, FindingRemedy, HealthOutcome
from health_check.verdict import InstanceVerdict
from tests.health_check.diagnostics import dcgm3, dcgm4, output, result, warning
from tests.health_check.examinations import answer, evidence_of, examination, gpu_xml, judged, log, xid

NUMBER = {severity: number for number, severity in enumerate(ErrorSeverity)}


def verdict_on(text: str, exit_code: int = 0, *, level: int = 2, expected_gpus: int | None = None) -> InstanceVerdict:
    return judged(text, exit_code, level=level, expected_gpus=expected_gpus)


def test_a_setting_of_the_host_never_costs_a_reboot() -> None:
    """The real output of a healthy GB10: exit 226, and its only failure is that persistence mode is off."""
    verdict = verdict_on(output("dcgm_4.2.3_gb10_real.json"), 226, level=1, expected_gpus=1)
    assert (verdict.outcome, verdict.outcome.exit_code) == (HealthOutcome.CONFIGURATION, 43)
    assert [(finding.code, finding.gpu_index) for finding in verdict.findings] == [("DCGM_FR_PERSISTENCE_MODE", 0)]


def test_a_failed_memory_test_of_dcgm_4_asks_for_a_reboot() -> None:
    """The output that a parser of DCGM 3 takes for a pass."""
    for exit_code in (0, 205, 226):
        verdict = verdict_on(output("dcgm4_memory_fail_synthetic.json"), exit_code)
        assert (verdict.outcome, verdict.outcome.exit_code) == (HealthOutcome.REBOOT, 1)
        assert [(finding.code, finding.gpu_index) for finding in verdict.findings] == [("DCGM_FR_CUDA_DBE", 3)]
        assert verdict.summary.startswith("reboot the instance: memory on GPU 3: DCGM_FR_CUDA_DBE:")


def test_a_severity_that_is_not_printed_is_looked_up_by_the_errors_id() -> None:
    """Before 3.3 the JSON has only the id; 52 is faulty memory, of severity ISOLATE."""
    verdict = verdict_on(output("dcgm_3.1_gpu_ids_without_severity.json"), 226)
    assert verdict.outcome is HealthOutcome.REBOOT
    assert [(finding.gpu_index, finding.severity) for finding in verdict.findings] == [
        (2, ErrorSeverity.ISOLATE),
        (3, ErrorSeverity.ISOLATE),
    ]


MEMORY, ROWS = ("GPU Memory", 3), ("Page Retirement/Row Remap", None)
RESET = "Drain the GPU and reset it or reboot the node."


@pytest.mark.parametrize(
    ("test", "sentence", "code", "outcome"),
    [
        (MEMORY, "CUDA APIs have indicated that a double-bit ECC error has occured on GPU 3.", "CUDA_DBE", "REBOOT"),
        (
            MEMORY,
            "Found 2 faulty memory elements on GPU 3 Run a field diagnostic on the GPU.",
            "FAULTY_MEMORY",
            "REBOOT",
        ),
        (
            MEMORY,
            "There was an internal error during the test: 'cuMemcpy failed: uncorrectable ECC error encountered'",
            "CUDA_DBE",
            "REBOOT",
        ),
        (ROWS, f"Detected 2 volatile double-bit ECC error(s) in GPU 3. {RESET}", "VOLATILE_DBE_DETECTED", "REBOOT"),
        (ROWS, "A pending retired page has been detected in GPU 3.", "PENDING_PAGE_RETIREMENTS", "REBOOT"),
        (ROWS, "64 or more retired pages have been detected in GPU 3. Run a field", "RETIRED_PAGES_LIMIT", "REBOOT"),
        (
            ROWS,
            "GPU 3 had uncorrectable memory errors and row remapping failed. Run a field diagnostic on the GPU.",
            "ROW_REMAP_FAILURE",
            "REPLACE",
        ),
        (ROWS, "GPU 3 had memory errors and row remappings are pending", "PENDING_ROW_REMAP", "REBOOT"),
        (("GPU Memory", 3), "Couldn't allocate at least 75.0% of GPU memory on GPU 3", "MEMORY_ALLOC", "INCONCLUSIVE"),
        (MEMORY, "Error using CUDA API cuInit Check DCGM and system logs for errors.", None, "INCONCLUSIVE"),
        (ROWS, "", None, "INCONCLUSIVE"),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_sentence_of_dcgm_3_stands_for_its_error_id(
    test: tuple[str, int | None], sentence: str, code: str | None, outcome: str, as_list: bool
) -> None:
    """Releases before 3.3 print no ids: a documented sentence convicts as its id does, and nothing else does."""
    verdict = verdict_on(dcgm3(test[0], [sentence] if as_list else sentence, test[1]), 226, expected_gpus=8)
    assert verdict.outcome == outcome
    (finding,) = verdict.findings
    assert (finding.code, finding.gpu_index) == (code and f"DCGM_FR_{code}", test[1])


def test_a_printed_id_or_severity_is_not_overruled_by_a_sentence() -> None:
    """A monitored error may quote a grave one."""
    text = "uncorrectable ECC error encountered"
    assert verdict_on(dcgm4([result(0, "Fail", [warning(12, 1, text)])]), 226).outcome is HealthOutcome.HEALTHY
    assert verdict_on(dcgm4([result(0, "Fail", [warning(None, 1, text)])]), 226).outcome is HealthOutcome.HEALTHY


@pytest.mark.parametrize("level", [1, 2])
def test_an_exit_code_that_its_own_document_contradicts_could_not_tell(level: int) -> None:
    """205 and every test passed: the output of a test of facebookresearch/gcm, which takes it for a pass."""
    for text in (output("dcgm_3_all_pass_with_exit_205.json"), dcgm4([result(gpu) for gpu in range(8)], gpus=8)):
        verdict = verdict_on(text, 205, level=level)
        assert verdict.outcome is HealthOutcome.INCONCLUSIVE
        assert "DCGM_ST_NVVS_ISOLATE_ERROR" in {finding.code for finding in verdict.findings}
    assert verdict_on("", 205).outcome is HealthOutcome.REBOOT


def test_a_warning_printed_as_fail_is_a_note_on_a_healthy_instance() -> None:
    """3.3.5 says Fail for a warning; its severity MONITOR says what it is."""
    verdict = verdict_on(output("dcgm_3.3.5_warning_printed_as_fail.json"), 226)
    assert (verdict.outcome, verdict.outcome.exit_code) == (HealthOutcome.HEALTHY, 0)
    assert [(finding.code, finding.remedy) for finding in verdict.findings] == [
        ("DCGM_FR_CLOCKS_EVENT_THERMAL", FindingRemedy.IGNORE)
    ]
    assert "Clocks are being lowered" in verdict.summary


def test_a_pass_is_healthy() -> None:
    """A whole output of 3.3.9 without a complaint."""
    verdict = verdict_on(output("dcgm_3.3.9_pass_after_banner.txt"), 0, expected_gpus=2)
    assert (verdict.outcome, verdict.findings) == (HealthOutcome.HEALTHY, ())
    assert verdict.summary == "healthy: 4 tests of level 2 ran on 2 GPUs and found nothing to repair"


def test_a_failure_of_a_later_iteration_counts() -> None:
    """The first round passed, the second found faulty memory."""
    assert verdict_on(output("dcgm_4_iterations_second_fails.json"), 205).outcome is HealthOutcome.REBOOT


def test_skipped_is_not_passed() -> None:
    """An unsupported GPU: exit 0, and every hardware test was skipped."""
    verdict = verdict_on(output("dcgm_3.3_hardware_skipped.json"), 0)
    assert (verdict.outcome, verdict.outcome.exit_code) == (HealthOutcome.INCONCLUSIVE, 44)
    assert verdict.findings[0].code == "NOTHING_RAN"
    assert verdict_on(output("dcgm_3.3_hardware_skipped.json"), 0, level=1).outcome is HealthOutcome.HEALTHY


@pytest.mark.parametrize("status", ["Skip", "Not Run", "Unheard Of"])
def test_a_gpu_that_no_hardware_test_ran_on_is_not_healthy(status: str) -> None:
    """Seven of eight passed; nobody looked at the eighth."""
    results = [result(gpu) for gpu in range(7)] + [result(7, status)]
    verdict = verdict_on(dcgm4(results, gpus=8), expected_gpus=8)
    assert verdict.outcome is HealthOutcome.INCONCLUSIVE
    assert [(finding.code, finding.gpu_index) for finding in verdict.findings] == [("GPU_NOT_EXAMINED", 7)]


def test_a_pass_of_another_kind_of_entity_is_no_pass_of_a_gpu() -> None:
    """The processors passed; no GPU was looked at."""
    assert verdict_on(dcgm4([result(0) | {"entity_group": "CPU"}])).outcome is HealthOutcome.INCONCLUSIVE


def test_a_lost_connection_never_costs_a_machine() -> None:
    """Whether dcgmi says it with its exit code or with a sentence, it is the host's configuration."""
    sentence = output("dcgm_4_runtime_error_no_connection.json")
    failure = output("dcgm4_memory_fail_synthetic.json")
    for text, exit_code in ((sentence, 226), (sentence, 235), (sentence, 0), ("", 235), (failure, 235)):
        verdict = verdict_on(text, exit_code, expected_gpus=8)
        assert (verdict.outcome, verdict.outcome.exit_code) == (HealthOutcome.CONFIGURATION, 43)
        assert verdict.findings[0].code == "DCGM_ST_CONNECTION_NOT_VALID"


def test_any_other_runtime_error_could_not_tell() -> None:
    """The diagnostic did not run, and the sentence does not say that the GPU is why."""
    text = json.dumps({"DCGM Diagnostic": {"runtime_error": "Unable to complete diagnostic for group 0."}})
    for exit_code in (0, 198, 226):
        verdict = verdict_on(text, exit_code, expected_gpus=8)
        assert verdict.outcome is HealthOutcome.INCONCLUSIVE
        assert "Unable to complete diagnostic" in verdict.summary


def test_fewer_gpus_than_expected_ask_for_a_reboot() -> None:
    """Every test passed on the seven GPUs that are left."""
    verdict = verdict_on(dcgm4([result(gpu) for gpu in range(7)], gpus=7), expected_gpus=8)
    assert verdict.outcome is HealthOutcome.REBOOT
    assert (verdict.findings[0].code, verdict.findings[0].message) == ("GPU_LOST", "7 of 8 GPUs are present")


def test_an_output_that_does_not_count_gpus_loses_none() -> None:
    """Without a list of entities nobody knows how many GPUs there are."""
    assert verdict_on(dcgm4([result(0)], gpus=None), expected_gpus=8).outcome is HealthOutcome.HEALTHY


def test_a_check_without_driver_and_gpus_is_a_matter_of_configuration() -> None:
    """A container that was given no driver libraries sees no GPU of eight healthy ones."""
    nothing = dcgm4([], gpus=0, driver=None)
    assert verdict_on(nothing, expected_gpus=8).outcome is HealthOutcome.CONFIGURATION
    assert verdict_on(dcgm4([], gpus=0), expected_gpus=1).outcome is HealthOutcome.REBOOT
    late = examination((nothing, 0), said=DriverReport(hung=True))
    assert judge(late, level=2, expected_gpus=8).outcome is HealthOutcome.INCONCLUSIVE


def test_a_memory_test_that_got_no_memory_has_passed_nothing() -> None:
    """MEMORY_ALLOC may stand beside the status Pass; somebody else is on the GPU."""
    for status in ("Pass", "Fail"):
        verdict = verdict_on(dcgm4([result(0, status, [warning(56, 4)])]), 226 if status == "Fail" else 0)
        assert (verdict.outcome, verdict.findings[0].remedy) == (HealthOutcome.INCONCLUSIVE, FindingRemedy.RESTART_APP)


def test_an_error_beside_a_pass_is_a_note() -> None:
    """Only a test that failed asks for something."""
    verdict = verdict_on(dcgm4([result(0, "Pass", [warning(52, 2)])]))
    assert (verdict.outcome, verdict.findings[0].remedy) == (HealthOutcome.HEALTHY, FindingRemedy.IGNORE)


def test_a_failure_without_an_error_could_not_tell() -> None:
    """3.3.5 prints Fail also for a test that never ran."""
    verdict = verdict_on(dcgm4([result(0, "Fail")]), 226)
    assert (verdict.outcome, verdict.findings[0].code) == (HealthOutcome.INCONCLUSIVE, None)


@pytest.mark.parametrize(
    ("error_id", "severity", "outcome"),
    [
        (20, ErrorSeverity.CONFIG, HealthOutcome.REBOOT),  # a GPU is missing
        (25, ErrorSeverity.RESET, HealthOutcome.INCONCLUSIVE),  # somebody is on the GPU
        (
            26,
            ErrorSeverity.MONITOR,
            HealthOutcome.INCONCLUSIVE,
        ),  # the test lost its host engine, so it examined nothing
        (29, ErrorSeverity.CONFIG, HealthOutcome.CONFIGURATION),
        (30, ErrorSeverity.TRIAGE, HealthOutcome.REBOOT),  # of the link: filed under hardware
        (44, ErrorSeverity.TRIAGE, HealthOutcome.INCONCLUSIVE),  # of DCGM itself
        (52, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),
        (52, ErrorSeverity.NONE, HealthOutcome.REBOOT),  # 0 beside an error is no statement
        (57, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),
        (58, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),
        (80, ErrorSeverity.RESET, HealthOutcome.REPLACE),  # row remapping failed
        (81, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),
        (85, ErrorSeverity.RESET, HealthOutcome.REBOOT),
        (117, ErrorSeverity.CONFIG, HealthOutcome.CONFIGURATION),
        (120, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),
        (122, ErrorSeverity.ISOLATE, HealthOutcome.HEALTHY),  # IMEX: noise
        (125, ErrorSeverity.RESET, HealthOutcome.REBOOT),
        (126, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),
        (127, ErrorSeverity.RESET, HealthOutcome.INCONCLUSIVE),
        (128, ErrorSeverity.RESET, HealthOutcome.REBOOT),
        (129, ErrorSeverity.RESET, HealthOutcome.REBOOT),
        (131, ErrorSeverity.MONITOR, HealthOutcome.HEALTHY),
        (9_999, ErrorSeverity.ISOLATE, HealthOutcome.REBOOT),  # an id of a later release, its severity printed
        (9_999, None, HealthOutcome.INCONCLUSIVE),
        (None, ErrorSeverity.RESET, HealthOutcome.REBOOT),
        (None, None, HealthOutcome.INCONCLUSIVE),
    ],
)
def test_an_error_has_the_outcome_of_its_remedy(
    error_id: int | None, severity: ErrorSeverity | None, outcome: HealthOutcome
) -> None:
    """The same with the severity printed and, where the id is known, looked up."""
    printed = NUMBER[severity] if severity else None
    for number in {printed, None if error_id in ERRORS else printed}:
        text = dcgm4([result(0, "Fail", [warning(error_id, number)])])
        assert verdict_on(text, 226).outcome is outcome


def test_the_worst_finding_decides_and_stands_first() -> None:
    """A note, a setting, a reset and a failed row remapping on one instance."""
    errors = [warning(10, 1), warning(29, 5), warning(85, 6), warning(80, 6)]
    verdict = verdict_on(dcgm4([result(0, "Fail", errors)], software=[result(0, "Fail", [warning(29, 5)])]), 226)
    assert (verdict.outcome, verdict.outcome.exit_code) == (HealthOutcome.REPLACE, 42)
    assert [finding.id for finding in verdict.findings] == [80, 85, 29, 29, 10]


def test_repeated_findings_are_told_once_and_their_number_is_bounded() -> None:
    """A thousand iterations of one error are one finding; many different ones are cut, worst first."""
    same = [result(0, "Fail", [warning(85, 6)])] * 1_000
    assert len(verdict_on(dcgm4(same), 226).findings) == 1
    many = [result(gpu, "Fail", [warning(10, 1, f"note {n}") for n in range(50)]) for gpu in range(8)]
    many.append(result(7, "Fail", [warning(52, 2)]))
    verdict = verdict_on(dcgm4(many), 226)
    assert (len(verdict.findings), verdict.findings[0].id) == (64, 52)


def test_both_gpus_of_a_group_reported_for_one_bad_one_name_the_one_that_something_else_accuses() -> None:
    """DCGM fails every GPU of a group; the kernel's log saw an error on one of them, and that one stands first."""
    both = dcgm4([result(gpu, "Fail", [warning(57, 2)]) for gpu in (0, 1)], gpus=2)
    seen = log(xid(74, 1, ", NVLink: an error of link 3"))
    said = answer(gpu_xml(0), gpu_xml(1))
    evidence = evidence_of(seen, said, expected_gpus=2)
    verdict = judge(examination((both, 205), evidence=evidence), level=2, expected_gpus=2)
    assert [(one.code, one.gpu_index) for one in verdict.findings[:2]] == [
        ("DCGM_FR_CUDA_DBE", 1),
        ("DCGM_FR_CUDA_DBE", 0),
    ]
    assert verdict.summary.startswith("reboot the instance: memory on GPU 1: DCGM_FR_CUDA_DBE")
    assert verdict.summary.endswith("(and 1 more)")


def test_a_long_message_leaves_room_for_how_many_others_there_are() -> None:
    """The summary is bounded, and what is cut off is not the number."""
    results = [result(gpu, "Fail", [warning(52, 2, "m" * 490)]) for gpu in range(3)]
    summary = verdict_on(dcgm4(results), 205).summary
    assert len(summary) == 400
    assert summary.endswith("mmm (and 2 more)")


@pytest.mark.parametrize("severities", [[0], [1], [5], [0, 1, 5], [1, 1]])
@pytest.mark.parametrize("exit_code", [0, 226])
def test_a_fail_with_nothing_but_notes_and_settings_blames_no_hardware(severities: list[int], exit_code: int) -> None:
    """3.3.5 prints Fail for a warning and for a test that never ran; the errors' severities say how grave it is."""
    errors = [warning(9_999, severity) for severity in severities]
    verdict = verdict_on(dcgm4([result(0, "Fail", errors)]), exit_code)
    assert verdict.outcome in (HealthOutcome.HEALTHY, HealthOutcome.INCONCLUSIVE, HealthOutcome.CONFIGURATION)
