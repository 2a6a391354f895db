"""The fixtures of the tests of the job API."""

from __future__ import annotations

import pytest

from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions, functions

__all__ = ["api", "functions"]


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)
