"""Derives findings from the report of the diagnostic. Pure; never raises.

Rules: a test that did not run is not passed. A setting of the host (CONFIG) costs no reboot. A lost connection costs
no instance. Without a readable report there is no conclusion.
"""

from __future__ import annotations

from collections.abc import Iterator

from health_check import remedies
from health_check.remedies import ErrorSeverity, FindingRemedy, HealthOutcome
from health_check.report import DiagnosticError, DiagnosticReport, DiagnosticResult
from health_check.verdict import DCGM, MESSAGE_MAX, CheckFinding, by_check, counted

_CONTRADICTED = "the exit code reports an error, but every test in the output passed"
_HOST_ENGINE_LATE = (
    "the host engine of the check was killed, did not accept a connection in time, or lost the connection"
)


def findings_of(
    report: DiagnosticReport,
    exit_code: int,
    *,
    level: int,
    expected_gpus: int | None,
    gpus: frozenset[int] | None = None,
    late: bool = False,
    driver_late: bool = False,
) -> list[CheckFinding]:
    """Return the findings of one run of `dcgmi diag -r <level>`.

    Args:
        report: what the diagnostic reported.
        exit_code: the exit code of dcgmi.
        level: the level of the diagnostic.
        expected_gpus: how many GPUs the instance should have; None if unknown.
        gpus: the GPUs that were examined; None for all. With some GPUs only, the report is no evidence about their
            number.
        late: whether the host, and no setting and no GPU, may account for the exit code (`ProcessRun.late`).
        driver_late: whether a slow host may have kept nvidia-smi from answering (`DriverReport.late`).
    """
    lost = exit_code == remedies.CONNECTION_NOT_VALID or report.lost_connection
    if late and lost:
        return [by_check("host engine", "HOST_ENGINE_LATE", FindingRemedy.RESTART_APP, _HOST_ENGINE_LATE)]
    if exit_code in remedies.NEVER_STARTED:
        return [_by_exit_code(exit_code, report)]
    if report.runtime_error and report.lost_connection:
        code = remedies.EXITS[remedies.CONNECTION_NOT_VALID].name
        return [by_check("host engine", code, FindingRemedy.FIX_CONFIGURATION, report.runtime_error)]
    findings = [finding for result in report.results for finding in _of_result(result)]
    if not _explains(report, exit_code):
        findings.append(_by_exit_code(exit_code, report, late=late))
    if gpus is None:
        findings += _missing_gpus(report, expected_gpus, driver_late=driver_late)
    if all(finding.outcome is HealthOutcome.HEALTHY for finding in findings):
        findings += _not_examined(report, level, report.gpus if gpus is None else gpus)
    return findings


def contradicts_itself(report: DiagnosticReport, exit_code: int) -> bool:
    """Return whether the exit code reports an error of a test although the document is whole and no test failed.

    Such a pair proves neither a fault nor health. facebookresearch/gcm has recorded it with exit code 205 (DCGM 3).
    """
    is_whole = not report.unreadable and not report.runtime_error and any(result.ran for result in report.results)
    failed = any(result.failed for result in report.results)
    return exit_code in (remedies.NVVS_ERROR, remedies.NVVS_ISOLATE_ERROR) and is_whole and not failed


def summary_of_health(report: DiagnosticReport, level: int) -> str:
    """Return what ran, for the summary of a check without findings to repair."""
    tests = len({result.test for result in report.results if result.ran})
    gpus = f" on {counted(report.gpu_count, 'GPU')}" if report.gpu_count else ""
    return f"{counted(tests, 'test')} of level {level} ran{gpus} and found nothing to repair"


def _of_result(result: DiagnosticResult) -> Iterator[CheckFinding]:
    """Yield one finding per error and GPU.

    A failure without an error may have any cause, also a test that never ran.
    """
    errors = result.errors
    if result.failed and not errors:
        errors = (DiagnosticError(None, None, result.info or "the test failed without an error text"),)
    for error in errors:
        severity = remedies.severity_of(error.id, error.severity_number)
        remedy = remedies.remedy_of(error.id, severity)
        # The memory test may pass although it could not allocate memory, and then it has examined none. Any other
        # error of a test that did not fail is a note.
        if not result.failed and not (result.ran and error.id == remedies.MEMORY_ALLOC):
            remedy = FindingRemedy.IGNORE
        known = remedies.ERRORS.get(error.id) if error.id is not None else None
        for gpu in result.gpus or (None,):
            yield CheckFinding(
                source=DCGM,
                test=result.test,
                gpu_index=gpu,
                code=known.name if known else None,
                id=error.id,
                severity=severity,
                remedy=remedy,
                message=error.message or (known.name if known else "an error without a text"),
            )


def _explains(report: DiagnosticReport, exit_code: int) -> bool:
    """Return whether the test results account for the exit code, so that it adds no information."""
    failed = [result for result in report.results if result.failed]
    if exit_code == remedies.NVVS_ERROR:
        return bool(failed)
    if exit_code == remedies.NVVS_ISOLATE_ERROR:
        errors = [error for result in failed for error in result.errors]
        return any(remedies.severity_of(error.id, error.severity_number) is ErrorSeverity.ISOLATE for error in errors)
    return exit_code == 0


def _missing_gpus(report: DiagnosticReport, expected_gpus: int | None, *, driver_late: bool) -> Iterator[CheckFinding]:
    if expected_gpus is None or report.gpu_count is None or report.gpu_count >= expected_gpus:
        return
    if report.gpu_count == 0 and report.driver_version is None:
        # Neither a GPU nor a driver: the container has no driver libraries, which says nothing about the GPUs.
        # If nvidia-smi gave no answer because of the host, the libraries may be there and the driver may be late.
        remedy = FindingRemedy.RESTART_APP if driver_late else FindingRemedy.FIX_CONFIGURATION
        message = f"no driver and none of {expected_gpus} GPUs is visible to the check"
        yield by_check("gpu count", "NO_GPU_VISIBLE", remedy, message)
        return
    message = f"{report.gpu_count} of {expected_gpus} GPUs are present"
    yield by_check("gpu count", "GPU_LOST", FindingRemedy.REBOOT_INSTANCE, message)


def _not_examined(report: DiagnosticReport, level: int, wanted: frozenset[int]) -> Iterator[CheckFinding]:
    """Yield a finding for each reason for which a diagnostic without failures counts as not passed."""
    ran = [result for result in report.results if result.ran and result.gpus != ()]
    hardware = [result for result in ran if result.touches_hardware]
    if report.unreadable or report.runtime_error:
        message = report.unreadable or report.runtime_error or ""
        yield by_check("diagnostic", "DIAGNOSTIC_UNREADABLE", FindingRemedy.CONTACT_SUPPORT, message)
    elif not ran or (level > 1 and not hardware):
        kind = "test" if level == 1 else "hardware test"
        message = f"no {kind} of a GPU ran, and a skipped test does not count as passed"
        yield by_check("diagnostic", "NOTHING_RAN", FindingRemedy.CONTACT_SUPPORT, message)
    elif level > 1 and not any(result.gpus is None for result in hardware):
        examined = {gpu for result in hardware for gpu in result.gpus or ()}
        for gpu in sorted(wanted - examined):
            message = "no hardware test ran on it"
            yield by_check("diagnostic", "GPU_NOT_EXAMINED", FindingRemedy.CONTACT_SUPPORT, message, gpu)


def _by_exit_code(exit_code: int, report: DiagnosticReport, *, late: bool = False) -> CheckFinding:
    known = remedies.exit_meaning(exit_code, late=late)
    detail = f": {report.runtime_error}" if report.runtime_error else ""
    message = f"{known.meaning} (exit code {exit_code}){detail}"[:MESSAGE_MAX]
    if contradicts_itself(report, exit_code):
        return by_check("diagnostic", known.name, FindingRemedy.RESTART_APP, f"{_CONTRADICTED} (exit code {exit_code})")
    finding = by_check("diagnostic", known.name, known.remedy, message)
    if exit_code == remedies.NVVS_ISOLATE_ERROR:
        return CheckFinding(DCGM, finding.test, None, known.name, None, ErrorSeverity.ISOLATE, known.remedy, message)
    return finding
