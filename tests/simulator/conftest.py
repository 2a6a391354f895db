"""`--update-transcripts` rewrites the golden transcripts, to be read as a diff."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-transcripts", action="store_true", help="rewrite tests/transcripts/*.txt")


@pytest.fixture
def update_transcripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("update_transcripts", False))
