"""Route of diagnoses: diagnose an attempt of a job, a case or a log in the request.

A diagnosis says what failed, where, and with which confidence.
"""

from __future__ import annotations

from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse


def make_diagnosis(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a new diagnosis of the attempt that the body names, from stored evidence, or of the case in the body.

    For a log in the body the answer is its findings by line. Neither a case nor a log is stored.

    Raises:
        ApiError: 400, the body is not JSON, has an unknown field, or is no case; 404, there is no such job, no such
            attempt, or no stored plan of the attempt.
    """
    from gpu_recovery.job_api.diagnosis_answers import answer  # noqa: PLC0415

    return answer(dependencies, request)


ROUTES = (
    Route(
        "POST",
        "/api/v2/diagnoses",
        make_diagnosis,
        "Diagnose an attempt, a case or a log",
        {200: "DiagnosisOrLogFindings"},
        takes="DiagnosisRequest",
        needs_body=True,
        refuses=(404,),
    ),
)
