"""docs/openapi.json, the committed description of the job API, and the file that the function serves."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import Any

import pytest
from gpu_recovery.aws.openapi_document import operation_id
from gpu_recovery.job_api.job_spec import parse_spec
from gpu_recovery.job_api.models.jobs import JobRow
from gpu_recovery.job_api.models.responses import RESPONSES
from gpu_recovery.job_api.router import OPENAPI_FILE, ROUTES
from gpu_recovery.job_api.validation import body_of
from gpu_recovery.wire.jobs import ROW_FIELDS

from tests.markdown import ROOT

PROSE_MIN = 10
"""Characters of a summary or a description at least."""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The committed document."""
    found: dict[str, Any] = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    return found


def test_the_description_of_the_api_is_fresh() -> None:
    """Both files say what routes, models and examples say; `python docs/generate_openapi.py` rewrites them."""
    command = [sys.executable, str(ROOT / "docs/generate_openapi.py"), "--check"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_the_function_serves_the_committed_document(described: dict[str, Any]) -> None:
    """In another notation."""
    assert json.loads(OPENAPI_FILE.read_text(encoding="utf-8")) == described


def test_the_document_has_the_version_of_the_package(described: dict[str, Any]) -> None:
    """An issue report names one version."""
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert (described["openapi"], described["info"]["version"]) == ("3.1.0", package)


def test_every_operation_is_described_for_a_reader(described: dict[str, Any]) -> None:
    """By a known tag, a summary and a description; each part of a path has a pattern."""
    tags = {tag["name"] for tag in described["tags"]}
    used = set()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            name = f"{method} {path}"
            assert len(operation["summary"]) >= PROSE_MIN and len(operation["description"]) >= PROSE_MIN, name
            used |= set(operation["tags"])
            for parameter in operation.get("parameters", []):
                assert parameter["in"] != "path" or parameter["schema"]["pattern"], name
                assert parameter["in"] == "path" or parameter["description"], name
    assert used == tags


def test_every_operation_has_an_example_of_its_bodies() -> None:
    """Each is read by its model without a rest."""
    examples = json.loads((ROOT / "docs/api_examples.json").read_text(encoding="utf-8"))
    assert set(examples) == {operation_id(route) for route in ROUTES}
    for route in ROUTES:
        example = examples[operation_id(route)]
        model = RESPONSES[next(iter(route.answers.values()))]
        read = model.model_validate(example["response"]).model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert read == example["response"], operation_id(route)
        assert ("request" in example) == bool(route.takes), operation_id(route)
        if route.takes == "JobSpec":
            parse_spec(example["request"])
        elif route.takes:
            body_of(json.dumps(example["request"]), route.takes)


def test_a_property_that_may_be_null_says_so_beside_its_values(described: dict[str, Any]) -> None:
    """`nullable` beside an `enum` without null let generated clients fail on each healthy attempt."""
    assert "nullable" not in json.dumps(described)
    schemas = described["components"]["schemas"]
    assert {"type": "null"} in schemas["Attempt"]["properties"]["failure_kind"]["anyOf"]
    assert {"type": "null"} in schemas["Diagnosis"]["properties"]["next_probe"]["anyOf"]


def test_a_row_of_jobs_has_the_fields_of_its_view() -> None:
    """The model spells the fields out, in their order."""
    assert tuple(JobRow.model_fields) == ROW_FIELDS
