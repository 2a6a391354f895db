"""Every shape of the diagnostic's output that is known becomes the same kind of Report."""

from __future__ import annotations

import json

import jsonschema
import pytest

from health_check.parse import parse
from health_check.report import Status
from tests.health_check.diagnostics import dcgm4, output, result, warning


def test_the_banner_before_the_json_is_not_read() -> None:
    """dcgmi prints a sentence before its JSON on some hosts."""
    report = parse(output("dcgm_3.3.9_pass_after_banner.txt"))
    assert (report.dcgm_version, report.driver_version) == ("3.3.9", "550.90.07")
    assert (report.gpu_count, sorted(report.gpus)) == (2, [0, 1])
    assert [entry.test for entry in report.results] == [
        "Denylist",
        "NVML Library",
        "PCIe",
        "PCIe",
        "GPU Memory",
        "GPU Memory",
    ]
    assert {entry.status for entry in report.results} == {Status.PASSED}


def test_a_comma_list_of_gpus_names_each_of_them() -> None:
    """Up to 3.1 one result speaks for several GPUs, and the GPUs are known only from there."""
    report = parse(output("dcgm_3.1_gpu_ids_without_severity.json"))
    failed = [entry for entry in report.results if entry.failed]
    assert [entry.gpus for entry in failed] == [(2, 3)]
    assert (failed[0].errors[0].id, failed[0].errors[0].severity_number) == (52, None)
    assert (sorted(report.gpus), report.gpu_count) == ([0, 1, 2, 3], None)


def test_the_text_of_an_error_is_found_under_either_key() -> None:
    """3.3 sometimes prints the inner text as `warnings`."""
    report = parse(output("dcgm_3.3.5_warning_printed_as_fail.json"))
    assert report.results[0].errors[0].message == "Clocks are being lowered for thermal reasons."


def test_a_real_output_of_dcgm_4_gives_versions_gpus_and_the_error() -> None:
    """DCGM 4.2.3 on a GB10."""
    report = parse(output("dcgm_4.2.3_gb10_real.json"))
    assert (report.dcgm_version, report.driver_version) == ("4.2.3", "580.82.09")
    assert (report.gpu_count, sorted(report.gpus)) == (1, [0])
    assert [(entry.test, entry.gpus, entry.status) for entry in report.results] == [("software", (0,), Status.FAILED)]
    assert (report.results[0].errors[0].id, report.results[0].errors[0].severity_number) == (29, 5)


def test_all_iterations_are_read() -> None:
    """With --iterations a failure of the second round must not hide behind the first."""
    report = parse(output("dcgm_4_iterations_second_fails.json"))
    assert [entry.status for entry in report.results] == [Status.PASSED, Status.FAILED]
    assert report.dcgm_version == "4.2.3"


def test_iterations_inside_the_diagnostic_are_read_too() -> None:
    """The list may also stand under the diagnostic's own key."""
    inner = json.loads(dcgm4([result(0, "Fail", [warning(52, 2)])]))
    report = parse(json.dumps({"DCGM Diagnostic": {"iterations": [inner]}}))
    assert [entry.test for entry in report.results if entry.failed] == ["memory"]


def test_a_runtime_error_is_kept() -> None:
    """DCGM 4 prints a sentence in place of results."""
    report = parse(output("dcgm_4_runtime_error_no_connection.json"))
    assert report.runtime_error is not None
    assert "connection is not valid" in report.runtime_error


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error: Diagnostic could not be run because the Tesla recommended driver is not being used.",
        "{}",
        '{"something": {"else": 1}}',
        "[]",
        output("dcgm_4.2.3_gb10_real.json")[:-20],
        output("dcgm_3.3.9_pass_after_banner.txt")[:-40],
        output("dcgm_4_iterations_second_fails.json")[:-600],
        "[" * 100_000,
        "{" + '"a":{' * 100_000,
        '{"DCGM Diagnostic": {"test_categories": [' + "9" * 10_000 + "]}}",
    ],
    ids=lambda text: repr(text[:30]),
)
def test_text_that_is_no_complete_diagnostic_is_unreadable(text: str) -> None:
    """Half a document would tell half the truth, so nothing of it counts."""
    report = parse(text)
    assert report.unreadable
    assert report.results == ()


def test_a_summary_that_complains_of_something_else_is_a_result() -> None:
    """DCGM 4 puts errors that belong to no GPU into the test's summary."""
    document = json.loads(dcgm4([result(0)]))
    summary = document["DCGM Diagnostic"]["test_categories"][1]["tests"][0]["test_summary"]
    summary |= {"status": "Fail", "warnings": [warning(58, 2)]}
    failed = [entry for entry in parse(json.dumps(document)).results if entry.failed]
    assert [(entry.gpus, entry.errors[0].id) for entry in failed] == [(None, 58)]


def test_a_summary_that_repeats_its_results_is_not_counted_twice() -> None:
    """The summary of a failed test says Fail again."""
    report = parse(dcgm4([result(0, "Fail", [warning(58, 2)])]))
    assert [entry.gpus for entry in report.results if entry.failed] == [(0,)]


def test_a_result_of_a_processor_speaks_for_no_gpu() -> None:
    """Entities of DCGM 4 are also CPUs and switches."""
    entry = result(0) | {"entity_group": "CPU"}
    assert parse(dcgm4([entry])).results[0].gpus == ()


def test_the_composed_outputs_have_the_published_shape() -> None:
    """What these tests compose for DCGM 4 is valid under the schema of DCGM's own documents."""
    schema = json.loads(output("dcgm_diag_schema_v4.json"))
    jsonschema.Draft202012Validator(schema).validate(json.loads(dcgm4([result(0, "Fail", [warning(52, 2)])], gpus=2)))


@pytest.mark.parametrize("number", [-1, 10**12, 1.5, True, "-1", "1e3", "9" * 5_000, None, [1]])
def test_a_number_that_is_none_counts_as_absent(number: object) -> None:
    """An id, a severity or an index out of range is not taken over into the verdict."""
    entry = result(0, "Fail", [warning(52, 2)]) | {"entity_id": number}
    entry["warnings"][0] |= {"error_id": number, "error_severity": number}
    failed = parse(dcgm4([entry])).results[0]
    assert failed.gpus == ()
    assert (failed.errors[0].id, failed.errors[0].severity_number) == (None, None)
