"""Operations of the job API's description, and what each answer is held to.

This module imports schemathesis, which takes seconds, so tests import it in a fixture and not at collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import schemathesis
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
"""Status, kind and shape of an answer are in the description, and none is 5xx."""


def operations(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operations of a description by method and path, such as `GET /api/v2/jobs/{job_id}`."""
    described = (found.ok() for found in schemathesis.openapi.from_dict(dict(description)).get_all_operations())
    return {f"{one.method.upper()} {one.path}": one for one in described}
