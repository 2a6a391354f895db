"""Libraries that take long to import, or much memory: tests import them in fixtures and functions, not at collection.

Every worker collects all tests, so an import at the top of a test module is paid by each worker in each run.
"""

from __future__ import annotations

import sys

import pytest

HEAVY = ("aws_cdk", "cfnlint", "jsii", "matplotlib", "ministack", "numpy", "ray", "schemathesis", "torch")
"""Libraries that no test module imports at collection."""
COLLECTED = pytest.StashKey[frozenset[str]]()
"""Libraries of HEAVY that were imported when the collection ended."""
EXEMPT = {"tests/ray_runner": frozenset({"ray", "numpy"})}
"""Beginnings of paths whose tests need a library anyway. `make test` collects them in a run of their own."""


class HeavyImports:
    """Plugin that remembers which heavy libraries the collection has imported."""

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        exempt = {
            library
            for beginning, libraries in EXEMPT.items()
            if any(item.nodeid.startswith(beginning) for item in session.items)
            for library in libraries
        }
        session.config.stash[COLLECTED] = frozenset(HEAVY) & sys.modules.keys() - exempt
