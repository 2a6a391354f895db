"""No output of the diagnostic makes the check fail, and none costs a machine without a reason."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import example, given
from hypothesis import strategies as st

from health_check.remedies import FindingRemedy, HealthOutcome
from health_check.report import DiagnosticReport
from health_check.verdict import InstanceVerdict
from tests.health_check.diagnostics import dcgm4, output, result, warning
from tests.health_check.examinations import SCHEMA, document_of, examination, judged

WORDS = st.sampled_from(
    [
        "DCGM Diagnostic",
        "DCGM GPU Diagnostic",
        "iterations",
        "Overall Result",
        "runtime_error",
        "test_categories",
        "category",
        "tests",
        "name",
        "results",
        "test_summary",
        "status",
        "warnings",
        "warning",
        "error_id",
        "error_severity",
        "gpu_id",
        "gpu_ids",
        "entity_group",
        "entity_id",
        "entity_groups",
        "entities",
        "metadata",
        "version",
        "Driver Version Detected",
        "GPU Device IDs",
        "GPU Device Serials",
        "info",
        "Deployment",
        "Hardware",
        "software",
        "memory",
        "GPU",
        "Pass",
        "Fail",
        "Skip",
        "Not Run",
        "0,1,2",
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5),
    max_leaves=25,
)


@st.composite
def odd_values(draw: st.DrawFn) -> Any:
    """Any value. As a function of its own it has a short representation: the strategies below contain it often."""
    return draw(VALUES)


# Values in the places where they belong, any of which may be nonsense: random JSON alone rarely gets that deep.
ODD = odd_values()
WARNINGS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "error_id": st.integers(-1, 140) | ODD,
            "error_severity": st.integers(-1, 8) | ODD,
            "warning": st.text(max_size=600) | ODD,
        },
    ),
    max_size=3,
)
STATUSES = st.sampled_from(["Pass", "Fail", "Skip", "Not Run", "Warn"])
RESULTS = st.fixed_dictionaries(
    {"status": STATUSES | ODD},
    optional={
        "entity_group": st.sampled_from(["GPU", "CPU"]) | ODD,
        "entity_id": st.integers(-1, 9) | ODD,
        "gpu_ids": st.just("0, 1") | ODD,
        "warnings": WARNINGS | ODD,
    },
)
TESTS = st.fixed_dictionaries(
    {"name": st.sampled_from(["software", "memory"]) | ODD, "results": st.lists(RESULTS, max_size=3) | ODD},
    optional={"test_summary": RESULTS | ODD},
)
CATEGORIES = st.fixed_dictionaries({"category": WORDS | ODD, "tests": st.lists(TESTS, max_size=2) | ODD})
DIAGNOSTICS = st.fixed_dictionaries(
    {},
    optional={
        "DCGM Diagnostic": st.fixed_dictionaries({"test_categories": st.lists(CATEGORIES, max_size=2)}) | ODD,
        "DCGM GPU Diagnostic": st.fixed_dictionaries({"test_categories": st.lists(CATEGORIES, max_size=2)}) | ODD,
        "entity_groups": st.lists(st.just({"entity_group": "GPU", "entities": [{"entity_id": 0}]}) | ODD, max_size=2),
        "metadata": ODD,
        "iterations": ODD,
    },
)
EXIT_CODES = st.integers(0, 255)
EXPECTED = st.none() | st.integers(0, 16)
LEVELS = st.integers(1, 4)
CODES_THAT_ACCUSE = {124, 205}


def check_all_that_must_hold(text: str, exit_code: int, level: int, expected: int | None) -> InstanceVerdict:
    """Everything that holds for every input; returns the verdict for what holds only for some."""
    of = examination((text, exit_code), level=level)
    report = of.report
    verdict = judged(text, exit_code, level=level, expected_gpus=expected)
    jsonschema.Draft202012Validator(SCHEMA).validate(document_of(verdict, of))
    if verdict.outcome in (HealthOutcome.REBOOT, HealthOutcome.REPLACE):
        check_the_accusation(verdict, report, exit_code, expected)
    if verdict.outcome is HealthOutcome.HEALTHY:
        assert any(entry.ran for entry in report.results)
    else:
        assert verdict.findings[0].outcome is verdict.outcome
    return verdict


def check_the_accusation(
    verdict: InstanceVerdict, report: DiagnosticReport, exit_code: int, expected: int | None
) -> None:
    """A reboot or a replacement rests on a failed test, an exit code that accuses, or a GPU that is not there."""
    worst = verdict.findings[0]
    assert worst.remedy in (FindingRemedy.REBOOT_INSTANCE, FindingRemedy.REPLACE_INSTANCE)
    if worst.code == "GPU_LOST":
        assert expected is not None
        assert report.gpu_count is not None
        assert report.gpu_count < expected
    elif exit_code not in CODES_THAT_ACCUSE:
        assert any(entry.failed and entry.test == worst.test for entry in report.results)
    assert exit_code not in (126, 127, 235)


@given(text=st.text(), exit_code=EXIT_CODES, level=LEVELS, expected=EXPECTED)
@example(text='{"DCGM Diagnostic": {}}', exit_code=0, level=1, expected=8)
def test_any_text_gets_a_verdict(text: str, exit_code: int, level: int, expected: int | None) -> None:
    """Text that is no diagnostic at all."""
    check_all_that_must_hold(text, exit_code, level, expected)


@given(value=DIAGNOSTICS | VALUES, exit_code=EXIT_CODES, level=LEVELS, expected=EXPECTED)
def test_any_json_gets_a_verdict(value: Any, exit_code: int, level: int, expected: int | None) -> None:
    """JSON made of the words of a diagnostic, with any value in any place."""
    check_all_that_must_hold(json.dumps(value), exit_code, level, expected)


@given(cut=st.integers(0, 900), garbage=st.text(max_size=20), exit_code=EXIT_CODES)
def test_a_damaged_diagnostic_accuses_nobody_by_itself(cut: int, garbage: str, exit_code: int) -> None:
    """A failed memory test, its document cut anywhere and continued with anything: only the exit code may accuse."""
    text = output("dcgm4_memory_fail_synthetic.json").strip()
    damaged = text[: min(cut, len(text) - 2)] + garbage.replace("}", "")
    verdict = check_all_that_must_hold(damaged, exit_code, 2, 8)
    if exit_code not in CODES_THAT_ACCUSE:
        assert verdict.outcome in (HealthOutcome.INCONCLUSIVE, HealthOutcome.CONFIGURATION)


@given(errors=st.lists(st.tuples(st.integers(0, 140), st.none() | st.integers(0, 7)), max_size=4), code=EXIT_CODES)
def test_a_failure_is_never_healthier_for_one_more_error(errors: list[tuple[int, int | None]], code: int) -> None:
    """The worst finding decides, so a further error can only make it worse."""
    warnings = [warning(error_id, severity) for error_id, severity in errors]
    gravities = [
        check_all_that_must_hold(dcgm4([result(0, "Fail", warnings[:count])], gpus=1), code, 2, 1).outcome.gravity
        for count in range(1, len(warnings) + 1)
    ]
    # 205 alone accuses; once an error of severity ISOLATE explains it, that error's own remedy holds.
    if code != 205:
        assert gravities == sorted(gravities)
