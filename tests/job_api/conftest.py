"""The fixtures of the tests of the job API."""

from tests.lambdas.conftest import functions

__all__ = ["functions"]
