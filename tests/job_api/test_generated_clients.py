"""Clients that are generated from docs/openapi.json read the examples of all operations.

tests/sandbox/one_instance/test_generated_views.py reads the answers of a deployment.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_recovery.aws.openapi_document import operation_id
from gpu_recovery.job_api.router import ROUTES

from tests.client_generators.generated import generate, read_back
from tests.markdown import ROOT

UNIONS = {"make_diagnosis", "read_openapi"}
"""Operations with an answer of several kinds, or of any kind, which clients read by their own rules."""


@pytest.mark.slow
def test_generated_clients_read_every_example(tmp_path: Path) -> None:
    """A null beside the values of an enum let a client fail on each healthy attempt."""
    generate(tmp_path)
    examples = json.loads((ROOT / "docs/api_examples.json").read_text(encoding="utf-8"))
    answers = {
        operation_id(route): (next(iter(route.answers.values())), examples[operation_id(route)]["response"])
        for route in ROUTES
        if operation_id(route) not in UNIONS
    }
    assert {name: told for name, told in read_back(tmp_path, answers).items() if told} == {}
    healthy = examples["read_job"]["response"]["attempts"][0] | {"failure_kind": None}
    assert read_back(tmp_path, {"attempt": ("Attempt", healthy)}) == {"attempt": ""}
