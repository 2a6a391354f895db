"""docs/openapi.json, the committed description of the job API."""

from __future__ import annotations

import json

from gpu_recovery.job_api.openapi import document
from gpu_recovery.job_api.router import ROUTES

from tests.markdown import ROOT


def test_the_description_of_the_api_is_fresh() -> None:
    """docs/openapi.json says what the table of routes says; `python docs/generate_openapi.py` rewrites it."""
    committed = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert committed == json.dumps(document(ROUTES), indent=1, sort_keys=True) + "\n"
