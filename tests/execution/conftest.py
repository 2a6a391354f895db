"""The fixtures of the tests of the execution of commands."""

from tests.lambdas.conftest import functions

__all__ = ["functions"]
