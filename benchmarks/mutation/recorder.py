"""Pytest plugin that writes the processor time of each test that passed. MUTATION_SECONDS names the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.processor_time import PROPERTY

_seconds: dict[str, float] = {}
_failed = set[str]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the time of a test, in the process that distributes the tests."""
    if report.outcome != "passed":
        _failed.add(report.nodeid)
    for name, value in report.user_properties:
        if name == PROPERTY:
            _seconds[report.nodeid] = value[0]  # type: ignore[index]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the file."""
    if not hasattr(session.config, "workerinput"):
        passed = {name: seconds for name, seconds in _seconds.items() if name not in _failed}
        Path(os.environ["MUTATION_SECONDS"]).write_text(json.dumps(passed))
